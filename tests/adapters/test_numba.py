"""Numba-CUDA on the emulator: its own code on a driver of cudakit's; without Numba, that driver and the parameters."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.adapters import emulated_device, numba_driver, numba_kernels
from cudakit.adapters.stand_ins import StandIns

#: Numba's advice for a GPU.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:.*{text}") for text in ("Grid size", "Host array used", "Could not find source")
]

# ── without Numba ────────────────────────────────────────────────────────────────────────────────────────────────────


class Type:
    """A type of Numba's, by the names that the adapter reads."""

    def __init__(self, text: str = "", **names: Any) -> None:
        self.text = text
        self.__dict__.update(names)

    def __str__(self) -> str:
        return self.text

    def __iter__(self) -> Iterator[Any]:
        return iter(self.__dict__["parts"])


class Array(Type):
    """An array."""


class Integer(Type):
    """An integer."""


class Float(Type):
    """A number of floating point."""


class Boolean(Type):
    """A truth."""


class Complex(Type):
    """A complex number."""


class BaseTuple(Type):
    """A tuple."""


class Record(Type):
    """A record."""


class EnumMember(Type):
    """A member of an enumeration."""


class NPDatetime(Type):
    """A time."""


TYPES = [
    Array(ndim=2), Integer("int8"), Float("float32"), Boolean("bool"), Complex(underlying_float=Float("float64")),
    BaseTuple(parts=[Integer("int64"), Float("float16")]), Record(), EnumMember(dtype=Integer("int32")), NPDatetime(),
]  # fmt: skip


def test_signature_of_numbas_code() -> None:
    names = ["x", "double", "by", "flag", "z", "t", "r", "ö", "when"]
    head = numba_kernels.signature_of("f", TYPES, names)
    assert head == (
        "void f(unsigned long long x__meminfo, unsigned long long x__parent, long long x__size, "
        "long long x__itemsize, void* x, long long x__shape0, long long x__shape1, long long x__stride0, "
        "long long x__stride1, signed char double_, float by, bool flag, double z__real, double z__imag, "
        "long long t__0, unsigned short t__1, void* r, int argument7, long long when)"
    )
    with pytest.raises(NotImplementedError):
        numba_kernels.signature_of("f", [Type()], [])


def test_parameters_of_numbas_code() -> None:
    x, record = np.zeros((2, 3), "f4"), np.zeros(1, [("a", "i4")])[0]
    arguments = [
        x, np.int8(3), 2, np.True_, 1 + 2j, (7, 1.5), record, SimpleNamespace(value=5), np.datetime64(9, "s"),
    ]  # fmt: skip
    parameters: list[Any] = []
    for of_type, value in zip(TYPES, arguments, strict=True):
        numba_kernels.append_parameters(parameters, of_type, value, lambda array: (array, array))
    assert parameters[4] is x
    assert parameters[:4] + parameters[5:16] == [0, 0, 6, 4, 2, 3, 12, 4, 3, 2.0, True, 1.0, 2.0, 7, 0x3E00]
    assert parameters[16:] == [record, 5, 9]
    with pytest.raises(NotImplementedError):
        numba_kernels.append_parameters([], Type(), 1, lambda array: (array, array))


def test_arrays_as_memrefs() -> None:
    """As the code of numba-cuda-mlir takes them."""
    types = [
        Array(ndim=2),
        Complex(underlying_float=Float("float32")),
        BaseTuple(parts=[Array(ndim=1), Integer("int8")]),
    ]
    assert numba_kernels.signature_of("f", types, ["x", "z", "t"], True) == (
        "void f(void* x, void* x__aligned, long long x__offset, long long x__shape0, long long x__shape1, "
        "long long x__stride0, long long x__stride1, float2 z, void* t__0, void* t__0__aligned, "
        "long long t__0__offset, long long t__0__shape0, long long t__0__stride0, signed char t__1)"
    )
    x, y, parameters = np.zeros((4, 3), "f4")[:, ::2], np.zeros(5), list[Any]()
    for of_type, value in zip(types, (x, 1 + 2j, (y, 7)), strict=True):
        numba_kernels.append_parameters(parameters, of_type, value, lambda array: (array, array), True)
    assert [parameters[place] is array for place, array in ((0, x), (1, x), (8, y), (9, y))] == [True] * 4
    assert parameters[2:7] == [0, 4, 2, 3, 2]
    assert (parameters[7].tolist(), parameters[7].dtype) == ([1, 2], np.float32)
    assert parameters[10:] == [0, 5, 1, 7]


