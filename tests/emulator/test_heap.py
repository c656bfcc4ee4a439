"""Memory that kernels take of the device's heap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.machine.heap import Heap, device_limits

pytestmark = pytest.mark.emulator


@pytest.fixture(autouse=True)
def _own_heap() -> Iterator[None]:
    """What a test leaves on the heap is nobody else's."""
    limits = device_limits()
    former, limits._heap = limits._heap, None
    yield
    limits._heap = former


def run(body: str, *arguments: Any, block: int = 4, head: str = "int* x") -> None:
    kernel = ck.Kernel(f"#include <cstdlib>\n__global__ void f({head}) {{ {body} }}")
    kernel(emulator.stream(), ck.config(1, block), *arguments)


@pytest.mark.parametrize(
    "body",
    [
        "int* p = (int*)malloc(16); p[3] = i; x[i] = p[3]; free(p);",
        "int* p = new int[4]; p[i % 4] = i; x[i] = p[i % 4]; delete[] p;",
        "struct P { int a; __device__ P(int a) : a(a) {} }; P* p = new P(i); x[i] = p->a; delete p; free(nullptr);",
        "struct alignas(64) P { int a[16]; }; P* p = new P; p->a[5] = i + (size_t)p % 64; x[i] = p->a[5]; delete p;",
        "if (i % 3) { int* p = new int(i); x[i] = *p; delete p; } else x[i] = i;",
    ],
)
def test_blocks_are_each_threads_own(body: str) -> None:
    x = np.zeros(300, "i4")
    for _ in range(2):
        run(f"int i = threadIdx.x; {body}", x, block=300)
    np.testing.assert_array_equal(x, np.arange(300))
    assert not device_limits().heap.is_used


def test_a_block_outlives_its_launch() -> None:
    """Another kernel finds it by its pointer, in memory; and frees it."""
    kept, x = np.zeros(8, "u8"), np.zeros(8, "i4")
    run("kept[threadIdx.x] = new int(threadIdx.x * 5);", kept.view("u8"), block=8, head="int** kept")
    run("x[threadIdx.x] = *kept[threadIdx.x]; delete kept[threadIdx.x];", kept, x, block=8, head="int** kept, int* x")
    np.testing.assert_array_equal(x, np.arange(8) * 5)
    with pytest.raises(ck.EmulationError, match=r"f: ld.*: it was freed"):
        run("x[threadIdx.x] = *kept[threadIdx.x];", kept, x, block=8, head="int** kept, int* x")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("int* p = new int[3]; p[x[0] + 3] = 1;", "nearest is one of 12 bytes: byte 12 is past the end"),
        ("char* p = new char[16]; p[x[0] + 16] = 1;", "nearest is one of 16 bytes: byte 16 is past the end"),
        ("int* p = new int[3]; delete[] p; x[1] = p[x[0]];", "it was freed"),
        ("int* p = new int[3]; free(p); free(p);", "block 0, thread 0: 0x[0-9a-f]+ was freed before"),
        ("free(x);", r"is no block that malloc or new gave, and cannot be freed"),
        ("int* p = (int*)malloc(9 << 20); *p = 1;", "a null pointer"),
    ],
)
def test_a_wrong_use_is_named(body: str, message: str) -> None:
    with pytest.raises(ck.EmulationError, match=message):
        run(body, np.zeros(4, "i4"), block=1)


def test_no_more_is_given_than_there_is() -> None:
    """And what was given back is given again, also in other sizes."""
    taken = np.zeros(1, "i4")
    body = """
        char* all[100]; int n = 0;
        while (n < 100 && (all[n] = (char*)malloc(100000 + size))) n++;
        x[0] = n;
        for (int i = 0; i < n; i++) { all[i][0] = 1; free(all[i]); }"""
    for size in (0, 50_000, 1):
        run(body, taken, size, block=1, head="int* x, int size")
        assert taken[0] == (8 << 20) // (100_000 + size)


def test_blocks_do_not_meet() -> None:
    heap, random = Heap(1 << 14), np.random.default_rng(5)
    held: dict[int, int] = {}
    for _ in range(3000):
        if held and random.random() < 0.5:
            freed = list(held)[random.integers(len(held))]
            del held[freed]
            heap.free(freed)
            continue
        size, align = int(random.integers(0, 900)), int(random.choice([1, 16, 64]))
        address = heap.allocate(size, align)
        if address:
            assert address % max(align, 16) == 0
            assert all(address >= a + s or address + size <= a for a, s in held.items() if s and size)
            held[address] = size


def test_the_limit_is_set_for_the_device() -> None:
    body = "char* p = (char*)malloc(12 << 20); if (p) { p[0] = 1; x[0] += p[0]; free(p); }"
    x = np.zeros(1, "i4")
    with ck.memory.limit(16 << 20, "heap"):
        run(body, x, block=1)
    run(body, x, block=1)
    assert x[0] == 1
    run("*(void**)x = malloc(16);", np.zeros(2, "i4"), block=1)
    with pytest.raises(ck.LaunchError, match="while kernels hold memory of it"):
        ck.memory.limit(16 << 20, "heap")


def test_kernels_on_two_streams_take_memory_that_others_gave_back() -> None:
    """Who takes a block comes after all who had it; what one kernel left for another is still to be waited for."""
    text = """
    __device__ float* held;
    __global__ void own(float* y) { float* volatile p = (float*)malloc(16); p[1] = 2; y[threadIdx.x] = p[1]; free(p); }
    __global__ void leave() { held = (float*)malloc(16); held[1] = 3; }
    __global__ void use(float* y) { y[0] = held[1]; free(held); }
    """
    module, first, second = ck.Module(text), emulator.stream(), emulator.stream()
    with ck.hazards.manual():
        for stream in (first, second, first):
            module["own"](stream, ck.config(1, 32), np.zeros(32, "f4"))
        module["leave"](first, ck.config(1, 1))
        with pytest.raises(ck.EmulationError, match="race"):
            module["use"](second, ck.config(1, 1), np.zeros(1, "f4"))
