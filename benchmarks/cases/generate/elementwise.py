"""Functions made from expressions beside CuPy's ElementwiseKernel and fuse: contiguous arrays, then layouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cupy

from cases.case import Case, random_array
from cudakit import elementwise, fuse, math

#: Sides of the two-dimensional arrays, by their number of elements.
_SIDES = {1 << 20: (1 << 10, 1 << 10), 1 << 28: (1 << 14, 1 << 14)}
_SIZES = (1 << 10, 1 << 20, 1 << 28)
_DTYPES = ("float32", "float16", "int8", "float64")


def cases(sizes: tuple[int, ...], quick: bool) -> Iterator[Case]:
    """Two inputs and an output; the layouts at 2^20 and 2^28 elements, of other types than float32 at 2^28."""
    add = elementwise("T x, T y", "T z", "z = x + y", name="add_all")
    axpby = elementwise("T a, T x, T b, T y", "T z", "z = a * x + b * y", name="axpby")
    their_add = cupy.ElementwiseKernel("T x, T y", "T z", "z = x + y", "their_add")
    their_axpby = cupy.ElementwiseKernel("T a, T x, T b, T y", "T z", "z = a * x + b * y", "their_axpby")
    for dtype in ("float32",) if quick else _DTYPES:
        for size in _SIZES:
            x, y = random_array(size, dtype), random_array(size, dtype, seed=2)
            z = cupy.empty_like(x)
            aim = "≤ 0.9 × CuPy" if size == _SIZES[0] else "≥ 1.03 × memcpy, 1.7 × CuPy"
            yield _case("add, out=", add, their_add, (x, y), z, 3 * x.nbytes, aim)
            if dtype == "float32":
                yield _case("axpby, out=", axpby, their_axpby, (2.0, x, 3.0, y), z, 3 * x.nbytes, aim)
                if size == _SIZES[0]:
                    yield _case("add, new", add, their_add, (x, y), None, 3 * x.nbytes, aim)
                    row = x.reshape(32, 32)
                    other = (row, y[:32])
                    yield _case("add, row, out=", add, their_add, other, z.reshape(32, 32), 2 * x.nbytes, aim)
    yield from _functions()
    yield from _layouts(1 << 20, "float32", add, their_add)
    for dtype in ("float32",) if quick else _DTYPES:
        yield from _layouts(1 << 28, dtype, add, their_add)


def _functions() -> Iterator[Case]:
    """A fused function, and one of NumPy's."""

    def shrunk(x: Any, y: Any) -> Any:
        size = cupy.sqrt(x * x + y * y)
        return cupy.where(size > 1, size - 1, 0)

    ours, theirs = fuse(shrunk), cupy.fuse(shrunk)
    for size in _SIZES:
        x, y = random_array(size, "float32"), random_array(size, "float32", seed=2)
        z = cupy.empty_like(x)
        peers = {"cupy.fuse": lambda x=x, y=y: theirs(x, y), "cupy, unfused": lambda x=x, y=y: shrunk(x, y)}
        run = lambda x=x, y=y: ours(x, y)  # noqa: E731
        yield Case("fused √(x² + y²), where", "float32", size, 3 * x.nbytes, run, peers, "≥ 1.0 × CuPy")
        yield _case("math.sin, out=", math.sin, cupy.sin, (x,), z, 2 * x.nbytes, "≥ 1.0 × CuPy")


def _layouts(size: int, dtype: str, add: Any, their_add: Any) -> Iterator[Case]:
    rows, columns = _SIDES[size]
    x = random_array(size, dtype).reshape(rows, columns)
    y = random_array(size, dtype, seed=2).reshape(rows, columns)
    z = cupy.empty_like(x)
    item = x.itemsize
    two, three = 2 * size * item, 3 * size * item
    aim = "≥ 1.0 × CuPy"

    def case(name: str, left: Any, right: Any, out: Any, moved: int) -> Case:
        return _case(name, add, their_add, (left, right), out, moved, aim)

    yield case("row broadcast", x, y[0], z, two)
    yield case("column broadcast", x, y[:, :1], z, two)
    yield case("0-d broadcast", x, y[0, 0], z, two)
    yield case("short rows", x.reshape(-1, 4)[:, :3], y[0, :3], z.reshape(-1)[: 3 * size // 4].reshape(-1, 3), two)
    yield case("transposed + contiguous", x.T, y, z, three)
    yield case("both transposed", x.T, y.T, z, three)
    yield case("transposed into transposed", x.T, y.T, z.T, three)
    half = z.reshape(-1)[: size // 2].reshape(rows, columns // 2)
    yield case("[:, ::2]", x[:, ::2], y[:, : columns // 2], half, 2 * size * item)
    yield case("[:, ::2] both", x[:, ::2], y[:, ::2], half, 5 * size * item // 2)
    yield case("[:, ::-1]", x[:, ::-1], y, z, three)
    yield case("[::2]", x[::2], y[: rows // 2], z[: rows // 2], three // 2)
    odd = z.reshape(-1)[: (rows - 1) * (columns - 3)].reshape(rows - 1, columns - 3)
    yield case("inner [1:, 3:]", x[1:, 3:], y[:-1, :-3], odd, three)
    cube = (64, rows // 64, columns)
    a, b, c = x.reshape(cube), y.reshape(cube), z.reshape(cube)
    yield case("3-D (1, 0, 2)", a.reshape(rows // 64, 64, columns).transpose(1, 0, 2), b, c, three)
    yield case("3-D (0, 2, 1)", a.reshape(64, columns, rows // 64).transpose(0, 2, 1), b, c, three)
    yield case("3-D (2, 1, 0)", a.reshape(columns, rows // 64, 64).transpose(2, 1, 0), b, c, three)
    yield case("3-D (2, 0, 1)", a.reshape(rows // 64, columns, 64).transpose(2, 0, 1), b, c, three)
    yield case("mixed: transposed + row", x.T, y[0], z, two)
    yield case("mixed: transposed + column", x.T, y[:, :1], z, two)
    yield case("out sliced", x[:, ::2], y[:, ::2], z[:, ::2], 3 * size * item)


def _case(name: str, ours: Any, theirs: Any, inputs: tuple[Any, ...], out: Any, moved: int, aim: str) -> Case:
    size = max(getattr(value, "size", 1) for value in inputs)
    dtype = next(str(value.dtype) for value in inputs if hasattr(value, "dtype"))
    if out is None:
        return Case(name, dtype, size, moved, lambda: ours(*inputs), {"cupy": lambda: theirs(*inputs)}, aim)
    return Case(name, dtype, size, moved, lambda: ours(*inputs, out=out), {"cupy": lambda: theirs(*inputs, out)}, aim)
