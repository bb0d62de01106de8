"""New nodes of an append: their columns, and the features, labels and split of old and new nodes together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from preprocessing.array_file import mapped_npy
from preprocessing.array_types import Int64Array
from preprocessing.attribute_columns import table_attribute
from preprocessing.attributes import Attribute, placed_attribute
from preprocessing.bundle import Bundle
from preprocessing.edge_tables import column_of, unread
from preprocessing.errors import InputError
from preprocessing.feature_columns import choose_features, table_features
from preprocessing.features import Block, FeatureSource
from preprocessing.id_columns import IdColumn
from preprocessing.input_files import InputFile
from preprocessing.journal import Journal
from preprocessing.labels import LabelSetSource, LabelSource, table_labels
from preprocessing.raw_graph import Notice
from preprocessing.settings import TableSource
from preprocessing.splits import SplitCodes, table_split
from preprocessing.stage import Emitter
from preprocessing.stored_graph import feature_blocks, feature_counts, stored_labels, stored_split
from preprocessing.tables import Table, open_table

__all__ = ["NewNodes", "appended_attributes", "appended_features", "appended_labels", "appended_split"]


@dataclass(frozen=True)
class NewNodes:
    """The table of new nodes; ``features`` are its columns in the order of the bundle's ``names``."""

    table: Table
    id_column: str
    features: list[str]
    widths: list[int]
    label: str | None
    split: str | None

    @classmethod
    def open(cls, bundle: Bundle, settings: TableSource, given: TableSource, notices: list[Notice]) -> NewNodes:
        """``InputError`` where a column is missing that the bundle's features need, or that is ``given`` by name.

        Labels and split may be missing where only the old tables' columns are called so.
        """
        table = open_table(InputFile.at(str(settings.nodes)))
        for meaning in ("label", "split"):
            if (name := getattr(given, meaning)) is not None:
                table.require(name, meaning)
        id_column = column_of(table, settings.node_id, ("id", "node_id"), 0, "node id", notices, ("label", "y"))
        labels = [settings.label] if settings.label is not None else ["label", "y"]
        labels = [name for name in labels if name in table.types and bundle.manifest["labels"] is not None]
        label = labels[0] if labels else None
        split = settings.split if settings.split in table.types and bundle.manifest["split"] is not None else None
        taken = [name for name in (id_column, label, split) if name is not None]
        spans = bundle.manifest["features"]["names"]
        names = _feature_columns(table, settings, [*taken, *bundle.attributes], list(spans))
        if settings.attributes and set(settings.attributes) != set(bundle.attributes):
            raise InputError(
                "the graph has other attributes",
                where=str(table.path),
                given=", ".join(settings.attributes),
                expected=", ".join(bundle.attributes) or "none",
                remedy="leave `attributes` out: new nodes bring those of the graph",
            )
        for name in bundle.attributes:
            table.require(name, "attribute")
        others = [name for name in table.types if name not in (*taken, *names, *bundle.attributes)]
        notices += unread(table, others)
        return cls(table, id_column, names, [end - first for first, end in spans.values()], label, split)

    @property
    def ids(self) -> IdColumn:
        """The column of ids."""
        return self.table, self.id_column


def _feature_columns(table: Table, settings: TableSource, taken: list[str], names: list[str]) -> list[str]:
    """The columns of the bundle's features; a bundle of one matrix of features takes the one column that can be it."""
    if settings.features is not None:
        if len(settings.features) != len(names):
            raise InputError(
                "the graph has another number of feature columns",
                where=str(table.path),
                given=", ".join(settings.features),
                expected=f"{len(names)} in the order of the graph's: {', '.join(names)}" if names else "none",
                remedy="name one column of the new nodes for each",
            )
        return [table.require(name, "feature") for name in settings.features]
    if len(names) == 1 and names[0] not in table.types:
        candidates = choose_features(table, taken)
        if len(candidates) == 1:
            return candidates
    return [table.require(name, "feature") for name in names]


def appended_features(
    bundle: Bundle, nodes: NewNodes | None, rank: Int64Array, scratch: Path, emitter: Emitter
) -> FeatureSource | None:
    """Those of the bundle and of the table; ``rank`` [N + M] is the row of each old node and of each new one."""
    stored = bundle.features
    if stored is None:
        return None
    old = bundle.num_nodes
    new = None
    if nodes is not None:
        progress = partial(emitter.progress, unit="feature rows")
        table_rows, dtype = np.arange(len(rank) - old), bundle.manifest["features"]["dtype"]
        new = table_features(nodes.table, nodes.features, table_rows, dtype, scratch, progress, nodes.widths)
    counted = Journal(scratch / "features-counted.json")
    if not counted.state:
        counts = mapped_npy(scratch / "nonzeros-of-all.npy", np.int64, (len(rank),))
        for first, part in feature_counts(stored):
            counts[rank[first : first + len(part)]] = part
        if new is not None:
            counts[rank[old:]] = new.nonzeros
        counted.record(done=True)
    nonzeros = np.load(scratch / "nonzeros-of-all.npy", mmap_mode="r", allow_pickle=False)

    def moved(make: Callable[[], Block]) -> Block:
        rows, values = make()
        return rank[old + rows], values

    def blocks() -> Iterator[Callable[[], Block]]:
        added = iter(()) if new is None else (partial(moved, make) for make in new.blocks())
        return chain(feature_blocks(stored, rank), added)

    names = {name: (first, end) for name, (first, end) in bundle.manifest["features"]["names"].items()}
    return FeatureSource(stored.shape[1], nonzeros, names, {}, blocks)


