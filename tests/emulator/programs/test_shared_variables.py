"""Shared variables of texts with many kernels: each kernel has its own, as the machine code has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.places import to_host

import cudakit as ck
from cudakit import emulator
from cudakit.jit.compile import elf

LARGE = ("first", "second", "third", "fourth", "fifth", "sixth")
SIX = "".join(
    f"""
extern "C" __global__ void {name}(int* out) {{
    __shared__ int large[45 * 256];
    for (int i = threadIdx.x; i < 45 * 256; i += 64) large[i] = 2 * i;
    __syncthreads();
    out[threadIdx.x] = large[45 * 256 - 1 - threadIdx.x];
}}"""
    for name in LARGE
)
REST = """
template <int N> __global__ void sized(int* out) {
    __shared__ int all[N];
    all[N - 1 - threadIdx.x] = N + threadIdx.x;
    out[threadIdx.x] = all[N - 1 - threadIdx.x];
}
template __global__ void sized<12000>(int*);
template __global__ void sized<8000>(int*);

__device__ __noinline__ int around(int value) {
    __shared__ int ring[64];
    ring[threadIdx.x] = value;
    __syncthreads();
    return ring[(threadIdx.x + 1) % 64];
}
__device__ __noinline__ int back(int value) {
    __shared__ int ring[80];
    ring[threadIdx.x + 16] = value;
    __syncthreads();
    return ring[(threadIdx.x + 63) % 64 + 16];
}
__device__ int (*table[2])(int) = {around, back};

extern "C" __global__ void behind(int* out) {
    __shared__ int own[1001];
    own[threadIdx.x + 937] = threadIdx.x;
    int next = around(1000 + threadIdx.x);
    out[threadIdx.x] = next + own[threadIdx.x + 937];
}
extern "C" __global__ void alone(int* out) { out[threadIdx.x] = around(threadIdx.x); }
extern "C" __global__ void both(int* out) { out[threadIdx.x] = around(threadIdx.x) - back(threadIdx.x); }
extern "C" __global__ void pointed(int* out, int which) { out[threadIdx.x] = table[which](threadIdx.x); }
extern "C" __global__ void after(int* out) {
    extern __shared__ int more[];
    __shared__ char few[69];
    few[threadIdx.x + 5] = threadIdx.x;
    more[threadIdx.x] = 7;
    __syncthreads();
    out[threadIdx.x] = few[68 - threadIdx.x] + more[63 - threadIdx.x];
}
"""
T = np.arange(64)
NEXT, LAST = (T + 1) % 64, (T + 63) % 64
#: What each kernel gives, by its name, further arguments and bytes of dynamic shared memory.
RESULTS: list[tuple[str, tuple[int, ...], int, np.ndarray]] = [
    *((name, (), 0, 2 * (45 * 256 - 1 - T)) for name in LARGE),
    ("behind", (), 0, 1000 + NEXT + T),
    ("alone", (), 0, NEXT),
    ("both", (), 0, NEXT - LAST),
    ("pointed", (0,), 0, NEXT),
    ("pointed", (1,), 0, LAST),
    ("after", (), 256, 63 - T + 7),
]


@pytest.fixture(scope="module")
def kernels() -> ck.Module:
    module = ck.Module(SIX + REST)
    module.prepare("sized<12000>", "sized<8000>")  # a GPU cannot load them later: `table` points to a function
    return module


def both_machines(stream: Any) -> list[Any]:
    """The GPU's stream, or one of each machine of the emulator."""
    if not isinstance(stream, emulator.EmulatedStream):
        return [stream]
    return [emulator.stream(machine="numpy"), emulator.stream(machine="compiled")]


@pytest.mark.filterwarnings("ignore:pointed runs on the NumPy machine")
def test_kernels_of_one_text_have_their_own_shared_memory(stream: Any, kernels: ck.Module) -> None:
    for where in both_machines(stream):
        with ck.using(where) as xp:
            for name, more, dynamic, expected in RESULTS:
                kernel, out = kernels[name], xp.zeros(64, "i4")
                kernel(where, ck.config(1, 64, dynamic), out, *more)
                assert to_host(out).tolist() == expected.tolist(), name
                if where is not stream:
                    # Calls through pointers are NumPy's.
                    assert kernel.attributes().machine == ("numpy" if name == "pointed" else where.machine)
            for n in (12_000, 8_000):
                kernels["sized"][n](where, ck.config(1, 64), out)
                assert to_host(out).tolist() == (n + T).tolist()


def test_static_shared_memory_is_what_the_machine_code_has(stream: Any, kernels: ck.Module) -> None:
    code = kernels["first"].compile(arch="sm_90", target="cubin").code
    bytes_of = {name: elf.resources(code, name).shared_bytes for name, *_ in RESULTS}
    assert bytes_of == dict.fromkeys(LARGE, 46_080) | {
        "behind": 4272, "alone": 256, "both": 576, "pointed": 576, "after": 80,
    }  # fmt: skip
    with ck.using(stream) as xp:
        for name, more, dynamic, _ in RESULTS:
            kernel = kernels[name]
            kernel(stream, ck.config(1, 64, dynamic), xp.zeros(64, "i4"), *more)
            assert kernel.attributes().shared_bytes == bytes_of[name]


def test_linked_code_has_the_same_static_shared_memory() -> None:
    text = "__global__ void k(int* x) { __shared__ int s[64]; s[threadIdx.x] = *x; __syncthreads(); *x = s[63]; }"
    kernel = ck.Kernel(text)
    linked = ck.Kernel.from_ptx(kernel.ptx(arch="sm_90"), "k")
    assert linked.explain(arch="sm_90").shared_bytes == kernel.explain(arch="sm_90").shared_bytes == 256


@pytest.mark.emulator
def test_what_lies_beyond_a_kernel_s_own_shared_memory_is_outside() -> None:
    text = """
    extern "C" __global__ void large(int* out) { __shared__ int many[100]; many[out[0]] = 1; out[1] = many[out[2]]; }
    extern "C" __global__ void small(int* out) { __shared__ int few[4]; few[out[0]] = 1; out[1] = few[out[2]]; }
    """
    for machine in ("numpy", "compiled"):
        with pytest.raises(ck.EmulationError, match=r"outside its 16 bytes; the nearest is few .*: element 5 is past"):
            ck.Module(text)["small"](emulator.stream(machine=machine), ck.config(1, 1), np.array([5, 0, 0], "i4"))
