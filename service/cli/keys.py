"""``rgrl keys``: API keys of the server whose home is here."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from preprocessing.errors import UsageError
from service.cli.options import DEFAULT_HOME, AsJson, Home
from service.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from service.store import Store

__all__ = ["app"]

app = typer.Typer(help="API keys of a server, on the machine it runs on.", no_args_is_help=True, rich_markup_mode=None)


class Scope(StrEnum):
    """What a key allows; each includes those before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, or what for.")],
    scope: Annotated[Scope, typer.Option(help="What it allows.")] = Scope.READ,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Make a key; it is shown once and cannot be read again."""
    from service.settings import ServiceSettings

    new = not ServiceSettings(home=home).jobs.exists()
    key, token = _store(home, made=True).create_key(name, [scope.value])
    if new:
        print(f"made the home {home.absolute()}: a server has to be given it, too", file=sys.stderr)
    if as_json:
        print_json({"id": key.id, "name": key.name, "scopes": key.scopes, "key": token})
    else:
        print(token)


@app.command("list")
def list_keys(home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """Every key, without its secret."""
    keys = _store(home).list_keys()
    if as_json:
        fields = ("id", "name", "scopes", "created_at", "revoked_at")
        print_json([{field: getattr(key, field) for field in fields} for key in keys])
        return
    print_rows(
        ("id", "name", "scopes", "created", "revoked"),
        ((key.id, key.name, " ".join(key.scopes), key.created_at, key.revoked_at) for key in keys),
    )


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key's id, or its name if no other live key has it.")],
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """End a key for good; a running server notices within a second."""
    store = _store(home)
    identity = _identity(store, key)
    store.revoke_key(identity)
    if not store.list_keys(live=True):
        print(
            "no key is left: a server that listens on this machine alone (or with --insecure) now answers whoever "
            "reaches it, another refuses every request",
            file=sys.stderr,
        )
    if as_json:
        print_json({"revoked": identity})
    else:
        print(f"revoked {identity}")


def _identity(store: Store, ref: str) -> str:
    """The id of the live key that has this name, where ``ref`` is no id itself; ``UsageError`` if several have it."""
    live = store.list_keys(live=True)
    named = [key.id for key in live if key.name == ref]
    if not named or ref in [key.id for key in live]:
        return ref
    if len(named) > 1:
        raise UsageError(
            f"{len(named)} live keys have this name",
            given=ref,
            expected=f"the id of one: {', '.join(named)}",
            remedy="rgrl keys list tells when each was made",
        )
    return named[0]


def _store(home: Path, *, made: bool = False) -> Store:
    """The store of a home, which only ``made`` makes where there is none; else ``UsageError``."""
    from service.settings import ServiceSettings
    from service.store import Store

    settings = ServiceSettings(home=home)
    if not made and not settings.jobs.exists():
        raise UsageError(
            "there is no home here",
            given=str(settings.home),
            expected="the home of a server, as rgrl serve or rgrl keys create makes it",
            remedy="name it with --home or RGRL_HOME",
        )
    return Store(settings)
