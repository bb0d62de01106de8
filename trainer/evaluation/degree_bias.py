"""How often nodes of each degree are misclassified (paper, Fig. 1 and section 5.4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.evaluation.probe import ProbeResult

__all__ = ["degree_buckets"]


def degree_buckets(degrees: npt.NDArray[np.int64], result: ProbeResult) -> list[dict[str, Any]]:
    """Error rates over the test nodes of all splits, by degree: 0, 1, 2–3, 4–7, 8–15, ….

    ``degrees`` [N] are undirected. Buckets without a tested node are left out; ``nodes`` counts distinct nodes.
    """
    bucket = np.frexp(degrees)[1]
    buckets = []
    for number in np.unique(bucket[result.tested > 0]):
        inside = (bucket == number) & (result.tested > 0)
        buckets.append(
            {
                "min_degree": int(2 ** (number - 1)) if number > 0 else 0,
                "max_degree": int(2**number - 1),
                "nodes": int(inside.sum()),
                "error_rate": float(result.wrong[inside].sum() / result.tested[inside].sum()),
            }
        )
    return buckets
