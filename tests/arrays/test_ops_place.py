"""Where an op runs, what it may write to, and how it sees an array's dimensions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cudakit as ck
from cudakit.arrays.layout import axes_of, axis_of, element_strides, flat, merged, without
from cudakit.arrays.output import checked_output, overlaps, target
from cudakit.arrays.place import TICKETS, array_place


def test_host_arrays_go_to_the_emulator() -> None:
    x = np.ones(3)
    place, arrays = array_place("op", None, ("x", x))
    assert place.xp is np
    assert arrays[0] is x
    assert isinstance(place.stream, ck.emulator.EmulatedStream)
    own = ck.emulator.stream("sm_80")
    assert array_place("op", own, ("x", x))[0].stream is own
    assert array_place("op", own, ("x", x))[0].device == "sm_80"


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn", "bfloat16", "float64"])
def test_memory_of_transposed_and_reversed_arrays_is_flat(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    memory = np.arange(12).astype(dtype)
    for view, below in ((memory.reshape(3, 4).T, 0), (memory.reshape(3, 4)[::-1], 8)):
        whole = flat(view, below, 12)
        assert whole.dtype == dtype
        assert np.shares_memory(whole, memory)
        np.testing.assert_array_equal(whole.view("u1"), memory.view("u1"))


@pytest.mark.gpu
def test_device_arrays_go_to_cupys_current_stream(stream: Any, xp: Any) -> None:
    x = xp.ones(3)
    place, _ = array_place("op", None, ("x", x))
    assert place.current
    other = ck.stream()
    with ck.using(other):
        pass
    place, _ = array_place("op", other, ("x", x))
    assert not place.current
    assert place.empty(4, "f4").shape == (4,)
    with pytest.raises(ck.ArgumentError, match="host memory"):
        array_place("op", stream, ("x", np.ones(3)))
    with pytest.raises(ck.ArgumentError, match="emulator's"):
        array_place("op", ck.emulator.stream(), ("x", x))
    with pytest.raises(ck.ArgumentError, match="x is in device memory and y in host memory"):
        array_place("op", None, ("x", x), ("y", np.ones(3)))


@pytest.mark.gpu
def test_each_stream_keeps_one_workspace_with_counters_at_zero(stream: Any, xp: Any) -> None:
    place, _ = array_place("op", stream, ("x", xp.ones(3)))
    first = place.workspace(100)
    assert place.workspace(1000) is first
    larger = place.workspace(1 << 24)
    assert larger.size >= (1 << 24) + 4 * TICKETS
    assert not larger[: 4 * TICKETS].any()
    other = ck.stream()
    assert array_place("op", other, ("x", xp.ones(3)))[0].workspace(100) is not larger


@pytest.mark.parametrize("value", [3, [1, 2], None, "x"])
def test_what_is_no_array_is_named(value: Any) -> None:
    with pytest.raises(ck.ArgumentError, match=r"op: x is .*, not an array"):
        array_place("op", None, ("x", value))


def test_an_output_that_does_not_fit_is_named(stream: Any, xp: Any) -> None:
    x = xp.zeros((4, 6), "f4")
    place, _ = array_place("op", stream, ("x", x))
    f4 = np.dtype("f4")
    assert target("op", place, None, (4,), f4).result.shape == (4,)
    fits = xp.zeros((4, 6), "f4")
    assert checked_output("op", place, fits, (4, 6), f4) is fits
    with pytest.raises(ck.ArgumentError, match=r"out has shape \(4, 6\), the result has \(4,\)"):
        checked_output("op", place, fits, (4,), f4)
    with pytest.raises(ck.ArgumentError, match="out has dtype float32, the result has float64"):
        checked_output("op", place, fits, (4, 6), np.dtype("f8"))


def test_what_overlaps(xp: Any) -> None:
    """To the byte: views that reach over each other need have no element in common."""
    x = xp.zeros((6, 6), "f4")
    assert overlaps(x, x)
    assert not overlaps(x, x, in_place=True)
    assert not overlaps(x, xp.zeros((6, 6), "f4"))
    assert overlaps(x, xp.zeros(2), x.T, in_place=True)
    assert overlaps(x, x.view("i4"), in_place=True)
    assert overlaps(x[1:], x[:-1], in_place=True)
    assert not overlaps(x[:2], x[2:])
    assert not overlaps(x[:, ::2], x[:, 1::2])
    assert not overlaps(x[:3, 3:], x[3:, :3].T)
    assert overlaps(x[::2, ::-1], x[:, 3], in_place=True)
    assert not overlaps(x[:0], x)


def test_a_read_only_output_is_refused() -> None:
    x = np.zeros(3, "f4")
    place, _ = array_place("op", None, ("x", x))
    out = np.zeros(3, "f4")
    out.flags.writeable = False
    with pytest.raises(ck.ArgumentError, match="read-only"):
        checked_output("op", place, out, (3,), np.dtype("f4"))


@pytest.mark.parametrize(("axis", "why"), [(2, "axis 2"), (-3, "axis -3"), ((0, 0), "repeated"), ("x", "axis 'x'")])
def test_an_axis_that_is_not_there_is_named(axis: Any, why: str) -> None:
    with pytest.raises(ck.ArgumentError, match=why):
        axes_of("op", axis, 2)
    assert axes_of("op", None, 2) == (0, 1)
    assert axes_of("op", (-1, 0), 3) == (0, 2)
    assert axis_of("op", -1, 3) == 2
    assert without((2, 3, 4), (1,), False) == (2, 4)
    assert without((2, 3, 4), (1,), True) == (2, 1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(), (3,), (1, 4), (2, 3), (4, 1, 2), (2, 3, 4), (2, 1, 3, 2)], ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_merged_dimensions_walk_the_same_elements(shape: tuple[int, ...], seed: int) -> None:
    random = np.random.default_rng(seed)
    base = np.arange(int(np.prod([2 * n for n in shape]))).reshape([2 * n for n in shape])
    steps = random.choice([1, 2, -1], len(shape)) if seed else [1] * len(shape)
    order = random.permutation(len(shape)) if seed % 2 else range(len(shape))
    view = base[tuple(slice(None, None, int(step)) for step in steps)].transpose(tuple(order))
    extents, strides = merged(view.shape, element_strides(view))
    if not shape:
        assert (extents, strides) == ((), ())
        return
    start = (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // base.itemsize
    walked = [start + sum(i * s for i, s in zip(at, strides, strict=True)) for at in np.ndindex(*extents)]
    np.testing.assert_array_equal(base.ravel()[walked], view.ravel())
    assert len(extents) <= sum(n > 1 for n in view.shape)
    assert 1 not in extents


def test_contiguous_dimensions_become_one() -> None:
    assert merged((2, 3, 4), (12, 4, 1)) == ((24,), (1,))
    assert merged((2, 3, 4), (24, 4, 1)) == ((2, 12), (24, 1))
    assert merged((2, 3, 4), (12, 4, 1), (24, 8, 2)) == ((24,), (1,), (2,))
    assert merged((1, 1), (5, 5)) == ((), ())
