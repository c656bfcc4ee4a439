"""Plans and sources of generated functions, as lines; ``PYTHONPATH=tests python -m support.forms`` writes them down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from support.launches import text_of

import cudakit as ck
from cudakit.generate.call import Layout
from cudakit.generate.elementwise_code import kernel_text, plan

FILE = Path(__file__).parents[1] / "generate" / "forms.txt"
U1, U2, F2, F4, F8 = (np.dtype(name) for name in ("u1", "u2", "f2", "f4", "f8"))


def _layout(shape: tuple[int, ...], dtype: np.dtype, steps: tuple[int, ...] | None = None) -> Layout:
    if steps is None:
        return Layout(dtype, shape, _dense(shape, dtype))
    return Layout(dtype, shape, tuple(step * dtype.itemsize for step in steps))


def _dense(shape: tuple[int, ...], dtype: np.dtype) -> tuple[int, ...]:
    strides, step = [], dtype.itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


_SUM = ck.elementwise("T x, T y", "T z", "z = x + y", name="sum_of")
_COUNTED = ck.elementwise("T x", "T z", "z = x + i", name="counted")
_PLACED = ck.elementwise("T x, raw T r", "T z", "z = x + r[_ind[0]] + r.shape(0) + _shape[1]", name="placed")
_RAW = ck.elementwise("raw T r", "T z", "z = r[i]", name="raws")
_LATE = ck.elementwise("T x, half h", "T z, float w", "if (x > 0) z = x; w = h", name="late")
_LOOP = ck.elementwise("T x", "T z", "z = x; for (int k = 0; k < 3; ++k) z *= x", name="loop")
_POINT = ck.elementwise("point p, T x", "T z", "z = p.x * x", name="of_point", preamble="struct point { float x; };")


def _plans() -> Iterator[Any]:
    for dtype in (U1, F2, F4, F8, np.dtype("c16")):
        types = {"T": dtype}
        for shape, x, y, z in (
            ((100,), None, None, None),
            ((70, 90), None, (0, 1), None),
            ((70, 90), None, (0, 0), None),
            ((70, 90), (1, 70), None, None),
            ((70, 90), (1, 70), (1, 70), None),
            ((70, 90), (1, 70), (1, 70), (1, 70)),
            ((70, 90), (180, 2), None, None),
            ((70, 90), (91, 1), (-90, 1), None),
            ((7, 90), (1, 7), None, None),
            ((90, 7), (1, 90), None, None),
            ((5, 70, 90), (6300, 1, 70), None, None),
            ((5, 70, 90), (1, 5, 350), (90, 450, 1), None),
            ((1,), None, None, None),
            ((), None, None, None),
            ((200, 300), (1, 200), None, (600, 2)),
            ((2, 1, 3), (3, 7, 1), (1, 9, 2), None),
        ):
            if dtype != F4 and len(shape) != 2:
                continue
            of = [_layout(shape, dtype, steps) for steps in (x, y, z)]
            yield plan(_SUM.recipe, of[:2], None, of[2:], (z is not None,), shape, types, z is None)
    flat, turned = _layout((3000, 2000), F4), _layout((3000, 2000), F4, (1, 3000))
    yield plan(_SUM.recipe, [turned, flat], None, [flat], (False,), (3000, 2000), {"T": F4}, True)
    yield plan(_SUM.recipe, [turned, None], None, [flat], (False,), (3000, 2000), {"T": F4}, True, 256)
    few, wide = _layout((3000, 2000), U1), _layout((3000, 2000), U1, (1, 3000))
    yield plan(_SUM.recipe, [wide, few], None, [few], (False,), (3000, 2000), {"T": U1}, True)
    small, mask = _layout((4, 6), F4), Layout(np.dtype("?"), (6,), (1,))
    for apart in (False, True):
        for given in (False, True):
            yield plan(_LATE.recipe, [small, None], mask, [small, small], (given,) * 2, (4, 6), {"T": F4}, apart, 64)
    yield plan(
        _LATE.recipe, [Layout(F8, (4, 6), (48, 8)), small], None, [small] * 2, (False, True), (4, 6), {"T": F8}, True
    )
    for steps in (None, (1, 4), (12, 2)):
        at = _layout((4, 6), F4, steps)
        yield plan(_COUNTED.recipe, [at], None, [small], (False,), (4, 6), {"T": F4}, True)
        yield plan(_PLACED.recipe, [at, at], None, [small], (False,), (4, 6), {"T": F4}, True)
        yield plan(_RAW.recipe, [at], None, [_layout((24,), F4)], (False,), (24,), {"T": F4}, True)
        yield plan(_LOOP.recipe, [at], None, [small], (False,), (4, 6), {"T": F4}, True)
    long = _layout((2**31 - 16,), U1)
    for size in (2**31 - 17, 2**31 - 16):
        long = _layout((size,), U1)
        yield plan(_LOOP.recipe, [long], None, [long], (False,), (size,), {"T": U1}, True)
    vast = _layout((2**20, 2**24), U1), _layout((2**20, 2**24), U1, (1, 2**20))
    yield plan(_SUM.recipe, [vast[1], vast[0]], None, [vast[0]], (False,), (2**20, 2**24), {"T": U1}, True)


def _sources() -> Iterator[Any]:
    small, turned, mask = _layout((40, 60), F4), _layout((40, 60), F4, (1, 40)), Layout(np.dtype("?"), (60,), (1,))
    half = Layout(F2, (40, 60), (120, 2))
    for function, inputs, where, outputs, given, types in (
        (_SUM, [small, turned], None, [small], (True,), {"T": F4}),
        (_SUM, [half, None], mask, [half], (False,), {"T": F2}),
        (_COUNTED, [turned], None, [turned], (True,), {"T": F4}),
        (_PLACED, [small, turned], None, [small], (False,), {"T": F4}),
        (_RAW, [small], None, [small], (False,), {"T": F4}),
        (_LATE, [small, half], mask, [small, small], (True, False), {"T": F4}),
        (_LATE, [Layout(F8, (40, 60), (480, 8)), None], None, [small, small], (False, True), {"T": F4}),
        (_POINT, [None, turned], None, [small], (False,), {"T": F4}),
        (_LOOP, [small], None, [small], (False,), {"T": F4}),
    ):
        form, _ = plan(function.recipe, inputs, where, outputs, given, (40, 60), types, True)
        yield from kernel_text(function.recipe, form).splitlines()


def _folds() -> Iterator[Any]:
    for made in (
        ck.reduction("T x, raw T y, half h", "T z, float w", "x * y[i] + h", "a + b", "0", "z = a; w = a / n", "fold"),
        ck.reduction(
            "T x",
            "int64 k",
            "{x, i}",
            "a.x > b.x ? a : b",
            None,
            "k = a.k",
            "best",
            preamble="struct best_t { float x; long long k; };",
            acc="best_t",
        ),
        ck.scan("T x, int f", "T y", "x", "a + b", "0", "y = prev_item", "before", segments="f"),
        ck.scan(
            "float x, raw float y",
            "raw int64 w",
            "x > y[0]",
            "a + b",
            "0",
            "if (i == n - 1) w[0] = last_item",
            "counted",
            acc="float16",
        ),
    ):
        yield from made.source.splitlines()


_FIVE = "u(0, 1) + u(0, -1) + u(1, 0) + u(-1, 0)"


def _stencils() -> Iterator[Any]:
    line = ck.stencil("T out", "k * (u(-1) + u(2))", "T u, float k", name="lines", mode="wrap")
    plane = ck.stencil("float out", _FIVE, mode=("reflect", "constant"), cval=1.5, name="plane")
    two = ck.stencil(
        "half a, double b", "a = u(0, 1) + v(0, 0); b = v(1, -1) * s", "half u, double v, float s", name="two"
    )
    solid = ck.stencil("T out", " + ".join(f"u({k}, 0, 0)" for k in range(-5, 6)), "T u", name="solid", mode="mirror")
    for made in (line, plane, two, solid):
        yield made.recipe.halos, made.recipe.rank, made.recipe.points, made.recipe.borders, made.recipe.constant
    yield from (each for made in (line, two) for each in made.source.splitlines())
    near = ck.stencil("T out", "u(0, 0, 1) + u(0, 1, 0)", "T u", name="near")
    for function, shape, types, dtypes, widest in (
        (line, (1000,), {"T": F4}, (F4,), 4),
        (line, (1001,), {"T": F8}, (F8,), 8),
        (plane, (100, 200), {}, (F4,), 4),
        (plane, (33, 65), {}, (F8,), 8),
        (two, (64, 4096), {}, (F2, F8), 8),
        (solid, (9, 50, 64), {"T": F8}, (F8,), 8),
        (near, (9, 50, 64), {"T": F8}, (F8,), 8),
        (solid, (9, 50, 64), {"T": F4}, (F4,), 4),
        (plane, (2**15, 2**15), {}, (F4,), 4),
        (plane, (2**15, 2**15 - 1), {}, (F4,), 4),
    ):
        for aligned, steps in ((True, 1), (False, 1), (True, 3)):
            yield function._job(dtypes, shape, types, widest, aligned, steps, "sm_90")
    for function, shape in ((line, (1000,)), (plane, (100, 200)), (two, (10, 10)), (solid, (9, 50, 64))):
        for dtype in (F2, F4, F8):
            array = SimpleNamespace(dtype=dtype, itemsize=dtype.itemsize, shape=shape)
            yield [function._groups(array, array, times) for times in (1, 2, 3, 4, 5, 6, 7, 8, 9)]
    wide = ck.stencil("T out", "u(0, 16) + u(0, -16)", "T u", name="wide")
    for dtype in (F4, F8):
        array = SimpleNamespace(dtype=dtype, itemsize=dtype.itemsize)
        other = SimpleNamespace(dtype=U2, itemsize=4)
        yield wide._groups(array, array, 9), plane._groups(array, other, 9)


CALLS: dict[str, Callable[[], Iterator[Any]]] = {
    "plans": _plans,
    "sources": _sources,
    "folds": _folds,
    "stencils": _stencils,
}


def shown(kind: str) -> list[str]:
    """Plans or sources of one kind."""
    return [each if isinstance(each, str) else text_of(each) for each in CALLS[kind]()]


def written() -> dict[str, list[str]]:
    """The lines of `FILE`, by kind."""
    found: dict[str, list[str]] = {}
    for line in FILE.read_text().splitlines():
        if line.startswith("## "):
            found[line.removeprefix("## ")] = []
        else:
            found[[*found][-1]].append(line)
    return found


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for kind in CALLS for line in (f"## {kind}", *shown(kind))))
