"""PyCUDA's GPUArray and its functions: NumPy is the referee."""

from __future__ import annotations

import operator
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudakit.adapters.pycuda import allocations, array_arithmetic, cumath, gpuarray
from cudakit.adapters.pycuda.allocations import mem_alloc
from cudakit.adapters.pycuda.c_types import dtype_to_ctype
from cudakit.adapters.pycuda.compiler import SourceModule
from cudakit.adapters.pycuda.errors import LogicError
from cudakit.adapters.pycuda.gpuarray import GPUArray, to_gpu
from cudakit.adapters.pycuda.streams import Stream
from cudakit.errors import ArgumentError

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")

DTYPES = ("int8", "uint8", "int32", "uint64", "float16", "float32", "float64", "complex64")
ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow)
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
IN_PLACE = (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow)


def values(dtype: Any, shape: Any = (3, 5), seed: int = 0) -> np.ndarray:
    """Return numbers from 1 to 9, complex ones with an imaginary part."""
    drawn = np.random.default_rng(seed).integers(1, 10, shape)
    return (drawn + 1j * drawn[::-1] if np.dtype(dtype).kind == "c" else drawn).astype(dtype)


def check(array: GPUArray, expected: Any) -> None:
    """Compare shape, dtype and elements; floats to a few units in the last place."""
    expected = np.asarray(expected)
    assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
    rtol = {"e": 4e-3, "f": 1e-5, "F": 1e-5, "d": 1e-13, "D": 1e-13}.get(expected.dtype.char, 0)
    np.testing.assert_allclose(array.get(), expected, rtol=rtol, atol=0)


# ── fill ──


@pytest.mark.parametrize("order", ["C", "F"])
def test_fill_sets_all_bits_of_all_elements(order: str) -> None:
    for dtype in (*DTYPES, "bool", "int16", "complex128"):
        for number in (0, 1, 3) if dtype[0] not in "fc" else (0, 1, -0.0, np.nan, 1e-3):
            x = gpuarray.empty((3, 5), dtype, order=order)
            expected = np.full((3, 5), np.dtype(dtype).type(number))
            assert x.fill(np.dtype(dtype).type(number)).get().tobytes() == expected.tobytes(), (dtype, number)


@pytest.mark.parametrize(
    ("number", "call"),
    [
        (np.float32("nan"), ("cuMemsetD32Async", 0x7FC00000, 6)), (np.int16(-2), ("cuMemsetD16Async", 0xFFFE, 12)),
        (np.float64(0), ("cuMemsetD8Async", 0, 24)), (np.int64(2**32 + 1), ("cuMemsetD32Async", 1, 6)),
        (np.float64(1), None),
    ],
)  # fmt: skip
def test_on_a_gpu_the_driver_fills_without_a_kernel(number: Any, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is loaded takes memory, and a program may have used up the device's."""
    cupy = pytest.importorskip("cupy")
    calls: list[Any] = []
    monkeypatch.setattr(allocations, "call", lambda name, at, *rest: calls.append((name, *rest[:2])))
    monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda: SimpleNamespace(ptr=0))
    array = SimpleNamespace(data=SimpleNamespace(ptr=4096), nbytes=24, fill=lambda value: calls.append(None))
    allocations.set_elements(array, number)
    assert calls == [call]


def test_a_freed_allocation_keeps_no_view_of_its_memory() -> None:
    x = gpuarray.zeros(4, np.float32)
    view = x.device_array()
    assert x.device_array() is view
    assert x.reshape(2, 2).get().shape == (2, 2)
    x.gpudata.free()
    assert not x.gpudata.views
    with pytest.raises(LogicError, match="freed"):
        x.get()


# ── arithmetic ──


def test_functions_of_floats_write_to_the_result_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_arithmetic, "store", None)
    for dtype in ("float32", "float64", "complex64"):
        a, b = values(dtype), values(dtype, seed=1)
        x, y = to_gpu(a), to_gpu(b)
        check(cumath.sin(x), np.sin(a))
        check(x / y, a / b)
        check(x**2, a ** np.dtype(dtype).type(2))
        check(2 / x, np.dtype(dtype).type(2) / a)
        x /= y
        check(x, a / b)


