"""PyCUDA's driver module: memory, copies, launches, streams, arrays, devices and contexts, in either place."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.adapters.pycuda import driver as drv
from cudakit.adapters.pycuda import errors, gpuarray
from cudakit.adapters.pycuda.allocations import array_at
from cudakit.adapters.pycuda.compiler import SourceModule

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")

SOURCE = """
__constant__ float table[4];
__device__ int count;
__global__ void scale(float* x, float by, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n) x[i] *= by;
}
__global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
__global__ void lookup(float* x) { x[threadIdx.x] = table[threadIdx.x]; count = 7; }
__global__ void numbers(double* out, float a, int b, double c, unsigned char d) { out[0] = a + b + c + d; }
__global__ void reverse(float* x) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
"""
A = np.arange(1, 65, dtype=np.float32)


@pytest.fixture(scope="module")
def module() -> Any:
    context = drv.Device(0).make_context()
    yield SourceModule(SOURCE)
    context.detach()


def filled(array: np.ndarray = A) -> Any:
    memory = drv.mem_alloc(array.nbytes)
    drv.memcpy_htod(memory, array)
    return memory


def read(memory: Any, count: int = A.size, dtype: Any = np.float32) -> np.ndarray:
    result = np.empty(count, dtype)
    drv.memcpy_dtoh(result, memory)
    return result


# ── memory and copies ──


def test_memory_holds_what_is_copied_to_it() -> None:
    memory = drv.to_device(A)
    assert (drv.from_device(memory, (8, 8), np.float32) == A.reshape(8, 8)).all()
    assert (drv.from_device_like(memory, A) == A).all()
    assert (read(int(memory) + 4, 3) == A[1:4]).all()
    other = drv.mem_alloc_like(A)
    drv.memcpy_dtod(other, memory, A.nbytes)
    drv.memcpy_peer(int(other) + 8, memory, 8)
    assert (read(other, 5) == [1, 2, 1, 2, 5]).all()
    assert drv.mem_get_address_range(int(other) + 12) == (int(other), A.nbytes)
    free, total = drv.mem_get_info()
    assert 0 < free <= total


def test_freed_and_foreign_memory_is_refused() -> None:
    memory = drv.mem_alloc(16)
    address = int(memory)
    memory.free()
    with pytest.raises(drv.LogicError, match="was freed"):
        drv.memcpy_htod(memory, A[:4])
    with pytest.raises(drv.LogicError, match="free already"):
        memory.free()
    assert int(memory) == address
    with pytest.raises(drv.LogicError, match="not inside the allocation"):
        drv.memcpy_htod(drv.mem_alloc(16), A[:5])
    with pytest.raises(drv.LogicError):
        drv.mem_alloc(0)
    with pytest.raises(drv.MemoryError) as caught:
        drv.mem_alloc(1 << 60)
    assert isinstance(caught.value, ck.LaunchError)


@pytest.mark.emulator
def test_an_address_that_nobody_has_is_refused() -> None:
    with pytest.raises(drv.LogicError, match="no device memory is at"):
        drv.memcpy_htod(0x1234, A)


def test_host_arrays_that_cannot_be_copied_are_refused() -> None:
    memory = drv.mem_alloc(64)
    with pytest.raises(ck.ArgumentError, match="not contiguous"):
        drv.memcpy_htod(memory, A[::2])
    constant = A[:4].copy()
    constant.flags.writeable = False
    with pytest.raises(ck.ArgumentError, match="read-only"):
        drv.memcpy_dtoh(constant, memory)
    with pytest.raises(ck.ArgumentError, match="a NumPy array or a buffer"):
        drv.memcpy_htod(memory, 3)


@pytest.mark.parametrize(("name", "dtype", "value"), [("d8", "u1", 200), ("d16", "u2", 40000), ("d32", "u4", 3)])
def test_memset(name: str, dtype: str, value: int) -> None:
    memory, size = drv.mem_alloc(64), np.dtype(dtype).itemsize
    getattr(drv, f"memset_{name}")(memory, 0, 64 // size)
    getattr(drv, f"memset_{name}")(int(memory) + 4 * size, value, 2)
    stream = drv.Stream()
    getattr(drv, f"memset_{name}_async")(memory, value, 1, stream)
    stream.synchronize()
    assert read(memory, 7, dtype).tolist() == [value, 0, 0, 0, value, value, 0]
    getattr(drv, f"memset_d2{name}")(memory, 4 * size, 1, 2, 3)
    assert read(memory, 8, dtype).tolist() == [1, 1, 0, 0, 1, 1, 0, 0]


@pytest.mark.emulator
def test_a_copy_that_is_not_waited_for_has_not_arrived() -> None:
    memory, stream = filled(), drv.Stream()
    target = drv.pagelocked_zeros(A.shape, np.float32)
    drv.memcpy_dtoh_async(target, memory, stream)
    with pytest.raises(ck.EmulationError, match="is read before"):
        exec("target.sum()", {"target": target})
    stream.synchronize()
    assert (np.asarray(target) == A).all()


# ── host memory ──


@pytest.mark.parametrize("order", ["C", "F"])
def test_pagelocked_arrays_have_their_layout(order: str) -> None:
    array = drv.pagelocked_zeros((3, 5), np.float64, order)
    like = drv.pagelocked_zeros_like(array)
    aligned = drv.aligned_empty((3, 5), np.int16, order, alignment=1024)
    for host in (array, like, aligned):
        assert host.shape == (3, 5)
        assert host.flags.c_contiguous is (order == "C")
    assert not array.any()
    assert not like.any()
    assert aligned.ctypes.data % 1024 == 0
    assert array.base.get_flags() >= 0
    record = drv.pagelocked_empty(2, np.dtype([("x", "f4"), ("n", "i4")]))
    record["n"] = 3
    assert record["n"].tolist() == [3, 3]


def test_kernels_reach_pagelocked_memory(module: Any) -> None:
    array = drv.pagelocked_empty(A.shape, np.float32, mem_flags=drv.host_alloc_flags.DEVICEMAP)
    array[:] = A
    address = np.intp(array.base.get_device_pointer())
    module.get_function("scale")(address, np.float32(3), np.int32(64), block=(64, 1, 1))
    drv.Context.synchronize()
    assert (array == 3 * A).all()


def test_kernels_and_host_share_managed_memory(module: Any) -> None:
    array = drv.managed_empty(A.shape, np.float32, mem_flags=drv.mem_attach_flags.GLOBAL)
    array[:] = A
    array.base.attach(drv.mem_attach_flags.GLOBAL)
    module.get_function("scale")(array, np.float32(2), np.int32(64), block=(64, 1, 1))
    drv.Context.synchronize()
    assert (array == 2 * A).all()
    assert drv.managed_zeros((2, 3), np.int32, order="F").flags.f_contiguous
    assert not drv.managed_zeros_like(array).any()


def test_registered_memory_is_page_locked(module: Any) -> None:
    host = drv.aligned_zeros(A.shape, np.float32)
    with pytest.raises(drv.LogicError, match="register_host_memory"):
        host.base.get_device_pointer()
    pinned = drv.register_host_memory(host, drv.mem_host_register_flags.DEVICEMAP)
    pinned[:] = A
    stream, memory = drv.Stream(), drv.mem_alloc(A.nbytes)
    drv.memcpy_htod_async(memory, pinned, stream)
    stream.synchronize()
    assert (read(memory) == A).all()
    pinned.base.unregister()


def test_pitched_memory() -> None:
    memory, pitch = drv.mem_alloc_pitch(width=20, height=3, access_size=4)
    assert pitch >= 20
    copy = drv.Memcpy2D()
    rows = np.arange(15, dtype=np.float32).reshape(3, 5)
    copy.set_src_host(rows)
    copy.set_dst_device(memory)
    copy.src_pitch, copy.dst_pitch, copy.width_in_bytes, copy.height = 20, pitch, 20, 3
    copy(aligned=True)
    assert (read(int(memory) + 2 * pitch, 5) == rows[2]).all()
    back = np.zeros((3, 8), np.float32)
    copy = drv.Memcpy2D()
    copy.set_src_device(memory)
    copy.set_dst_host(back)
    copy.src_pitch, copy.dst_pitch, copy.dst_x_in_bytes, copy.width_in_bytes, copy.height = pitch, 32, 8, 20, 3
    stream = drv.Stream()
    copy(stream)
    stream.synchronize()
    assert (back[:, 2:7] == rows).all()
    assert not back[:, [0, 1, 7]].any()
    copy.dst_y = 1
    with pytest.raises(drv.LogicError, match="needs 124 bytes of host memory, the array has 96"):
        copy()
    with pytest.raises(drv.LogicError, match="set_src_host"):
        drv.Memcpy3D()()


# ── launches ──


def test_arguments_are_copied_in_and_out(module: Any) -> None:
    twice, result, both = module.get_function("twice"), np.empty_like(A), A.copy()
    twice(drv.In(A), drv.Out(result), block=(64, 1, 1), grid=(1, 1))
    assert (result == 2 * A).all()
    module.get_function("scale")(drv.InOut(both), np.float32(5), np.int32(64), block=(32, 1, 1), grid=(2, 1))
    assert (both == 5 * A).all()
    stream = drv.Stream()
    twice(drv.In(both), drv.Out(result), block=(64, 1, 1), stream=stream)
    assert (result == 10 * A).all()
    seconds = twice(filled(), filled(), block=(64, 1, 1), time_kernel=True)
    assert seconds > 0


def test_pointers_point_inside_of_memory(module: Any) -> None:
    memory = filled()
    module.get_function("scale")(np.intp(memory) + 8, np.float32(0), np.int32(1), block=(1, 1, 1))
    assert read(memory, 4).tolist() == [1, 2, 0, 4]
    assert array_at(int(memory), (2, 2), np.float32, strides=(4, 8)).get().tolist() == [[1, 0], [2, 4]]

    class Holder(drv.PointerHolderBase):
        def get_pointer(self) -> int:
            return int(memory)

    module.get_function("scale")(Holder(), np.float32(2), np.int32(2), block=(2, 1, 1))
    assert read(memory, 3).tolist() == [2, 4, 0]


def test_integers_are_passed_by_their_bytes() -> None:
    module = SourceModule("__global__ void f(double* x, unsigned a, long long b) { x[0] = a; x[1] = b; }")
    result = np.zeros(2)
    module.get_function("f")(drv.Out(result), np.int32(-1), np.uint64(2**64 - 5), block=(1, 1, 1))
    assert result.tolist() == [2**32 - 1, -5]


def test_shared_memory_and_variables(module: Any) -> None:
    memory = filled()
    module.get_function("reverse")(memory, block=(64, 1, 1), shared=A.nbytes)
    assert (read(memory) == A[::-1]).all()
    address, size = module.get_global("table")
    assert size == 16
    drv.memcpy_htod(address, np.array([5, 6, 7, 8], np.float32))
    module.get_function("lookup")(memory, block=(4, 1, 1))
    assert read(memory, 4).tolist() == [5, 6, 7, 8]
    assert read(module.get_global("count")[0], 1, np.int32)[0] == 7
    with pytest.raises(drv.LogicError, match="no __constant__"):
        module.get_global("nothing")


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "match"),
    [
        (("x", np.float32(1)), {"block": (1, 1, 1)}, TypeError, "takes 3 arguments .float. x, float by, int n., got 2"),
        (("x", 2.0, np.int32(1)), {"block": (1, 1, 1)}, TypeError, r"parameter by .*give numpy.float32\(2.0\)"),
        (("x", np.float32(2), 1), {"block": (1, 1, 1)}, TypeError, r"parameter n .*give numpy.int32\(1\)"),
        ((A, np.float32(2), np.int32(1)), {"block": (1, 1, 1)}, TypeError, "in host memory; give drv.In"),
        ((7, np.float32(2), np.int32(1)), {"block": (1, 1, 1)}, TypeError, "a Python int; give numpy.uintp"),
        (("d", np.float32(2), np.int32(1)), {"block": (1, 1, 1)}, TypeError, "takes elements of float32.*float64"),
        (("x", np.float32(2), np.int32(1)), {}, ValueError, "must specify block size"),
        (("x", np.float32(2), np.int32(1)), {"block": 3}, TypeError, "block is a tuple"),
        (("x", np.float32(2), np.int32(1)), {"block": (2048, 1, 1)}, drv.LogicError, "1,?024"),
        (("x", np.float32(2), np.int32(1)), {"block": (0, 1, 1)}, drv.LogicError, "numbers from 1 up"),
        (("x", np.float32(2), np.int32(1)), {"block": (1, 1, 1), "stram": 1}, ValueError, "extra keyword.*stram"),
    ],
)
def test_wrong_calls_say_what_is_wrong(
    module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], error: type[Exception], match: str
) -> None:
    memory = filled()
    known = {"x": memory, "d": drv.In(A.astype(np.float64))}
    values = [known[value] if isinstance(value, str) else value for value in arguments]
    with pytest.raises(error, match=match):
        module.get_function("scale")(*values, **keywords)
    assert (read(memory) == A).all()


@pytest.mark.emulator
def test_an_access_outside_names_its_line(module: Any) -> None:
    with pytest.raises(drv.LaunchError, match=r"(?s)twice: .*element 64 is past the end") as caught:
        module.get_function("twice")(filled(), filled(), block=(65, 1, 1))
    assert isinstance(caught.value, ck.EmulationError)
    assert isinstance(caught.value, drv.Error)


def test_bytes_of_the_same_size_are_passed_with_a_warning(module: Any) -> None:
    array = gpuarray.to_gpu(np.zeros(4, np.int32))
    with pytest.warns(UserWarning, match="takes elements of float32, got an array of int32"):
        module.get_function("scale")(array, np.float32(2), np.int32(4), block=(4, 1, 1))


def test_prepared_calls(module: Any) -> None:
    scale, memory = module.get_function("scale"), filled()
    with pytest.raises(drv.LogicError, match="is not prepared"):
        scale.prepared_call((1, 1), (64, 1, 1), memory, 2.0, 64)
    assert scale.prepare("Pfi") is scale
    grid, block, stream = (2, 1), (32, 1, 1), drv.Stream()
    for number in range(3):  # from the second on, with nothing looked up
        scale.prepared_call(grid, block, memory, 2.0, 64)
        scale.prepared_call(grid, block, int(memory), np.float32(0.5), np.int32(64), shared_size=16 * number)
        scale.prepared_async_call(grid, block, stream, memory, 3, 64)
        stream.synchronize()
    assert (read(memory) == 27 * A).all()
    assert scale.prepared_timed_call(grid, block, memory, 1.0, 64)() >= 0
    for arguments, error in (
        ((memory, 2.0), TypeError),
        ((memory, "2", 1), Exception),
        ((memory, 1.0, 2**40), TypeError),
    ):
        with pytest.raises(error):
            scale.prepared_call(grid, block, *arguments)
    with pytest.raises(ck.ArgumentError, match="takes a format"):
        scale.prepare("P$")
    memory.free()
    with pytest.raises(drv.LogicError, match="was freed"):
        scale.prepared_call(grid, block, memory, 2.0, 64)


def test_prepared_numbers_have_their_types(module: Any) -> None:
    numbers, memory = module.get_function("numbers"), drv.mem_alloc(8)
    for types in ("PfidB", [np.intp, np.float32, np.int32, np.dtype("f8"), np.uint8]):
        numbers.prepare(types)
        for a in (0.5, -2.25):
            numbers.prepared_call((1, 1), (1, 1, 1), int(memory), a, -7, 1e-3, 250)
            assert read(memory, 1, np.float64)[0] == a - 7 + 1e-3 + 250


def test_attributes_of_kernels(module: Any) -> None:
    scale = module.get_function("scale")
    assert 0 < scale.num_regs < 256
    assert scale.shared_size_bytes == scale.local_size_bytes == 0
    assert scale.max_threads_per_block == 1024
    assert scale.const_size_bytes >= 16
    assert scale.binary_version == scale.get_attribute(drv.function_attribute.PTX_VERSION) >= 70
    scale.set_attribute(drv.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000)
    assert scale.max_dynamic_shared_size_bytes == 60000
    scale.set_cache_config(drv.func_cache.PREFER_L1)
    with pytest.raises(AttributeError, match="has no 'nothing'"):
        _ = scale.nothing
    with pytest.raises(drv.LogicError):
        scale.set_attribute(drv.function_attribute.NUM_REGS, 3)


# ── streams and events ──


def test_events_order_streams_and_measure(module: Any) -> None:
    scale, memory = module.get_function("scale"), filled()
    first, second = drv.Stream(), drv.Stream(1)
    begin, end = drv.Event(), drv.Event(drv.event_flags.BLOCKING_SYNC)
    with pytest.raises(drv.LogicError, match="record both events"):
        end.time_since(begin)
    begin.record(first)
    scale(memory, np.float32(2), np.int32(64), block=(64, 1, 1), stream=first)
    end.record(first)
    second.wait_for_event(end)
    scale(memory, np.float32(2), np.int32(64), block=(64, 1, 1), stream=second)
    second.synchronize()
    assert end.synchronize() is end
    assert end.query()
    assert second.is_done()
    assert begin.time_till(end) == end.time_since(begin) > 0
    assert begin.time_till(begin) == 0
    begin.record()
    assert end.record().synchronize().time_since(begin) > 0, "nothing ran between them, and programs divide by it"
    assert first.handle != second.handle
    assert (read(memory) == 4 * A).all()
    untimed = drv.Event(drv.event_flags.DISABLE_TIMING).record()
    with pytest.raises(drv.LogicError, match="DISABLE_TIMING"):
        untimed.time_since(begin)
    with pytest.raises(ck.ArgumentError, match="stream is a"):
        begin.record(3)


# ── arrays ──


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4)])
def test_arrays_keep_what_is_copied_to_them(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).random(shape, dtype=np.float32)
    for array in (drv.np_to_array(values, "C"), drv.gpuarray_to_array(gpuarray.to_gpu(values), "C")):
        back = np.zeros_like(values)
        copy = drv.Memcpy3D()
        copy.set_src_array(array)
        copy.set_dst_host(back)
        copy.width_in_bytes, copy.height = 4 * shape[-1], shape[-2]
        copy.depth = shape[0] if len(shape) == 3 else 1
        copy()
        assert (back == values).all()
        assert array.handle > 0
        assert array.get_descriptor_3d().width == shape[-1]
    array.free()
    with pytest.raises(drv.LogicError, match="free"):
        copy()


def test_a_part_of_an_array_is_copied() -> None:
    array = drv.matrix_to_array(np.zeros((4, 6), np.int16), "C")
    copy = drv.Memcpy2D()
    copy.set_src_host(np.arange(6, dtype=np.int16))
    copy.set_dst_array(array)
    copy.dst_x_in_bytes, copy.dst_y, copy.width_in_bytes, copy.height = 4, 1, 6, 2
    copy(aligned=False)
    whole = np.zeros((4, 6), np.int16)
    copy = drv.Memcpy2D()
    copy.set_src_array(array)
    copy.set_dst_host(whole)
    copy.width_in_bytes, copy.height = 12, 4
    copy()
    assert whole[1:3, 2:5].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert whole.sum() == 15
    copy.src_y = 1
    with pytest.raises(drv.LogicError, match="not inside the array"):
        copy()


def test_rows_of_arrays_are_copied_by_index() -> None:
    line, memory = drv.ArrayDescriptor(), filled()
    line.width, line.format, line.num_channels = 64, drv.array_format.FLOAT, 1
    first, second, back = drv.Array(line), drv.Array(line), np.zeros(8, np.float32)
    drv.memcpy_dtoa(first, 0, memory, A.nbytes)
    drv.memcpy_htoa(first, 8, np.array([9, 9], np.float32))
    drv.memcpy_atoa(second, 0, first, 4, 12)
    drv.memcpy_atoh(back, second, 0)
    assert back.tolist() == [2, 9, 9, 0, 0, 0, 0, 0]
    drv.memcpy_atod(memory, second, 4, 4)
    assert read(memory, 1)[0] == 9
    line.num_channels = 3
    with pytest.raises(drv.LogicError, match="1, 2 or 4 channels"):
        drv.Array(line)


# ── devices and contexts ──


def test_a_device_says_what_it_is() -> None:
    device = drv.Device(0)
    assert drv.Device.count() >= 1
    assert device == drv.Context.get_device() == drv.Device(device.pci_bus_id())
    assert hash(device) == hash(drv.Device(0))
    assert device.name()
    assert device.compute_capability() >= (7, 0)
    assert device.total_memory() > 1 << 28
    assert device.get_attribute(drv.device_attribute.WARP_SIZE) == device.warp_size == 32
    attributes = device.get_attributes()
    assert attributes[drv.device_attribute.MAX_THREADS_PER_BLOCK] == device.MAX_THREADS_PER_BLOCK == 1024
    assert str(drv.device_attribute.WARP_SIZE) == "WARP_SIZE"
    assert isinstance(device.compute_mode, drv.compute_mode)
    assert not device.can_access_peer(device)
    with pytest.raises(drv.LogicError, match="invalid device ordinal"):
        drv.Device(99)
    with pytest.raises(AttributeError, match="has no 'nothing'"):
        _ = device.nothing
    assert drv.get_driver_version() >= 12000
    assert drv.get_version() >= (12, 0, 0)


def test_contexts_are_a_stack_for_each_thread() -> None:
    outer = drv.Context.get_current()
    inner = drv.Device(0).retain_primary_context()
    inner.push()
    assert drv.Context.get_current() is inner is drv.Context.attach()
    drv.Context.pop()
    assert drv.Context.get_current() is outer
    inner.push()
    inner.detach()
    assert drv.Context.get_current() is outer
    with pytest.raises(drv.LogicError, match="detached already"):
        inner.detach()
    with pytest.raises(drv.LogicError, match="detached"):
        inner.push()
    caught = list[Exception]()

    def work() -> None:
        for call in (lambda: drv.mem_alloc(4), drv.Stream, drv.Context.pop, drv.Context.synchronize):
            try:
                call()
            except drv.LogicError as error:
                caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(caught) == 4
    assert "import pycuda.autoinit" in str(caught[0])


def test_the_first_import_gives_the_driver_too() -> None:
    drivers = list[Any]()

    def work() -> None:  # in a thread, whose contexts end with it
        from cudakit.adapters.pycuda import autoinit, autoprimaryctx

        drivers.extend((autoinit.driver, autoprimaryctx.driver))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert drivers == [drv, drv]


def test_limits_and_hints_of_a_context() -> None:
    context = drv.Context
    before = context.get_limit(drv.limit.STACK_SIZE)
    context.set_limit(drv.limit.STACK_SIZE, 4096)
    assert context.get_limit(drv.limit.STACK_SIZE) >= 4096
    context.set_limit(drv.limit.STACK_SIZE, before)
    assert context.get_limit(drv.limit.PRINTF_FIFO_SIZE) > 0
    context.set_limit(drv.limit.DEV_RUNTIME_SYNC_DEPTH, 3)
    assert context.get_limit(drv.limit.DEV_RUNTIME_SYNC_DEPTH) == 3
    context.set_cache_config(drv.func_cache.PREFER_SHARED)
    assert context.get_cache_config() == drv.func_cache.PREFER_SHARED
    assert context.get_shared_config() == drv.shared_config.DEFAULT_BANK_SIZE
    drv.start_profiler()
    drv.stop_profiler()


def test_flags_combine_and_errors_have_one_base() -> None:
    assert drv.ctx_flags.SCHED_AUTO | drv.ctx_flags.MAP_HOST == 8
    assert drv.mem_attach_flags.GLOBAL == 1
    for name in ("LogicError", "LaunchError", "MemoryError", "RuntimeError", "CompileError"):
        assert issubclass(getattr(drv, name), drv.Error)
        assert issubclass(getattr(drv, name), ck.CudakitError)
    assert type(errors.as_error(ck.LaunchError("cuda: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"))) is drv.LaunchError
    with pytest.raises(AttributeError, match=r"IPCMemoryHandle.*cuda\.core"):
        _ = drv.IPCMemoryHandle