def test_a_number_beyond_its_type_keeps_its_lower_bits() -> None:
    parameters: list[Any] = []
    for name, value in (("int8", 0x1FF), ("uint8", 0x1FF), ("int32", 2**31), ("uint64", -1), ("int64", -(2**63))):
        numba_kernels.append_parameters(parameters, Integer(name), value, lambda array: (array, array))
    assert parameters == [-1, 255, -(2**31), 2**64 - 1, -(2**63)]


class CudaAPIError(RuntimeError):
    """Numba's error."""


@pytest.fixture
def driver() -> numba_driver.Driver:
    """The driver."""
    pytest.importorskip("cuda.bindings")
    return numba_driver.Driver(CudaAPIError)


def test_memory_of_the_driver(driver: numba_driver.Driver) -> None:
    free, total = driver.cuMemGetInfo()
    pointer = driver.cuMemAlloc(64)
    assert driver.cuMemGetInfo() == (free - 64, total)
    assert driver.cuMemGetAddressRange(int(pointer) + 63) == (int(pointer), 64)
    source, out = np.arange(8.0), np.zeros(8)
    driver.function("cuMemcpyHtoDAsync")(pointer, source.ctypes.data, 64, 0)
    driver.function("cuMemsetD8")(int(pointer) + 8, 0, 8)
    driver.function("cuMemcpyDtoH")(out.ctypes.data, int(pointer), 64)
    assert out.tolist() == [0, 0, 2, 3, 4, 5, 6, 7]
    driver.cuMemFree(pointer)
    with pytest.raises(CudaAPIError, match=r"\[1\] no device memory is at 0x"):
        driver.cuMemGetAddressRange(pointer)
    driver.cuMemHostRegister(source.ctypes.data, 64, 0)
    assert driver.cuMemGetAddressRange(source.ctypes.data)[1] == 64
    driver.cuMemHostUnregister(source.ctypes.data)
    managed, pinned = driver.cuMemAllocManaged(8, 0), driver.cuMemHostAlloc(8, 0)
    assert driver.cuMemHostGetDevicePointer(pinned, 0) == pinned
    driver.cuMemFree(managed)
    driver.cuMemFreeHost(pinned)


def test_device_and_context_of_the_driver(driver: numba_driver.Driver) -> None:
    attribute = SimpleNamespace(name="CU_DEVICE_ATTRIBUTE_WARP_SIZE")
    assert driver.cuDeviceGetAttribute(attribute, 0) == 32
    assert driver.cuDeviceGetAttribute(SimpleNamespace(name="CU_DEVICE_ATTRIBUTE_TCC_DRIVER"), 0) == 0
    limits = ck.device_limits(ck.emulator.stream())
    for axis, most in zip("XYZ", limits.block, strict=True):
        assert emulated_device.attributes()[f"max_block_dim_{axis.lower()}"] == most
    assert limits.multiprocessors == emulated_device.attributes()["multiprocessor_count"]
    assert int(driver.cuCtxGetCurrent()) == 0
    driver.cuCtxPushCurrent(driver.cuDevicePrimaryCtxRetain(0))
    assert int(driver.cuCtxGetCurrent()) == 1 == int(driver.cuCtxPopCurrent())
    assert (driver.cuDeviceGetCount(), driver.cuDeviceGet(0), driver.cuDeviceCanAccessPeer(0, 0)) == (1, 0, 0)
    assert driver.function("cuProfilerStart")() is None
    for name in ("cuGraphCreate", "cuIpcOpenMemHandle"):
        with pytest.raises(ck.LaunchError, match=f"{name} of the CUDA driver, which the emulator lacks"):
            driver.function(name)
    with pytest.raises(CudaAPIError, match=r"\[801\] .*IPC handles"):
        driver.cuIpcGetMemHandle(1)


