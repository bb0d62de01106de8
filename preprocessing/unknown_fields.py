"""What to say of a field that a document's classes do not have: which one is likely to be meant, and where it belongs.

A place is pydantic's ``loc``: names of fields, numbers of items, and the tags and class names of unions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag
from pydantic.fields import FieldInfo

__all__ = ["fields_beside", "likely", "meant_field"]

Names = tuple[str, ...]
_LIKE = 0.65


def fields_beside(root: Any, place: Sequence[int | str]) -> list[str]:
    """Names of the fields that there are at an unknown one's place in documents of type ``root``, in order."""
    return sorted({name for model in _walk(root, place[:-1])[-1][1] for name in _fields(model)})


def meant_field(root: Any, place: Sequence[int | str]) -> str | None:
    """A sentence about the field that may be meant by the unknown one at ``place``; None where none is like it."""
    given = str(place[-1])
    sections = _walk(root, place[:-1])
    for path, models in reversed(sections):
        found = sorted({".".join((*path, *below)) for below in _below(models) if below[-1] == given})
        if found:
            return "it belongs elsewhere: " + " or ".join(f"`{name}`" for name in found[:3])
    here, beside = sections[-1]
    # As it is called in its section, and as whoever takes the section for a part of the name would.
    spelled = {word: below for below in _below(beside) for word in (below[-1], "_".join(below))}
    spelled |= {name: (name,) for name in fields_beside(root, place)}
    near = likely(given, spelled)
    return None if near is None else f"did you mean `{'.'.join((*here, *spelled[near]))}`?"


def likely(given: str, names: Iterable[str]) -> str | None:
    """The one of ``names`` that a misspelt one is likely to mean."""
    return next(iter(get_close_matches(given, list(names), 1, _LIKE)), None)


def _walk(root: Any, steps: Sequence[int | str]) -> list[tuple[Names, list[type[BaseModel]]]]:
    """The models on the way along ``steps``, from the outermost to those that it ends at, each with its path."""
    path: Names = ()
    forms = _forms(root)
    way = [(path, _models(forms))]
    for step in steps:
        if len(forms) > 1 and (chosen := [form for form in forms if step in _tags(form)]):
            forms = chosen
            way[-1] = (path, _models(forms))
            continue
        inside = [part for form in forms for part in _inside(form, step)]
        if not inside:
            # The name of a validator, which documents have not.
            continue
        forms, path = inside, (*path, str(step))
        way.append((path, _models(forms)))
    return way


def _below(models: Sequence[type[BaseModel]], path: Names = ()) -> Iterator[Names]:
    """Paths of the fields of models, and of the sections in them."""
    for model in models:
        for name, field in _fields(model).items():
            yield (*path, name)
            yield from _below(_models(_forms(field.annotation)), (*path, name))


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """By the names that documents have."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _models(forms: Sequence[Any]) -> list[type[BaseModel]]:
    kinds = [get_args(form)[0] if get_origin(form) is Annotated else form for form in forms]
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]


def _forms(kind: Any) -> list[Any]:
    """What a value of a type may be, unions taken apart."""
    bare, *notes = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    if get_origin(bare) in (Union, UnionType):
        return [form for part in get_args(bare) for form in _forms(part)]
    return [kind if any(isinstance(note, Tag) for note in notes) else bare]


def _tags(form: Any) -> set[str]:
    """What a union may call one of its forms in a place."""
    bare, *notes = get_args(form) if get_origin(form) is Annotated else (form,)
    tags = {str(note.tag) for note in notes if isinstance(note, Tag)} | {getattr(bare, "__name__", "")}
    for model in _models([bare]):
        fixed = [get_args(field.annotation) for field in _fields(model).values() if _is_literal(field.annotation)]
        tags |= {str(values[0]) for values in fixed if len(values) == 1}
    return tags


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _inside(form: Any, step: int | str) -> list[Any]:
    """The forms of what stands at ``step`` in a value."""
    bare = get_args(form)[0] if get_origin(form) is Annotated else form
    for model in _models([bare]):
        field = _fields(model).get(str(step))
        return [] if field is None else _forms(field.annotation)
    parts = get_args(bare)
    if get_origin(bare) is dict and len(parts) == 2:
        return _forms(parts[1])
    if get_origin(bare) in (list, tuple) and isinstance(step, int) and parts:
        return _forms(parts[0])
    return []
