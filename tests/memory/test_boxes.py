"""Copies of parts of arrays: which are boxes of memory, and what every copy gives."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.places import another, to_host

import cudakit as ck
from cudakit.memory.device_memory import Box, box_of, boxes_of

STEPS = st.sampled_from(
    [slice(None), slice(0, 2), slice(1, None), slice(None, None, 2), slice(1, 3), slice(None, None, -1)]
)


def copied(target: Box, source: Box, memory: dict[int, np.ndarray]) -> None:
    """What the driver does with two boxes, of arrays by their first address."""
    for slice_ in range(target.depth):
        for row in range(target.height):
            here, there = (box.address + slice_ * box.slice + row * box.pitch for box in (target, source))
            bytes_of(memory, here, target.width)[...] = bytes_of(memory, there, target.width)


def bytes_of(memory: dict[int, np.ndarray], address: int, size: int) -> np.ndarray:
    for start, array in memory.items():
        if start <= address < start + array.nbytes:
            assert address + size <= start + array.nbytes, "outside the array"
            return array.reshape(-1).view("u1")[address - start : address - start + size]
    raise AssertionError("outside all arrays")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_boxes_are_what_they_are_of(data: Any) -> None:
    rank = data.draw(st.integers(1, 4))
    bases, views = [], []
    for fill in (0, 1):
        base = np.zeros((4,) * rank, "i2") if fill == 0 else np.arange(1, 4**rank + 1, dtype="i2").reshape((4,) * rank)
        axes = data.draw(st.permutations(range(rank)))
        view = base.transpose(axes)[tuple(data.draw(STEPS) for _ in range(rank))]
        bases.append(base)
        views.append(view)
    shape = tuple(min(extents) for extents in zip(*(view.shape for view in views), strict=True))
    target, source = (view[tuple(slice(0, extent) for extent in shape)] for view in views)
    found = boxes_of(shape, 2, target.strides, source.strides)
    if found is None:
        return
    extents, pitches = found
    expected = bases[0].copy()
    boxes = [box_of(view, extents, *pitch) for view, pitch in zip((target, source), pitches, strict=True)]
    memory = {base.__array_interface__["data"][0]: base for base in bases}
    copied(boxes[0], boxes[1], memory)
    got = bases[0].copy()
    bases[0][...] = expected
    target[...] = source
    np.testing.assert_array_equal(got, bases[0])


@pytest.mark.parametrize(
    ("view", "extents"),
    [
        (lambda a: a, (8 * 6 * 4 * 2, 1, 1)),
        (lambda a: a[:, 1:3], (2 * 4 * 2, 8, 1)),
        (lambda a: a[2:5, 1:3, 1:4], (6, 2, 3)),
        (lambda a: a[:, :, 1:4], (6, 48, 1)),
        (lambda a: a[3], (48, 1, 1)),
        (lambda a: a[:, :, :1], (2, 48, 1)),
        (lambda a: a[::2, ::2, :], (8, 3, 4)),
        (lambda a: a[:, :, ::-1], None),
        (lambda a: a.T[1:], None),
    ],
)
def test_parts_of_an_array_that_are_boxes(view: Any, extents: Any) -> None:
    part = view(np.zeros((8, 6, 4), "i2"))
    found = boxes_of(part.shape, 2, part.strides)
    assert (found and found[0]) == extents


@pytest.mark.parametrize("kind", ["pinned", "registered", "pageable"])
@pytest.mark.parametrize("shape", [(20, 30), (4, 20, 30)])
def test_parts_are_copied_to_the_device_and_back(stream: Any, xp: Any, kind: str, shape: tuple[int, ...]) -> None:
    host = np.empty(shape, "f4") if kind != "pinned" else ck.empty(shape, "f4", "pinned")
    host[...] = np.random.default_rng(0).standard_normal(shape)
    locked = ck.memory.register(host) if kind == "registered" else None
    x, back = xp.zeros((*shape[:-1], 50), "f4"), np.zeros(shape, "f4")
    for there, here in (
        (np.s_[..., 10:40], np.s_[...]),
        (np.s_[..., 3:9, 2:12], np.s_[..., 10:16, 20:30]),
        (np.s_[..., 20:0:-2], np.s_[..., :10]),
        (np.s_[..., 5], np.s_[..., 7]),
    ):
        x[...] = 0
        ck.memory.copy(x[there], host[here], stream)
        np.testing.assert_array_equal(ck.to_host(x, stream)[there], host[here])
        assert np.count_nonzero(to_host(x)) == host[here].size
        part = back[here]
        ck.memory.copy(part, x[there], stream)
        stream.sync()
        np.testing.assert_array_equal(part, host[here])
    if locked is not None:
        locked.close()


def test_copies_on_the_device_may_overlap(stream: Any, xp: Any) -> None:
    a = np.arange(60, dtype="i4").reshape(6, 10)
    for target, source in ((np.s_[1:], np.s_[:-1]), (np.s_[:, :-3], np.s_[:, 3:]), (np.s_[::-1], np.s_[:])):
        x, expected = xp.asarray(a), a.copy()
        expected[target] = a[source]
        ck.memory.copy(x[target], x[source], stream)
        np.testing.assert_array_equal(ck.to_host(x, stream), expected)


def test_records(stream: Any) -> None:
    dtype = np.dtype([("r", "u1"), ("g", "u1"), ("b", "u1")])
    a = np.arange(72, dtype="u1").view(dtype).reshape(4, 6)
    x, y = (ck.memory.empty_pitched(a.shape, dtype, stream=stream) for _ in range(2))
    ck.memory.copy(x, a, stream)
    ck.memory.copy(y[:, 1:5], x[:, 2:6], stream)
    pinned = ck.empty((4, 4), dtype, "pinned")
    ck.memory.copy(pinned, y[:, 1:5], stream)
    stream.sync()
    np.testing.assert_array_equal(pinned, a[:, 2:])


def test_copies_are_ordered(stream: Any, xp: Any) -> None:
    other, add = another(stream), ck.Kernel("__global__ void add(int* x) { atomicAdd(x + threadIdx.x % 4, 1); }")
    x, host = xp.zeros(4, "i4"), ck.empty(4, "i4", "pinned")
    for turn in range(5):
        add(other, ck.config(1, 8), x)
        ck.memory.copy(host, x, stream)
        stream.sync()
        assert host.tolist() == [2 * turn + 2] * 4


def test_a_copy_on_the_current_stream(xp: Any) -> None:
    x, a = xp.zeros((3, 4), "f4"), np.ones((3, 2), "f4")
    ck.memory.copy(x[:, 1:3], a)
    assert to_host(x).tolist() == [[0, 1, 1, 0]] * 3


def test_what_cannot_be_copied(stream: Any, xp: Any) -> None:
    x = xp.zeros((3, 4), "f4")
    with pytest.raises(ck.ArgumentError, match=r"copy: target has shape \(3, 4\) and dtype float32, source \(4, 3\)"):
        ck.memory.copy(x, x.T, stream)
    with pytest.raises(ck.ArgumentError, match=r"source .* float64"):
        ck.memory.copy(x, np.zeros((3, 4)), stream)
    with pytest.raises(ck.ArgumentError, match=r"copy: source must be a .*, got list"):
        ck.memory.copy(x, [[0.0] * 4] * 3, stream)
    readonly = np.zeros((3, 4), "f4")
    readonly.flags.writeable = False
    with pytest.raises(ck.ArgumentError, match="copy: target is read-only"):
        ck.memory.copy(readonly, x, stream)


@pytest.mark.gpu
def test_a_copy_between_host_arrays_is_refused_on_a_gpu(stream: Any) -> None:
    with pytest.raises(ck.ArgumentError, match=r"are NumPy arrays, and the stream is a GPU's; numpy\.copyto"):
        ck.memory.copy(np.zeros(3), np.ones(3), stream)


# ── pitched arrays ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["u1", "f4", "c16", [("r", "u1"), ("g", "u1"), ("b", "u1")]])
@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 700), (0, 7), (5, 0)])
def test_rows_of_pitched_arrays(stream: Any, xp: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    x = ck.memory.empty_pitched(shape, dtype, stream=stream)
    assert isinstance(x, xp.ndarray)
    assert (x.shape, x.dtype) == (shape, np.dtype(dtype))
    assert x.strides[-2] % 512 == 0
    assert x.size == 0 or x.strides[-1] == x.dtype.itemsize


def test_kernels_on_pitched_arrays(stream: Any) -> None:
    double = ck.Kernel("""
        #include <cudakit/strided.cuh>
        __global__ void twice(cudakit::strided<float, 2> x) { x(threadIdx.y, threadIdx.x) *= 2; }""")
    a = np.arange(60, dtype="f4").reshape(6, 10)
    x = ck.memory.empty_pitched(a.shape, a.dtype, stream=stream)
    ck.memory.copy(x, a, stream)
    double(stream, ck.config(1, (10, 6)), x)
    np.testing.assert_array_equal(ck.to_host(x, stream), 2 * a)
    with pytest.raises(ck.ArgumentError, match="two or more ints"):
        ck.memory.empty_pitched((5,), "f4")
    with pytest.raises(ck.ArgumentError, match="positive ints"):
        ck.memory.empty_pitched((5, -1), "f4")


# ── pinned memory in kernels, and memory that is registered ──────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["pinned", "registered"])
def test_kernels_read_and_write_page_locked_memory(stream: Any, kind: str) -> None:
    add = ck.Kernel("__global__ void add(float* x, const float* y) { x[threadIdx.x] += y[threadIdx.x]; }")
    other = another(stream)
    x, y = (np.empty(64, "f4") if kind == "registered" else ck.empty(64, "f4", "pinned") for _ in range(2))
    locked = [ck.memory.register(each) for each in (x, y)] if kind == "registered" else []
    x[...], y[...] = 1, 2
    for turn in range(6):
        add((stream, other)[turn % 2], ck.config(1, 64), x, y)
    stream.sync()
    other.sync()
    assert x.tolist() == [13] * 64
    for each in locked:
        each.close()


@pytest.mark.gpu
def test_pinned_memory_is_kept_while_a_kernel_uses_it(stream: Any) -> None:
    wait = ck.Kernel("""__global__ void wait(float* x, long long cycles) {
        long long start = clock64();
        while (clock64() - start < cycles) {}
        x[threadIdx.x] = 7;
    }""")
    wait(stream, ck.config(1, 1), ck.empty(64, "f4", "pinned"), 0)
    stream.sync()
    wait(stream, ck.config(1, 64), ck.empty(64, "f4", "pinned"), 100_000_000)
    fresh = [ck.empty(64, "f4", "pinned") for _ in range(64)]
    for each in fresh:
        each[...] = 1
    stream.sync()
    assert all(each.max() == 1 for each in fresh)


@pytest.mark.gpu
def test_other_host_memory_is_refused_in_kernels(stream: Any) -> None:
    add = ck.Kernel("__global__ void add(float* x) { x[threadIdx.x] += 1; }")
    x = np.ones(64, "f4")
    with ck.memory.register(x):
        add(stream, ck.config(1, 64), x)
    assert x.tolist() == [2] * 64
    for each in (x, np.frombuffer(bytearray(256), "f4"), np.ma.ones(64, "f4")):
        with pytest.raises(ck.ArgumentError, match="is in host memory and this stream is a GPU's"):
            add(stream, ck.config(1, 64), each)


def test_register(stream: Any, xp: Any) -> None:
    a = np.arange(1000, dtype="f4")
    with ck.memory.register(a[::2]) as half:
        assert half.base is a
        x = ck.to_device(half, stream)
    np.testing.assert_array_equal(ck.to_host(x, stream), a[::2])
    locked = ck.memory.register(a)
    locked.close()
    locked.close()
    locked, seen = ck.memory.register(a), weakref.ref(a)
    del a, half, locked
    gc.collect()
    assert seen() is None
    readonly = np.ones(4)
    readonly.flags.writeable = False
    for wrong, why in ((readonly, "read-only"), (np.zeros(0), "empty"), ([1], "array must be a NumPy array, got list")):
        with pytest.raises(ck.ArgumentError, match=f"register: .*{why}"):
            ck.memory.register(wrong)  # type: ignore[arg-type]


@pytest.mark.gpu
def test_memory_is_registered_once(stream: Any) -> None:
    a = np.zeros(1 << 16, "u1")
    with ck.memory.register(a), pytest.raises(ck.LaunchError, match=r"register: .* is page-locked already"):
        ck.memory.register(a)
    with ck.memory.register(a):
        pass