@pytest.mark.parametrize("operation", ARITHMETIC)
def test_operators_have_the_values_and_dtypes_of_numpy(operation: Any) -> None:
    for dtype in DTYPES:
        a, b = values(dtype), values("float32", seed=1)
        x, y = to_gpu(a), to_gpu(b)
        check(operation(x, y), operation(a, b))
        check(operation(y, x), operation(b, a))
        check(operation(x, 2.5), operation(a, 2.5))
        check(operation(2, y), operation(2, b))
        check(operation(y, np.float64(3)), operation(b, np.float64(3)))


@pytest.mark.parametrize("operation", IN_PLACE)
def test_operators_in_place_keep_array_and_dtype(operation: Any) -> None:
    a, b = values("float32"), values("float64", seed=1)
    x = same = to_gpu(a)
    x = operation(x, to_gpu(b))
    assert x is same
    check(x, operation(a.astype("f8"), b).astype("f4"))
    check(operation(to_gpu(a), 2), operation(a.copy(), 2))


@pytest.mark.parametrize("operation", COMPARISONS)
def test_comparisons_give_numbers_of_the_common_dtype(operation: Any) -> None:
    a, b = values("int32"), values("int16", seed=1)
    check(operation(to_gpu(a), to_gpu(b)), operation(a, b).astype("int32"))
    check(operation(to_gpu(a), 4), operation(a, 4).astype("int32"))


def test_integers_are_divided_as_in_c() -> None:
    a, b = np.array([-7, 7, -7, 6], np.int32), np.array([2, -2, -2, 3], np.int32)
    check(to_gpu(a) / to_gpu(b), np.array([-3, -3, 3, 2], np.int32))
    check(9 / to_gpu(b), np.array([4, -4, -4, 3], np.int32))
    check(to_gpu(a) ** 2, a**2)
    large = np.array([2**62 + 1], np.int64)
    check(to_gpu(large) / to_gpu(np.array([1])), large)


def test_an_array_without_axes_goes_with_every_shape() -> None:
    a, b = values("float32"), np.array(3, np.int32)
    for operation in ARITHMETIC[:4]:
        check(operation(to_gpu(a), to_gpu(b)), operation(a, b))
        check(operation(to_gpu(b), to_gpu(a)), operation(b, a))
    with pytest.raises(NotImplementedError, match=r"\(3, 5\) and \(5,\) differ"):
        to_gpu(a) + to_gpu(a[0])


def test_neutral_numbers_give_copies_of_the_same_dtype() -> None:
    x = to_gpu(values("int32"))
    for result in (x + 0.0, x - 0, x / 1):
        assert result.ptr != x.ptr
        check(result, x.get())


def test_unary_operators_and_parts() -> None:
    a = values("complex64")
    x = to_gpu(np.asfortranarray(a))
    for result, expected in (
        (-x, -a), (abs(x), abs(a)), (x.real, a.real), (x.imag, a.imag), (x.conj(), a.conj()), (x.conjugate(), a.conj()),
    ):  # fmt: skip
        check(result, expected)
        assert result.flags.f_contiguous
    out = gpuarray.empty_like(x, np.complex128)
    assert x.conj(out=out) is out
    check(out, a.conj().astype("c16"))
    y = to_gpu(a.real.copy())
    assert y.real is y
    assert y.conj() is y
    assert +y is y
    check(y.imag, np.zeros_like(a.real))
    check(abs(-y), a.real)


def test_mul_add() -> None:
    a, b = values("float32"), values("float64", seed=1)
    x, y = to_gpu(a), to_gpu(b)
    check(x.mul_add(2, y, 0.5), 2 * a + 0.5 * b)
    out = gpuarray.empty_like(x)
    assert x.mul_add(2, y, 1, stream=Stream(), out=out) is out
    check(out, (2 * a + b).astype("f4"))
    with pytest.raises(ArgumentError, match="add_timer"):
        x.mul_add(1, y, 1, add_timer=print)


