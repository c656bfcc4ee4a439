"""What stands for CuPy and Triton where there is no GPU, without these libraries."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.adapters import torch_tensors, triton_kernels
from cudakit.adapters.cupy import cupy_stand_in
from cudakit.adapters.stand_ins import StandIns
from cudakit.emulator.resources.allocations import MARKS

pytestmark = pytest.mark.emulator
TEXT = """
extern "C" __global__ void scale(float* x, float by, int n) {
    extern __shared__ float held[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    held[threadIdx.x] = x[i] * (by + EXTRA);
    x[i] = held[threadIdx.x];
}
template <typename T> __global__ void plus(T* x) { x[threadIdx.x] += 1; }
"""


@pytest.fixture
def cp() -> Any:
    """What a program has in the place of CuPy."""
    return cupy_stand_in()["cupy"]


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Arrays that are marked as never written."""
    found: list[Any] = []
    monkeypatch.setattr(MARKS, "mark", found.append)
    return found


def test_cupys_functions_give_arrays_of_its_kind(cp: Any) -> None:
    x = cp.arange(6, dtype="f4").reshape(2, 3)
    assert (isinstance(x, cp.ndarray), type(x.get()), type(cp.asnumpy(x))) == (True, np.ndarray, np.ndarray)
    assert not isinstance(np.zeros(2), cp.ndarray)
    assert isinstance(cp.ndarray((2,), "f4"), cp.ndarray)
    assert x.get().flags.c_contiguous
    assert x.get(order="F").flags.f_contiguous
    out = np.zeros((2, 3), "f4")
    assert x.get(out=out) is out
    assert out.tolist() == x.tolist()
    x.get()[...] = 7
    x.set(np.ones((2, 3), "f4"))
    assert (x == 1).all()
    parts = cp.split(cp.arange(4), 2)
    assert [isinstance(each, cp.ndarray) for each in parts] == [True] * 2
    assert isinstance(cp.histogram(cp.arange(4), bins=2), tuple)
    assert (cp.get_array_module(x, 3), cp.get_array_module(np.zeros(3), 3)) == (cp, np)
    assert cp.shape(np.zeros(3)) == (3,)
    assert (cp.float32, cp.pi, cp.add.nin, type(cp.add)) == (np.float32, np.pi, 2, cp.ufunc)
    assert isinstance(cp.linalg.inv(cp.eye(2)), cp.ndarray)
    assert cp.asarray([1, 2], blocking=True).tolist() == [1, 2]
    assert cp.linalg.__name__ == "cupy.linalg"
    with pytest.raises(AttributeError, match=r"cupy.poly3d is not here: without a GPU .* and numpy has no"):
        _ = cp.poly3d
    with pytest.raises(AttributeError, match=r"cupy.nditer is not here: without a GPU .* CuPy has no nditer"):
        _ = cp.nditer
    with pytest.raises(AttributeError):
        _ = cp.__wrapped__
    assert cp.arange.__name__ == "arange"


def test_arrays_that_are_allocated_alone_are_marked(cp: Any, marked: list[Any]) -> None:
    made = [cp.empty(3), cp.empty_like(np.zeros(4)), cp.empty((2, 3), order="C")]
    assert [each.shape for each in marked] == [each.shape for each in made]
    cp.zeros(3)
    cp.empty((2, 3), order="F")
    assert len(marked) == 3


def test_kernels_of_cupy_run_on_the_emulator(cp: Any, tmp_path: Path) -> None:
    x = cp.arange(40, dtype="f4")
    kernel = cp.RawKernel(TEXT, "scale", ("-DEXTRA=1",))
    assert (kernel.code, kernel.name, kernel.options) == (TEXT, "scale", ("-DEXTRA=1",))
    kernel((2,), (32,), (x, cp.float32(2), 40), shared_mem=128)
    assert x.tolist() == [3 * k for k in range(40)]
    with pytest.raises(ck.EmulationError):
        kernel((2,), (32,), (x, cp.float32(2), 40))
    module = cp.RawModule(code=TEXT, options=("-DEXTRA=0",))
    module.get_function("plus<float>")((1,), (40,), (x,))
    assert x.tolist() == [3 * k + 1 for k in range(40)]
    module.get_function("scale")((np.int64(1),), (np.int32(40),), (x, np.float32(2), 40), shared_mem=160)
    assert x[1] == 8
    (tmp_path / "kernels.cu").write_text(TEXT)
    from_file = cp.RawModule(path=str(tmp_path / "kernels.cu"), options=("-DEXTRA=0",))
    from_file.get_function("plus<float>")((1,), (1,), (x,))
    assert x[0] == 3
    with pytest.raises(ck.CudakitError, match="RawModule takes code or a path"):
        cp.RawModule()


def test_elementwise_kernels_and_reductions_of_cupy(cp: Any) -> None:
    x = cp.arange(4.0)
    product = cp.ElementwiseKernel(
        "T x, T y",
        "T z",
        "z = x * twice(y)",
        "product",
        preamble=("template <typename T> __device__ T twice(T x) { return 2 * x; }"),
    )
    found = product(x, x)
    assert (isinstance(found, cp.ndarray), found.tolist()) == (True, [0, 2, 8, 18])
    out = cp.zeros(4)
    product(x, x, out)
    assert out.tolist() == [0, 2, 8, 18]
    both = cp.ElementwiseKernel("T x", "T y, T z", "y = x + 1; z = x - 1")
    first, second = both(x)
    assert (first.tolist(), second.tolist(), isinstance(first, cp.ndarray)) == ([1, 2, 3, 4], [-1, 0, 1, 2], True)
    both(x, first, second)
    assert second.tolist() == [-1, 0, 1, 2]
    count = cp.ElementwiseKernel("", "int32 y", "y = i")
    assert count(size=3).tolist() == [0, 1, 2]
    norm = cp.ReductionKernel(
        "T x",
        "T y",
        "square(x)",
        "a + b",
        "y = sqrt(a)",
        "0",
        "norm",
        preamble=("template <typename T> __device__ T square(T x) { return x * x; }"),
    )
    assert float(norm(cp.ones(16))) == 4
    rows = norm(cp.ones((9, 4)), axis=0, keepdims=True)
    assert (rows.tolist(), isinstance(rows, cp.ndarray)) == ([[3] * 4], True)
    least = cp.ReductionKernel("T x", "T y", "x", "min(a, b)", "y = a", "", "least")
    assert least(cp.array([3.0, 2.0])) == 2


def test_streams_events_and_devices_of_cupy(cp: Any) -> None:
    cuda = cp.cuda
    null = cuda.get_current_stream()
    assert (null, null.ptr, cuda.Stream.ptds.ptr, cuda.Stream.null) == (cuda.Stream.null, 0, 2, null)
    with cuda.Stream(non_blocking=True, priority=-1) as outer:
        with cuda.Stream() as inner:
            assert cuda.get_current_stream() is inner
        assert (cuda.get_current_stream(), outer.priority, outer.is_non_blocking) == (outer, -1, True)
    assert cuda.get_current_stream() is null
    assert (outer == cuda.ExternalStream(outer.ptr), outer == inner, outer.done) == (True, False, True)
    assert cuda.Stream.from_external(SimpleNamespace(__cuda_stream__=lambda: (0, 7))).ptr == 7
    assert (inner.use(), cuda.get_current_stream(), cuda.Stream.null.use()) == (inner, inner, null)
    calls: list[Any] = []
    inner.launch_host_func(calls.append, 3)
    inner.add_callback(lambda *arguments: calls.append(arguments), 4)
    assert calls == [3, (inner, 0, 4)]
    event, other = cuda.Event(), cuda.Event(disable_timing=True)
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="cudaErrorInvalidResourceHandle"):
        cuda.get_elapsed_time(event, event)
    assert outer.record(event) is event
    assert isinstance(outer.record(), cuda.Event)
    assert (event.record(outer), event.synchronize(), outer.wait_event(event), event.done) == (None, None, None, True)
    assert np.isnan(cuda.get_elapsed_time(event, event))
    other.record()
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="has no time"):
        cuda.get_elapsed_time(event, other)
    device = cuda.Device(0)
    assert (device.id, device.compute_capability, device.use(), int(device)) == (0, "90", device, 0)
    assert (device, hash(device), cp.zeros(1).device, device == 0) == (cuda.Device(), hash(0), device, False)
    assert (device.attributes["WarpSize"], device.attributes["MultiProcessorCount"]) == (32, 132)
    assert cuda.Device.from_pci_bus_id(device.pci_bus_id) == device
    free, total = device.mem_info
    assert 0 < free <= total
    with device:
        assert device.synchronize() is None
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="one device, number 0, got 1"):
        cuda.Device(1)
    with pytest.raises(AttributeError, match="a handle of cuBLAS needs a GPU"):
        _ = device.cublas_handle
    assert cuda.is_available()
    assert {"cupy", "cupy.cuda.runtime", "cupyx.jit", "cupyx.scipy.ndimage"} < {*cupy_stand_in()}
    assert cp.__path__ == []


