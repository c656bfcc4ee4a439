"""What the stand-in for CuPy has beside arrays and launches: memory, attributes, modules, captures, textures, names."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import emulator
from cudakit.adapters.cupy import cupy_stand_in, modules

pytestmark = pytest.mark.emulator
ROOT = Path(__file__).parents[2]
TEXT = """
__constant__ float factors[4];
extern "C" __global__ void scale(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factors[i % 4];
}
"""


@pytest.fixture
def cp(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in for CuPy, as programs import it."""
    libraries = cupy_stand_in()
    for name, module in libraries.items():
        monkeypatch.setitem(sys.modules, name, module)
    return libraries["cupy"]


def test_host_arrays_are_copied_and_never_mixed(cp: Any) -> None:
    host = np.arange(3.0)
    x = cp.asarray(host)
    host[0] = 9
    assert (x.tolist(), cp.asarray(x) is x, cp.asnumpy(host) is host) == ([0, 1, 2], True, True)
    calls = (
        lambda: x + host, lambda: host + x, lambda: cp.add(host, host), lambda: cp.concatenate([x, host]),
        lambda: x.__setitem__(slice(None), host), lambda: np.asarray(x), lambda: cp.linalg.norm(host),
        lambda: cp.where(host > 1, x, x),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(TypeError):
            call()
    assert type(cp.sum(host)) is np.float64, "a function that calls the array's method takes NumPy's"
    for wrong in (np.zeros(3, "f4"), np.zeros(4), x):
        with pytest.raises(TypeError, match="set takes"):
            x.set(wrong)


def test_results_are_arrays_of_no_dimensions(cp: Any) -> None:
    x = cp.arange(6.0).reshape(2, 3)
    results = (x.sum(), x[0, 1], x.argmax(), cp.max(x), cp.linalg.norm(x), next(iter(x[0])), np.sum(x), x.mean())
    assert all(isinstance(result, cp.ndarray) and result.shape == () for result in results)
    assert (float(results[0]), int(results[2]), f"{results[1]:.2f}", repr(results[0])) == (15, 5, "1.00", "array(15.)")
    x[0, 0] += 5
    view = x[0, 0]
    view += 1
    assert x[0].get().tolist() == [6, 1, 2]
    assert x[0][cp.array([3, 4])].tolist() == [6, 1], "index arrays wrap around"
    with pytest.raises(IndexError):
        x[5]
    assert cp.random.rand(3, dtype="f4").dtype == np.float32
    assert isinstance(cp.random.RandomState(0).normal(size=2), cp.ndarray)


def test_memory_by_pointers(cp: Any) -> None:
    cuda, pool = cp.cuda, cp.get_default_memory_pool()
    used = pool.used_bytes()
    x = cp.arange(100, dtype="f4")
    assert (pool.used_bytes() - used, pool.n_free_blocks(), x.device.id) == (512, 0, 0)
    part = x[10:]
    assert part.data.ptr - x.data.ptr == 40
    again = cp.ndarray((5,), "f4", part.data + 4)
    assert again.tolist() == [11, 12, 13, 14, 15]
    memory = cuda.alloc(40)
    memory.copy_from_device(x.data, 40)
    memory.memset(0, 4)
    host = np.zeros(10, "f4")
    memory.copy_to_host(host.ctypes.data, 40)
    assert host.tolist() == [0, *range(1, 10)]
    cuda.runtime.memcpy(memory.ptr, host.ctypes.data + 4, 8, cuda.runtime.memcpyHostToDevice)
    assert cp.ndarray((2,), "f4", memory).tolist() == [1, 2]
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="cudaErrorInvalidValue"):
        memory.memset(0, 41)
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="cudaErrorInvalidValue"):
        cuda.UnownedMemory(64, 8, None)
    address = cuda.runtime.malloc(16)
    assert cuda.runtime.pointerGetAttributes(address).type == cuda.runtime.memoryTypeDevice
    cuda.runtime.free(address)
    with pytest.raises(cuda.runtime.CUDARuntimeError):
        cuda.runtime.free(address)
    assert cuda.runtime.getDeviceProperties(0)["multiProcessorCount"] == 132
    del memory, again, part, x
    assert pool.used_bytes() == used


