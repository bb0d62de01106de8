"""Jobs on the wire: what a submit may say, and what the server answers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from preprocessing.errors import UsageError
from preprocessing.settings import AppendSettings, PreprocessSettings, PreviousSettings
from service.jobs.plan import STAGES
from service.schemas import AliasName, Answer, Labels, Name, Request
from service.search.index_settings import IndexSettings
from service.store import JobStatus
from trainer.settings import EmbedSettings, EvaluateSettings, TrainSettings, resolve_preset

__all__ = [
    "AppendJob",
    "EmbedJob",
    "EvaluateJob",
    "IndexJob",
    "IngestJob",
    "JobAnswer",
    "JobKind",
    "JobPatch",
    "JobRequest",
    "PipelineJob",
    "PreprocessJob",
    "ResourcesAnswer",
    "TrainJob",
]

JobKind = Literal["ingest", "append", "preprocess", "train", "embed", "evaluate", "index", "pipeline"]


def _lay_preset_under(document: Any) -> Any:
    if not isinstance(document, dict) or not isinstance(document.get("preset"), str):
        return document
    try:
        return resolve_preset(document)
    except UsageError as error:
        error.pointer = f"/train{error.pointer}"
        raise


Train = Annotated[TrainSettings, BeforeValidator(_lay_preset_under)]


def _few(labels: dict[str, str]) -> dict[str, str]:
    if len(labels) > 32:
        raise ValueError("a job has at most 32 labels")
    return labels


JobLabels = Annotated[Labels, AfterValidator(_few)]


class AskedResources(Request):
    """What a job shall be given of the server, where that is not what follows from its settings."""

    cores: int | None = Field(None, ge=1, le=65_536, description="Default: all of the server's.")
    gpus: int | None = Field(None, ge=0, le=4096, description="Default: as many as its training uses.")
    memory_bytes: int | None = Field(None, ge=0, lt=2**63, description="Default: the estimate.")
    disk_bytes: int | None = Field(None, ge=0, lt=2**63, description="Default: the estimate.")


Priority = Annotated[int, Field(ge=-1000, le=1000)]


class _Job(Request):
    name: Name | None = None
    labels: JobLabels = Field(default_factory=dict)
    priority: Priority = Field(0, description="Higher starts first; of one priority the oldest.")
    timeout_s: float | None = Field(
        None, gt=0, le=366 * 86_400, description="Seconds after its first start at which the job is ended and failed."
    )
    resources: AskedResources = AskedResources()

    @property
    def spec(self) -> dict[str, Any]:
        """The settings of every stage of the job."""
        return self.model_dump(mode="json", include={*STAGES, "previous"})


class IngestJob(_Job):
    """Make a graph's bundle from its source."""

    kind: Literal["ingest"]
    graph: str


class AppendJob(_Job):
    """Tables of new nodes and edges to a new graph of old and new together; the old one stays as it is.

    The new graph is called as the job is, or as the old one. The job's `new_graph` tells its id once it is there.
    """

    kind: Literal["append"]
    graph: str
    append: AppendSettings


class PreviousGraph(Request):
    """The graph as it was before a change: its PPR rows are kept where they can have moved little."""

    graph: str
    tolerance: float = Field(
        PreviousSettings.model_fields["tolerance"].default,
        ge=0,
        le=1,
        description=PreviousSettings.model_fields["tolerance"].description,
    )


class PreprocessJob(_Job):
    """PPR rows and degree weights of a graph."""

    kind: Literal["preprocess"]
    graph: str
    preprocess: PreprocessSettings = PreprocessSettings()
    previous: PreviousGraph | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """The settings of the stage, and the graph before if there is one."""
        return _without_nulls(super().spec, "previous")


class TrainJob(_Job):
    """Train on a graph and embed every node of it."""

    kind: Literal["train"]
    graph: str
    train: Train = TrainSettings()


class EmbedJob(_Job):
    """Embed the nodes of a graph by the encoder of an embedding set, without training.

    The graph is another of the same features and relations, or the same one grown. The new set is indexed where
    `index` is given; the `alias`, if one is given, is pointed at it in the end.
    """

    kind: Literal["embed"]
    embedding: str = Field(description="The embedding set, or its alias, whose encoder is used.")
    graph: str
    embed: EmbedSettings = EmbedSettings()
    index: IndexSettings | None = None
    alias: AliasName | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """The settings of its stages."""
        return _without_nulls(super().spec, "index")


class EvaluateJob(_Job):
    """Probe an embedding set."""

    kind: Literal["evaluate"]
    embedding: str
    evaluate: EvaluateSettings = EvaluateSettings()


class IndexJob(_Job):
    """Build the nearest-neighbour index of an embedding set."""

    kind: Literal["index"]
    embedding: str
    index: IndexSettings = IndexSettings()