# ── parts of modules ─────────────────────────────────────────────────────────────────────────────────────────────────


def putting(name: str, value: Any) -> Callable[..., None]:
    return lambda module, put: put(module, name, value)


def test_parts_of_a_module_that_is_imported_before(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("own_module")
    module.first = 1
    monkeypatch.setitem(sys.modules, "own_module", module)

    def replace(found: Any, put: Any) -> None:
        put(found, "first", 2)
        put(found, "first", 3)
        put(found, "second", 4)

    with StandIns({}, {"own_module": replace}) as replaced:
        assert (module.first, module.second) == (3, 4)
        assert sys.meta_path[0] is replaced
    assert module.first == 1
    assert not hasattr(module, "second")


def test_parts_of_a_module_that_is_imported_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late_module.py").write_text("first = 1\n")
    (tmp_path / "other_module.py").write_text("first = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("late_module", "other_module"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = list(sys.meta_path)
    with StandIns({}, {"late_module": putting("first", 2)}) as replaced:
        assert sys.meta_path[0] is replaced
        import late_module  # type: ignore[import-not-found]
        import other_module  # type: ignore[import-not-found]

        assert (late_module.first, other_module.first) == (2, 1)
    assert sys.meta_path == before
    assert late_module.first == 1
    with StandIns({}, {"no_such_module": putting("first", 2)}), pytest.raises(ImportError):
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401


# ── Triton ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_driver_that_triton_asks() -> None:
    target = SimpleNamespace(arch=90)
    driver = triton_kernels._driver(target)
    assert driver.get_device_capability() == (9, 0)
    target.arch = 103
    assert driver.get_device_capability() == (10, 3)
    assert driver.get_current_target() is target
    assert (driver.get_current_device(), driver.set_current_device(0), driver.get_current_stream(0)) == (0, None, 0)
    assert (driver.launcher_cls(0, 0), driver.get_empty_cache_for_benchmark(), driver.clear_cache(None)) == (None,) * 3
    properties = driver.utils.get_device_properties(0)
    assert properties["max_shared_mem"] == 232448
    assert (properties["multiprocessor_count"], properties["warpSize"], properties["max_num_regs"]) == (132, 32, 65536)
    assert (properties["sm_clock_rate"], properties["mem_clock_rate"], properties["mem_bus_width"]) == (
        *(1980000, 2619000), 5120,
    )  # fmt: skip
    kernel = ck.Kernel("__global__ void f(float* x) { x[threadIdx.x] *= 2; }")
    code = kernel.compile(arch="sm_90", target="cubin").code
    module, handle, registers, spilled, threads = driver.utils.load_binary("_Z1fPf", code, 0, 0)
    assert (module, handle, spilled, threads, driver.utils.unload_module(module)) == (None, 0, 0, 1024, None)
    assert 4 <= registers <= 64
    calls: list[int] = []
    benchmark = driver.get_benchmarker()
    assert benchmark(lambda: calls.append(1), quantiles=(0.5, 0.2, 0.8)) == [0.0] * 3
    measure = triton_kernels._do_bench
    assert [np.isnan(time) for time in measure(lambda: calls.append(1), quantiles=[0.5, 0.2])] == [True, True]
    assert np.isnan(measure(lambda: calls.append(1), warmup=3))
    assert np.isnan(measure(lambda: calls.append(1), return_mode="all")[0])
    assert len(calls) == 4


def test_the_autotuner_runs_configurations_to_the_first_that_fits() -> None:
    runs: list[str] = []

    def bench(self: Any, config: str) -> list[float]:
        runs.append(config)
        return [np.inf if config == "too large" else 0.0] * 3

    measure = triton_kernels._first_fitting(bench)
    tuner = SimpleNamespace(nargs={})
    times = {config: measure(tuner, config) for config in ("too large", "fits", "later")}
    assert (min(times, key=times.__getitem__), runs) == ("fits", ["too large", "fits"])
    tuner.nargs = {}
    measure(tuner, "later")
    assert runs[2:] == ["later"]


def test_a_report_of_triton_has_its_first_row() -> None:
    bench = SimpleNamespace(x_vals=(4, 5, 6))
    run = triton_kernels._first_row(lambda self, bench, *arguments: (bench.x_vals, arguments))
    assert run(None, bench, "folder") == ([4], ("folder",))
    assert bench.x_vals == (4, 5, 6)


def test_torchs_device_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(device=lambda *name: ("device", *name)))
    assert triton_kernels._driver(None).get_active_torch_device() == ("device", "cuda", 0)


class Tensor:
    """A tensor of the host."""

    def __init__(self, array: np.ndarray, whole: np.ndarray | None = None, is_half: bool = False) -> None:
        self.array, self.whole, self.is_half = array, whole, is_half

    def is_contiguous(self) -> bool:
        return bool(self.array.flags.c_contiguous)

    def detach(self) -> Tensor:
        return Tensor(self.array, self.whole, self.is_half)

    def untyped_storage(self) -> Any:
        assert self.whole is not None
        return SimpleNamespace(nbytes=lambda: self.whole.nbytes)

    def element_size(self) -> int:
        return self.array.itemsize

    def storage_offset(self) -> int:
        assert self.whole is not None
        return (self.array.ctypes.data - self.whole.ctypes.data) // self.array.itemsize

    def as_strided(self, shape: Any, strides: Any, offset: int) -> Tensor:
        assert self.whole is not None
        assert (shape, strides, offset) == ((self.whole.size,), (1,), 0)
        return Tensor(self.whole.reshape(-1))

    def __getitem__(self, part: slice) -> Tensor:
        return Tensor(self.array[part])

    def numpy(self) -> np.ndarray:
        if self.is_half:
            raise TypeError("no bfloat16")
        return self.array

    def view(self, dtype: Any) -> Tensor:
        return Tensor(self.array.view(dtype))


def test_memory_of_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(int16=np.int16, int8=np.int8))
    found = triton_kernels._array
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert found(None) is None
    assert found(x) is x
    assert found(Tensor(x)) is x
    plain = SimpleNamespace(numpy=lambda: x, is_contiguous=lambda: True)
    assert found(plain) is x
    assert found(Tensor(x[1:, 1:3], x)).tolist() == [*range(5, 12)]
    for size, dtype in ((2, np.int16), (1, np.int8)):
        given = Tensor(np.zeros(4, f"u{size}"), is_half=True)
        assert found(given).dtype == dtype
    with pytest.raises(ck.ArgumentError, match="a kernel of Triton takes tensors of the host here, got int"):
        found(3)
    assert found(SimpleNamespace(base=plain)) is x