def test_events_of_the_driver(driver: numba_driver.Driver) -> None:
    begun, ended = driver.cuEventCreate(0), driver.cuEventCreate(0)
    with pytest.raises(CudaAPIError, match="has not been recorded"):
        driver.cuEventElapsedTime(begun, ended)
    driver.cuEventRecord(begun, 0)
    driver.cuEventRecord(ended, 0)
    assert math.isnan(driver.cuEventElapsedTime(begun, ended))
    assert driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(0, 1024, 0) == 2
    assert driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(0, 32, 100 << 10) == 2
    assert driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(0, 1, 0) == 32


def test_views_of_device_arrays(driver: numba_driver.Driver) -> None:
    def described(pointer: int, dtype: Any, shape: Any, strides: Any) -> Any:
        return SimpleNamespace(
            device_ctypes_pointer=ctypes.c_size_t(pointer), dtype=np.dtype(dtype), shape=shape, strides=strides
        )

    pointer = int(driver.cuMemAlloc(48))
    whole = described(pointer, "f8", (2, 3), (24, 8))
    view = numba_driver.view_of(whole)
    assert (view.shape, view.dtype, view.__array_interface__["data"][0]) == ((2, 3), np.float64, pointer)
    assert numba_driver.view_of(whole) is view
    column = numba_driver.view_of(described(pointer + 8, "f8", (2,), (24,)))
    assert (column.dtype, column.shape, column.__array_interface__["data"][0]) == (np.uint8, (32,), pointer + 8)
    reverse = numba_driver.view_of(described(pointer + 40, "f8", (6,), (-8,)))
    assert reverse.shape == (8,)
    assert numba_driver.view_of(described(0, "f8", (0,), (8,))).size == 0
    assert numba_driver.view_of(described(pointer, [("a", "i4")], (2,), (4,))).shape == (8,)
    foreign = np.arange(4.0)
    assert numba_driver.view_of(described(foreign.ctypes.data, "f8", (4,), (8,))).tolist() == [0, 1, 2, 3]
    driver.cuMemFree(pointer)


def test_numbas_simulator_is_left_alone() -> None:
    simulator = SimpleNamespace(__name__="numba.cuda", jit=SimpleNamespace(__module__="numba.cuda.simulator.api"))
    numba_driver.replace(simulator, lambda owner, name, value: pytest.fail(name))


# ── with Numba ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def cuda() -> Iterator[Any]:
    """``numba.cuda`` on the emulator."""
    module = pytest.importorskip("numba.cuda")
    with StandIns({}, {"numba.cuda": numba_driver.replace}), ck.emulator.strict():
        yield module


@pytest.mark.bridges
def test_arguments_of_each_type(cuda: Any) -> None:
    record = np.dtype([("a", "f4"), ("b", "i4")])

    @cuda.jit
    def f(x: Any, by: Any, pair: Any, z: Any, flag: Any, zero: Any, bodies: Any, one: Any) -> None:
        i = cuda.grid(1)
        if i < x.size:
            x[i] = by * i + pair[0] + pair[1][i] + z.imag + zero[()]
            if flag:
                x[i] += 1000
            bodies[i].a = i * one.a
            bodies[i]["b"] = one.b

    x, bodies = cuda.device_array(8), np.zeros(8, record)
    f[2, 32](x, 2.0, (3, np.arange(8)), 1 + 2j, True, np.array(7.0), bodies, np.array([(2, 3)], record)[0])
    assert x.copy_to_host().tolist() == [1012 + 3 * i for i in range(8)]
    assert (bodies["a"].tolist(), set(bodies["b"])) == ([2 * i for i in range(8)], {3})

    @cuda.jit
    def tenfold(v: Any, n: Any = 3) -> None:
        for k in range(v.shape[1]):
            v[cuda.grid(1), k] *= 10

    y = cuda.to_device(np.arange(24.0).reshape(4, 6))
    tenfold[1, 2](y[::2, ::-2], 1)
    expected = np.arange(24.0).reshape(4, 6)
    expected[::2, 1::2] *= 10
    assert (y.copy_to_host() == expected).all()
    host = np.asfortranarray(np.arange(24.0).reshape(4, 6))
    tenfold[1, 2](host[::2, 1::2], 1)
    assert (host == expected).all()