class PipelineJob(_Job):
    """Everything from tables to an index; the ``alias``, if one is given, is pointed at the result in the end.

    What preprocess leaves out follows from train: the degree weights, and room for its local anchors.
    """

    kind: Literal["pipeline"]
    graph: str
    preprocess: PreprocessSettings = PreprocessSettings()
    train: Train = TrainSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    index: IndexSettings = IndexSettings()
    alias: AliasName | None = None

    @model_validator(mode="after")
    def _enough_neighbours(self) -> PipelineJob:
        ppr, needed = self.preprocess.ppr, self.train.anchors.num_local
        if self.train.uses_anchors and "top_k" in ppr.model_fields_set and ppr.top_k < needed:
            raise ValueError(f"preprocess.ppr.top_k is {ppr.top_k}, fewer than train.anchors.num_local, {needed}")
        return self

    @property
    def spec(self) -> dict[str, Any]:
        """The settings of every stage, what was left out resolved."""
        preprocess, anchors = self.preprocess, self.train.anchors
        changes: dict[str, Any] = {}
        if "degree_weights" not in preprocess.model_fields_set:
            changes["degree_weights"] = anchors.weights
        if self.train.uses_anchors and preprocess.ppr.top_k < anchors.num_local:
            changes["ppr"] = preprocess.ppr.model_copy(update={"top_k": anchors.num_local})
        return super().spec | {"preprocess": preprocess.model_copy(update=changes).model_dump(mode="json")}


JobRequest = Annotated[
    IngestJob | AppendJob | PreprocessJob | TrainJob | EmbedJob | EvaluateJob | IndexJob | PipelineJob,
    Field(discriminator="kind"),
]


def _without_nulls(spec: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if key != name or value is not None}


class JobPatch(Request):
    """What may be changed about a job, its priority only while it is queued; what is left out stays, a null name is
    taken off.
    """

    name: Name | None = None
    labels: JobLabels = Field(default_factory=dict)
    priority: Priority = 0


class Progress(Answer):
    """How far the present stage is; ``compiling`` while it stands still because kernels are compiled."""

    stage: str
    done: int
    total: int
    unit: str
    rate: float
    eta_s: float | None
    compiling: bool = False


class JobError(Answer):
    """Why a job failed."""

    code: str = Field(
        description="Stable and machine-readable. What was asked for: `usage_invalid`, `input_invalid`, "
        "`artifact_invalid`, `forbidden`, `not_found`. What there was of the machine: `resources_unavailable`, "
        "`out_of_memory`. Training: `collapsed` (into vectors without information), `diverged` (into numbers that are "
        "not finite). The processes: `killed`, `worker_lost`, `interrupted`, `stalled`, `timed_out`. "
        "`internal`: something unforeseen; see the log."
    )
    message: str
    phase: str | None = None
    where: str | None = None
    given: str | None = None
    expected: str | None = None
    remedy: str | None = None
    rank: int | None = None
    signal: str | None = None
    retryable: bool = False
    log_tail: list[str] = Field(default_factory=list)


class HealthAnswer(Answer):
    """What a job's training says of itself, and why where it is not well."""

    state: Literal["healthy", "stalled", "collapsed"]
    reason: str | None


class ResourcesAnswer(Answer):
    """What a job is given: cores and GPUs to compute on, and what it may come to hold in memory, in the server's home
    and in its graph's folder.
    """

    cores: int
    gpus: int
    memory_bytes: int
    disk_bytes: int
    bundle_bytes: int


class WaitingAnswer(Answer):
    """Why a queued job has not started: for its `turn`, its `graph`, `room` (max_running), `cores`, `gpus`, `memory`
    or `disk`, or for a Ray `cluster` that does not answer.
    """

    code: str
    detail: str


class TransitionAnswer(Answer):
    """One step of a job's life."""

    status: JobStatus
    phase: str | None
    attempt: int
    at: datetime


class JobAnswer(Answer):
    """A job. ``spec`` holds the settings as resolved; ``embedding`` is set once training has made one.

    ``encoder`` is the embedding set whose encoder an embed job uses, ``new_graph`` what an append job has made.

    ``health`` is null until training has reported, and stays as it was at its end; ``silent_since`` is set while a
    running job has reported nothing for longer than the server's ``silent_after_s``. ``waiting_for`` is set while it is
    queued, ``retry_at`` while a failed attempt waits for the next. ``stage_seconds`` is how long each stage that has begun
    took until what came after it, its last time if it was begun again; of the one that runs the seconds so far, and
    nothing while it waits for another attempt.
    """

    id: str
    kind: JobKind
    name: str | None
    labels: dict[str, str]
    status: JobStatus
    phase: str | None
    attempt: int
    graph: str
    embedding: str | None
    encoder: str | None
    new_graph: str | None
    alias: str | None
    spec: dict[str, Any]
    progress: Progress | None
    health: HealthAnswer | None
    silent_since: datetime | None
    priority: int
    timeout_s: float | None
    resources: ResourcesAnswer | None
    waiting_for: WaitingAnswer | None
    retry_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    error: JobError | None
    stage_seconds: dict[str, float]
    transitions: list[TransitionAnswer]