def test_pools_and_allocators(cp: Any) -> None:
    cuda = cp.cuda
    pool, sizes = cuda.MemoryPool(), list[int]()

    def allocate(size: int) -> Any:
        sizes.append(size)
        return pool.malloc(size)

    with cuda.using_allocator(allocate):
        x = cp.ones(10)
        y = x + 1
    assert (sizes, pool.used_bytes(), y.tolist()) == ([80, 80], 1024, [2] * 10)
    pool.set_limit(1500)
    with pytest.raises(cuda.memory.OutOfMemoryError, match="limit set to: 1,500"):
        pool.malloc(513)
    pinned = cuda.alloc_pinned_memory(32)
    array = np.frombuffer(pinned, "f4", 8)
    array[...] = 3
    assert (array.sum(), pinned.size(), pinned.ptr == array.ctypes.data) == (24, 32, True)


def test_bit_generators_and_the_device_of_streams(cp: Any) -> None:
    for name in ("XORWOW", "MRG32k3a", "Philox4x3210"):
        first, second = (cp.random.Generator(getattr(cp.random, name)(1234)) for _ in range(2))
        x = first.random(5, dtype=cp.float32)
        assert (type(x), x.dtype) == (cp.ndarray, np.float32)
        assert x.tolist() == second.random(5, dtype=cp.float32).tolist()
    assert repr(cp.cuda.Stream.null) == "<Stream 0 (device -1)>"
    assert (cp.cuda.Stream.null.device_id, cp.cuda.Stream().device_id) == (-1, 0)


def test_attributes_and_variables_of_kernels(cp: Any) -> None:
    module = cp.RawModule(code=TEXT)
    kernel = module.get_function("scale")
    assert 0 < kernel.num_regs < 64
    assert (kernel.const_size_bytes, kernel.local_size_bytes, kernel.shared_size_bytes) == (16, 0, 0)
    assert (kernel.max_threads_per_block, kernel.attributes["binary_version"]) == (1024, 90)
    kernel.max_dynamic_shared_size_bytes = 98304
    assert kernel.attributes["max_dynamic_shared_size_bytes"] == 98304
    factors = cp.ndarray((4,), "f4", module.get_global("factors"))
    factors[...] = cp.array([1, 2, 3, 4], "f4")
    x = cp.ones((4, 2), "f4", order="F")
    kernel((1,), (8,), (x, 8))
    assert x.T.ravel().tolist() == [1, 2, 3, 4] * 2, "CuPy passes the memory of an array in Fortran order"
    kernel((1,), (8,), (x.data.ptr, 8))
    assert x[3, 1] == 16


def test_a_kernel_runs_while_a_copy_to_the_host_is_pending(cp: Any) -> None:
    source = np.arange(4, dtype="f4")
    stream = emulator.stream()
    out = ck.to_host(ck.to_device(source, stream), stream, wait=False)
    x = cp.ones((4, 2), "f4")
    cp.RawModule(code=TEXT).get_function("scale")((1,), (8,), (x, 8))
    stream.sync()
    assert out.tolist() == source.tolist()


def test_a_capture_is_work_for_each_launch(cp: Any) -> None:
    x, y = cp.ones(4, "f4"), cp.zeros(4, "f4")
    with cp.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        x *= 2
        total = (x + 1).sum()
        y[...] = total
        assert stream.is_capturing
        graph = stream.end_capture()
    assert (x.tolist(), y.tolist()) == ([1] * 4, [0] * 4)
    graph.launch()
    graph.launch(stream)
    assert (x.tolist(), y.tolist()) == ([4] * 4, [20] * 4)
    stream.begin_capture()
    with pytest.raises(ck.LaunchError, match="waits for the device"):
        x.get()
    assert not stream.is_capturing


