"""Running the server: ``serve(settings)`` until it is told to stop."""

from __future__ import annotations

import uvicorn

from service.api.app import create_app
from service.jobs.plan import Planner, plan_job
from service.logs import configure_logging
from service.settings import ServiceSettings

__all__ = ["serve"]

# Event streams have no end of their own; they are cut so that a stop does not wait for their readers.
CLOSE_STREAMS_AFTER_S = 3


def serve(settings: ServiceSettings, *, plan: Planner = plan_job) -> None:
    """Serve until SIGTERM or SIGINT; jobs that run then go on, and the next server adopts them.

    ``UsageError`` when another server has the home, or the address is open to others and there is no API key.
    """
    configure_logging(settings.log_level)
    app = create_app(settings, plan=plan)
    app.state.scheduler.acquire()
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=CLOSE_STREAMS_AFTER_S,
    )
