"""``rgrl backup``, ``rgrl restore`` and ``rgrl gc``: the home of a server, kept safe and kept small."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from preprocessing.errors import UsageError
from service.cli.options import DEFAULT_HOME, DEFAULT_SERVER, AsJson, Home, Key, Server, connect
from service.cli.output import print_facts, print_json, print_rows
from service.sizes import size_text

__all__ = ["backup", "gc", "restore"]


def backup(
    dest: Annotated[
        Path,
        typer.Argument(
            metavar="DEST", help="A folder outside of the home; an earlier backup there is brought up to date."
        ),
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read what DEST has already, too, and copy again what is damaged.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="DEST may hold the backup of another home, which is gone then.")
    ] = False,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Copy job store, graphs, embedding sets and logs of a home, while its server runs; only what is new is copied.

    A kill at any moment leaves the backup before. API keys are in it as hashes: they let in once it is restored.
    """
    from service.settings import ServiceSettings
    from service.upkeep.backup import backup as run

    with _progress("backup", "folders") as progress:
        made = run(ServiceSettings(home=home), dest, verify=verify, replace=replace, progress=progress)
    _tell(made, as_json)


def restore(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A folder that rgrl backup made.")],
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Make a home of a backup, of this version or an earlier one; every file is compared with its hash.

    The home is empty or not there; the rows go where RGRL_DATABASE_URL says. Killed, the same command goes on.
    """
    from service.settings import ServiceSettings
    from service.upkeep.restore import restore as run

    with _progress("restore", "files") as progress:
        made = run(ServiceSettings(home=home), source, progress=progress)
    _tell(made, as_json)


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would go, and how many bytes.")] = False,
    unaliased_days: Annotated[
        float | None,
        typer.Option(min=0, help="Delete embedding sets older than so many days, too, that no alias names."),
    ] = None,
    home: Home = DEFAULT_HOME,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Remove what nothing needs: files without a row, half-made artefacts, checkpoints of ended jobs.

    It may run beside the server: what an unfinished job uses stays. Embedding sets are deleted by the server itself,
    if one runs on the home.
    """
    from service.client import ApiError
    from service.errors import ConflictError
    from service.settings import ServiceSettings
    from service.store import Store
    from service.upkeep.backup import no_home
    from service.upkeep.garbage import check_writable, collect, old_embeddings, remove_embeddings

    settings = ServiceSettings(home=home)
    if not settings.jobs.is_dir():
        raise no_home(settings)
    check_writable(settings)

    def by_server(identity: str) -> None:
        with connect(server, key) as client:
            try:
                client.delete_embedding(identity)
            except ApiError as error:
                if error.status == 409:
                    raise ConflictError(error.problem) from error
                if error.status == 404:
                    raise UsageError(
                        "the server that was asked has not the embedding sets of this home",
                        given=server,
                        expected="the server that runs on the home",
                        remedy="name it with --server or RGRL_SERVER",
                    ) from error
                raise

    store = Store(settings)
    try:
        found = [] if unaliased_days is None else old_embeddings(store, settings, unaliased_days)
        if not dry_run:
            found = remove_embeddings(found, store, settings, by_server)
        found += collect(store, settings, dry_run=dry_run)
    finally:
        store.close()
    total = sum(one.bytes for one in found)
    if as_json:
        items = [{"path": str(one.path), "why": one.why, "bytes": one.bytes} for one in found]
        print_json({"dry_run": dry_run, "bytes": total, "items": items})
        return
    if found:
        print_rows(("bytes", "what", "why"), ((size_text(one.bytes), one.path, one.why) for one in found))
    print(f"{size_text(total)} in {len(found)} places {'would be' if dry_run else 'were'} removed")


@contextmanager
def _progress(stage: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Progress bars, as a stage's."""
    from service.client.progress import ProgressView

    with ProgressView() as view:
        yield lambda done, total: view.show("progress", stage, {"unit": unit, "done": done, "total": total})


def _tell(made: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    outside = made.pop("outside")
    print_facts(made)
    for path in outside:
        print(f"not in the backup, for it lies outside of the home: {path}", file=sys.stderr)