def test_functions_of_python_as_kernels(cp: Any) -> None:
    from cupyx import jit  # type: ignore[import-not-found]

    shift = 3

    @jit.rawkernel(device=True)
    def low(a, b):  # type: ignore[no-untyped-def]
        return a if a < b else b

    @jit.rawkernel()
    def kernel(x, y, size):  # type: ignore[no-untyped-def]
        tid = jit.grid(1)
        shared = jit.shared_memory(np.float32, 64)
        for i in range(tid, size, jit.gridsize(1)):
            shared[jit.threadIdx.x] = x[i] / 2.0 + shift
        jit.syncthreads()
        if tid < size and x.ndim == 1:
            jit.atomic_add(y, tid // 4, low(shared[jit.threadIdx.x], 5.0))

    x, y = cp.arange(8, dtype="f4"), cp.zeros(2, "f4")
    kernel[1, 64](x, y, 8)
    expected = np.minimum(np.arange(8) / 2 + 3, 5).reshape(2, 4).sum(1)
    assert y.tolist() == expected.tolist()
    assert "__global__ void kernel" in kernel.cached_code

    @jit.rawkernel()
    def refused(x):  # type: ignore[no-untyped-def]
        with x:
            pass

    with pytest.raises(ck.TemplateError, match=r"line 3: .* is not translated"):
        refused[1, 1](x)


def test_type_variables_in_a_preamble(cp: Any) -> None:
    twice = cp.ElementwiseKernel("T x", "T y", "y = twice(x)", preamble="__device__ T twice(T x) { return x + x; }")
    assert [twice(cp.ones(2, dtype)).dtype.name for dtype in ("f4", "f8")] == ["float32", "float64"]


def test_textures(cp: Any) -> None:
    texture = cp.cuda.texture
    desc = texture.ChannelFormatDescriptor(32, 0, 0, 0, cp.cuda.runtime.cudaChannelFormatKindFloat)
    memory = texture.CUDAarray(desc, 4, 2)
    memory.copy_from(cp.arange(8, dtype="f4").reshape(2, 4))
    resource = texture.ResourceDescriptor(cp.cuda.runtime.cudaResourceTypeArray, cuArr=memory)
    object_ = texture.TextureObject(resource, texture.TextureDescriptor())
    code = 'extern "C" __global__ void f(cudaTextureObject_t t, float* y) { *y = tex2D<float>(t, 2.5f, 1.5f); }'
    y = cp.zeros(1, "f4")
    cp.RawKernel(code, "f")((1,), (1,), (object_, y))
    assert y[0] == 6


def test_cupyx(cp: Any) -> None:
    import cupyx  # type: ignore[import-not-found]

    pinned = cupyx.zeros_pinned((2, 3), "f4")
    assert (type(pinned), pinned.sum()) == (np.ndarray, 0)
    x = cp.zeros(3)
    cupyx.scatter_add(x, cp.array([0, 0, 2]), 1)
    assert x.tolist() == [2, 0, 1]
    result = cupyx.profiler.benchmark(lambda: x + 1, name="add")
    assert (result.gpu_times.shape, np.isnan(result.gpu_times).all(), result.cpu_times[0] > 0) == ((1, 1), True, True)
    pytest.importorskip("scipy")
    assert isinstance(cupyx.scipy.special.erf(x), cp.ndarray)
    matrix = cupyx.scipy.sparse.csr_matrix(cp.eye(3))
    assert (matrix @ x).tolist() == [2, 0, 1]


def test_the_table_of_the_page() -> None:
    """The page names what the stand-in lacks, by CuPy's own list; `docs/run-cupy-and-triton.md` has the rule."""
    libraries = cupy_stand_in()
    cp = libraries["cupy"]
    examples: dict[str, Any] = {
        "cupy.cuda.Device": cp.cuda.Device(), "cupy.cuda.Event": cp.cuda.Event(), "cupy.cuda.Stream": cp.cuda.Stream(),
        "cupy.cuda.MemoryPointer": cp.zeros(2).data, "cupy.cuda.MemoryPool": cp.cuda.MemoryPool(),
        "cupy.cuda.PinnedMemoryPool": cp.cuda.PinnedMemoryPool(), "cupy.cuda.Graph": cp.cuda.Graph(()),
        "cupy.RawKernel": cp.RawKernel(TEXT, "scale"), "cupy.RawModule": cp.RawModule(code=TEXT),
        "cupy.ElementwiseKernel": cp.ElementwiseKernel("T x", "T y", "y = x"),
        "cupy.ReductionKernel": cp.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0"),
    }  # fmt: skip
    counts: dict[str, list[Any]] = {}
    for line in (ROOT / "tests/adapters/names_cupy.txt").read_text(encoding="utf-8").splitlines()[1:]:
        owner, _, name = line.rpartition(".")
        row = counts.setdefault(owner, [0, []])
        if hasattr(examples.get(owner, libraries.get(owner)), name):
            row[0] += 1
        else:
            row[1].append(name)
    rows = [
        f"| `{owner}` | {there} | {', '.join(f'`{name}`' for name in missing) or 'none'} |"
        for owner, (there, missing) in counts.items()
    ]
    page = (ROOT / "docs/run-cupy-and-triton.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `cupyx?\..*|^\| `cupyx`.*", page, re.MULTILINE) == rows, "\n".join(rows)


def test_functions_that_cupy_lacks_are_missing(cp: Any) -> None:
    assert {"nditer", "matrix", "insert"} <= set(modules.LACKING)
    for name in ("nditer", "insert"):
        with pytest.raises(AttributeError, match=f"CuPy has no {name}"):
            getattr(cp, name)
    with pytest.raises(AttributeError, match="and numpy has no nothing"):
        _ = cp.nothing
    assert "add" in dir(cp)
    assert "nditer" not in dir(cp)
