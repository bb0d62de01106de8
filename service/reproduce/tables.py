"""What every table and figure of the paper runs: variants of the published settings, a line or point each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.reproduce.measures import ACCURACY, LINKS, MULTIPLEX, Measure
from service.reproduce.methods import METHODS
from service.reproduce.published import HIGHEST_LINEAR_PROBE
from trainer.settings import TrainSettings, resolve_preset

__all__ = ["TABLES", "Axis", "Table", "Variant"]

Document = dict[str, Any]
NODE_SETS = ("cora", "citeseer", "photo", "computers", "cs", "physics")
UNIFORM_ANCHORS: Document = {"anchors": {"weights": {"alpha": 1.0, "beta": 0.0}}}
ZEROED = (0.0, 0.2, 0.4, 0.6, 0.8)
GRIDS: Sequence[tuple[str, str, str, Sequence[float]]] = (
    ("G", "anchors", "num_global", (128, 256, 512, 1024, 2048)),
    ("K", "anchors", "num_local", (1, 2, 4, 8, 16)),
    ("τ_ξ global", "loss", "tau_target_global", (0.01, 0.05, 0.1, 0.5, 1.0)),
    ("τ_ξ local", "loss", "tau_target_local", (0.01, 0.1, 0.5, 1.0, 5.0)),
)
COST_EPOCHS = 20


@dataclass(frozen=True)
class Axis:
    """What a figure is drawn over."""

    title: str
    log: bool = False


@dataclass(frozen=True)
class Variant:
    """One way to train, as ``settings`` laid over the data set's preset.

    ``method`` is whose published figures stand beside it, None for what the paper does not print in figures. ``rival``:
    RGRL is said to beat it. ``place`` is where its point lies on the axis, in the line called ``line``. Variants are
    compared inside a ``group``.
    """

    title: str
    settings: Document
    method: str | None = None
    rival: bool = True
    axis: Axis | None = None
    place: float | str = 0.0
    line: str = "RGRL"
    group: str = ""


@dataclass(frozen=True)
class Table:
    """``variants(dataset, methods)``: the first of a group is RGRL as published, where RGRL is among the methods.

    ``varied``: the settings that its variants differ in. ``highest``: what anyone has published by data set, beyond the
    paper. ``evaluate`` is None where only training is measured.
    """

    title: str
    datasets: Sequence[str]
    methods: Sequence[str]
    variants: Callable[[str, Sequence[str]], list[Variant]]
    varied: Sequence[str] = ()
    measures: Sequence[Measure] = ACCURACY
    evaluate: Document | None = field(default_factory=dict)
    links: bool = False
    baselines: bool = False
    epochs: int | None = None
    by_degree: bool = False
    highest: Mapping[str, float] = field(default_factory=dict)


def _by_method(dataset: str, methods: Sequence[str]) -> list[Variant]:
    return [Variant(METHODS[name].title, METHODS[name].on(dataset), name) for name in methods]


def _degree(dataset: str, methods: Sequence[str]) -> list[Variant]:
    own = [Variant("RGRL", {}, "rgrl"), Variant("RGRL, uniform anchors", UNIFORM_ANCHORS)]
    return (own if "rgrl" in methods else []) + _by_method(dataset, [name for name in methods if name != "rgrl"])


def _ablation(_dataset: str, _methods: Sequence[str]) -> list[Variant]:
    axis = Axis("")
    return [
        Variant("RGRL", {}, "rgrl", axis=axis, place="full"),
        Variant("Global only", {"loss": {"local_weight": 0.0}}, axis=axis, place="global only"),
        Variant("Local only", {"loss": {"global_weight": 0.0}}, axis=axis, place="local only"),
        Variant("Uniform anchors", UNIFORM_ANCHORS, axis=axis, place="uniform anchors"),
    ]


def _robustness(dataset: str, methods: Sequence[str]) -> list[Variant]:
    axis = Axis("share of feature entries that are zero")
    return [
        Variant(
            f"{METHODS[name].title}, {share:.0%} zeroed",
            METHODS[name].on(dataset) | {"features": {"zeroed": share}},
            name if share == 0 else None,
            axis=axis,
            place=share,
            line=METHODS[name].title,
            group=f"{share:.0%} zeroed",
        )
        for share in ZEROED
        for name in methods
    ]


def _sensitivity(dataset: str, _methods: Sequence[str]) -> list[Variant]:
    """One setting moved at a time; the published value is among those tried, or added to them."""
    published = TrainSettings.model_validate(resolve_preset({"preset": dataset}))
    return [
        Variant(
            f"{title} = {value:g}",
            {section: {name: value}},
            rival=False,
            axis=Axis(title, log=True),
            place=value,
            group=title,
        )
        for title, section, name, grid in GRIDS
        for value in sorted({*grid, getattr(getattr(published, section), name)})
    ]


TABLES: Mapping[str, Table] = {
    "nodes": Table(
        "Node classification (paper, Tables 3 and 4)",
        NODE_SETS,
        tuple(METHODS),
        _by_method,
        baselines=True,
        highest=HIGHEST_LINEAR_PROBE,
    ),
    "links": Table(
        "Link prediction (paper, Table 5)",
        ("computers", "photo", "cs", "physics"),
        ("rgrl", "bgrl", "grace", "gca", "cca_ssg"),
        _by_method,
        measures=LINKS,
        evaluate={"task": "links", "links": {"features": "hadamard_l1"}},
        links=True,
        baselines=True,
    ),
    "multiplex": Table(
        "Multiplex graphs (paper, Table 6)", ("imdb",), ("rgrl", "bgrl"), _by_method, measures=MULTIPLEX, baselines=True
    ),
    "degree": Table(
        "Misclassification by degree (paper, section 5.3)",
        ("computers", "photo"),
        ("rgrl", "bgrl"),
        _degree,
        varied=("anchors.weights",),
        by_degree=True,
    ),
    "robustness": Table(
        "Accuracy over feature sparsity (paper, section 5.2)",
        ("cs", "physics"),
        ("rgrl", "bgrl"),
        _robustness,
        varied=("features.zeroed",),
        baselines=True,
    ),
    "ablation": Table(
        "Ablation (paper, section 5.3)",
        ("computers", "photo"),
        ("rgrl",),
        _ablation,
        varied=("loss.local_weight", "loss.global_weight", "anchors.weights"),
    ),
    "sensitivity": Table(
        "Sensitivity to anchors and temperatures (paper, section 5.4)",
        ("computers", "photo"),
        ("rgrl",),
        _sensitivity,
        varied=tuple(f"{section}.{name}" for _, section, name, _ in GRIDS),
    ),
    "cost": Table(
        "Cost of training (paper, Table 1)",
        NODE_SETS,
        tuple(METHODS),
        _by_method,
        measures=(),
        evaluate=None,
        epochs=COST_EPOCHS,
    ),
}
