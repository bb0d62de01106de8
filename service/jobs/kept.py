"""What of a job's work is there already, so that its stages keep it: they go by fingerprints, and so does this."""

from __future__ import annotations

from pathlib import Path

from preprocessing.bundle import Bundle
from preprocessing.errors import ArtifactError
from preprocessing.preprocessed import preprocessed
from preprocessing.previous import Previous
from preprocessing.settings import PreprocessSettings, PreviousSettings
from service.jobs.schemas import IndexJob, JobRequest, PipelineJob, PreprocessJob
from service.search.indexing import indexed
from service.store import Embedding, Graph

__all__ = ["kept"]


def kept(
    request: JobRequest, graph: Graph, embedding: Embedding | None = None, before: Graph | None = None
) -> set[str]:
    """Kinds of the artefacts that the job would find made by its very settings.

    ``before`` is the graph before a change. Of what cannot be read nothing is kept.
    """
    try:
        match request:
            case PipelineJob() if graph.state == "ready":
                return preprocessed(Bundle(graph.bundle), PreprocessSettings.model_validate(request.spec["preprocess"]))
            case PreprocessJob():
                bundle, previous = Bundle(graph.bundle), None
                if before is not None and request.previous is not None:
                    settings = PreviousSettings(bundle=Path(before.bundle), tolerance=request.previous.tolerance)
                    previous = Previous.open(settings, bundle, request.preprocess.ppr)
                return preprocessed(bundle, request.preprocess, previous)
            case IndexJob() if embedding is not None:
                return indexed(Path(embedding.path), request.index)
    except ArtifactError:
        pass
    return set()