def descriptor(base: Any, shape: Sequence[int], strides: Sequence[int]) -> Any:
    """Return a tensor descriptor with the attributes of Triton's."""
    return SimpleNamespace(base=base, shape=shape, strides=strides, padding="zero", round_f32_to_tf32=False)


def test_tensor_descriptors_become_tensor_maps() -> None:
    x = np.zeros((4, 64), np.float32)
    layout = {"elem_type": 7, "swizzle": 3, "block_size": [2, 32], "fp4_padded": False}
    tensor = descriptor(x, [4, 64], [64, 1])
    found = triton_kernels._tensor_map(tensor, layout)
    assert found.data == ck.tensor_map(x, (2, 32), swizzle="128B").data
    tensor.round_f32_to_tf32 = True
    rounds = ck.tensor_map(x, (2, 32), swizzle="128B", precision="tf32").data
    assert triton_kernels._tensor_map(tensor, layout).data == rounds != found.data
    tensor.round_f32_to_tf32 = False
    half = np.zeros((4, 64), np.int16)
    assert (
        triton_kernels._tensor_map(descriptor(half, [4, 64], [64, 1]), {**layout, "elem_type": 10}).data[120:124]
        == b"bf16"
    )
    flat = [*triton_kernels._flat(("tensordesc<fp32[2,32]>", "constexpr", "i32"), (tensor, 3, 5), iter([layout]))]
    assert flat[0].data == found.data
    assert flat[1:] == [4, 64, 64, 1, 5]
    assert [type(value) for value in flat[1:]] == [*[np.int32] * 2, *[np.int64] * 2, np.int32]
    taken_apart = [*triton_kernels._flat("tensordesc<fp32[2,32]>", tensor, iter(()))]
    assert taken_apart[0] is x
    assert taken_apart[1:] == [4, 64, 64, 1, 0, 0, 4, 64, 64, 1]
    for bad, message in (
        ({"elem_type": 13}, "element type 13"), ({"fp4_padded": True}, "padded float4"), ({"is_im2col": True}, "im2col")
    ):  # fmt: skip
        with pytest.raises(ck.ArgumentError, match=f"tensor descriptors with {message} are not emulated"):
            triton_kernels._tensor_map(tensor, {**layout, **bad})
    with pytest.raises(ck.ArgumentError, match=r"of shape \(5, 64\) .* needs 1280 bytes, but its tensor has 1024"):
        triton_kernels._tensor_map(descriptor(x, [5, 64], [64, 1]), layout)


