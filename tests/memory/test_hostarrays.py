"""NumPy arrays straight into kernel calls."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.places import another

import cudakit as ck
from cudakit.memory import host_arrays as hostarrays
from cudakit.streams.witnesses import Witness, Work, witnessing
from cudakit.types.cpp import Named, Pointer

AXPY = ck.Kernel(
    """
    template <typename T>
    __global__ void axpy(T a, const T* __restrict__ x, T* __restrict__ y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] += a * x[i];
    }
    """
)
COUNT = ck.Kernel(
    """
    __global__ void count(const unsigned char* x, int* bins, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) atomicAdd(&bins[x[i]], 1);
    }
    """
)
COPY = ck.Kernel(
    """
    #include <cudakit/strided.cuh>
    template <typename T>
    __global__ void copy(cudakit::strided<const T, 2> from, cudakit::strided<T, 2> to) {
        int i = threadIdx.y, j = threadIdx.x;
        to(i, j) = from(i, j);
    }
    """
)
SLOW = ck.Kernel("__global__ void slow(long long t) { long long s = clock64(); while (clock64() - s < t) {} }")


def test_in_and_inout(stream: Any) -> None:
    x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    AXPY(stream, ck.cover(x.size), 2.0, ck.In(x), ck.InOut(y), x.size)
    stream.sync()
    assert np.array_equal(y, 1 + 2 * np.arange(100, dtype=np.float32))
    assert np.array_equal(x, np.arange(100, dtype=np.float32))


def test_in_is_read_before_the_call_returns(stream: Any) -> None:
    x, y = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    AXPY(stream, ck.cover(x.size), 1.0, ck.In(x), ck.InOut(y), x.size)
    x[...] = 7
    stream.sync()
    assert np.all(y == 1)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [100, 16_000, 40_000, 400_000])
def test_in_is_read_before_the_call_returns_on_a_busy_stream(stream: Any, size: int) -> None:
    x, results = np.zeros(size, np.float32), [np.zeros(size, np.float32) for _ in range(12)]
    SLOW(stream, ck.config(1, 1), 100_000_000)
    for index, y in enumerate(results):
        x[...] = index
        AXPY(stream, ck.cover(size), 1.0, ck.In(x), ck.InOut(y), size)
        x[...] = -1
    stream.sync()
    assert [y.min() for y in results] == [y.max() for y in results] == list(range(12))


def test_out_begins_at_zero_whatever_it_held(stream: Any) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8)
    bins = np.full(256, 12345, np.int32)
    for _ in range(3):  # memory of the calls before is used again
        COUNT(stream, ck.cover(pixels.size), ck.In(pixels), ck.Out(bins), pixels.size)
        stream.sync()
        assert np.array_equal(bins, np.bincount(pixels, minlength=256))


def test_out_of_an_empty_grid_is_zero(stream: Any) -> None:
    bins = np.ones(256, np.int32)
    COUNT(stream, ck.cover(0), ck.In(np.zeros(1, np.uint8)), ck.Out(bins), 0)
    stream.sync()
    assert not bins.any()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.int64, np.complex64, np.bool_])
def test_dtypes(stream: Any, dtype: Any) -> None:
    x = (np.arange(24).reshape(4, 6) % 2).astype(dtype)
    y = np.zeros((4, 6), dtype)
    COPY(stream, ck.config(1, (6, 4)), ck.In(x), ck.Out(y))
    stream.sync()
    assert np.array_equal(x, y)


def test_vectors_of_elements(stream: Any) -> None:
    kernel = ck.Kernel(
        "__global__ void first(const float4* x, float* y) { y[threadIdx.x] = x[threadIdx.x].x + x[threadIdx.x].w; }"
    )
    for size in (32, 64, 32):
        x, y = np.arange(size, dtype=np.float32), np.ones(size // 4, np.float32)
        kernel(stream, ck.config(1, size // 4), ck.In(x), ck.Out(y))
        stream.sync()
        assert np.array_equal(y, x[::4] + x[3::4])
    with pytest.raises(ck.ArgumentError, match=r"parameter x .* the size must be a multiple of 4"):
        kernel(stream, ck.config(1, 1), ck.In(np.ones(5, np.float32)), ck.Out(np.ones(1, np.float32)))


def test_strided_arrays(stream: Any) -> None:
    x, y = np.arange(200, dtype=np.float32), np.zeros((10, 20), np.float32)
    target = y[::2, ::-2]
    COPY(stream, ck.config(1, (10, 5)), ck.In(x.reshape(20, 10).T[:, ::2][:5, :]), ck.Out(target))
    stream.sync()
    assert np.array_equal(target, x.reshape(20, 10).T[:, ::2][:5, :])
    assert np.count_nonzero(y) <= target.size


def test_struct_elements(stream: Any) -> None:
    kernel = ck.Kernel(
        """
        struct Point { float x; int n; };
        __global__ void twice(const Point* from, Point* to) { to[threadIdx.x].x = 2 * from[threadIdx.x].x; }
        """
    )
    points = np.zeros(4, np.dtype([("x", "f4"), ("n", "i4")]))
    points["x"] = [1, 2, 3, 4]
    made = np.empty_like(points)
    kernel(stream, ck.config(1, 4), ck.In(points), ck.Out(made))
    stream.sync()
    assert made["x"].tolist() == [2, 4, 6, 8]
    assert made["n"].tolist() == [0, 0, 0, 0]


def test_empty_arrays(stream: Any) -> None:
    x, y = np.ones(0, np.float32), np.ones(0, np.float32)
    AXPY(stream, ck.config(1, 32), 1.0, ck.In(x), ck.InOut(y), 0)
    COUNT(stream, ck.config(1, 32), ck.In(x.astype(np.uint8)), ck.Out(y.astype(np.int32)), 0)
    stream.sync()


def test_beside_device_arrays_and_named(stream: Any, xp: Any) -> None:
    x, y = np.ones(64, np.float32), xp.ones(64, np.float32)
    AXPY(stream, ck.cover(64), a=3.0, x=ck.In(x), y=y, n=64)
    stream.sync()
    assert float(y.sum()) == 4 * 64


def test_one_array_in_twice(stream: Any) -> None:
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    kernel = ck.Kernel(
        "__global__ void add(const float* a, const float* b, float* c) { int i = threadIdx.x; c[i] = a[i] + b[i]; }"
    )
    kernel(stream, ck.config(1, 8), ck.In(x), ck.In(x), ck.Out(y))
    stream.sync()
    assert y.tolist() == [2.0] * 8


def test_calls_on_one_stream_follow_each_other(stream: Any) -> None:
    x, y = np.ones(4096, np.float32), np.zeros(4096, np.float32)
    for _ in range(20):
        AXPY(stream, ck.cover(x.size), 1.0, ck.In(x), ck.InOut(y), x.size)
    stream.sync()
    assert np.all(y == 20)


def test_calls_on_two_streams_that_share_an_array(stream: Any) -> None:
    other = another(stream)
    x, y = np.ones(4096, np.float32), np.zeros(4096, np.float32)
    AXPY(stream, ck.cover(x.size), 1.0, ck.In(x), ck.InOut(y), x.size)
    stream.sync()
    AXPY(other, ck.cover(x.size), 1.0, ck.In(x), ck.InOut(y), x.size)
    other.sync()
    assert np.all(y == 2)


def test_an_event_after_the_call_is_enough(stream: Any) -> None:
    x, y = np.ones(4096, np.float32), np.zeros(4096, np.float32)
    AXPY(stream, ck.cover(x.size), 1.0, ck.In(x), ck.InOut(y), x.size)
    stream.record().sync()
    assert np.all(y == 1)


def test_the_work_is_told(stream: Any) -> None:
    seen: list[Work] = []

    class Notes(Witness):
        def begin(self, work: Work) -> None:
            seen.append(work)

    x, y, bins = np.ones(16, np.uint8), np.zeros(16, np.uint8), np.zeros(256, np.int32)
    COUNT(stream, ck.cover(16), ck.In(x), ck.Out(bins), 16)  # which compiles it
    with witnessing(Notes()):
        COUNT(stream, ck.cover(16), ck.In(x), ck.Out(bins), 16)
        stream.sync()
    assert [(work.kind, work.size) for work in seen] == [("copy", 16), ("fill", 1024), ("kernel", 0), ("copy", 1024)]
    assert seen[0].reads[0] is x
    assert seen[3].writes[0] is bins
    del y


# ── misuse ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_overlap_is_refused(stream: Any) -> None:
    x = np.ones(100, np.float32)
    with pytest.raises(ck.ArgumentError, match=r"axpy: argument y: ck.InOut and ck.In of x share memory"):
        AXPY(stream, ck.cover(100), 1.0, ck.In(x), ck.InOut(x), 100)
    with pytest.raises(ck.ArgumentError, match="share memory"):
        AXPY(stream, ck.cover(10), 1.0, ck.In(x[:20]), ck.InOut(x[10:]), 10)
    AXPY(stream, ck.cover(50), 1.0, ck.In(x[::2]), ck.InOut(x[1::2]), 50)  # interleaved, but apart
    stream.sync()
    assert x.tolist() == [1.0, 2.0] * 50


@pytest.mark.parametrize("kind", [ck.Out, ck.InOut])
def test_an_array_beside_its_own_copy_is_refused(stream: Any, kind: Any) -> None:
    """What the kernel writes to the array itself would be lost when the copy is brought back."""
    x = ck.empty(8, np.float32, "pinned")
    x[:] = 1
    words = r"axpy: argument y: ck.\w+ shares memory with argument 1, which is given as it is.*as ck.InOut\(a\)"
    for given in (x, x[2:4]):
        with pytest.raises(ck.ArgumentError, match=words):
            AXPY(stream, ck.cover(2), 1.0, given, kind(x), 2)
    AXPY(stream, ck.cover(4), 1.0, x[:4], ck.InOut(x[4:]), 4)
    stream.sync()
    assert x.tolist() == [1.0] * 4 + [2.0] * 4


def test_direction_must_fit_the_parameter(stream: Any) -> None:
    x, y = np.ones(8, np.float32), np.ones(8, np.float32)
    with pytest.raises(ck.ArgumentError, match=r"axpy: argument y: ck.In brings nothing back.*give ck.InOut"):
        AXPY(stream, ck.cover(8), 1.0, ck.In(x), ck.In(y), 8)
    with pytest.raises(ck.ArgumentError, match=r"axpy: argument x: ck.Out is written.*const T\*.*give ck.In"):
        AXPY(stream, ck.cover(8), 1.0, ck.Out(x), ck.InOut(y), 8)
    with pytest.raises(ck.TemplateError, match=r"copy: .* const float from to"):
        COPY(stream, ck.config(1, (2, 4)), ck.In(x.reshape(4, 2)), ck.In(y.reshape(4, 2)))


def test_in_for_a_parameter_that_is_not_const(stream: Any) -> None:
    multiply = ck.Kernel(
        "__global__ void multiply(float* dest, float* a, float* b) { int i = threadIdx.x; dest[i] = a[i] * b[i]; }"
    )
    a, dest = np.arange(400, dtype=np.float32), np.ones(400, np.float32)
    for _ in range(2):
        with pytest.raises(ck.ArgumentError, match=r"multiply: argument a: ck.In .*give ck.In\(a, const=True\)"):
            multiply(stream, ck.config(1, 400), ck.Out(dest), ck.In(a), ck.In(a))
        multiply(stream, ck.config(1, 400), ck.Out(dest), ck.In(a, const=True), ck.In(a, const=True))
        stream.sync()
        assert np.array_equal(dest, a * a)
    copy = ck.Kernel("""
        #include <cudakit/strided.cuh>
        __global__ void copy(cudakit::strided<float, 2> from, cudakit::strided<float, 2> to) {
            to(threadIdx.y, threadIdx.x) = from(threadIdx.y, threadIdx.x);
        }""")
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4).T, np.zeros((4, 3), np.float32)
    copy(stream, ck.config(1, (3, 4)), ck.In(x, const=True), ck.Out(y))
    stream.sync()
    assert np.array_equal(x, y)
    assert repr(ck.In(a, const=True)) == repr(ck.In(a)) == "ck.In(float32 array of shape (400,))"
    for kind in (ck.Out, ck.InOut):
        with pytest.raises(ck.ArgumentError, match=rf"ck.{kind.__name__} brings back .*const=True is for ck.In"):
            kind(a, const=True)


@pytest.mark.emulator
def test_in_that_is_written_all_the_same_is_found(stream: Any) -> None:
    write = ck.Kernel("__global__ void write(float* x, int i) { x[i] = 0.0f / x[i]; }")
    x = np.ones(8, np.float32)
    with pytest.raises(ck.EmulationError, match=r"write: argument x: the kernel wrote to element 5, and ck.In\(a, con"):
        write(stream, ck.config(1, 1), ck.In(x, const=True), 5)
    assert x.tolist() == [1] * 8


def test_wrong_dtype_names_the_parameter_and_leaves_the_array(stream: Any) -> None:
    x, bins = np.ones(8, np.int16), np.full(256, 3, np.int32)
    with pytest.raises(ck.ArgumentError, match=r"count: parameter x \(const unsigned char\*\).*int16"):
        COUNT(stream, ck.cover(8), ck.In(x), ck.Out(bins), 8)
    stream.sync()
    assert np.all(bins == 3)


def test_missing_argument(stream: Any) -> None:
    with pytest.raises(ck.ArgumentError, match="axpy takes 4 arguments"):
        AXPY(stream, ck.cover(8), 1.0, ck.In(np.ones(8, np.float32)))


def test_what_no_kernel_takes() -> None:
    readonly = np.ones(4)
    readonly.flags.writeable = False
    assert ck.In(readonly).array is readonly
    for kind in (ck.Out, ck.InOut):
        with pytest.raises(ck.ArgumentError, match="read-only"):
            kind(readonly)
    with pytest.raises(ck.ArgumentError, match=r"byte order; convert it with a.astype\('float32'\)"):
        ck.In(np.ones(4, ">f4"))
    with pytest.raises(ck.ArgumentError, match="dtype object"):
        ck.In(np.array([None]))
    with pytest.raises(ck.ArgumentError, match="got list; give a NumPy array"):
        ck.In([1, 2, 3])
    with pytest.raises(ck.ArgumentError, match="got float64; give a NumPy array"):
        ck.Out(np.float64(1))


@pytest.mark.gpu
def test_device_array_is_given_as_it_is(xp: Any) -> None:
    with pytest.raises(ck.ArgumentError, match="it is in device memory: give it to the kernel as it is"):
        ck.In(xp.ones(4))


def test_plan_is_refused(stream: Any) -> None:
    x = np.ones(8, np.float32)
    with pytest.raises(ck.ArgumentError, match=r"axpy: a plan .* copied at each call; move the array once"):
        AXPY.plan(stream, ck.cover(8), 1.0, ck.In(x), ck.InOut(np.ones(8, np.float32)), 8)


@pytest.mark.emulator
def test_a_kernel_that_fails_leaves_the_array(stream: Any) -> None:
    y = np.ones(8, np.float32)
    with pytest.raises(ck.EmulationError, match=r"out of bounds|outside|beyond"):
        AXPY(stream, ck.config(1, 32), 1.0, ck.In(np.ones(8, np.float32)), ck.InOut(y), 32)
    assert np.all(y == 1)


# ── on a GPU ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.gpu
def test_vectors_of_elements_of_an_object_that_exports_them(stream: Any, xp: Any) -> None:
    class Exporting:
        def __init__(self, array: Any) -> None:
            self.array = array
            self.__cuda_array_interface__ = array.__cuda_array_interface__

    kernel = ck.Kernel("__global__ void first(const float4* x, float* y) { y[threadIdx.x] = x[threadIdx.x].x; }")
    y = np.ones(4, np.float32)
    for _ in range(2):
        kernel(stream, ck.config(1, 4), Exporting(xp.arange(16, dtype=np.float32)), ck.Out(y))
        stream.sync()
        assert y.tolist() == [0, 4, 8, 12]
    with pytest.raises(ck.ArgumentError, match="the size must be a multiple of 4"):
        kernel(stream, ck.config(1, 4), Exporting(xp.ones(15, dtype=np.float32)), ck.Out(y))


@pytest.mark.gpu
def test_capture_is_refused(stream: Any) -> None:
    from cuda.bindings import driver

    x, y = np.ones(8, np.float32), np.ones(8, np.float32)
    AXPY(stream, ck.cover(8), 1.0, ck.In(x), ck.InOut(y), 8)
    stream.sync()
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    driver.cuStreamBeginCapture(stream.handle, mode)
    try:
        with pytest.raises(ck.LaunchError, match=r"axpy: the stream is being captured .* ck.to_device"):
            AXPY(stream, ck.cover(8), 1.0, ck.In(x), ck.InOut(y), 8)
        with pytest.raises(ck.LaunchError, match="to_device: the stream is being captured"):
            ck.to_device(x, stream)
    finally:
        status, graph = driver.cuStreamEndCapture(stream.handle)
    assert int(status) == 0
    driver.cuGraphDestroy(graph)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 1000, 1 << 20, (8 << 20) // 4, 40_000_001])
def test_sizes(stream: Any, size: int) -> None:
    x, y = np.arange(size, dtype=np.float32), np.ones(size, np.float32)
    AXPY(stream, ck.cover(size), 1.0, ck.In(x), ck.InOut(y), size)
    stream.sync()
    assert np.array_equal(y, x + np.float32(1))


@pytest.mark.gpu
def test_pinned_arrays_are_copied_straight(stream: Any) -> None:
    x = ck.empty(1 << 20, np.float32, kind="pinned")
    y = ck.empty(1 << 20, np.float32, kind="pinned")
    x[...], y[...] = 3, 1
    before = ck.memory.report().of("pinned").used
    AXPY(stream, ck.cover(x.size), 1.0, ck.In(x), ck.InOut(y), x.size)
    assert ck.memory.report().of("pinned").used == before
    stream.sync()
    assert np.all(y == 4)


@pytest.mark.gpu
def test_result_is_not_there_before_a_slow_kernel_is_done(stream: Any) -> None:
    slow = ck.Kernel(
        """
        __global__ void slow(int* x, long long ticks) {
            long long start = clock64();
            while (clock64() - start < ticks) {}
            *x = 1;
        }
        """
    )
    for ticks in [400_000_000, *[1_000_000, 10_000] * 15]:
        y = np.full(1, 9, np.int32)
        slow(stream, ck.config(1, 1), ck.Out(y), ticks)
        event = stream.record()
        if ticks == 400_000_000:
            assert y[0] == 9
            assert not event.is_done
        event.sync()
        assert y[0] == 1


@pytest.mark.gpu
def test_calls_alike_use_the_same_device_memory(stream: Any) -> None:
    tell = ck.Kernel(
        "__global__ void tell(const float* x, unsigned long long* at) { at[0] = (size_t)x; at[1] = (size_t)at; }"
    )

    def addresses(place: Any, size: int) -> list[int]:
        at = np.zeros(2, np.uint64)
        tell(place, ck.config(1, 1), ck.In(np.ones(size, np.float32)), ck.Out(at))
        place.sync()
        return [int(address) for address in at]

    first, other = addresses(stream, 1000), ck.stream()
    assert addresses(stream, 1000) == first
    kept = addresses(other, 1000)
    assert not set(kept) & set(first)  # of another stream's calls
    assert addresses(stream, 1000) == first
    assert addresses(other, 1000) == kept


@pytest.mark.gpu
def test_kept_device_memory_is_reported_as_free_and_trimmed(stream: Any) -> None:
    x, y = np.ones(50_000, np.float32), np.zeros(50_000, np.float32)
    ck.memory.trim()
    before = ck.memory.report().of("device")
    AXPY(stream, ck.cover(x.size), 1.0, ck.In(x), ck.InOut(y), x.size)
    stream.sync()
    after = ck.memory.report().of("device")
    assert after.used == before.used
    assert after.free >= before.free + 400_000
    assert ck.memory.trim() >= 400_000
    assert ck.memory.report().of("device").free < 400_000
    AXPY(stream, ck.cover(x.size), 1.0, ck.In(x), ck.InOut(y), x.size)
    stream.sync()
    assert np.all(y == 2)


@pytest.mark.gpu
def test_calls_alike_of_threads_on_one_stream_are_apart(stream: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(seed: int) -> bool:
        right = True
        for step in range(200):
            if step % 10 == 0:
                SLOW(stream, ck.config(1, 1), 500_000)  # so that results come by another thread
            x, y = np.full(2000, seed, np.float32), np.full(2000, step, np.float32)
            AXPY(stream, ck.cover(x.size), 1.0, ck.In(x), ck.InOut(y), x.size)
            stream.sync()
            right = right and bool(np.all(y == seed + step))
        return right

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))


@pytest.mark.gpu
@pytest.mark.parametrize("busy", [False, True])
def test_pinned_and_pageable_and_strided_arrays_together(stream: Any, busy: bool) -> None:
    kernel = ck.Kernel(
        """
        __global__ void mixed(const float* a, const float* b, float* c, float* d, float* e, float* f) {
            int i = threadIdx.x;
            c[i] += a[i], d[i] += b[i], e[i] += a[i] * b[i], f[i] += i;
        }
        """
    )
    for turn in range(20):
        a, c, e = (ck.empty(64, np.float32, kind="pinned") for _ in range(3))
        a[...], c[...], e[...] = np.arange(64), 1, 50
        b, d, f = np.arange(128, dtype=np.float32)[::2], np.full(64, 5, np.float32), np.full((64, 3), 9, np.float32)
        if busy:
            SLOW(stream, ck.config(1, 1), 1_000_000)
        given = ck.In(a), ck.In(b), ck.InOut(c), ck.InOut(d), ck.Out(e), ck.Out(f[:, 1])
        kernel(stream, ck.config(1, 64), *given)
        stream.sync()
        i = np.arange(64)
        assert np.array_equal(c, 1 + i), turn
        assert np.array_equal(d, 5 + 2 * i), turn
        assert np.array_equal(e, 2 * i * i), turn
        assert np.array_equal(f[:, 1], i), turn
        assert np.all(f[:, ::2] == 9)


@pytest.mark.gpu
def test_pinned_arrays_are_kept_until_a_call_is_done(stream: Any) -> None:
    y = np.zeros(1 << 18, np.float32)
    for _ in range(3):
        SLOW(stream, ck.config(1, 1), 20_000_000)
        x = ck.empty(1 << 18, np.float32, kind="pinned")
        x[...] = 1
        AXPY(stream, ck.cover(x.size), 1.0, ck.In(x), ck.InOut(y), x.size)
        del x
        other = ck.empty(1 << 18, np.float32, kind="pinned")  # must not be the same memory
        other[...] = 100
    stream.sync()
    assert np.all(y == 3)


@pytest.mark.gpu
def test_out_is_awaited_by_whoever_reads_it_next(stream: Any) -> None:
    other, (x, y) = ck.stream(), (np.ones(1 << 22, np.float32), np.zeros(1 << 22, np.float32))
    for step in range(5):
        place = (stream, other)[step % 2]
        AXPY(place, ck.cover(x.size), 1.0, ck.In(x), ck.InOut(y), x.size)
    other.sync()
    stream.sync()
    assert np.all(y == 5)


@pytest.mark.gpu
def test_pools_are_flat_after_many_calls(stream: Any) -> None:
    import cupy

    x, y = np.ones(1000, np.float32), np.zeros(1000, np.float32)

    def calls(count: int) -> tuple[int, int, int]:
        for _ in range(count):
            AXPY(stream, ck.cover(x.size), 1.0, ck.In(x), ck.InOut(y), x.size)
        stream.sync()
        gc.collect()
        held = ck.memory.report().of("pinned")
        return held.used, held.used + held.free, cupy.get_default_memory_pool().total_bytes()

    gc.collect()  # arrays of other tests
    used = ck.memory.report().of("pinned").used
    first, second = calls(2000), calls(8000)
    assert np.all(y == 10_000)
    assert second[0] <= first[0] <= used
    assert second[1] <= first[1] + (1 << 20)  # some more blocks may have been on their way
    assert second[2] == first[2]


@pytest.mark.gpu
def test_many_results_on_their_way(stream: Any) -> None:
    pixels, bins = np.ones(4096, np.uint8), [np.full(256, 7, np.int32) for _ in range(3000)]
    device = ck.to_device(pixels, stream)
    for some in bins:
        COUNT(stream, ck.cover(pixels.size), device, ck.Out(some), pixels.size)
    stream.sync()
    assert all(some[1] == 4096 and some.sum() == 4096 for some in bins)


@pytest.mark.gpu
def test_results_of_two_streams_come_in_the_order_of_the_calls(stream: Any) -> None:
    other, y = ck.stream(), np.zeros(1, np.int32)
    fill = ck.Kernel(
        """
        __global__ void fill(int* x, int value, long long ticks) {
            long long start = clock64();
            while (clock64() - start < ticks) {}
            *x = value;
        }
        """
    )
    fill(stream, ck.config(1, 1), ck.Out(y), 1, 200_000_000)
    fill(other, ck.config(1, 1), ck.Out(y), 2, 0)
    other.sync()
    stream.sync()
    assert y[0] == 2


@pytest.mark.gpu
def test_from_several_threads(stream: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(seed: int) -> bool:
        own = ck.stream()
        x, y = np.full(50_000, seed, np.float32), np.zeros(50_000, np.float32)
        for _ in range(30):
            AXPY(own, ck.cover(x.size), 1.0, ck.In(x), ck.InOut(y), x.size)
        own.sync()
        return bool(np.all(y == 30 * seed))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


@pytest.mark.gpu
def test_lost_results_are_told(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    y = np.zeros(8, np.float32)
    ones = ck.Kernel("__global__ void ones(float* y) { y[threadIdx.x] = 1; }")
    ones(stream, ck.config(1, 8), ck.Out(y))
    stream.sync()
    with monkeypatch.context() as broken:
        broken.setattr(np, "copyto", lambda *_: 1 / 0)
        SLOW(stream, ck.config(1, 1), 50_000_000)  # so that the call doesn't bring it itself
        ones(stream, ck.config(1, 8), ck.Out(y))
        stream.sync()  # is not left waiting
    assert isinstance(told[0].exc_value, ZeroDivisionError)
    y[...] = 0
    with pytest.raises(ck.LaunchError, match="results on their way to a host array were lost"):
        ones(stream, ck.config(1, 8), ck.Out(y))
    ones(stream, ck.config(1, 8), ck.Out(y))
    stream.sync()
    assert np.all(y == 1)


class Declared:
    """A kernel's head: ``k(float* x, const float* y, int n, Rest... rest)``, the last a pack of pointers or not."""

    name = "k"

    def __init__(self, pack: bool) -> None:
        writes = Pointer(Named("float"))
        reads = Pointer(Named("float", const=True))
        parameters = [("x", writes, False), ("y", reads, False), ("", Named("int"), False), ("rest", writes, pack)]
        self.signature = SimpleNamespace(
            parameters=[SimpleNamespace(name=name, type=type_, pack=pack) for name, type_, pack in parameters]
        )


