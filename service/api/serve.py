"""Running the server: ``serve(settings)`` until it is told to stop."""

from __future__ import annotations

import gc
from collections.abc import Callable

import uvicorn

from service.api.app import create_app
from service.graphs.data_roots import check_roots
from service.jobs.plan import Planner, plan_job
from service.logs import configure_logging
from service.settings import ServiceSettings

__all__ = ["serve"]

# Event streams have no end of their own; they are cut so that a stop does not wait for their readers.
CLOSE_STREAMS_AFTER_S = 3


def serve(settings: ServiceSettings, *, plan: Planner = plan_job, announce: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGTERM or SIGINT; jobs that run then go on, and the next server adopts them.

    ``announce`` is called when nothing stands in the way any more. ``UsageError`` when another server has the home, a
    data root is no folder, or the address is open to others and there is no API key.
    """
    configure_logging(settings.log_level)
    check_roots(settings.data_roots)
    app = create_app(settings, plan=plan)
    app.state.scheduler.acquire()
    # What is loaded by now stays: no collection looks through it again.
    gc.collect()
    gc.freeze()
    announce()
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=CLOSE_STREAMS_AFTER_S,
    )