def test_what_triton_compiled_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    made: list[Any] = []

    class Launched:
        cluster, scratch_bytes = 1, 0

        def __call__(self, *passed: Any, scratch: Any) -> None:
            calls.append(passed)

    def from_triton(compiled: Any) -> Any:
        made.append(compiled)
        return Launched()

    monkeypatch.setattr(triton_kernels, "from_triton", from_triton)
    kinds = {"x": "*fp32", "n": "i32", "B": "constexpr", "by": "fp32", "flag": "i1", "u": "u64", "d": "f64", "k": "i8"}
    compiled = SimpleNamespace(src=SimpleNamespace(signature=kinds), metadata=None)
    x = np.zeros(3, np.float32)
    hooks: list[Any] = []
    before = ("stream", "function", "packed", "launch", hooks.append, hooks.append)
    for _ in range(2):
        triton_kernels._launch(compiled, 2, 3, 4, *before, x, 5, 128, 2, True, 7, 1, -3)
    stream, grid, *passed = calls[0]
    assert stream is ck.places.emulator().current()
    assert (grid, passed) == ((2, 3, 4), [x, 5, 2.0, 1, 7, 1.0, -3])
    assert [type(each) for each in passed[1:]] == [np.int32, np.float32, np.int8, np.uint64, np.float64, np.int8]
    assert (len(made), len(calls)) == (1, 2)
    assert hooks == ["launch"] * 4
    triton_kernels._launch(compiled, 2, 0, 4, *before, x, 5, 128, 2, True, 7, 1, -3)
    assert len(calls) == 2
    other = SimpleNamespace(src=SimpleNamespace(signature={"x": "nvTmaDesc"}), metadata=None)
    with pytest.raises(ck.ArgumentError, match="a kernel of Triton with an argument of type nvTmaDesc does not run on"):
        triton_kernels._launch(other, 1, 1, 1, *before, 3)
    with pytest.raises(ValueError, match="zip"):
        triton_kernels._launch(compiled, 1, 1, 1, *before, x, 3)


