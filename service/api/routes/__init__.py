"""Routes, a resource a file. ``{…:node}`` in a path is an external id, with any slashes and line ends it may have."""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor

__all__: list[str] = []


class _NodeConvertor(Convertor[str]):
    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("node", _NodeConvertor())
