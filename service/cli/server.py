"""``rgrl serve``, ``rgrl doctor`` and ``rgrl demo``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.options import DEFAULT_HOME, AsJson, Home, validated
from service.cli.output import print_json, print_rows

__all__ = ["demo", "doctor", "serve"]


def serve(
    home: Home = DEFAULT_HOME,
    host: Annotated[str, typer.Option(envvar="RGRL_HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="RGRL_PORT", min=1, max=65535, help="Port to listen on.")] = 8000,
    data_root: Annotated[
        list[Path] | None, typer.Option(help="A folder that requests may name paths under; repeatable.")
    ] = None,
    data_uri: Annotated[
        list[str] | None, typer.Option(help="A URI, as s3://bucket/graphs, that requests may name below; repeatable.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond this machine although there is no API key.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """API, scheduler and page on one port, until Ctrl-C; jobs that run then go on, and the next start adopts them."""
    import structlog

    from service.search.warm_start import begin_reading
    from service.settings import ServiceSettings

    given: dict[str, Any] = {"home": home, "host": host, "port": port}
    if data_root:
        given["data_roots"] = data_root
    if data_uri:
        given["data_uris"] = data_uri
    if insecure:
        given["insecure"] = True
    settings = validated(ServiceSettings, given)
    # Beside the imports that are left, which take the processor's time and not the disk's.
    begin_reading(settings)
    from service.api.serve import serve as run

    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def announce() -> None:
        if as_json:
            print_json({"url": url, "home": str(settings.home)})
        elif sys.stdout.isatty():
            print(f"rgrl serves {url} from {settings.home}; stop it with Ctrl-C")
        else:
            # Often into the file that the log goes to: as one of its lines.
            structlog.get_logger(__name__).info("serving", url=url, home=str(settings.home))
        sys.stdout.flush()

    run(settings, announce=announce)


def doctor(home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """What this machine offers, what is missing, and how to get it; ends with 1 if something needed is missing."""
    from service.cli.doctor import examine

    findings = examine(home)
    if as_json:
        print_json([vars(finding) for finding in findings])
    else:
        print_rows(("", "what", "found", "to do"), ((f.state, f.name, f.detail, f.remedy) for f in findings))
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)


def demo(
    graph: Annotated[
        str | None, typer.Option(help="A path (.npz, edge table, folder of tables) or PyG name; default: digits.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="The graph's label column; default: `label` or `y`.")] = None,
    keep: Annotated[
        bool | None, typer.Option("--keep/--no-keep", help="Leave the server up; default: if this is a terminal.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The whole pipeline on real data, through a real server."""
    from service.cli.demo import run

    raise typer.Exit(run(graph, label, keep=sys.stdout.isatty() if keep is None else keep, as_json=as_json))