def test_triton_does_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    target = SimpleNamespace(GPUTarget=lambda *given: given)
    monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
    monkeypatch.setitem(sys.modules, "triton.backends", ModuleType("triton.backends"))
    monkeypatch.setitem(sys.modules, "triton.backends.compiler", target)
    libraries = SimpleNamespace(cublas="cublas")
    monkeypatch.setattr(triton_kernels.importlib, "import_module", lambda name: SimpleNamespace(nvidia=libraries))
    monkeypatch.setattr(triton_kernels.importlib.util, "find_spec", lambda name: None)
    module = SimpleNamespace(
        runtime=SimpleNamespace(driver="driver", Autotuner=SimpleNamespace(_bench=len)),
        compiler=SimpleNamespace(CompiledKernel="compiled"),
        testing=SimpleNamespace(do_bench=len, do_bench_cudagraph=len, Mark=SimpleNamespace(_run=len)),
    )
    seen: list[Any] = []
    triton_kernels.replace(module, lambda *given: seen.append(given))
    (owner, name, driver), (kernel, run, made), *rest = seen
    assert (owner, name, driver.get_current_target()) == ("driver", "_active", ("cuda", 90, 32))
    assert (kernel, run) == ("compiled", "run")
    launch = made.fget("what was compiled")
    assert (launch.func, launch.args) == (triton_kernels._launch, ("what was compiled",))
    assert [name for _, name, _ in rest] == ["do_bench", "do_bench_cudagraph", "_run", "CublasLt", "_bench"]
    assert rest[0][2] is rest[1][2] is triton_kernels._do_bench