def appended_attributes(
    bundle: Bundle, nodes: NewNodes | None, rank: Int64Array, scratch: Path, emitter: Emitter
) -> tuple[Attribute, ...]:
    """Those of the bundle and of the table, which has a column for each."""
    old = bundle.num_nodes
    joined = list[Attribute]()
    for number, name in enumerate(bundle.attributes):
        before = bundle.attribute(name)
        parts = [(before, rank[:old])]
        if nodes is not None:
            rows, progress = np.arange(len(rank) - old), partial(emitter.progress, unit=f"attributes '{name}'")
            file = scratch / f"new-attribute-{number}.npy"
            parts.append((table_attribute(nodes.table, name, rows, file, progress, before.type), rank[old:]))
        joined.append(placed_attribute(parts, len(rank), scratch / f"attribute-{number}.npy"))
    return tuple(joined)


def appended_labels(
    bundle: Bundle, nodes: NewNodes | None, rank: Int64Array, number: Int64Array, scratch: Path, emitter: Emitter
) -> LabelSource | LabelSetSource | None:
    """Those of the bundle, where it has any, and of the table; ``number`` [N + M] turns ``rank`` round."""
    stored, old = stored_labels(bundle), bundle.num_nodes
    if stored is None:
        return None
    new = None
    if nodes is not None and nodes.label is not None:
        progress = partial(emitter.progress, unit="labels")
        new = table_labels(nodes.table, nodes.label, np.arange(len(rank) - old), scratch, progress)
    if isinstance(stored, pa.Array):
        sets = pa.nulls(len(rank) - old, stored.type) if new is None else _same_type(nodes, new, stored.type)
        return LabelSetSource(pa.concat_arrays([stored, sets]).take(pa.array(number)))
    codes = mapped_npy(scratch / "labels-of-all.npy", np.int32, (len(rank),))
    code_of: dict[Any, int] = {}
    kind, first = pa.string(), 0
    for part in stored:
        kind = part.names.type
        codes[rank[first : first + len(part.codes)]] = _coded(part, code_of)
        first += len(part.codes)
    codes[rank[old:]] = -1
    if new is not None:
        names = _same_type(nodes, new, kind)
        assert isinstance(new, LabelSource)
        codes[rank[old:]] = _coded(LabelSource(new.codes, names), code_of)
    return LabelSource(codes, pa.array(list(code_of), kind))


def _coded(part: LabelSource, code_of: dict[Any, int]) -> np.ndarray[Any, Any]:
    """The part's codes as ``code_of`` has them, which it adds to."""
    place = [code_of.setdefault(name, len(code_of)) for name in part.names.to_pylist()]
    return np.array([*place, -1], dtype=np.int32)[part.codes]


def _same_type(nodes: NewNodes | None, new: LabelSource | LabelSetSource, kind: pa.DataType) -> Any:
    """The new labels as the old ones' type; ``InputError`` where they are of another."""
    assert nodes is not None
    assert nodes.label is not None
    values = new.names if isinstance(new, LabelSource) else new.sets
    # Text of a CSV that happens to spell integers is text, among text.
    if len(values) == values.null_count or values.type == kind or (not nodes.table.typed and kind == pa.string()):
        return values.cast(kind)
    raise nodes.table.column_fault(
        "the labels are of another type than the graph's",
        nodes.label,
        expected=f"labels of type {kind}",
        remedy="convert the column, or leave it out: new nodes need no labels",
    )


def appended_split(bundle: Bundle, nodes: NewNodes | None, rank: Int64Array, emitter: Emitter) -> SplitCodes | None:
    """That of the bundle, where it has one, and of the table; new nodes without one are of no part."""
    stored, old = stored_split(bundle), bundle.num_nodes
    if stored is None:
        return None
    codes = np.full(len(rank), -1, dtype=np.int8)
    codes[rank[:old]] = stored
    if nodes is not None and nodes.split is not None:
        progress = partial(emitter.progress, unit="parts of the split")
        codes[rank[old:]] = table_split(nodes.table, nodes.split, np.arange(len(rank) - old), progress)
    return codes
