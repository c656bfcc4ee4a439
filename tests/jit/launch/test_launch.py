"""Launches: every kind of argument, checked, exact, on every kind of stream."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any

import ml_dtypes
import numpy as np
import pytest
from support.places import capability, to_host

import cudakit as ck
from cudakit.emulator.launch import limits_of
from cudakit.jit.load import load
from cudakit.streams import devices

SAXPY = """
template <typename T>
__global__ void saxpy(T a, const T* __restrict__ x, T* __restrict__ y, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        y[i] += a * x[i];
}
"""

STORE = "template <typename T> __global__ void store(T value, T* out) { *out = value; }"


@pytest.fixture(scope="module")
def saxpy() -> ck.Kernel:
    return ck.Kernel(SAXPY)


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "u1", "i8"])
@pytest.mark.parametrize("size", [1, 255, 256, 257, 100_003])
def test_saxpy_is_deduced_and_right_for_each_dtype(
    stream: Any, xp: Any, saxpy: ck.Kernel, dtype: str, size: int
) -> None:
    x = xp.asarray((np.arange(size) % 7).astype(dtype))
    y = xp.ones(size, dtype)
    a = 2 if np.dtype(dtype).kind in "iu" else 2.0
    saxpy(stream, ck.cover(size), a, x, y, size)
    np.testing.assert_array_equal(to_host(y), (1 + 2 * (np.arange(size) % 7)).astype(dtype))


def test_arguments_by_name_and_repeated_calls(stream: Any, xp: Any, saxpy: ck.Kernel) -> None:
    x, y = xp.ones(1000, "f4"), xp.zeros(1000, "f4")
    config = ck.config(4, 256)
    for _ in range(5):
        saxpy(stream, config, n=x.size, x=x, y=y, a=0.5)
    np.testing.assert_array_equal(to_host(y), np.full(1000, 2.5, "f4"))


def test_bfloat16(stream: Any, xp: Any, saxpy: ck.Kernel) -> None:
    x, y = xp.ones(100, ml_dtypes.bfloat16), xp.zeros(100, ml_dtypes.bfloat16)
    saxpy(stream, ck.cover(100), 1.5, x, y, 100)
    assert (to_host(y.astype("f4")) == 1.5).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex(stream: Any, xp: Any, saxpy: ck.Kernel, dtype: str) -> None:
    x, y = xp.full(33, 1 + 2j, dtype), xp.zeros(33, dtype)
    saxpy(stream, ck.cover(33), 2j, x, y, 33)
    np.testing.assert_array_equal(to_host(y), np.full(33, 2j * (1 + 2j), dtype))


SCALARS = [
    ("bool", "?", [True, False]),
    ("signed char", "i1", [-128, 127]),
    ("unsigned char", "u1", [0, 255]),
    ("short", "i2", [-(2**15), 2**15 - 1]),
    ("unsigned short", "u2", [0, 2**16 - 1]),
    ("int", "i4", [-(2**31), 2**31 - 1]),
    ("unsigned int", "u4", [0, 2**32 - 1]),
    ("long long", "i8", [-(2**63), 2**63 - 1]),
    ("unsigned long long", "u8", [0, 2**63, 2**64 - 1]),
    ("__half", "f2", [1.5, -65504.0, math.inf]),
    ("float", "f4", [0.1, -3.4e38, math.inf, 1e-45]),
    ("double", "f8", [0.1, 1e308]),
    ("cuda::std::complex<float>", "c8", [1 - 2j]),
    ("cuda::std::complex<double>", "c16", [1 - 2j]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype", "values"), SCALARS, ids=[row[0] for row in SCALARS])
def test_scalars_arrive_exactly(stream: Any, xp: Any, name: str, dtype: str, values: list[Any]) -> None:
    store = ck.Kernel(STORE)[name]
    out = xp.zeros(1, dtype)
    for value in values:
        for given in (value, np.dtype(dtype).type(value)):
            out.fill(0)
            store(stream, ck.config(1, 1), given, out)
            np.testing.assert_array_equal(to_host(out)[0], np.dtype(dtype).type(value))


@pytest.mark.parametrize(
    ("name", "dtype", "value", "why"),
    [
        ("unsigned char", "u1", 300, "outside 0 … 255"),
        ("unsigned char", "u1", -1, "outside 0 … 255"),
        ("int", "i4", 2**40, "outside"),
        ("int", "i4", math.nan, "not a finite number"),
        ("int", "i4", 1.5, "not an integer"),
        ("float", "f4", 1e39, "beyond the largest float32"),
        ("__half", "f2", 70000.0, "beyond the largest float16"),
        ("float", "f4", 1j, "complex"),
        ("float", "f4", "text", "takes a number"),
        ("unsigned long long", "u8", 2**64, "outside"),
        ("float", "f4", None, "takes a number"),
    ],
)
def test_scalars_out_of_range_raise(stream: Any, xp: Any, name: str, dtype: str, value: Any, why: str) -> None:
    store, out = ck.Kernel(STORE)[name], xp.zeros(1, dtype)
    store(stream, ck.config(1, 1), 1, out)
    with pytest.raises(ck.ArgumentError, match=why) as caught:
        store(stream, ck.config(1, 1), value, out)
    assert "value" in str(caught.value)


def test_sixteen_mixed_arguments(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("""
        __global__ void mix(float* a, double* b, int* c, long long* d, float* e, float* f, float* g, float* h,
                            float f0, float f1, double d0, double d1, int n0, short n1, unsigned long long u, bool t) {
            a[0] = f0; b[0] = d0 + d1; c[0] = n0 + n1; d[0] = u; e[0] = f1; f[0] = t; g[0] = 7; h[0] = 8;
        }""")
    out = [xp.zeros(1, code) for code in ("f4", "f8", "i4", "i8", "f4", "f4", "f4", "f4")]
    for _ in range(3):
        kernel(stream, ck.config(1, 1), *out, 0.5, 0.25, 1.0, 2.0, 5, -3, 2**40, True)
    assert [to_host(a)[0] for a in out] == [0.5, 3.0, 2, 2**40, 0.25, 1.0, 7, 8]


def test_one_kernel_with_many_types_in_turn(stream: Any, xp: Any, saxpy: ck.Kernel) -> None:
    kinds = ["f4", "f8", "i4", "i8", "f2", "i2", "u2", "u4", "u8", "i1", "u1"]
    arrays = {code: (xp.ones(64, code), xp.zeros(64, code)) for code in kinds}
    for _ in range(3):
        for code, (x, y) in arrays.items():
            saxpy(stream, ck.cover(64), 1 if np.dtype(code).kind in "iu" else 1.0, x, y, 64)
    for code, (_, y) in arrays.items():
        np.testing.assert_array_equal(to_host(y), np.full(64, 3, code))


# ── structs, vectors, strided arrays, function objects ──────────────────────────────────────────────────────────────


@dataclass
class Params:
    scale: np.float32
    offset: np.float64
    table: Annotated[np.int32, 3]


PARAMS = """
struct Params { float scale; double offset; int table[3]; };
__global__ void use(Params p, double* out) { out[0] = p.scale * 2 + p.offset + p.table[0] * p.table[2]; }
"""


def test_struct_from_a_dataclass_matches_the_declared_one(stream: Any, xp: Any) -> None:
    out = xp.zeros(1, "f8")
    ck.Kernel(PARAMS)(stream, ck.config(1, 1), Params(np.float32(3), np.float64(0.5), np.array([2, 0, 10], "i4")), out)
    assert float(out[0]) == 6 + 0.5 + 20


def test_struct_is_generated_where_the_source_names_none(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("template <typename P> __global__ void use(P p, double* out) { out[0] = p.scale + p.offset; }")
    dtype = np.dtype([("scale", "f4"), ("offset", "f8")], align=True)
    out = xp.zeros(1, "f8")
    kernel(stream, ck.config(1, 1), np.array((1.5, 2.0), dtype)[()], out)
    assert float(out[0]) == 3.5
    kernel(stream, ck.config(1, 1), Params(np.float32(1), np.float64(4), np.zeros(3, "i4")), out)
    assert float(out[0]) == 5


def test_struct_with_another_layout_is_refused(stream: Any, xp: Any) -> None:
    dtype = np.dtype([("scale", "f4"), ("offset", "f4"), ("table", "i4", 3)])
    with pytest.raises(ck.CompileError, match="struct Params: the Python side has"):
        ck.Kernel(PARAMS)(stream, ck.config(1, 1), np.zeros((), dtype)[()], xp.zeros(1, "f8"))


def test_struct_from_ctypes(stream: Any, xp: Any) -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_float))

    kernel = ck.Kernel("struct Pair { int a; float b; }; __global__ void use(Pair p, float* out) { *out = p.a + p.b; }")
    out = xp.zeros(1, "f4")
    kernel(stream, ck.config(1, 1), Pair(3, 0.5), out)
    assert float(out[0]) == 3.5


def test_array_of_structs(stream: Any, xp: Any) -> None:
    dtype = np.dtype([("x", "f4"), ("id", "i4")])
    kernel = ck.Kernel(
        "template <typename P> __global__ void bump(P* p, int n) { if (threadIdx.x < n) p[threadIdx.x].id += 1; }"
    )
    host = np.array([(1.0, 10), (2.0, 20)], dtype)
    device = xp.asarray(host)
    kernel(stream, ck.config(1, 32), device, 2)
    assert to_host(device)["id"].tolist() == [11, 21]


def test_vectors_by_value_and_by_pointer(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel(
        "__global__ void add(float4 v, float4* out) { out[threadIdx.x].x = v.w; out[threadIdx.x].w = v.x; }"
    )
    out = xp.zeros((2, 4), "f4")
    kernel(stream, ck.config(1, 2), (1.0, 2.0, 3.0, 4.0), out)
    np.testing.assert_array_equal(to_host(out), [[4, 0, 0, 1]] * 2)
    with pytest.raises(ck.ArgumentError, match="4 elements at a time"):
        kernel(stream, ck.config(1, 1), (1.0, 2.0, 3.0, 4.0), out.ravel()[1:5])
    with pytest.raises(ck.ArgumentError, match="takes 4 numbers"):
        kernel(stream, ck.config(1, 1), (1.0, 2.0), out)


def test_records_of_x_y_z_are_vectors(stream: Any, xp: Any) -> None:
    """As PyCUDA's `gpuarray.vec` has them."""
    float3 = np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4")])
    kernel = ck.Kernel("__global__ void fill(float3* out, float3 x) { out[threadIdx.x] = x; }")
    out = np.zeros(4, float3)
    for _ in range(2):
        kernel(stream, ck.config(1, 4), ck.Out(out), np.array((1, 2, 3), float3)[()])
        stream.sync()
        assert out.tolist() == [(1, 2, 3)] * 4
    for fields in (
        [("x", "f4"), ("y", "f4")],
        [("x", "f4"), ("z", "f4"), ("y", "f4")],
        [(name, "i4") for name in "xyz"],
    ):
        with pytest.raises(ck.ArgumentError, match="takes elements of 3 × float32"):
            kernel(stream, ck.config(1, 4), ck.Out(np.zeros(4, fields)), (1, 2, 3))