def test_host_arrays_are_checked_by_the_parameter_that_takes_them() -> None:
    a, b, c = (np.zeros(4, "f4") for _ in range(3))
    given = [ck.Out(a), 5, ck.In(b), ck.InOut(c), ck.InOut(a.copy())]
    assert hostarrays.check(Declared(True), given) == [
        *[(0, "x", True), (2, "2", False), (3, "rest", True), (4, "rest", True)]
    ]
    assert hostarrays.check(Declared(False), given)[-1] == (4, "4", False)
    unknown: Any = SimpleNamespace(name="k", signature=SimpleNamespace(parameters=None))
    assert hostarrays.check(unknown, given) == [*[(0, "0", False), (2, "2", False), (3, "3", False), (4, "4", False)]]


@pytest.mark.parametrize(
    ("position", "given", "why"),
    [
        (1, ck.Out, r"k: argument y: ck\.Out is written by the kernel, which takes .*; give ck\.In\(a\)"),
        (0, ck.In, r"k: argument x: ck\.In brings nothing back, and the kernel may write to"),
        (3, ck.In, r"k: argument rest: ck\.In brings nothing back"),
        (5, ck.In, r"k: argument rest: ck\.In brings nothing back"),
    ],
)
def test_the_direction_is_that_of_the_parameter(position: int, given: Any, why: str) -> None:
    arguments: list[Any] = [5] * 6
    arguments[position] = given(np.zeros(4, "f4"))
    with pytest.raises(ck.ArgumentError, match=why):
        hostarrays.check(Declared(True), arguments)
    arguments[position] = ck.In(np.zeros(4, "f4"), const=True)
    assert len(hostarrays.check(Declared(True), arguments)) == 1


