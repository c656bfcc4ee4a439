"""Ready-made kernels with NumPy's names and rules.

>>> import cudakit as ck, numpy as np
>>> stream = ck.stream()  # of the GPU, or of the emulator if there is no GPU
>>> with ck.using(stream) as xp:  # CuPy, or NumPy on the emulator
...     x = xp.arange(6, dtype="f4").reshape(2, 3)
...     rows = ck.ops.sum(x, axis=1)
...     order = ck.ops.argsort(x, descending=True)
>>> print(rows, order[0])
[ 3. 12.] [2 1 0]

This page is a tour. ``help(ck.ops.sum)`` and so on explain each op, and how it differs from NumPy.

- Copy, convert and move elements: `copy`, `cast`, `transpose`, `flip`, `roll`, `pad`, `concatenate`.
- Select elements: `take` by indices, `compact` by a mask.
- Reduce: `sum`, `prod`, `mean`, `var`, `std`, `norm`, `min`, `max`, `argmin`, `argmax`, `any`, `all`,
  `count_nonzero`.
- Scan along an axis: `cumsum`, `cumprod`, `cummin`, `cummax`.
- Sort: `sort`, `argsort`, `sort_by_key`, `partition`, `argpartition`, `topk`. Find: `unique`, `run_length`,
  `searchsorted`.
- Count: `histogram`, `bincount`.
- Multiply: `matmul`, `matvec`, `outer`, `dot`, `add`, `attention`.
- Normalize rows: `softmax`, `log_softmax`, `logsumexp`, `layernorm`, `rmsnorm`.
- Filter images: `gaussian_blur`, `box_blur`, `sobel`, `convolve2d`, `median3`, `erode`, `dilate`, `resize`,
  `warp_affine`, `rgb_to_gray`, `equalize`.

Arguments of all ops:

- Inputs are arrays on one device, or NumPy arrays on the emulator. Strides are arbitrary.
- ``stream=`` is the stream to run on. Default: CuPy's current stream, or the stream of ``ck.using``.
- ``out=`` is the output array. Its dtype may be another dtype of the same kind
  (``numpy.can_cast(…, casting="same_kind")``). The result is then written to new memory and cast, which costs a second
  kernel.
- An `out` that overlaps an input costs a second kernel, too. Exception: ops that work element by element (`add`,
  `softmax`, `cumsum` …) write in place if `out` is exactly the memory of the input.
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
