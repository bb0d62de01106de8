"""Which of several media types an ``Accept`` header asks for (RFC 9110, 12.5.1)."""

from __future__ import annotations

from collections.abc import Sequence

from service.errors import NotAcceptableError

__all__ = ["ARROW_STREAM", "chosen", "wants_arrow"]

ARROW_STREAM = "application/vnd.apache.arrow.stream"


def chosen(accept: str, offered: Sequence[str]) -> str:
    """The best liked of ``offered``, of those liked alike the first; ``NotAcceptableError`` if none is liked.

    The most specific range that a type is in says how much it is liked, from 0 to 1.
    """
    ranges = dict(_range(part) for part in accept.split(",") if part.strip())
    liked = {name: _liking(ranges, name) for name in offered}
    best = max(offered, key=lambda name: liked[name])
    if ranges and liked[best] <= 0:
        raise NotAcceptableError(
            "this answer comes in no media type that was asked for",
            expected=", ".join(offered),
            remedy="name one of them in Accept",
        )
    return best


def wants_arrow(accept: str) -> bool:
    """Whether to answer with an Arrow stream, and not with JSON; ``NotAcceptableError`` where neither was asked for."""
    return chosen(accept, ("application/json", ARROW_STREAM)) == ARROW_STREAM


def _liking(ranges: dict[str, float], name: str) -> float:
    kind = name.split("/")[0]
    return next((ranges[wanted] for wanted in (name, f"{kind}/*", "*/*") if wanted in ranges), 0.0)


def _range(part: str) -> tuple[str, float]:
    name, *parameters = (piece.strip().lower() for piece in part.split(";"))
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            try:
                return name, float(value)
            except ValueError:
                return name, 0.0
    return name, 1.0
