"""Library calls with NumPy's names and rules, on packaged templates.

An `out` may be of another dtype than the result, within its kind (``numpy.can_cast(…, casting="same_kind")``): the
result is made in memory of its own and cast to it, by one kernel more. That is also what is done where an `out`
overlaps an input, except for inputs that are read and written element by element (`add`, `softmax`, `cumsum` …) and lie
exactly where `out` does.
"""

from cudakit.ops.arithmetic import add, matvec, outer
from cudakit.ops.arrange import concatenate, flip, pad, roll
from cudakit.ops.attention import attention
from cudakit.ops.copies import cast, copy, transpose
from cudakit.ops.count import bincount, histogram
from cudakit.ops.filters import box_blur, convolve2d, dilate, erode, gaussian_blur, median3, sobel
from cudakit.ops.images import equalize, resize, rgb_to_gray, warp_affine
from cudakit.ops.matmul import matmul
from cudakit.ops.reduce import all, any, argmax, argmin, count_nonzero, dot, max, mean, min, norm, prod, std, sum, var
from cudakit.ops.rows import layernorm, log_softmax, logsumexp, rmsnorm, softmax
from cudakit.ops.scan import cummax, cummin, cumprod, cumsum
from cudakit.ops.sort import argpartition, argsort, partition, sort, sort_by_key, topk
from cudakit.ops.take import compact, take
from cudakit.ops.unique import run_length, searchsorted, unique

__all__ = [
    "add",
    "all",
    "any",
    "argmax",
    "argmin",
    "argpartition",
    "argsort",
    "attention",
    "bincount",
    "box_blur",
    "cast",
    "compact",
    "concatenate",
    "convolve2d",
    "copy",
    "count_nonzero",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "dilate",
    "dot",
    "equalize",
    "erode",
    "flip",
    "gaussian_blur",
    "histogram",
    "layernorm",
    "log_softmax",
    "logsumexp",
    "matmul",
    "matvec",
    "max",
    "mean",
    "median3",
    "min",
    "norm",
    "outer",
    "pad",
    "partition",
    "prod",
    "resize",
    "rgb_to_gray",
    "rmsnorm",
    "roll",
    "run_length",
    "searchsorted",
    "sobel",
    "softmax",
    "sort",
    "sort_by_key",
    "std",
    "sum",
    "take",
    "topk",
    "transpose",
    "unique",
    "var",
    "warp_affine",
]


def __dir__() -> list[str]:
    return __all__
