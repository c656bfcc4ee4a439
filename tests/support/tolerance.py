"""How far a floating point result may be from the exact one."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np


def bound(dtype: Any, length: int, scale: Any) -> Any:
    """Eps of the dtype × the length of the sum × the size of what is summed; 0 for integers, which are exact."""
    eps = 0.0 if np.dtype(dtype).kind in "biu" else float(ml_dtypes.finfo(dtype).eps)
    return eps * length * scale