def test_host_arrays_that_share_memory_are_told_with_both_names() -> None:
    a = np.zeros(8, "f4")
    with pytest.raises(ck.ArgumentError, match=r"k: argument y: ck\.In and ck\.InOut of x share memory"):
        hostarrays.check(Declared(True), [ck.InOut(a), ck.In(a[2:])])
    with pytest.raises(ck.ArgumentError, match=r"k: argument rest: ck\.Out and ck\.In of y share memory"):
        hostarrays.check(Declared(True), [5, ck.In(a), 5, ck.Out(a[:3])])
    reads = [5, ck.In(a), 5, ck.In(a, const=True)]
    assert len(hostarrays.check(Declared(True), reads)) == 2
    assert len(hostarrays.check(Declared(True), [ck.InOut(a[:4]), ck.In(a[4:])])) == 2


def test_what_a_kernel_has_written_against_the_word_is_told_with_the_element() -> None:
    x = np.arange(6, dtype="i4")
    before = x.tobytes()
    hostarrays.refuse_written(Declared(True), 0, x, before)
    x[4] += 1
    for position, name in ((0, "x"), (2, "2"), (9, "9")):
        with pytest.raises(ck.EmulationError, match=f"k: argument {name}: the kernel wrote to element 4, and"):
            hostarrays.refuse_written(Declared(True), position, x, before)