def test_conversions() -> None:
    a = np.array([-1.75, 2.5, 300.0])
    check(to_gpu(a).astype(np.int32), a.astype(np.int32))
    check(to_gpu(a).astype(bool), a.astype(bool))
    check(to_gpu(a).astype(np.complex64), a.astype(np.complex64))
    x = to_gpu(a)
    assert x.astype(float).ptr != x.ptr
    check(x.reverse(), a[::-1])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: x / 2, "PyCUDA cannot divide int32 by a number"),
        (lambda x: operator.iadd(x, 2.5), "a value for int32 is expected, got float 2.5"),
        (lambda x: operator.imul(x.astype("f4"), 1j), "a value for float32 is expected, got complex"),
        (lambda x: operator.iadd(x, x.astype("c8")), "the result is complex128, and its array int32"),
        (lambda x: x.astype("c8").astype("f4"), "take .real or abs"),
        (lambda x: x.fill(1.5), "fill: a value for int32"),
        (lambda x: x + x.T.reshape(5, 3).T, "different memory orders"),
        (lambda x: x[:, 1] + 1, "only contiguous arrays may be used"),
        (lambda x: x == None, "an array is compared with a GPUArray or a number"),  # noqa: E711
        (np.asarray, "call x.get()"),
        (bool, "the truth value of a GPUArray of 15 elements"),
        (lambda x: x.set(np.zeros((3, 5))), r"convert it: ary.astype\(np.int32\)"),
        (lambda x: x.set(np.zeros(4, "i4")), "has 15 elements, and the argument 4"),
        (lambda x: x.get(np.zeros(4, "i4")), "got ary with 4 of int32"),
        (lambda x: x.reshape(4, 4), "15 elements do not fit the shape"),
        (lambda x: x.reshape(-1, -1), "one extent at most may be -1"),
        (lambda x: x.transpose((0, 0)), "are no order of 2 axes"),
        (lambda x: x[[0, 1]], "call gpuarray.take"),
        (lambda x: x[3], "out of bounds"),
        (lambda x: x[0, 0, 0], "too many indices"),
        (lambda x: operator.setitem(x, 0, np.zeros(5)), "int32 of shape"),
        (lambda x: GPUArray((2, -1), "f4"), "negative extent"),
        (lambda x: GPUArray(2.5, "f4"), "got 2.5"),
        (lambda x: GPUArray(2, "f4", order="X"), "order is 'C' or 'F'"),
        (lambda x: to_gpu([1, 2]), "call np.asarray"),
        (lambda x: x.set([1, 2]), "takes a NumPy array, got list"),
        (lambda x: operator.itruediv(x.astype("f4"), np.ones(3)), "a value for float32 is expected, got ndarray"),
        (lambda x: gpuarray.take(x, x), "integers with one dimension"),
        (lambda x: gpuarray.where(x, x, 1), "else_ is a GPUArray, got int 1"),
        (lambda x: gpuarray.where(x, x, x.astype("f4")), "then_ and else_ one dtype"),
        (lambda x: gpuarray.min(x.astype("c8")), "real numbers"),
        (lambda x: gpuarray.max(gpuarray.empty(0, "f4")), "with elements"),
        (lambda x: gpuarray.concatenate([]), "one array at least"),
        (lambda x: gpuarray.stack([x, x.T]), "stack: "),
        (lambda x: gpuarray.arange(0, 3, 1, 5), "each once"),
        (lambda x: gpuarray.arange(1, stop=2), "each once"),
        (lambda x: gpuarray.arange(dtype=float), "stop is missing"),
        (lambda x: gpuarray.vec.make_float3(1, 2), "takes 3 values"),
        (lambda x: cumath.exp(x, out=gpuarray.empty(3, "f4")), "out is int32"),
        (lambda x: cumath.exp(1.0), "takes a GPUArray"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        call(to_gpu(values("int32")))


def test_layout_errors_are_runtime_errors_as_in_pycuda() -> None:
    with pytest.raises(RuntimeError):
        to_gpu(values("f4"))[:, 1:3].fill(0)


# ── memory ──


@pytest.mark.parametrize(
    "index",
    [0, -1, slice(1, None), slice(None, None, 2), (slice(None), 2), (Ellipsis, slice(4, 1, -1)), (1, Ellipsis, None),
     (slice(2, 2), 0), Ellipsis, (np.int64(1), slice(0, 100)), slice(None, None, -1)],
)  # fmt: skip
def test_parts_are_views(index: Any) -> None:
    a = values("float32", (4, 5, 6))
    x = to_gpu(a)
    part, expected = x[index], a[index]
    check(part, expected)
    assert part.strides == expected.strides or not expected.size
    assert part.base is x
    if expected.size:
        assert part.ptr - x.ptr == expected.ctypes.data - a.ctypes.data
    part[...] = 7
    a[index] = 7
    check(x, a)


def test_elements_are_set_from_arrays() -> None:
    a = np.zeros((4, 6), np.float32)
    x = to_gpu(a)
    row, block = values("f4", 6), values("f4", (2, 3), 1)
    for target, source in ((x, to_gpu), (a, np.asarray)):
        target[1] = source(row)
        target[2:, ::2] = source(block)
        target[0, 1] = 5
    check(x, a)
    x[3] = row
    a[3] = row
    check(x, a)


def test_memory_orders_survive_both_ways() -> None:
    for a in (values("f8", (2, 3, 4)).transpose(1, 2, 0), np.asfortranarray(values("f8")), values("f8")[::2, ::2]):
        x = to_gpu(a)
        check(x, a)
        assert x.get().strides == x.strides == x.copy().strides
        check(x.T, a.T)
        check(x.T.T, a)
    y = to_gpu(np.asfortranarray(values("f8")))
    assert y.strides == (8, 24)
    assert y.flags.f_contiguous
    assert not y.flags.c_contiguous
    assert "C_CONTIGUOUS : False" in repr(y.flags)


def test_views_share_memory() -> None:
    a = np.arange(24, dtype=np.float32)
    x = to_gpu(a)
    check(x.reshape(4, -1), a.reshape(4, 6))
    check(x.reshape((2, 3, 4)).transpose((1, 0, 2)), a.reshape(2, 3, 4).transpose(1, 0, 2))
    check(x.reshape(4, 6, order="F"), a.reshape(4, 6, order="F"))
    check(x.reshape(4, 6).ravel(), a)
    check(x.reshape(4, 1, 6, 1).squeeze(), a.reshape(4, 6))
    check(x.view(np.int32), a.view(np.int32))
    check(x.reshape(4, 6).view(np.complex64), a.reshape(4, 6).view(np.complex64))
    check(x.view(np.uint8), a.view(np.uint8))
    check(gpuarray.reshape(gpuarray.transpose(x.reshape(4, 6)), 24, order="F"), a)
    same = x.reshape(24)
    assert same is x
    x.reshape(4, 6)[1].fill(-1)
    assert (x.get()[6:12] == -1).all()
    with pytest.raises(ArgumentError, match="16 bytes do not fit"):
        x[:3].view(np.complex128)


def test_a_view_holds_its_memory() -> None:
    a = np.arange(1 << 12, dtype=np.float32)
    part = to_gpu(a)[5:][3:]
    other = [to_gpu(np.zeros_like(a)) for _ in range(4)]
    check(part, a[8:])
    assert len(other) == 4


def test_attributes() -> None:
    x = gpuarray.empty((3, 4), np.float32)
    assert (x.ndim, x.size, x.mem_size, x.nbytes, x.itemsize, len(x)) == (2, 12, 12, 48, 4, 3)
    assert x.ptr == int(x.gpudata)
    assert x.allocator is mem_alloc
    assert x.base is None
    interface = x.__cuda_array_interface__
    assert interface["data"] == (x.ptr, False)
    assert interface["shape"] == (3, 4)
    assert interface["typestr"] == "<f4"
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    with pytest.raises(TypeError, match="without axes"):
        len(gpuarray.empty((), np.float32))
    grid, block = gpuarray.splay(10_000)
    assert grid[0] * block[0] >= 10_000 or block[0] == 128


def test_shapes_may_be_of_numpy() -> None:
    for shape in (np.int32(6), np.array(6), np.array([2, 3]), (np.int16(2), 3), [6], 6):
        assert gpuarray.empty(shape, np.float32).size == 6


def test_truth_and_text() -> None:
    for shape in ((), (1,), (1, 1)):
        assert bool(gpuarray.ones(shape))
        assert not gpuarray.zeros(shape)
    a = values("f4", 3)
    assert repr(to_gpu(a)) == repr(a)
    assert str(to_gpu(a)) == str(a)
    assert [float(element.get()) for element in to_gpu(a)] == list(a)


def test_pickles() -> None:
    a = np.asfortranarray(values("complex64"))
    x = pickle.loads(pickle.dumps(to_gpu(a)))
    assert x.flags.f_contiguous
    check(x, a)


def test_arrays_without_elements() -> None:
    x = gpuarray.zeros((3, 0), np.float32)
    assert x.gpudata is None
    assert x.nbytes == 0
    check(x + x * 2, np.zeros((3, 0), np.float32))
    check(x.reshape(0, 7), np.zeros((0, 7), np.float32))
    check(x[1:], np.zeros((2, 0), np.float32))
    check(gpuarray.sum(x), np.float32(0))
    check(to_gpu(np.zeros(0)).copy(), np.zeros(0))


def test_asynchronous_copies_are_complete_after_the_stream() -> None:
    a, stream = values("f4"), Stream()
    x = gpuarray.to_gpu_async(a, stream=stream)
    doubled = x.mul_add(1, x, 1, stream=stream)
    host = doubled.get_async(stream)
    into = np.empty_like(a)
    assert doubled.get(into, async_=True, stream=stream) is into
    stream.synchronize()
    for result in (host, into):
        np.testing.assert_array_equal(result, 2 * a)
    x.set_async(a + 1, stream=stream)
    stream.synchronize()
    check(x, a + 1)
    np.testing.assert_array_equal(x.get(pagelocked=True), a + 1)


def test_arrays_are_copied_to_arrays_of_other_strides() -> None:
    a = values("f4")
    x, y = to_gpu(a), gpuarray.empty((3, 5), np.float32, order="F")
    y.set(x)
    check(y, a)
    check(to_gpu(y.T), a.T)
    into = np.zeros((5, 6), np.float32)[:, ::2].T
    assert x.get(into) is into
    np.testing.assert_array_equal(into, a)
    x.set(a.T.copy().T[::-1])
    check(x, a[::-1])


def test_another_shape_is_reported() -> None:
    a = values("f4", 6)
    x = gpuarray.empty((2, 3), np.float32)
    with pytest.warns(UserWarning, match="another shape"):
        x.set(a)
    with pytest.warns(DeprecationWarning, match="another shape"):
        host = x.get(np.empty(6, np.float32))
    np.testing.assert_array_equal(host, a)


def test_the_allocator_makes_all_memory() -> None:
    sizes: list[int] = []

    def allocate(size: int) -> Any:
        sizes.append(size)
        return mem_alloc(size)

    x = to_gpu(values("f4"), allocate)
    x + x
    x.astype("f8")
    assert gpuarray.empty(3, np.float32, allocator=None).allocator is mem_alloc
    total = gpuarray.sum(x)
    gpuarray.dot(x, x)
    gpuarray.zeros_like(x)
    assert total.allocator is allocate
    assert sizes == [60, 60, 120, 4, 4, 60]
    gpuarray.sum(x, allocator=mem_alloc)
    assert len(sizes) == 6


def test_texture_references_read_arrays() -> None:
    source = """
    #include <pycuda-helpers.hpp>
    texture<int, 1, cudaReadModeElementType> whole;
    texture<fp_tex_double, 1, cudaReadModeElementType> wide;
    __global__ void read(int* x, double* y) {
        x[threadIdx.x] = tex1Dfetch(whole, threadIdx.x);
        y[threadIdx.x] = fp_tex1Dfetch(wide, threadIdx.x);
    }"""
    module = SourceModule(source)
    a, b = np.arange(8, dtype=np.int32), np.arange(8) + 0.1
    x, y = to_gpu(a), to_gpu(b)
    assert x.bind_to_texref_ext(module.get_texref("whole")) == 0
    assert y.bind_to_texref_ext(module.get_texref("wide"), allow_double_hack=True) == 0
    results = gpuarray.zeros_like(x), gpuarray.zeros_like(y)
    module.get_function("read")(*results, block=(8, 1, 1))
    check(results[0], a)
    check(results[1], b)
    with pytest.raises(ArgumentError, match="float64 has one channel, got channels=2"):
        y.bind_to_texref_ext(module.get_texref("wide"), 2, allow_double_hack=True)


# ── functions of the module ──


def test_new_arrays() -> None:
    check(gpuarray.zeros((2, 3), np.int16), np.zeros((2, 3), np.int16))
    check(gpuarray.ones(4), np.ones(4))
    check(gpuarray.zeros(3, np.complex64, order="F"), np.zeros(3, np.complex64))
    check(gpuarray.empty((2, 2), np.float32).fill(2.5), np.full((2, 2), 2.5, np.float32))
    a = values("f4", (3, 4, 5)).transpose(2, 0, 1)
    x = to_gpu(a)
    for order, strides in (("K", x.strides), ("C", (48, 16, 4)), ("F", (4, 20, 60)), ("A", (48, 16, 4))):
        assert gpuarray.empty_like(x, order=order).strides == strides
    y = to_gpu(np.asfortranarray(a[0]))
    check(gpuarray.zeros_like(y, np.int32), np.zeros((3, 4), np.int32))
    check(gpuarray.ones_like(y), np.ones((3, 4), np.float32))
    assert gpuarray.ones_like(y, order="A").flags.f_contiguous


@pytest.mark.filterwarnings("ignore:arange takes")
def test_arange() -> None:
    check(gpuarray.arange(12, dtype=np.float32), np.arange(12, dtype=np.float32))
    check(gpuarray.arange(2, 20, 3, np.dtype("u4")), np.arange(2, 20, 3, "u4"))
    check(gpuarray.arange(5, 2, -0.5, dtype=np.float64), np.arange(5, 2, -0.5))
    check(gpuarray.arange(stop=4, dtype=np.int8), np.arange(4, dtype=np.int8))
    check(gpuarray.arange(3, 3, dtype=np.float32), np.zeros(0, np.float32))
    with pytest.warns(UserWarning, match="arange takes int64"):
        gpuarray.arange(3)


def test_take_and_put() -> None:
    a, b = values("f4", 40), values("f4", 40, 1)
    arrays = [to_gpu(a), to_gpu(b)]
    i, j = np.array([3, 0, 7], np.int32), np.array([1, 2, 5], np.int32)
    indices, targets = to_gpu(i), to_gpu(j)
    check(gpuarray.take(arrays[0], indices), a[i])
    check(gpuarray.take(to_gpu(a.reshape(4, 10)), indices, out=gpuarray.empty(3, np.float32)), a[i])
    for result, expected in zip(gpuarray.multi_take(arrays, indices), (a[i], b[i]), strict=True):
        check(result, expected)
    out = [gpuarray.zeros(8, np.float32) for _ in arrays]
    gpuarray.multi_take_put(arrays, targets, indices, out=out, src_offsets=[0, 4])
    for result, expected in zip(out, (a[i], b[i + 4]), strict=True):
        host = np.zeros(8, np.float32)
        host[j] = expected
        check(result, host)
    gpuarray.multi_put([to_gpu(a[:3])], targets, out=out[:1])
    host = np.zeros(8, np.float32)
    host[j] = a[:3]
    check(out[0], host)
    assert gpuarray.multi_put([out[0][:3]], indices, (8,))[0].shape == (8,)
    with pytest.raises(ArgumentError, match="3 indices have 40 values"):
        gpuarray.multi_put(arrays, indices, (8,))
    assert gpuarray.multi_take([], indices) == gpuarray.multi_put([], indices) == []


def test_joins() -> None:
    a, b = values("f4"), values("f8", seed=1)
    x, y = to_gpu(a), to_gpu(b)
    for axis in (0, 1, -1):
        check(gpuarray.concatenate((x, y), axis), np.concatenate((a, b), axis))
        check(gpuarray.stack((x, y), axis), np.stack((a, b), axis))


def test_choices() -> None:
    a, b = values("f4") - 5, values("f4", seed=1) - 5
    x, y = to_gpu(a), to_gpu(b)
    check(gpuarray.if_positive(x, x, y), np.where(a > 0, a, b))
    check(gpuarray.where(x.astype("i4"), x, y, stream=Stream()), np.where(a, a, b))
    for name in ("minimum", "maximum"):
        choose, expected = getattr(gpuarray, name), getattr(np, name)
        check(choose(x, y), expected(a, b))
        check(choose(x, 1), expected(a, 1))
        check(choose(-1, y), expected(-1, b))
        out = gpuarray.empty_like(x)
        assert choose(x, y, out=out) is out
    holes = np.array([1, np.nan, 3], np.float32)
    check(gpuarray.maximum(to_gpu(holes), 2), np.array([2, 2, 3], np.float32))


def test_truth_values() -> None:
    a, b = values("i4") % 3, values("f4", seed=1) % 2
    x, y = to_gpu(a), to_gpu(b)
    for name in ("logical_and", "logical_or"):
        truth, expected = getattr(gpuarray, name), getattr(np, name)
        check(truth(x, y), expected(a, b))
        check(truth(x, 0.0), expected(a, 0.0))
        check(truth(1, y), expected(1, b))
        check(truth(True, 0), expected(True, 0))
        out = gpuarray.empty(a.shape, bool)
        assert truth(x, y, out) is out
    check(gpuarray.logical_not(x), np.logical_not(a))
    check(gpuarray.logical_not(to_gpu(values("c8") - 1)), np.logical_not(values("c8") - 1))
    check(x.any(), a.any())
    check(gpuarray.all(y + 1), np.bool_(True))
    check(gpuarray.any(y - y), np.bool_(False))


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64", "complex64", "uint8"])
def test_reductions(dtype: str) -> None:
    a, b = values(dtype, 300), values(dtype, 300, 1)
    x, y, places = to_gpu(a), to_gpu(b), np.arange(0, 300, 7, np.int32)
    subset = to_gpu(places)
    check(gpuarray.sum(x), a.sum(dtype=dtype))
    check(gpuarray.sum(x.reshape(3, 100), np.complex128), a.sum(dtype=np.complex128))
    check(gpuarray.dot(x, y), (a * b).sum(dtype=dtype))
    check(gpuarray.subset_sum(subset, x), a[places].sum(dtype=dtype))
    check(gpuarray.subset_dot(subset, x, y, np.complex128), (a.astype("c16") * b)[places].sum())
    if dtype != "complex64":
        check(gpuarray.min(x), a.min())
        check(gpuarray.max(x, stream=Stream()), a.max())
        check(gpuarray.subset_min(subset, x), a[places].min())
        check(gpuarray.subset_max(subset, x), a[places].max())


def test_reductions_go_by_the_order_of_memory() -> None:
    a = np.asfortranarray(values("f4"))
    indices = to_gpu(np.array([1, 4], np.int32))
    check(gpuarray.subset_sum(indices, to_gpu(a)), a.ravel("F")[[1, 4]].sum())
    check(gpuarray.take(to_gpu(a), indices), a.ravel("F")[[1, 4]])
    check(gpuarray.sum(to_gpu(a > 3)), (a > 3).any())


def test_extremes_pass_over_nan() -> None:
    a = np.array([np.nan, 2, -3], np.float32)
    check(gpuarray.min(to_gpu(a)), np.float32(-3))
    check(gpuarray.max(to_gpu(a)), np.float32(2))
    check(gpuarray.max(to_gpu(a[:1])), np.float32(-np.inf))


def test_vector_types() -> None:
    vec = gpuarray.vec
    value = vec.make_float3(1, 2, z=3)
    assert value.dtype == vec.float3
    assert dtype_to_ctype(vec.float3) == "float3"
    assert value["z"] == 3
    assert vec.ulonglong2.itemsize == 16
    x = gpuarray.empty((2, 3), vec.float3)
    x.fill(value)
    np.testing.assert_array_equal(x.get(), np.full((2, 3), value, vec.float3))
    y = to_gpu(np.array([(1, 2), (3, 4)], vec.int2))
    np.testing.assert_array_equal(y[1:].get()["y"], [4])
    np.testing.assert_array_equal(y.copy().get()["x"], [1, 3])


# ── cumath ──


REAL = ("fabs", "ceil", "floor")
UNARY = ("exp", "log", "log10", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
NUMPY_NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "c8"])
def test_functions_of_elements(dtype: str) -> None:
    a = np.array([1, 9], dtype) if dtype == "i4" else np.linspace(0.05, 0.95, 40).astype(dtype)
    a = a + np.complex64(0.25j) if dtype == "c8" else a
    x = to_gpu(a)
    names = {"c8": UNARY, "i4": (*REAL, "exp", "sqrt", "log10", "cosh")}.get(dtype, (*REAL, *UNARY))
    for name in names:
        function, numpys = getattr(cumath, name), getattr(np, NUMPY_NAMES.get(name, name))
        expected = numpys(a.astype(float) if dtype == "i4" else a).astype(dtype)
        out = gpuarray.empty_like(x)
        assert function(x, out=out, stream=Stream()) is out
        for result in (function(x), out):
            assert result.dtype == x.dtype
            rtol = 1e-14 if dtype == "f8" else 2e-6
            np.testing.assert_allclose(result.get(), expected, rtol=rtol, atol=1e-6, err_msg=name)


