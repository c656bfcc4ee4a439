"""Images beside CuPy's ndimage and torch: 8192² pixels, and 32² for the cost of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isqrt
from typing import Any

import cupy
import numpy as np

from cases.case import Case, random_array
from cases.peers import as_torch, torch_module
from cudakit import ops

_AIM = "≥ 0.85 × memcpy"
_BINOMIAL = np.outer([1, 4, 6, 4, 1], [1, 4, 6, 4, 1]).astype("f4") / 256


def cases(sizes: tuple[int, ...], quick: bool) -> Iterator[Case]:
    """Each op on one gray image, and some on colours and on rows that do not lie on 16 bytes."""
    for size in (sizes[0], 1 << 26):
        side = isqrt(size)
        for dtype in ("uint8", "float32"):
            yield from _gray(dtype, side, quick)
        if not quick:
            yield from _others(side)


def _gray(dtype: str, side: int, quick: bool) -> Iterator[Case]:
    from cupyx.scipy import ndimage

    x = random_array(side * side, dtype).reshape(side, side)
    out = cupy.empty_like(x)
    binomial, kernel = cupy.asarray(_BINOMIAL), np.arange(9.0).reshape(3, 3) / 36
    t, f = (as_torch(x)[None, None], torch_module().nn.functional) if torch_module() else (None, None)

    def case(
        op: str, run: Callable[[], object], cupys: Callable[[], object] | None, aim: str = "", **more: Any
    ) -> Case:
        result = more.get("out", out)
        peers = {"cupy": cupys} if cupys else {}
        if more.get("torch"):
            peers["torch"] = more["torch"]
        return Case(op, dtype, x.size, x.nbytes + result.nbytes, run, peers, aim)

    is_float = t is not None and dtype == "float32"
    weights = as_torch(binomial)[None, None] if is_float else None
    yield case(
        "gaussian_blur 5 × 5", lambda: ops.gaussian_blur(x, 5, out=out),
        lambda: ndimage.correlate(x, binomial, out, mode="reflect"), _AIM,
        torch=is_float and (lambda: f.conv2d(t, weights, padding=2)),
    )  # fmt: skip
    derivative = out if dtype == "float32" else cupy.empty(x.shape, "i2")
    yield case(
        "sobel, axis 1", lambda: ops.sobel(x, 1, out=derivative), lambda: ndimage.sobel(x, 1, derivative), _AIM,
        out=derivative,
    )  # fmt: skip
    yield case("sobel, length", lambda: ops.sobel(x, out=out), None, _AIM)
    small = x[: side // 2, : side // 2].copy()
    for name, of, shape in (
        ("half", x, (side // 2, side // 2)), ("twice", small, x.shape), ("¾", x, (side * 3 // 4, side * 3 // 4)),
    ):  # fmt: skip
        made = cupy.empty(shape, dtype)
        peers: dict[str, Callable[[], object]] = {}
        if is_float:
            seen = as_torch(of)[None, None]
            peers["torch"] = lambda seen=seen, shape=shape: f.interpolate(seen, shape, mode="bilinear")  # type: ignore[misc]
        run = lambda of=of, made=made, shape=shape: ops.resize(of, shape, out=made)  # noqa: E731
        yield Case(f"resize to {name}", dtype, x.size, of.nbytes + made.nbytes, run, peers, _AIM)
    if quick:
        return
    yield case("box_blur 3 × 3", lambda: ops.box_blur(x, 3, out=out), lambda: ndimage.uniform_filter(x, 3, out))
    yield case("box_blur 7 × 7", lambda: ops.box_blur(x, 7, out=out), lambda: ndimage.uniform_filter(x, 7, out))
    yield case("box_blur 31 × 31", lambda: ops.box_blur(x, 31, out=out), lambda: ndimage.uniform_filter(x, 31, out))
    yield case(
        "convolve2d 3 × 3", lambda: ops.convolve2d(x, kernel, out=out),
        lambda: ndimage.convolve(x, cupy.asarray(kernel, "f4"), out),
    )  # fmt: skip
    yield case("median3", lambda: ops.median3(x, out=out), lambda: ndimage.median_filter(x, 3, output=out))
    yield case("erode 3 × 3", lambda: ops.erode(x, out=out), lambda: ndimage.grey_erosion(x, 3, output=out))
    matrix = np.array([[0.9, -0.2, side / 8], [0.2, 0.9, -side / 16]])
    back = np.linalg.inv(matrix[:, :2])[::-1, ::-1]
    yield case(
        "warp_affine", lambda: ops.warp_affine(x, matrix, out=out),
        lambda: ndimage.affine_transform(x, cupy.asarray(back), output=out, order=1),
    )  # fmt: skip
    if dtype == "uint8":
        yield case("equalize", lambda: ops.equalize(x, out=out), None)


def _others(side: int) -> Iterator[Case]:
    colours = random_array(3 * side * side, "uint8").reshape(side, side, 3)
    out, gray = cupy.empty_like(colours), cupy.empty((side, side), "u1")
    yield Case("rgb_to_gray", "uint8", gray.size, 4 * gray.size, lambda: ops.rgb_to_gray(colours, out=gray), {})
    yield Case(
        "gaussian_blur 5 × 5 of colours", "uint8", out.size, 2 * out.size,
        lambda: ops.gaussian_blur(colours, 5, axes=(0, 1), out=out), {},
    )  # fmt: skip
    odd = random_array(side * (side - 1), "uint8").reshape(side, side - 1)
    made = cupy.empty_like(odd)
    yield Case(
        "gaussian_blur 5 × 5, odd rows",
        "uint8",
        odd.size,
        2 * odd.size,
        lambda: ops.gaussian_blur(odd, 5, out=made),
        {},
    )