@pytest.mark.bridges
def test_in_and_out(cuda: Any) -> None:
    @cuda.jit
    def f(x: Any, y: Any, z: Any) -> None:
        i = cuda.grid(1)
        z[i] = x[i] + y[i]
        x[i] = y[i] = 0

    x, y, z = np.arange(4), np.arange(4), np.zeros(4, int)
    f[1, 4](cuda.In(x), cuda.InOut(y), cuda.Out(z))
    assert (x.tolist(), y.tolist(), z.tolist()) == ([0, 1, 2, 3], [0] * 4, [0, 2, 4, 6])


@pytest.mark.bridges
def test_a_grid_synchronises(cuda: Any) -> None:
    @cuda.jit
    def only_ask(x: Any) -> None:
        cuda.cg.this_grid()
        x[0] = 5

    one = np.zeros(1)
    only_ask[1, 1](one)
    assert one[0] == 5

    @cuda.jit("void(int32[:])")
    def total(x: Any) -> None:
        grid = cuda.cg.this_grid()
        i = cuda.grid(1)
        x[i] = i
        grid.sync()
        if i == 0:
            for k in range(1, x.size):
                x[0] += x[k]

    x = np.zeros(128, "i4")
    total[4, 32](x)
    assert x[0] == sum(range(128))
    (kernel,) = total.overloads.values()
    assert kernel.max_cooperative_grid_blocks(1024) == 2 * 132
    assert kernel.regs_per_thread > 4
    assert total.get_regs_per_thread() == kernel.regs_per_thread
    assert ".entry" in kernel.inspect_asm((9, 0))


@pytest.mark.bridges
def test_reductions_and_universal_functions(cuda: Any) -> None:
    from numba import guvectorize, vectorize

    @cuda.reduce
    def total(a: Any, b: Any) -> Any:
        return a + b

    assert (total(np.arange(1000.0)), total(cuda.to_device(np.arange(100)))) == (499500, 4950)

    @vectorize(["float32(float32, float32)", "float64(float64, float64)"], target="cuda")
    def add(a: Any, b: Any) -> Any:
        return a + 2 * b

    assert add(np.arange(4.0), np.arange(4.0)).tolist() == [0, 3, 6, 9]
    assert add(cuda.to_device(np.arange(4.0)), 1.0).copy_to_host().tolist() == [2, 3, 4, 5]

    if cuda.implementation != "NVIDIA":
        return  # Numba's own target does not compile guvectorize: its min takes one argument

    @guvectorize(["(float64[:], float64[:])"], "(n)->()", target="cuda")
    def norm(row: Any, out: Any) -> None:
        out[0] = 0
        for value in row:
            out[0] += value * value

    assert norm(np.arange(4.0).reshape(2, 2)).tolist() == [1, 13]


@pytest.mark.bridges
def test_memory_of_each_type(cuda: Any) -> None:
    @cuda.jit
    def add_one(v: Any) -> None:
        i = cuda.grid(1)
        if i < v.size:
            v[i] += 1

    free = cuda.current_context().get_memory_info().free
    x = cuda.device_array(1 << 20, np.int8)
    assert cuda.current_context().get_memory_info().free <= free - (1 << 20)
    del x
    host = np.zeros(8)
    with cuda.pinned(host):
        y = cuda.to_device(host)
    with cuda.mapped(host) as mapped:
        add_one[1, 8](mapped)
        cuda.synchronize()
    assert host.tolist() == [1] * 8
    for array in (cuda.managed_array(8), cuda.mapped_array(8)):
        array[:] = 1
        add_one.forall(8)(array)
        cuda.synchronize()
        assert array.tolist() == [2] * 8
    pinned, stream = cuda.pinned_array(4), cuda.stream()
    pinned[:] = 2
    with stream.auto_synchronize():
        z = cuda.to_device(pinned, stream=stream)
        add_one[1, 4, stream](z)
        z.copy_to_host(pinned, stream=stream)
    assert pinned.tolist() == [3] * 4
    with cuda.defer_cleanup():
        del y
    with pytest.raises(cuda.cudadrv.driver.CudaAPIError, match="IPC"):
        z.get_ipc_handle()


