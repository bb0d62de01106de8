"""``python -m service.health [URL]``: a container's health check, which needs no shell and no curl.

Ends with 0 if the URL answers 200, and else with 1 and a line that says what came instead.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request

__all__ = ["main"]

READY = "http://127.0.0.1:8000/readyz"
TIMEOUT_S = 4.0


def main(argv: list[str]) -> int:
    """Ask once."""
    url = argv[0] if argv else READY
    # The checked process is of this machine: no proxy stands before it.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_S) as answer:
            if answer.status == 200:
                return 0
            print(f"{url} answers {answer.status}")
    except urllib.error.HTTPError as error:
        with error:
            print(f"{url} answers {error.code}: {error.read(1000).decode(errors='replace')}")
    except OSError as error:
        print(f"{url} does not answer: {error}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
