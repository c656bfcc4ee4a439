"""The emulator from the outside: the same kernels, called on its stream with NumPy arrays."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.emulated import run

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.machine.memory import AccessError
from cudakit.emulator.machine.state import Machine

ADD = """
template <typename T> __global__ void add(const T* x, T* y, T by, long long n) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
        y[i] = x[i] + by;
}"""


@pytest.fixture(scope="module")
def add() -> ck.Kernel:
    return ck.Kernel(ADD)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "i8", "u8"])
@pytest.mark.parametrize("size", [1, 255, 257, 100_003])
def test_kernels_run_on_numpy_arrays(add: ck.Kernel, dtype: str, size: int) -> None:
    x = (np.arange(size) % 100).astype(dtype)
    y = np.zeros_like(x)
    add(emulator.stream(), ck.cover(size), x, y, 3, size)
    np.testing.assert_array_equal(y, x + np.dtype(dtype).type(3))


def test_a_grid_larger_than_what_runs_at_once(add: ck.Kernel) -> None:
    x, y = np.arange(300_000, dtype="i4"), np.zeros(300_000, "i4")
    add(emulator.stream(), ck.config(1200, 256), x, y, 1, x.size)
    np.testing.assert_array_equal(y, x + 1)


def test_a_second_launch_parses_nothing(add: ck.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    from cudakit.emulator import launch

    x, y = np.arange(10, dtype="i4"), np.zeros(10, "i4")
    add(emulator.stream(), ck.cover(10), x, y, 1, 10)
    monkeypatch.setattr(launch, "parse", None)
    add(emulator.stream(), ck.cover(10), x, y, 2, 10)
    np.testing.assert_array_equal(y, x + 2)


def test_a_repeated_call_is_bound_once(add: ck.Kernel) -> None:
    """Up to the machine's run it takes few Python calls, none of which looks at what the arguments are.

    A kernel's first call compiles it, and its second one makes the function of the calls that follow.
    """
    stream, config, x, y = emulator.stream(), ck.config(1, 32), np.arange(10, dtype="i4"), np.zeros(10, "i4")
    for _ in range(2):
        add(stream, config, x, y, 1, 10)
    seen: list[Path] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            seen.append(Path(frame.f_code.co_filename))

    sys.setprofile(note)
    try:
        add(stream, config, y, x, 2, 10)
    finally:
        sys.setprofile(None)
    assert x.tolist() == [each + 3 for each in range(10)]
    before = seen[: next(place for place, file in enumerate(seen) if file.parts[-2:] == ("machine", "machine.py"))]
    assert len(before) < 90
    assert not {"bind.py", "deduce.py", "specialise.py", "call_arguments.py"} & {file.name for file in before}


@pytest.mark.parametrize("change", ["dtype", "layout", "readonly", "library", "number", "arch", "device"])
def test_a_call_that_differs_from_the_last_is_checked(add: ck.Kernel, change: str) -> None:
    stream, config, x, y, by = emulator.stream(), ck.config(1, 32), np.arange(10, dtype="i4"), np.zeros(10, "i4"), 1
    for _ in range(2):
        add(stream, config, x, y, by, 10)
    match change:
        case "dtype":
            add(stream, config, x.astype("i8"), z := np.zeros(10, "i8"), by, 10)
            assert z.tolist() == [each + 1 for each in range(10)]
        case "layout":
            with pytest.raises(ck.ArgumentError, match=r"y .* takes contiguous"):
                add(stream, config, x, np.zeros(20, "i4")[::2], by, 10)
        case "readonly":
            y.flags.writeable = False
            with pytest.raises(ck.ArgumentError, match=r"y .* may be written"):
                add(stream, config, x, y, by, 10)
        case "library":

            class Shown:
                __array_interface__ = x.__array_interface__

            for by in (5, 6):
                add(stream, config, Shown(), y, by, 10)
                assert y.tolist() == [each + by for each in range(10)]
        case "number":
            with pytest.raises(ck.ArgumentError, match=r"parameter by"):
                add(stream, config, x, y, 2**40, 10)
            add(stream, config, x, y, np.int32(7), 10)
            assert y.tolist() == [each + 7 for each in range(10)]
        case "arch":
            streams = emulator.stream("sm_80"), stream
            for each in streams:
                add(each, config, x, y, by, 10)
            shapes = add.dispatcher.shapes
            for each in streams:
                add(each, config, x, y, by, 10)
            assert add.dispatcher.shapes == shapes, "those of both arches are held"
        case "device":
            # Where there is one, the arrays are not in its memory.
            with pytest.raises((ck.LaunchError, ck.ArgumentError), match=r"no GPU here|stream is a GPU's"):
                add(_OfAGpu(), config, x, y, by, 10)


class _OfAGpu:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 1


def test_a_launch_that_fails_is_made_once(add: ck.Kernel) -> None:
    printed: list[str] = []

    def say(text: str) -> None:
        printed.append(text)
        raise ValueError(text)

    kernel = ck.Kernel('#include <cstdio>\n__global__ void f(int n) { printf("%d", n); }')
    stream = emulator.stream(output=say)
    for n in (1, 2):
        with pytest.raises((ValueError, ck.EmulationError)):
            kernel(stream, ck.config(1, 1), n)
        assert len(printed) == n


def test_out_of_bounds_names_array_and_element(add: ck.Kernel) -> None:
    x, y = np.arange(100, dtype="i4"), np.zeros(100, "i4")
    with pytest.raises(ck.EmulationError, match=r"ld.global.*PTX line \d+.*outside every array") as caught:
        add(emulator.stream(), ck.config(1, 1024), x, y, 1, 101)
    assert "x with 100 elements: element 100 is past the end (valid: 0 to 99)" in str(caught.value)


@pytest.mark.parametrize(
    ("declared", "dynamic", "first", "message"),
    [
        (
            "__shared__ int s[4]",
            0,
            1,
            "byte 16 … 19 is outside its 16 bytes; the nearest is s with 4 .* element 4 is past",
        ),
        (
            "__shared__ int s[4]",
            0,
            -1,
            "byte -4 … -1 is outside its 16 bytes; the nearest is s with 4 .* element -1 is before",
        ),
        (
            "__shared__ int s[5]",
            0,
            2,
            "byte 20 … 23 is outside its 20 bytes; the nearest is s with 5 .* element 5 is past",
        ),
        (
            "__shared__ signed char s[3]",
            0,
            0,
            "byte 3 … 3 is outside its 3 bytes; the nearest is s with 3 .* element 3 is past",
        ),
        (
            "extern __shared__ int s[]",
            16,
            1,
            "byte 16 … 19 is outside its 16 bytes; the nearest is s with 4 .* element 4 is past",
        ),
        # Of several lanes NumPy's machine names the farthest, machine code the first.
        (
            "extern __shared__ int s[]",
            0,
            0,
            r"byte \d+ … \d+ is outside its 0 bytes; the nearest is s with .* element \d is past the end \(valid: none",
        ),
        (
            "__shared__ int a[2]; if (!y) a[x[0]] = 1; extern __shared__ short s[]",
            8,
            1,
            "nearest is s with 4 .* 4 is past",
        ),
    ],
)
def test_one_past_shared_memory_names_variable_and_element(
    declared: str, dynamic: int, first: int, message: str
) -> None:
    kernel = ck.Kernel(f"""
        __global__ void f(int* x, int* y, int first) {{
            {declared};
            s[static_cast<int>(threadIdx.x) + first] = threadIdx.x;
            __syncthreads();
            x[threadIdx.x] = s[0];
        }}""")
    x = np.zeros(4, "i4")
    with pytest.raises(ck.EmulationError, match=f"^f: st.shared.*: shared memory: .*{message}"):
        kernel(emulator.stream(), ck.config(2, 4, dynamic), x, x, first)


def test_source_lines_are_named_where_they_are_compiled_in() -> None:
    kernel = ck.Kernel(ADD, options=ck.CompileOptions(lineinfo=True))
    line = Path(__file__).read_text(encoding="utf-8").splitlines().index("        y[i] = x[i] + by;") + 1
    with pytest.raises(ck.EmulationError, match=rf"{re.escape(__file__)}:{line}\)"):
        kernel(emulator.stream(), ck.config(1, 32), np.zeros(4, "i4"), np.zeros(4, "i4"), 1, 32)


def test_misaligned_access_is_named() -> None:
    kernel = ck.Kernel("__global__ void f(const char* x, int* y) { *y = *(const int*)(x + 1); }")
    with pytest.raises(ck.EmulationError, match="not aligned to 4 bytes"):
        kernel(emulator.stream(), ck.config(1, 1), np.zeros(16, "i1"), np.zeros(1, "i4"))


def test_read_only_arrays_stay_so(add: ck.Kernel) -> None:
    x, y = np.arange(4, dtype="i4"), np.zeros(4, "i4")
    y.flags.writeable = False
    with pytest.raises(ck.ArgumentError, match="read-only"):
        add(emulator.stream(), ck.cover(4), x, y, 1, 4)
    add(emulator.stream(), ck.cover(4), y, x, 1, 4)
    assert x.tolist() == [1] * 4


@dataclass
class Pair:
    a: np.int32
    b: np.int64


def test_structs_shared_memory_barriers_and_functions() -> None:
    kernel = ck.Kernel("""
        __constant__ int table[3] = {10, 20, 30};
        __device__ int counter = 7;
        __device__ __noinline__ int factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }
        template <typename P> __global__ void f(P p, int* out) {
            __shared__ int tile[64];
            tile[threadIdx.x] = threadIdx.x;
            __syncthreads();
            out[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x] * p.a + (int)p.b + table[threadIdx.x % 3]
                             + factorial(threadIdx.x % 6) + counter;
        }""")
    out = np.zeros(64, "i4")
    kernel(emulator.stream(), ck.config(1, 64), Pair(np.int32(2), np.int64(5)), out)
    thread = np.arange(64)
    factorials = np.array([1, 1, 2, 6, 24, 120])
    expected = (63 - thread) * 2 + 5 + np.array([10, 20, 30])[thread % 3] + factorials[thread % 6] + 7
    np.testing.assert_array_equal(out, expected)


def test_divergent_lanes_meet_again() -> None:
    kernel = ck.Kernel("""__global__ void collatz(int* steps) {
        int n = threadIdx.x + 1, count = 0;
        while (n != 1) { n = n % 2 ? 3 * n + 1 : n / 2; ++count; }
        steps[threadIdx.x] = count;
    }""")
    out = np.zeros(100, "i4")
    kernel(emulator.stream(), ck.config(1, 100), out)

    def collatz(n: int) -> int:
        return 0 if n == 1 else 1 + collatz(3 * n + 1 if n % 2 else n // 2)

    assert out.tolist() == [collatz(n) for n in range(1, 101)]


def test_printf_and_assert() -> None:
    printed: list[str] = []
    kernel = ck.Kernel("""
        #include <cstdio>
        #include <cassert>
        __global__ void f(int limit) {
            printf("thread %d of %s\\n", threadIdx.x, "two");
            assert((int)threadIdx.x < limit);
        }
        """)
    stream = emulator.stream(output=printed.append)
    kernel(stream, ck.config(1, 2), 5)
    assert "".join(printed) == "thread 0 of two\nthread 1 of two\n"
    with pytest.raises(ck.EmulationError, match="thread 1: assertion"):
        kernel(stream, ck.config(1, 2), 1)


#: A conversion, the argument in C++, and in C.
CONVERSIONS: list[tuple[str, str, Any]] = [
    ("%a", "1.5", 1.5), ("%.2A", "-3.1", -3.1), ("%5c|", "'z'", 122), ("%hx", "0x12345", 0x12345),
    ("%hhu", "300", 300), ("%hd", "-70000", -70000), ("%hhi", "200", 200), ("%.f", "2.5", 2.5),
    ("%#.3g", "1e-10", 1e-10), ("%+.0e", "5.", 5.0), ("%*d|", "6, 42", (6, 42)), ("%-*d|", "6, 42", (6, 42)),
    ("%*d|", "-6, 42", (-6, 42)), ("%.*f|", "2, 3.14159", (2, 3.14159)), ("%*.*f|", "9, 2, 3.14159", (9, 2, 3.14159)),
    ("%+*.*d|", "9, 4, 31", (9, 4, 31)), ("%.*s|", '2, "abc"', (2, b"abc")), ("%.s|", '"abc"', b"abc"),
    ("%-8s|", '"ab"', b"ab"), ("%% %d", "1", 1), ("%#o %lx", "8, -1l", (8, ctypes.c_long(-1))),
    ("%jd", "-5ll", ctypes.c_longlong(-5)), ("%F", "1 / 0.0", np.inf),
    ("%zu%c", "(size_t)9, 'c'", (ctypes.c_size_t(9), 99)), ("%p", "(void*)0x1234", ctypes.c_void_p(0x1234)),
]  # fmt: skip


def test_printf_writes_what_c_does() -> None:
    calls = " ".join(f'printf("{text}\\n", {given});' for text, given, _ in CONVERSIONS)
    printed: list[str] = []
    kernel = ck.Kernel(f"#include <cstdio>\n__global__ void f() {{ {calls} }}")
    kernel(emulator.stream(output=printed.append), ck.config(1, 1))
    expected, out = [], ctypes.create_string_buffer(100)
    for text, _, given in CONVERSIONS:
        values = given if isinstance(given, tuple) else (given,)
        passed = [ctypes.c_double(value) if isinstance(value, float) else value for value in values]
        ctypes.CDLL(None).snprintf(out, 100, text.encode(), *passed)
        expected.append(out.value.decode())
    assert [text.rstrip("\n") for text in printed] == expected


def test_printf_keeps_the_order_of_lanes_with_several_formats() -> None:
    printed: list[str] = []
    kernel = ck.Kernel("""
        #include <cstdio>
        __global__ void f() {
            const char *format = threadIdx.x % 3 == 1 ? "%d of %g\\n" : threadIdx.x % 3 ? "%%\\n" : "%0200d\\n";
            printf(format, threadIdx.x, threadIdx.x / 4.0);
        }""")
    kernel(emulator.stream(output=printed.append), ck.config(1, 64))
    assert printed == [(f"{i:0200}\n", f"{i} of {i / 4:g}\n", "%\n")[i % 3] for i in range(64)]


def test_an_endless_kernel_is_stopped_by_its_budget() -> None:
    kernel = ck.Kernel("__global__ void f(volatile int* x) { while (*x == 0) {} }")
    with pytest.raises(ck.EmulationError, match="budget of 1000 steps"):
        kernel(emulator.stream(step_budget=1000), ck.config(1, 1), np.zeros(1, "i4"))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"grid": 1, "block": 2048}, "over the limit 1024"),
        ({"grid": 1, "block": 1, "shared_bytes": 10**6}, "shared memory"),
    ],
)
def test_limits_are_named(add: ck.Kernel, config: dict[str, Any], why: str) -> None:
    x = np.zeros(1, "i4")
    with pytest.raises(ck.LaunchError, match=why):
        add(emulator.stream(), ck.config(**config), x, x, 1, 1)


@pytest.mark.parametrize(
    "text", ["garbage", ".version 9.0\n.entry f( {", ".version 9.0 .target sm_90 .entry f() { add.u32"]
)
def test_malformed_ptx_is_named(text: str) -> None:
    with pytest.raises(ck.EmulationError, match="PTX line"):
        emulator.parse(text)


def test_arch_names_are_checked() -> None:
    with pytest.raises(ck.EmulationError, match="sm_90"):
        emulator.stream("hopper")


def test_where_there_is_no_gpu_a_stream_is_the_emulators_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from cudakit import places
    from cudakit.streams import devices

    monkeypatch.setattr(devices, "has_gpu", lambda: False)
    places.say_emulated.cache_clear()
    with pytest.warns(ck.EmulatorWarning, match="no CUDA driver or no GPU") as caught:
        first, second = ck.stream(), ck.stream()
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert isinstance(first, emulator.EmulatedStream)
    assert second.arch == "sm_90"


def test_arrays_may_be_parts_of_each_other() -> None:
    kernel = ck.Kernel("""__global__ void f(const float* x, const float* part, float* y) {
        y[threadIdx.x] = x[threadIdx.x + 3] + part[threadIdx.x & 1];
    }""")
    x, y = np.arange(100, dtype="f4"), np.zeros(32, "f4")
    kernel(emulator.stream(), ck.config(1, 32), x, x[3:5], y)
    np.testing.assert_array_equal(y, x[3:35] + x[3:5][np.arange(32) & 1])
    with pytest.raises(ck.EmulationError, match="outside every array"):
        kernel(emulator.stream(), ck.config(1, 32), x[:34].copy(), x[3:5], y)


def test_registers_keep_what_other_lanes_wrote() -> None:
    """Few of many lanes write, then most; one value for all, then one each; registers new and old."""
    body = """
        mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r0, %r1, 256, %r0;
        setp.lt.u32 %p0, %r0, 100; setp.lt.u32 %p1, %r0, 6000;
        mov.u32 %r2, 7; @%p0 add.u32 %r2, %r0, 1; @%p1 add.u32 %r2, %r2, 5;
        @%p0 mov.u32 %r3, 9; @!%p0 add.u32 %r3, %r0, %r0;
        @%p1 add.u32 %r4, %r0, 3; @!%p1 mov.u32 %r4, 1;
        mov.u32 %r5, %r4; @%p1 add.u32 %r5, %r5, 1;
        ld.param.u64 %rd0, [out]; mul.wide.u32 %rd1, %r0, 16; add.u64 %rd0, %rd0, %rd1;
        st.global.v4.u32 [%rd0], {%r2, %r3, %r4, %r5}; ret;"""
    head = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry f(.param .u64 out) {\n"
    out = np.zeros((8192, 4), "u4")
    run(f"{head}.reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<2>;{body} }}", out, grid=32, block=256)
    i = np.arange(8192)
    few, most = i < 100, i < 6000
    expected = [np.where(few, i + 1, 7) + 5 * most, np.where(few, 9, 2 * i), np.where(most, i + 3, 1)]
    np.testing.assert_array_equal(out, np.stack([*expected, expected[2] + most], axis=1))


def test_memory_forgets_a_reversed_array() -> None:
    memory, array = emulator.Memory(), np.arange(10, dtype="i4")
    last = np.array([array[9:].__array_interface__["data"][0]], "u8")
    lowest = memory.add(array[::-1], "array")
    assert memory.load("global", last, array.dtype, None).tolist() == [9]
    memory.remove(lowest)
    # What it is told depends on whether the device's heap, where another test has made one, lies near.
    with pytest.raises(AccessError, match=r"in no allocation|no longer exists|outside every array"):
        memory.load("global", last, array.dtype, None)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_torch_tensors_on_the_cpu_are_host_memory(add: ck.Kernel, dtype: str) -> None:
    held = np.arange(8, dtype=dtype)

    class Tensor:
        """What is asked of a tensor, as torch answers it."""

        is_cuda, shape = False, (8,)
        dtype = f"torch.{held.dtype}"

        def data_ptr(self) -> int:
            return int(held.ctypes.data)

        def stride(self) -> tuple[int, ...]:
            return (1,)

    Tensor.__module__ = "torch"
    y = np.zeros_like(held)
    add(emulator.stream(), ck.config(1, 32), Tensor(), y, 1, 8)
    np.testing.assert_array_equal(y, held + 1)


@pytest.mark.emulator
def test_nothing_keeps_the_lanes_of_a_launch() -> None:
    """Their registers and memory are large, and a process has many kernels."""
    kernel = ck.Kernel("__global__ void fill(int* x) { x[threadIdx.x] = 1; }")
    kernel(emulator.stream(), ck.config(1, 32), np.zeros(32, "i4"))
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Machine)]