STRIDED = """
#include <cudakit/strided.cuh>
template <typename T, int RANK>
__global__ void copy(cudakit::strided<const T, RANK> from, T* to) {
    for (long long i = threadIdx.x; i < from.size(); i += blockDim.x) to[i] = from.element(i);
}
"""


def test_strided_takes_any_view(stream: Any, xp: Any) -> None:
    copy = ck.Kernel(STRIDED)
    base = xp.arange(4 * 5 * 6, dtype="f4").reshape(4, 5, 6)
    for view in (
        base,
        base[::2, 1:4, ::-1],
        base.transpose(2, 0, 1),
        base[0],
        base[:, 2, 3],
        xp.broadcast_to(base[0, 0], (3, 6)),
    ):
        for _ in range(2):
            out = xp.zeros(view.shape, "f4")
            copy(stream, ck.config(1, 64), view, out)
            np.testing.assert_array_equal(to_host(out), to_host(view))


@pytest.mark.slow
def test_function_objects_by_name_and_as_a_snippet(stream: Any, xp: Any) -> None:
    text = """
    template <typename Op, typename T>
    __global__ void apply(const T* a, const T* b, T* out, Op op) {
        out[threadIdx.x] = op(a[threadIdx.x], b[threadIdx.x]);
    }
    """
    kernel = ck.Kernel(text)
    a, b, out = xp.arange(8, dtype="f4"), xp.full(8, 3, "f4"), xp.zeros(8, "f4")
    given = ["cuda::std::plus<>", "[](float x, float y) { return x * y; }",
             "struct Least { __device__ float operator()(float x, float y) const { return min(x, y); } };"]  # fmt: skip
    expected = [lambda x, y: x + y, lambda x, y: x * y, np.minimum]
    for op, reference in zip(given, expected, strict=True):
        kernel(stream, ck.config(1, 8), a, b, out, op)
        np.testing.assert_array_equal(to_host(out), reference(np.arange(8, dtype="f4"), np.float32(3)))