@pytest.mark.bridges
def test_devices_streams_and_events(cuda: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cuda.is_available()
    assert cuda.detect()
    assert "1/1 devices are supported" in capsys.readouterr().out
    assert len(cuda.gpus) == 1
    with cuda.gpus[0]:
        assert cuda.gpus.current.name == emulated_device.NAME == cuda.get_current_device().name
    device = cuda.get_current_device()
    assert (device.WARP_SIZE, device.MULTIPROCESSOR_COUNT, device.compute_capability) == (32, 132, (9, 0))
    called: list[Any] = []
    stream = cuda.stream()
    stream.add_callback(lambda *arguments: called.append(arguments), 5)
    assert called == [(stream, 0, 5)]
    begun, ended = cuda.event(), cuda.event()
    begun.record(stream)
    ended.record()
    ended.synchronize()
    assert ended.query()
    assert math.isnan(cuda.event_elapsed_time(begun, ended))
    cuda.profile_start()
    cuda.profile_stop()


@pytest.mark.bridges
def test_errors_have_both_classes(cuda: Any) -> None:
    @cuda.jit
    def past_the_end(x: Any) -> None:
        x[cuda.grid(1) + 100] = 1

    x = cuda.device_array(8)
    for error in (ck.LaunchError, cuda.cudadrv.driver.CudaAPIError):
        with pytest.raises(error, match=r"\[1\] past_the_end: block.x is 2048, over the limit 1024"):
            past_the_end[1, 2048](x)
    line = past_the_end.py_func.__code__.co_firstlineno + 2
    with pytest.raises(
        cuda.cudadrv.driver.CudaAPIError, match=rf"\[700\] .*test_numba.py:{line}[,)].* element 100 is past"
    ):
        past_the_end[1, 8](x)


@pytest.mark.bridges
def test_arguments_by_name_and_of_another_number(cuda: Any) -> None:
    @cuda.jit("void(float64[:], float64)")
    def fill(x: Any, value: Any) -> None:
        x[cuda.grid(1)] = value

    x, by_name = np.zeros(4), r"fill got an unexpected keyword argument 'value': .* fill\[grid, block\]\(x, value\)"
    for launch in (fill[1, 4], fill.forall(4)):
        with pytest.raises(TypeError, match=by_name):
            launch(x, value=2.0)
    for arguments in ((x,), (x, 1, 2)):
        with pytest.raises(
            ck.ArgumentError, match=rf"fill is compiled for 2 arguments .*float64\), got {len(arguments)}"
        ):
            fill[1, 4](*arguments)
    fill[1, 4](x, 2)
    assert x.tolist() == [2] * 4


@pytest.mark.bridges
def test_a_kernel_without_statements(cuda: Any) -> None:
    """Numba writes no lines for it."""

    @cuda.jit
    def nothing(x: Any) -> None:
        """Do nothing."""

    x = np.ones(4)
    nothing[1, 4](x)
    ck.adapters.from_numba(nothing)(ck.emulator.stream(), ck.config(1, 4), ck.to_device(x, ck.emulator.stream()))
    assert x.tolist() == [1] * 4


@pytest.mark.bridges
def test_random_numbers_and_shared_memory(cuda: Any) -> None:
    from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

    @cuda.jit
    def draw(states: Any, out: Any) -> None:
        i = cuda.grid(1)
        out[i] = xoroshiro128p_uniform_float32(states, i)

    states, out = create_xoroshiro128p_states(64, seed=1), np.zeros(64, "f4")
    draw[2, 32](states, out)
    assert 0 <= out.min() < out.max() < 1
    table = np.arange(10)

    @cuda.jit
    def both(x: Any) -> None:
        part, own = cuda.shared.array(10, np.int32), cuda.const.array_like(table)
        part[cuda.threadIdx.x] = own[cuda.threadIdx.x]
        cuda.syncthreads()
        x[cuda.threadIdx.x] = part[9 - cuda.threadIdx.x]

    ten = np.zeros(10)
    both[1, 10](ten)
    assert ten.tolist() == [*range(9, -1, -1)]
    (kernel,) = both.overloads.values()
    assert (kernel.shared_mem_per_block, kernel.const_mem_size) == (40, 80)
    assert len(set(out.tolist())) > 60

    @cuda.jit
    def turn(x: Any) -> None:
        part, i = cuda.shared.array(0, dtype=np.float64), cuda.threadIdx.x
        part[i] = x[i]
        cuda.syncthreads()
        x[i] = part[x.size - 1 - i]

    x = np.arange(8.0)
    turn[1, 8, 0, 64](x)
    assert x.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


@pytest.mark.bridges
def test_exceptions_of_kernels(cuda: Any) -> None:
    @cuda.jit(debug=True, opt=False)
    def divide(x: Any, y: Any) -> None:
        i = cuda.grid(1)
        if i == 3:
            raise ValueError("three")
        x[i] //= y[i]

    x = np.arange(4)
    with pytest.raises(ValueError, match=r"test_numba.py, line \d+, tid=\[0, 0, 3\] ctaid=\[0, 0, 0\]: three"):
        divide[1, 4](x, x + 1)
    with pytest.raises(ZeroDivisionError, match=r"tid=\[0, 0, 1\]"):
        divide[1, 2](x, 1 - np.arange(4))
    divide[1, 3](x, np.full(4, 2))


@pytest.mark.bridges
def test_global_arrays_and_linked_sources(cuda: Any, tmp_path: Any) -> None:
    if cuda.implementation != "NVIDIA":
        pytest.skip("Numba's own target has neither")
    path = tmp_path / "twice.cu"
    path.write_text('extern "C" __device__ int twice(int* result, int v) { *result = 2 * v; return 0; }')
    twice, table = cuda.declare_device("twice", "int32(int32)", link=str(path)), cuda.to_device(np.arange(4))

    @cuda.jit
    def f(x: Any) -> None:
        i = cuda.grid(1)
        x[i] = twice(x[i]) + 100 * table[i]

    x = np.arange(4, dtype="i4")
    f[1, 4](x)
    assert x.tolist() == [0, 102, 204, 306]


# ── with numba-cuda-mlir ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def mlir() -> Iterator[Any]:
    """``numba_cuda_mlir.cuda`` on the emulator."""
    module = pytest.importorskip("numba_cuda_mlir.cuda")
    with StandIns({}, {"numba_cuda_mlir.cuda": numba_driver.replace_mlir}), ck.emulator.strict():
        yield module


@pytest.mark.bridges
def test_programs_of_numba_cuda_mlir(mlir: Any) -> None:
    @mlir.jit
    def add(a: Any, b: Any, out: Any) -> None:
        i = mlir.grid(1)
        if i < out.shape[0]:
            out[i] = a[i] + b[i]

    a, out = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
    add[4, 256](a, a, out)
    assert (out == 2 * a).all()
    add.forall(1000)(a, out, out)
    assert (out == 3 * a).all()
    with pytest.raises(TypeError, match="add got an unexpected keyword argument 'out': kernels of Numba take"):
        add[4, 256](a, a, out=out)

    @mlir.jit
    def f(x: Any, by: Any, n: Any, flag: Any, pair: Any, z: Any) -> None:
        i = mlir.grid(1)
        if i < n and flag:
            x[i, 1] = by * i + pair[0] + z.imag

    x = mlir.to_device(np.zeros((8, 3)))
    f[1, 32](x[::2], 2.0, 4, True, (5, 1.0), 1 + 3j)
    assert x.copy_to_host()[:, 1].tolist() == [8, 0, 10, 0, 12, 0, 14, 0]

    @mlir.jit
    def total(x: Any) -> None:
        grid, i = mlir.cg.this_grid(), mlir.grid(1)
        x[i] = i
        grid.sync()
        if i == 0:
            for k in range(1, x.size):
                x[0] += x[k]

    y = np.zeros(64, "i4")
    total[2, 32](y)
    assert y[0] == sum(range(64))
    with pytest.raises(
        ck.LaunchError, match=r"test_numba.py:\d+[,)].* nearest is x with 8 elements: element 8 is past"
    ):
        total[1, 32](mlir.device_array(8, "i4"))


@pytest.mark.bridges
def test_kernels_of_numba_cuda_mlir(stream: Any) -> None:
    cuda = pytest.importorskip("numba_cuda_mlir.cuda")

    @cuda.jit
    def axpy(a: Any, x: Any, y: Any) -> None:
        i = cuda.grid(1)
        if i < y.shape[0]:
            y[i] += a * x[i]

    kernel = ck.adapters.from_numba(axpy)
    x, y = ck.to_device(np.arange(100.0), stream), ck.to_device(np.ones(100), stream)
    kernel(stream, ck.config(1, 128), 2.0, x, y)
    assert (ck.to_host(y, stream) == 2 * np.arange(100) + 1).all()
    assert repr(kernel) == "<MlirKernel axpy>"
