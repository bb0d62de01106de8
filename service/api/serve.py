"""Running the server: ``serve(settings)`` until it is told to stop."""

from __future__ import annotations

import gc
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import uvicorn

from preprocessing.errors import UsageError
from service.api.app import create_app
from service.api.protocol import BoundedProtocol, Bounds
from service.graphs.data_roots import check_roots
from service.jobs.plan import Planner, plan_job
from service.logs import configure_logging
from service.settings import ServiceSettings

__all__ = ["listen", "serve"]

# Event streams have no end of their own; they are cut so that a stop does not wait for their readers.
CLOSE_STREAMS_AFTER_S = 3


def serve(settings: ServiceSettings, *, plan: Planner = plan_job, announce: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGTERM or SIGINT; jobs that run then go on, and the next server adopts them.

    ``announce`` is called when nothing stands in the way any more. ``UsageError`` when another server has the home, a
    data root is no folder, the address is open to others and there is no API key, or it cannot be listened on.
    """
    configure_logging(settings.log_level, settings.log_format)
    check_roots(settings.data_roots)
    # Before there is a home: a refused start makes none.
    with listen(settings.host, settings.port) as listening:
        _serve(settings, plan, listening, announce)


def _serve(settings: ServiceSettings, plan: Planner, listening: socket.socket, announce: Callable[[], None]) -> None:
    app = create_app(settings, plan=plan)
    app.state.scheduler.acquire()
    # What is loaded by now stays: no collection looks through it again.
    gc.collect()
    gc.freeze()
    bounds = Bounds(_connections(settings.max_connections), settings.body_timeout_s)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        # Called as a class is.
        http=partial(BoundedProtocol, bounds=bounds),  # type: ignore[arg-type]
        ws="none",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=CLOSE_STREAMS_AFTER_S,
    )
    announce()
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])


def _connections(wanted: int) -> int:
    """How many there may be: jobs, indexes and the store need as many files again."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed < 2 * wanted:
        allowed = 2 * wanted if most == resource.RLIM_INFINITY else min(most, 2 * wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    return min(wanted, allowed // 2)


def listen(host: str, port: int) -> socket.socket:
    """A socket that clients of the server connect to; ``UsageError`` where the address cannot be had."""
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError(
            f"the server cannot listen on this address: {error.strerror or error}",
            given=f"{host}, port {port}",
            expected="an address of this machine, and a port that nothing else listens on",
            remedy="name another --host or --port, or stop what listens there",
        ) from error
    # Connections inherit it. The event loop sets it only on sockets that it has made itself, and an answer is two
    # writes: head and body, of which the second would wait for the client's delayed acknowledgement, 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
