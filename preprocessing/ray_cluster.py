"""Ray, on this machine or the cluster of ``RAY_ADDRESS``, for as long as a stage needs it."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from preprocessing.again import goes_on
from preprocessing.errors import Interrupted, NotNowError

__all__ = ["connected"]

# Read by Ray at import or start: no phoning home, no metrics endpoint, no refusal of a container's small /dev/shm, and
# workers at the priority of the stage, where Ray would give them the lowest but four.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",
}
OBJECT_STORE_BYTES = 80 << 20
"""About Ray's smallest: nothing of size travels through the object store."""


@contextlib.contextmanager
def connected(environment: Mapping[str, str] = MappingProxyType({})) -> Iterator[Any]:
    """The module ``ray``, connected; ``environment`` holds more variables for it, those that are set already stay.

    A Ray that this process is connected to already is used and left as it is. Any other is gone afterwards: one
    started here with its processes and files, the cluster of ``RAY_ADDRESS`` by disconnecting.
    """
    for name, value in {**ENVIRONMENT, **environment}.items():
        os.environ.setdefault(name, value)
    import ray

    with contextlib.nullcontext() if ray.is_initialized() else _started(ray):
        yield ray


@contextlib.contextmanager
def _started(ray: Any) -> Iterator[None]:
    # Unix sockets have short paths: the session lives under /tmp, not under a long work directory.
    session = tempfile.TemporaryDirectory(prefix="rgrl-ray-", dir="/tmp", ignore_cleanup_errors=True)
    options: dict[str, Any] = {"address": os.environ.get("RAY_ADDRESS", "local")}
    if options["address"] == "local":
        options |= {
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
            "_temp_dir": session.name,
        }
    with session, _interruptible() as set_handlers:
        try:
            try:
                ray.init(log_to_driver=False, logging_level="ERROR", **options)
            except ConnectionError as error:
                raise NotNowError(
                    "the Ray cluster does not answer",
                    given=f"RAY_ADDRESS={options['address']}",
                    expected="the address of a cluster that runs, and its token where it asks for one",
                    remedy="start the cluster, correct the address, set RAY_AUTH_TOKEN (or RAY_AUTH_MODE=disabled "
                    "where the cluster was started so), or unset RAY_ADDRESS to use this machine",
                ) from error
            set_handlers()
            yield
        finally:
            ray.shutdown()


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[], None]]:
    """Raise ``Interrupted`` for SIGTERM and SIGINT, whatever Ray does to their handlers.

    ``ray.init`` puts an exit in the place of SIGTERM's, so the answer sets the handlers again. Waiting for Ray lets
    KeyboardInterrupt through and swallows what any other handler raises.
    """
    numbers = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.getsignal(number) for number in numbers}

    def set_handlers() -> None:
        for number in numbers:
            signal.signal(number, signal.default_int_handler)

    set_handlers()
    try:
        yield set_handlers
    except (KeyboardInterrupt, SystemExit) as error:
        raise Interrupted("interrupted", remedy=goes_on("it continues")) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