def test_functions_of_two_arrays_or_results() -> None:
    a, b = values("f4") * np.float32(1.7) - 8, values("f4", seed=1) * np.float32(0.3)
    x, y = to_gpu(a), to_gpu(b)
    check(cumath.fmod(x, y), np.fmod(a, b))
    check(cumath.ldexp(x, y * 10), np.ldexp(a, (b * 10).astype(np.int32)))
    for result, expected in zip(cumath.frexp(x), np.frexp(a), strict=True):
        check(result, expected.astype("f4"))
    for result, expected in zip(cumath.modf(x, stream=Stream()), np.modf(a), strict=True):
        check(result, expected)


def test_positional_out_and_stream_are_deprecated() -> None:
    x = to_gpu(values("f4"))
    out = gpuarray.empty_like(x)
    with pytest.warns(DeprecationWarning, match="out= or stream="):
        assert cumath.sqrt(x, out) is out
    with pytest.warns(DeprecationWarning, match="sqrt"):
        check(cumath.sqrt(x, Stream()), np.sqrt(x.get()))


def test_one_vector_is_set() -> None:
    array = to_gpu(np.zeros((2, 2), gpuarray.vec.float3))
    array[1, 0] = gpuarray.vec.make_float3(1, 2, 3)
    assert array.get()[1, 0].tolist() == (1, 2, 3)
    assert not array.get()["x"][0].any()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "int32"])
def test_the_least_numbers_are_true(dtype: str) -> None:
    least = np.array({"float16": 1e-7, "float32": 1e-40, "float64": 1e-310}.get(dtype, 1), dtype)
    odd = np.array(3 if dtype == "int32" else np.nan, dtype)
    for number, is_true in ((least, True), (-least, True), (odd, True), (0 * -least, False)):
        x = to_gpu(np.full(10, number, dtype))
        assert bool(x.any().get()) is is_true
        assert bool(x.all().get()) is is_true
