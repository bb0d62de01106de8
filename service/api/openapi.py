"""``python -m service.api.openapi`` prints the API's OpenAPI document; ``docs/openapi.json`` is a copy of it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from service.api.app import create_app
from service.settings import ServiceSettings

__all__ = ["document"]


def document() -> str:
    """The document as JSON text, the same for the same code."""
    with tempfile.TemporaryDirectory() as home:
        app = create_app(ServiceSettings(home=Path(home), data_roots=[]))
        return json.dumps(app.openapi(), indent=2) + "\n"


if __name__ == "__main__":
    print(document(), end="")
