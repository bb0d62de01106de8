"""``python -m service.cli``: the command line where its script is not on the path."""

from __future__ import annotations

from service.cli import main

if __name__ == "__main__":
    main()