def is_refused_beside(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether a call that writes one array and reads the other is refused."""
    try:
        hostarrays.check(Declared(True), [ck.Out(first), ck.In(second)])
    except ck.ArgumentError as error:
        return "share memory" in str(error)
    return False


def test_arrays_overlap_where_they_share_an_element() -> None:
    x = np.zeros((8, 8), "f4")
    assert is_refused_beside(x, x[2:])
    assert not is_refused_beside(x[:4], x[4:])
    assert not is_refused_beside(x[:, ::2], x[:, 1::2])
    assert not is_refused_beside(x, np.zeros(3))
    memory = np.zeros(64, np.uint8)
    assert not is_refused_beside(memory[:10], memory[10:])
    assert is_refused_beside(memory[::2], memory[4::4])


def test_overlap_that_is_hard_to_decide_counts_as_one() -> None:
    memory = np.zeros(1 << 19, np.uint8)
    first = np.lib.stride_tricks.as_strided(memory, (9,) * 4, (11556, 18166, 6157, 7868))
    second = np.lib.stride_tricks.as_strided(memory[1358:], (9,) * 4, (17713, 4551, 2220, 8104))
    with pytest.raises(np.exceptions.TooHardError):
        np.shares_memory(first, second, 10_000)  # type: ignore[arg-type]  # the stub knows two numbers only
    assert is_refused_beside(first, second)