# ── configurations ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_empty_grid_launches_nothing(stream: Any, xp: Any, saxpy: ck.Kernel) -> None:
    x = xp.zeros(0, "f4")
    saxpy(stream, ck.cover(0), 1.0, x, x.copy(), 0)
    saxpy(stream, ck.config(0, 256), 1.0, x, x.copy(), 0)
    saxpy.plan(stream, ck.cover(0), 1.0, x, x.copy(), 0)()


def test_cuda_core_config_and_its_changes(stream: Any, xp: Any) -> None:
    from cuda.core import LaunchConfig

    kernel = ck.Kernel("__global__ void count(int* n) { atomicAdd(n, 1); }")
    n, config = xp.zeros(1, "i4"), LaunchConfig(grid=3, block=32)
    kernel(stream, config, n)
    kernel(stream, config, n)
    assert int(n[0]) == 192
    config.block = (64, 1, 1)
    kernel(stream, config, n)
    assert int(n[0]) == 192 + 192


def test_cover_in_two_and_three_dimensions(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("""__global__ void index(int* out, int h, int w) {
        int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
        if (x < w && y < h) out[y * w + x] += y * w + x;
    }""")
    for shape in ((1, 1), (7, 100), (65, 33)):
        out = xp.zeros(shape, "i4")
        kernel(stream, ck.cover(shape), out, *shape)
        np.testing.assert_array_equal(to_host(out).ravel(), np.arange(shape[0] * shape[1]))


def test_dynamic_shared_memory_above_48_kb(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("""extern __shared__ float tile[];
        __global__ void fill(float* out, int n) { tile[n - 1] = 5; __syncthreads(); *out = tile[n - 1]; }""")
    out = xp.zeros(1, "f4")
    # A smaller configuration after a larger one does not take away what the larger one was let to have.
    for kibibytes in (100, 60, 100, 1, 100):
        out[...] = 0
        kernel(stream, ck.config(1, 1, shared_bytes=kibibytes * 1024), out, kibibytes * 256)
        assert float(out[0]) == 5


def test_shared_memory_is_only_ever_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    own = SimpleNamespace(max_threads_per_block=1024, shared_size_bytes=1024, num_regs=8)
    lowered = {"k": "k"}
    part = SimpleNamespace(name_expression="k", attributes={0: own}, is_tile=False, code=b"", lowered=lowered)
    parts: list[Any] = [part] * 4
    loaded, raised = load.Loaded(*parts, (), ()), []
    monkeypatch.setattr(loaded, "_set_attribute", lambda attribute, value, device_id: raised.append(value // 1024))
    monkeypatch.setattr(devices, "limits", lambda device_id: limits_of("sm_90"))
    monkeypatch.setattr(load, "as_launch_config", lambda config: config)
    for kibibytes in (47, 48, 100, 60, 100, 101):
        loaded.launch_config(ck.config(1, 1, shared_bytes=kibibytes * 1024), 0)
    assert raised == [48, 100, 101]


@pytest.mark.slow
def test_cooperative_grid_sync(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("""#include <cooperative_groups.h>
        __global__ void ring(int* a, int* b) {
            a[blockIdx.x] = blockIdx.x; cooperative_groups::this_grid().sync();
            b[blockIdx.x] = a[(blockIdx.x + 1) % gridDim.x];
        }""")
    a, b = xp.zeros(16, "i4"), xp.zeros(16, "i4")
    kernel(stream, ck.config(16, 1, cooperative=True), a, b)
    assert to_host(b).tolist() == [*range(1, 16), 0]
    with pytest.raises(ck.LaunchError, match="cooperative grid"):
        kernel(stream, ck.config(10**6, 1024, cooperative=True), a, b)


CLUSTER = """
#include <cooperative_groups.h>
template <typename P>
__global__ void rank(int* out, P p) { out[blockIdx.x] = cooperative_groups::this_cluster().block_rank() + p; }
"""


@pytest.mark.slow
def test_clusters_count_blocks(stream: Any, xp: Any) -> None:
    if capability(stream) < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    out = xp.zeros(8, "i4")
    ck.Kernel(CLUSTER)(stream, ck.config(8, 32, cluster=4), out, 0)
    assert to_host(out).tolist() == [0, 1, 2, 3] * 2
    packed = ck.Kernel(CLUSTER.replace("+ p", "+ p.a"))
    packed(
        stream,
        ck.config(8, 32, cluster=2),
        out,
        np.array((1, 2, 3), np.dtype([("a", "i4"), ("b", "f8"), ("c", "f4")], align=True))[()],
    )
    assert to_host(out).tolist() == [1, 2] * 4


OWN_CLUSTER = """
extern "C" __global__ void __cluster_dims__(2) pair(unsigned* out) {
    __shared__ unsigned own[2];
    unsigned rank, clusters, size, is_explicit, other, value;
    asm volatile("mov.u32 %0, %%cluster_ctarank; mov.u32 %1, %%nclusterid.x; mov.u32 %2, %%cluster_nctaid.x;"
                 : "=r"(rank), "=r"(clusters), "=r"(size));
    asm volatile("{ .reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p; }" : "=r"(is_explicit));
    own[1] = 100 + blockIdx.x;
    asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
    unsigned mine = (unsigned)__cvta_generic_to_shared(&own[1]);
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(mine), "r"(rank ^ 1));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(other) : "memory");
    asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
    unsigned* at = out + 5 * blockIdx.x;
    at[0] = rank; at[1] = clusters; at[2] = size; at[3] = is_explicit; at[4] = value;
}
extern "C" __global__ void __cluster_dims__() named(unsigned* out) {
    asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(out[blockIdx.x]));
}
extern "C" __global__ void __launch_bounds__(32, 1, 2) few(unsigned* out) { out[blockIdx.x] = blockIdx.x; }
extern "C" __global__ void __block_size__((32, 2, 1)) block(unsigned* out) { out[blockIdx.x] = blockDim.y; }
"""


def test_a_cluster_of_the_source(stream: Any, xp: Any) -> None:
    if capability(stream) < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    kernels = ck.Module(OWN_CLUSTER)
    expected = [[b % 2, 2, 2, 1, 100 + (b ^ 1)] for b in range(4)]
    for config in (ck.config(4, 1), ck.config(4, 1, cluster=2), ck.cover(3, block=1)):
        out = xp.zeros(20, "u4")
        kernels["pair"](stream, config, out)
        assert to_host(out).reshape(4, 5).tolist() == expected
    kernels["named"](stream, ck.config(4, 1, cluster=2), out)
    assert to_host(out)[:4].tolist() == [2] * 4
    kernels["block"](stream, ck.config(4, (32, 2)), out)
    assert to_host(out)[:4].tolist() == [2] * 4
    for name, wrong, why in (
        ("pair", ck.config(3, 1), "pair: grid .* no multiple of the kernel's own cluster"),
        ("pair", ck.config(4, 1, cluster=4), "pair: cluster .* is not the kernel's own"),
        ("named", ck.config(4, 1), "named: its __cluster_dims__.. leaves the cluster to the launch"),
        ("few", ck.config(4, 1, cluster=4), "few: a cluster of 4 blocks .* own limit 2"),
        ("block", ck.config(4, 64), "block: block .* is not the kernel's own"),
    ):
        with pytest.raises(ck.LaunchError, match=why):
            kernels[name](stream, wrong, out)


@pytest.mark.emulator
def test_a_cluster_of_the_source_is_left_to_numpy_s_machine(xp: Any) -> None:
    kernel, out = ck.Module(OWN_CLUSTER)["pair"], xp.zeros(20, "u4")
    with pytest.warns(ck.EmulatorWarning, match="pair runs on the NumPy machine: it has clusters of blocks"):
        kernel(ck.emulator.stream(machine="compiled"), ck.config(4, 1), out)
    assert out.reshape(4, 5)[:, 4].tolist() == [101, 100, 103, 102]


def test_programmatic_dependent_launch(stream: Any, xp: Any) -> None:
    if capability(stream) < (9, 0):
        pytest.skip("programmatic dependent launch needs compute capability 9.0")
    wait = 'asm volatile("griddepcontrol.wait;" ::: "memory");'
    kernel = ck.Kernel(f"__global__ void next(int* n) {{ {wait} *n += 1; }}")
    n = xp.zeros(1, "i4")
    for _ in range(10):
        kernel(stream, ck.config(1, 1, programmatic=True), n)
    assert int(n[0]) == 10


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"grid": 1, "block": 2048}, "block.x is 2048, over the limit 1024"),
        ({"grid": 1, "block": (64, 64)}, "threads in a block is 4096"),
        ({"grid": (1, 70000), "block": 1}, "grid.y is 70000"),
        ({"grid": 1, "block": 1, "shared_bytes": 10**6}, "shared memory a block is 1000000 bytes"),
        ({"grid": 64, "block": 1, "cluster": 32}, "cluster of 32 blocks"),
    ],
)
def test_limits_are_named(stream: Any, xp: Any, saxpy: ck.Kernel, config: dict[str, Any], why: str) -> None:
    x = xp.zeros(1, "f4")
    with pytest.raises(ck.LaunchError, match=why):
        saxpy(stream, ck.config(**config), 1.0, x, x, 1)


def test_the_kernels_own_block_limit_is_named(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("__global__ void __launch_bounds__(128) small(int* n) { *n = 1; }")
    with pytest.raises(ck.LaunchError, match="own limit 128"):
        kernel(stream, ck.config(1, 256), xp.zeros(1, "i4"))


# ── arguments of other libraries, and what is refused ───────────────────────────────────────────────────────────────


def test_null_pointer(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("__global__ void test(const float* maybe, int* out) { *out = maybe == nullptr; }")
    out = xp.zeros(1, "i4")
    kernel(stream, ck.config(1, 1), None, out)
    assert int(out[0]) == 1
    kernel(stream, ck.config(1, 1), xp.zeros(1, "f4"), out)
    assert int(out[0]) == 0


@pytest.mark.gpu
def test_cuda_core_buffer(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("__global__ void put(float* out, float v) { *out = v; }")
    buffer = stream.device.memory_resource.allocate(4, stream=stream)
    for value in (1.0, 2.0):
        kernel(stream, ck.config(1, 1), buffer, value)
    stream.sync()
    memory = xp.cuda.UnownedMemory(int(buffer.handle), 4, buffer)
    assert float(xp.ndarray(1, "f4", xp.cuda.MemoryPointer(memory, 0))[0]) == 2.0
    buffer.close(stream)
    with pytest.raises(ck.ArgumentError, match="was freed"):
        kernel(stream, ck.config(1, 1), buffer, 1.0)


class Exporter:
    """An array of another library, by the array interface of device or of host memory."""

    def __init__(self, array: Any, readonly: bool = False) -> None:
        self.array, self.readonly = array, readonly

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.described(self.array.__cuda_array_interface__)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.described(self.array.__array_interface__)

    def described(self, interface: dict[str, Any]) -> dict[str, Any]:
        return {**interface, "data": (interface["data"][0], self.readonly)}


class DlpackOnly:
    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


old = pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.3.0", reason="NumPy's DLPack is read-only before 2.3")


@pytest.mark.parametrize("wrap", [Exporter, pytest.param(DlpackOnly, marks=old)])
def test_array_protocols(stream: Any, xp: Any, saxpy: ck.Kernel, wrap: Any) -> None:
    x, y = xp.ones(10, "f4"), xp.zeros(10, "f4")
    for _ in range(3):
        saxpy(stream, ck.cover(10), 2.0, wrap(x), wrap(y), 10)
    assert (to_host(y) == 6).all()
    with pytest.raises(ck.ArgumentError, match="contiguous"):
        saxpy(stream, ck.cover(5), 2.0, wrap(x[::2]), wrap(y), 5)


def test_read_only_output_is_refused(stream: Any, xp: Any, saxpy: ck.Kernel) -> None:
    x, y = xp.ones(10, "f4"), xp.zeros(10, "f4")
    saxpy(stream, ck.cover(10), 2.0, Exporter(x, readonly=True), y, 10)
    with pytest.raises(ck.ArgumentError, match="read-only"):
        saxpy(stream, ck.cover(10), 2.0, x, Exporter(y, readonly=True), 10)


def test_foreign_byte_order_is_refused(stream: Any, xp: Any, saxpy: ck.Kernel) -> None:
    class Swapped(Exporter):
        def described(self, interface: dict[str, Any]) -> dict[str, Any]:
            return {**interface, "typestr": ">f4"}

    x, y = xp.ones(10, "f4"), xp.zeros(10, "f4")
    with pytest.raises(ck.ArgumentError, match="byte order"):
        saxpy(stream, ck.cover(10), 2.0, Swapped(x), y, 10)


def test_code_for_another_arch_is_refused(stream: Any, xp: Any) -> None:
    other = "sm_120" if capability(stream) < (12, 0) else "sm_90"
    kernel = ck.Kernel(SAXPY, arch=other)
    x = xp.ones(1, "f4")
    with pytest.raises(ck.LaunchError, match=f"compiled for {other}"):
        kernel(stream, ck.config(1, 1), 1.0, x, x.copy(), 1)


def test_a_dead_array_is_no_null_pointer(stream: Any, xp: Any) -> None:
    """Arrays are remembered by weak references, whose answer after death is what a null pointer is given as."""
    kernel = ck.Kernel("__global__ void test(const float* maybe, int* out) { *out = maybe == nullptr; }")
    out, x, one = xp.zeros(1, "i4"), xp.zeros(1, "f4"), ck.config(1, 1)
    for _ in range(3):
        kernel(stream, one, x, out)
    del x
    kernel(stream, one, None, out)
    assert int(out[0]) == 1


def test_arrays_that_come_and_go(stream: Any, xp: Any, saxpy: ck.Kernel) -> None:
    one = ck.config(1, 32)
    for step in range(200):
        x, y = xp.full(32, step, "f4"), xp.zeros(32, "f4")
        saxpy(stream, one, 2.0, x, y, 32)
        assert float(y[31]) == 2 * step


@pytest.mark.gpu
def test_torch_tensors_and_streams(stream: Any, xp: Any, saxpy: ck.Kernel) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x, y = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
        for _ in range(3):
            saxpy(side, ck.cover(1000), 2.0, x, y, 1000)
        assert (y.cpu() == 6).all()
    with pytest.raises(ck.ArgumentError, match="contiguous"):
        saxpy(side, ck.cover(500), 2.0, x[::2], y, 500)
    with pytest.raises(ck.ArgumentError, match=r"x\.cuda\(\)"):
        saxpy(side, ck.cover(500), 2.0, x.cpu(), y, 500)
    z = torch.zeros(4, dtype=torch.bfloat16, device="cuda")
    saxpy(side, ck.cover(4), 1.0, torch.ones_like(z), z, 4)
    torch.cuda.synchronize()
    assert (z.float().cpu() == 1).all()


@pytest.mark.gpu
def test_cupy_stream(stream: Any, xp: Any, saxpy: ck.Kernel) -> None:
    side = xp.cuda.Stream(non_blocking=True)
    with side:
        x, y = xp.ones(1000, "f4"), xp.zeros(1000, "f4")
        saxpy(side, ck.cover(1000), 2.0, x, y, 1000)
        assert (to_host(y) == 2).all()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda xp, args: args[:-1], "takes 4 arguments (a, x, y, n) after stream and config, got 3: n is missing"),
        (lambda xp, args: [*args, 1], "takes 4 arguments (a, x, y, n) after stream and config, got 5"),
        (lambda xp, args: [args[0], args[1].astype("f8"), *args[2:]], "template argument T is double from x"),
        (lambda xp, args: [args[0], xp.ones((10, 2), "f4")[:, 0], *args[2:]], "takes contiguous"),
        (lambda xp, args: [args[0], xp.ones((3, 4), "f4").T, *args[2:]], "takes contiguous"),
        (lambda xp, args: [args[0], 7, *args[2:]], "takes an array, got 7"),
        (lambda xp, args: [args[0], [1.0], *args[2:]], "ck.to_device(np.array(x, 'float32'), stream)"),
        (lambda xp, args: [args[0], object(), *args[2:]], "object cannot be a kernel argument"),
        (lambda xp, args: [*args[:3], "10"], "takes a number"),
        (lambda xp, args: [*args[:3], -1], "outside 0"),
        (lambda xp, args: [], "got 0: a, x, y, n are missing"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(stream: Any, xp: Any, saxpy: ck.Kernel, change: Any, why: str) -> None:
    right = [2.0, xp.ones(10, "f4"), xp.zeros(10, "f4"), 10]
    saxpy(stream, ck.cover(10), *right)
    with pytest.raises((ck.ArgumentError, ck.TemplateError)) as caught:
        saxpy(stream, ck.cover(10), *change(xp, right))
    assert why in str(caught.value)
    assert "saxpy" in str(caught.value)
    saxpy(stream, ck.cover(10), *right)
    assert (to_host(right[2]) == 4).all()


@pytest.mark.gpu
def test_host_memory_is_refused_on_a_gpu(stream: Any, xp: Any, saxpy: ck.Kernel) -> None:
    with pytest.raises(ck.ArgumentError, match="is in host memory and this stream is a GPU's"):
        saxpy(stream, ck.cover(10), 2.0, np.ones(10, "f4"), xp.zeros(10, "f4"), 10)


@pytest.mark.gpu
def test_device_memory_is_refused_on_the_emulator(stream: Any, xp: Any, saxpy: ck.Kernel) -> None:
    with pytest.raises(ck.ArgumentError, match="is in device memory and this stream is the emulator's"):
        saxpy(ck.emulator.stream(), ck.cover(10), 2.0, xp.ones(10, "f4"), np.zeros(10, "f4"), 10)


def test_wrong_stream_and_config_are_named(stream: Any, xp: Any, saxpy: ck.Kernel) -> None:
    x = xp.ones(1, "f4")
    with pytest.raises(ck.ArgumentError, match="expected a stream"):
        saxpy(None, ck.cover(1), 1.0, x, x, 1)
    with pytest.raises(ck.ArgumentError, match="no parameter 'z'"):
        ck.Kernel(SAXPY)(stream, ck.cover(1), 1.0, x, z=x)
    with pytest.raises(ck.ArgumentError, match=r"no parameter 'block'; .*kernel\(stream, ck.config\(grid, block\)"):
        ck.Kernel(SAXPY)(1.0, x, x, 1, block=(256, 1, 1), grid=(1, 1))
    with pytest.raises(ck.LaunchError, match="expected a launch configuration"):
        saxpy(stream, 256, 1.0, x, x, 1)
    with pytest.raises(ck.LaunchError, match="expected a launch configuration"):
        saxpy(stream, (1, 256), 1.0, x, x, 1)


# ── globals, attributes, code ───────────────────────────────────────────────────────────────────────────────────────


def test_globals_are_read_and_written(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("""
        namespace deep { __constant__ float table[4]; }
        __device__ int calls = 5;
        template <typename T> __global__ void look(T* out) {
            out[threadIdx.x] = deep::table[threadIdx.x];
            atomicAdd(&calls, 1);
        }
        """)
    out = xp.zeros(4, "f4")
    bound = kernel[np.float32]
    bound.globals["deep::table"] = [1, 2, 3, 4]
    bound(stream, ck.config(1, 4), out)
    assert to_host(out).tolist() == [1, 2, 3, 4]
    assert bound.globals["calls"] == 9
    assert bound.globals["deep::table"].tolist() == [1, 2, 3, 4]
    assert bound.globals.read("calls", stream).dtype == np.int32
    with pytest.raises(ck.TemplateError, match="deep::table"):
        bound.globals["table"]
    with pytest.raises(ck.ArgumentError, match="shape"):
        bound.globals["deep::table"] = [1, 2, 3, 4, 5]


@pytest.mark.gpu
def test_attributes_and_sass(stream: Any, xp: Any, saxpy: ck.Kernel) -> None:
    found = saxpy[np.float32].attributes(block=256)
    assert 0 < found.registers < 256
    assert found.spill_bytes == 0
    assert 0 < found.occupancy <= 1
    assert found.blocks_per_multiprocessor * 256 <= 2048
    assert "FFMA" in saxpy[np.float32].sass()


def test_ptx_of_what_was_launched(stream: Any, xp: Any, saxpy: ck.Kernel) -> None:
    x = xp.ones(1, "f4")
    kernel = ck.Kernel(SAXPY)
    kernel(stream, ck.cover(1), 1.0, x, x.copy(), 1)
    assert "fma.rn.f32" in kernel.ptx()


def test_plan_launches_again_and_again(stream: Any, xp: Any, saxpy: ck.Kernel) -> None:
    x, y = xp.ones(1000, "f4"), xp.zeros(1000, "f4")
    plan = saxpy.plan(stream, ck.cover(1000), 0.5, x, y, 1000)
    for _ in range(8):
        plan()
    assert (to_host(y) == 4).all()


def test_types_that_only_the_compiler_knows(stream: Any, xp: Any) -> None:
    text = """
    template <typename T> struct Wide; template <> struct Wide<float> { using type = double; };
    #define REAL float
    template <typename T> __global__ void widen(const T* x, typename Wide<T>::type* out, REAL scale, decltype(1ull) n) {
        if (threadIdx.x < n) out[threadIdx.x] = x[threadIdx.x] * scale;
    }"""
    kernel = ck.Kernel(text)
    x, out = xp.arange(5, dtype="f4"), xp.zeros(5, "f8")
    for _ in range(2):
        kernel(stream, ck.config(1, 32), x, out, 0.5, 5)
    assert to_host(out).tolist() == [0, 0.5, 1, 1.5, 2]
    with pytest.raises(ck.ArgumentError, match="takes elements of float64"):
        kernel(stream, ck.config(1, 32), x, xp.zeros(5, "f4"), 0.5, 5)


def test_head_that_does_not_parse_works_with_explicit_arguments(stream: Any, xp: Any) -> None:
    text = """
    template <typename T> __global__ void branchy(
    #ifdef WIDE
        double scale,
    #else
        float scale,
    #endif
        T* out) { *out = scale; }"""
    out = xp.zeros(1, "f8")
    kernel = ck.Kernel(text)
    with pytest.raises(ck.TemplateError, match="brackets"):
        kernel(stream, ck.config(1, 1), 0.1, out)
    kernel[np.float64](stream, ck.config(1, 1), 0.1, out)
    assert float(out[0]) == np.float32(0.1)
    wide = ck.Kernel(text, options=ck.CompileOptions(defines=["WIDE"]))
    wide[np.float64](stream, ck.config(1, 1), 0.1, out)
    assert float(out[0]) == 0.1


def test_tensor_map(stream: Any, xp: Any) -> None:
    if capability(stream) < (9, 0):
        pytest.skip("tensor maps need compute capability 9.0")
    array = xp.arange(64 * 64, dtype="f4").reshape(64, 64)
    descriptor = ck.tensor_map(array, (8, 8))
    text = """
    struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };
    __global__ void load(const __grid_constant__ CUtensorMap map, float* out, int x, int y) {
        __shared__ alignas(128) float tile[64];
        __shared__ alignas(8) unsigned long long bar;
        unsigned b = (unsigned)__cvta_generic_to_shared(&bar), t = (unsigned)__cvta_generic_to_shared(tile);
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(b));
            asm volatile("fence.proxy.async;");
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" :: "r"(b));
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                "[%0], [%1, {%2, %3}], [%4];"
                :: "r"(t), "l"(&map), "r"(x), "r"(y), "r"(b) : "memory");
        }
        __syncthreads();
        asm volatile("{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra WAIT; }"
            :: "r"(b));
        out[threadIdx.x] = tile[threadIdx.x];
    }"""
    out = xp.zeros(64, "f4")
    ck.Kernel(text, arch="sm_90")(stream, ck.config(1, 64), descriptor, out, 8, 16)
    np.testing.assert_array_equal(to_host(out).reshape(8, 8), to_host(array)[16:24, 8:16])


@pytest.mark.gpu
def test_texture_object(stream: Any, xp: Any) -> None:
    from cupy.cuda import texture

    data = xp.arange(16, dtype="f4")
    channel = texture.ChannelFormatDescriptor(32, 0, 0, 0, xp.cuda.runtime.cudaChannelFormatKindFloat)
    array = texture.CUDAarray(channel, 16)
    array.copy_from(data, xp.cuda.get_current_stream())
    resource = texture.ResourceDescriptor(xp.cuda.runtime.cudaResourceTypeArray, cuArr=array)
    made = texture.TextureObject(resource, texture.TextureDescriptor((xp.cuda.runtime.cudaAddressModeClamp,)))
    kernel = ck.Kernel("""__global__ void fetch(cudaTextureObject_t t, float* out) {
        out[threadIdx.x] = tex1D<float>(t, threadIdx.x + 0.5f);
    }""")
    out = xp.zeros(16, "f4")
    kernel(stream, ck.config(1, 16), made, out)
    np.testing.assert_array_equal(to_host(out), np.arange(16, dtype="f4"))


@pytest.mark.parametrize(
    ("declared", "name"),
    [
        ("enum E { A, B };", "E"),
        ("typedef enum { A, B } E;", "E"),
        ("typedef enum T { A, B } E;", "E"),
        ("namespace q { enum E { A, B }; }", "q::E"),
        ("enum E { A, B = 3000000000u };", "E"),
    ],
)
def test_an_enumeration_takes_an_int(stream: Any, xp: Any, declared: str, name: str) -> None:
    kernel = ck.Kernel(f"{declared} __global__ void f(float* x, {name} a) {{ x[threadIdx.x] = a + 1; }}")
    x = xp.zeros(1, "f4")
    for value in (1, 0, np.int32(1)):
        kernel(stream, ck.config(1, 1), x, value)
        assert to_host(x).tolist() == [int(value) + 1]
    for wrong in (2**31, 1.5):
        with pytest.raises(ck.ArgumentError, match="parameter a "):
            kernel(stream, ck.config(1, 1), x, wrong)


def test_a_wide_enumeration_takes_its_bytes(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("enum E { A, B = 1ll << 40 }; __global__ void f(float* x, E a) { x[threadIdx.x] = a == B; }")
    x = xp.zeros(1, "f4")
    kernel(stream, ck.config(1, 1), x, np.int64(1 << 40))
    assert to_host(x).tolist() == [1]
    with pytest.raises(ck.ArgumentError, match="exactly 8 bytes"):
        kernel(stream, ck.config(1, 1), x, 1)


def test_default_arguments_of_a_head_that_is_not_understood(stream: Any, xp: Any) -> None:
    heads = (
        "#ifdef A\n__global__ void f(float* x, int a = 3)\n#else\n__global__ void f(float* x, float a = 4)\n#endif\n"
    )
    with pytest.raises(ck.ArgumentError, match="its default arguments are not known: give all values"):
        ck.Kernel(heads + "{ x[0] = a; }")(stream, ck.config(1, 1), xp.zeros(1, "f4"))
    kernel = ck.Kernel("__global__ void f(float* x, float3 a = {4, 5, 6}) { x[threadIdx.x] = a.x; }")
    with pytest.raises(ck.ArgumentError, match=r"the default a = \{4, 5, 6\} cannot be read here: give the value"):
        kernel(stream, ck.config(1, 1), xp.zeros(1, "f4"))