def test_tensors_on_cuda_are_the_hosts() -> None:
    calls: list[Any] = []

    class Value:
        def data_ptr(self) -> int:
            return 0

        def clone(self) -> Value:
            return Value()

    def make(*arguments: Any, **options: Any) -> Any:
        calls.append((arguments, options))
        return arguments[0] if arguments and isinstance(arguments[0], Value) else Value()

    hosted = torch_tensors._hosted(make)
    device = type("device", (), {"type": "cuda"})()
    places = [
        hosted(3, "cuda:0", device=device, pin_memory=True),
        hosted(1, "cpu"),
        hosted(device=0),
        hosted(dtype="f4"),
    ]
    assert [torch_tensors._place(value) for value in places] == ["cuda", "cpu", "cuda", None]
    assert calls == [((3, "cpu"), {"device": "cpu"}), ((1, "cpu"), {}), ((), {"device": "cpu"}), ((), {"dtype": "f4"})]
    move = torch_tensors._hosted(make, copies=True)
    here, there, _, anywhere = places
    # A tensor that is there is not copied; one from elsewhere is.
    assert (move(here, "cuda") is here, move(there, "cuda") is there) == (True, False)
    assert (move(anywhere, "cuda") is anywhere, move(anywhere, "f4") is anywhere) == (False, True)
    assert torch_tensors._place(move(here, "cpu")) == "cpu"
    event = torch_tensors._Event(enable_timing=True)
    assert (event.record(), event.query(), np.isnan(event.elapsed_time(event))) == (None, True, True)
    with torch_tensors._Stream() as stream:
        assert (stream.query(), type(stream.record_event())) == (True, torch_tensors._Event)
    assert torch_tensors._properties().multi_processor_count == 132
