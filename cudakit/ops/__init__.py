"""Library calls with NumPy's names and rules, on packaged templates.

An `out` may be of another dtype than the result, within its kind (``numpy.can_cast(…, casting="same_kind")``): the
result is made in memory of its own and cast to it, by one kernel more. That is also what is done where an `out`
overlaps an input, except for inputs that are read and written element by element (`add`, `softmax`, `cumsum` …) and lie
exactly where `out` does.
"""

from cudakit.ops.attention import attention
from cudakit.ops.cast import cast
from cudakit.ops.compact import compact
from cudakit.ops.concatenate import concatenate
from cudakit.ops.count import bincount, histogram
from cudakit.ops.elementwise import add
from cudakit.ops.extrema import argmax, argmin, max, min
from cudakit.ops.filters import box_blur, convolve2d, gaussian_blur, sobel
from cudakit.ops.geometry import resize, warp_affine
from cudakit.ops.levels import equalize, rgb_to_gray
from cudakit.ops.matmul import matmul
from cudakit.ops.moments import norm, std, var
from cudakit.ops.order_filters import dilate, erode, median3
from cudakit.ops.pad import pad
from cudakit.ops.reduce import all, any, count_nonzero, dot, mean, prod, sum
from cudakit.ops.rows import layernorm, log_softmax, logsumexp, rmsnorm, softmax
from cudakit.ops.scan import cummax, cummin, cumprod, cumsum
from cudakit.ops.search import searchsorted
from cudakit.ops.shift import flip, roll
from cudakit.ops.sort import argpartition, argsort, partition, sort, sort_by_key
from cudakit.ops.take import take
from cudakit.ops.topk import topk
from cudakit.ops.transpose import copy, transpose
from cudakit.ops.unique import run_length, unique
from cudakit.ops.vectors import matvec, outer

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
