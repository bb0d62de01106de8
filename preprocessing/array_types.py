"""Numpy arrays by what they hold, as annotations name them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Float32Array", "Float64Array", "Int64Array", "IntArray"]

Int64Array = npt.NDArray[np.int64]
IntArray = npt.NDArray[np.int32] | npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]
