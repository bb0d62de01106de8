"""Blocks of code in the pages, and what comments above them say of how they are run.

A block of ``sh``, ``console`` or ``python`` is run in the order of the page. ``<!-- run: not, because … -->`` above it
says why it cannot be, ``<!-- run: slow -->`` that only the slow tests run it, ``<!-- run: before: … -->`` what a reader
has done or has to hand by then. In ``console``, lines that begin with ``$ `` are run and those below them are what is
seen, in which ``…`` stands for anything.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md")))
LANGUAGES = ("sh", "console", "python")
_FENCE = re.compile(r"```(?P<language>\S*)$")
_COMMENT = re.compile(r"<!-- run: (?P<what>.*) -->$")


@dataclass
class Block:
    """``line`` is the number of its fence's line."""

    page: str
    line: int
    language: str
    text: str
    why_not: str | None = None
    slow: bool = False
    before: list[str] = field(default_factory=list)

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """Every fenced block of the page, with the comments right above it."""
    found: list[Block] = []
    comments: list[str] = []
    lines = iter(enumerate(read(page).splitlines(), 1))
    for number, line in lines:
        comment, fence = _COMMENT.fullmatch(line), _FENCE.fullmatch(line)
        if comment is not None:
            comments.append(comment["what"])
        elif fence is not None:
            text = []
            for _, inside in lines:
                if inside == "```":
                    break
                text.append(inside)
            block = Block(page, number, fence["language"], "\n".join(text) + "\n")
            for what in comments:
                _tell(block, what)
            found.append(block)
            comments = []
        elif comments:
            raise AssertionError(f"{page}:{number}: no block follows the comment on how to run it")
    return found


def _tell(block: Block, what: str) -> None:
    if what == "slow":
        block.slow = True
    elif what.startswith("before: "):
        block.before.append(what.removeprefix("before: "))
    elif what.startswith("not, because "):
        block.why_not = what
    else:
        raise AssertionError(f"{block.place}: what does this comment mean? {what}")


def commands(text: str) -> list[list[str]]:
    """The words of every ``rgrl`` command in lines of shell."""
    found = []
    for line in text.splitlines():
        part = re.search(r"(?:^|\$ |&& |\(|=\S* )(rgrl .*)$", line)
        if part is not None:
            words = shlex.split(part[1].split(" | ")[0].rstrip(")"), comments=True)
            found.append(words[1:])
    return found


def spans(page: str) -> list[str]:
    """Code inside of sentences."""
    prose = re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)
    return [re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", prose)]
