"""Whole programs: recursion, virtual functions, pointers to functions, printf, assertions, 128-bit integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import emulated
from support.programs import run

import cudakit as ck

RANDOM = np.random.default_rng(12)
N = 64

LANGUAGE = """
#include <cassert>
#include <cstdio>
__device__ __noinline__ int ackermann(int m, int n) {
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
__device__ void quicksort(int* a, int low, int high) {
    if (low >= high) return;
    int pivot = a[(low + high) / 2], i = low, j = high;
    while (i <= j) {
        while (a[i] < pivot) i++;
        while (a[j] > pivot) j--;
        if (i <= j) { int t = a[i]; a[i++] = a[j]; a[j--] = t; }
    }
    quicksort(a, low, j);
    quicksort(a, i, high);
}
__device__ bool odd(unsigned n);
__device__ __noinline__ bool even(unsigned n) { return n == 0 || odd(n - 1); }
__device__ __noinline__ bool odd(unsigned n) { return n != 0 && even(n - 1); }
struct Shape {
    __device__ virtual double area() const = 0;
    __device__ virtual int corners() const { return 0; }
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    double side;
    __device__ Square(double side) : side(side) {}
    __device__ double area() const override { return side * side; }
    __device__ int corners() const override { return 4; }
};
struct Disc : Shape {
    double radius;
    __device__ Disc(double radius) : radius(radius) {}
    __device__ double area() const override { return 3 * radius * radius; }
};
struct Triangle : Square {
    __device__ Triangle(double side) : Square(side) {}
    __device__ double area() const override { return Square::area() / 2; }
    __device__ int corners() const override { return 3; }
};
using Operation = float (*)(float, float);
__device__ __noinline__ float add(float a, float b) { return a + b; }
__device__ __noinline__ float multiply(float a, float b) { return a * b; }
__device__ __noinline__ float subtract(float a, float b) { return a - b; }
__device__ Operation operations[3] = {add, multiply, subtract};
__constant__ int weights[4] = {3, 1, 4, 1};
__device__ int counter = 10;
__device__ const char* words[3] = {"zero", "one", "two"};
struct Given { char tag; double value; int list[3]; };
__device__ __noinline__ Given shifted(Given given, int by) {
    given.value += by;
    given.tag++;
    for (int& x : given.list) x *= by;
    return given;
}
__device__ __noinline__ int jump(int which, int x) {
    switch (which) {
        case 0: return x + 11;
        case 1: return x * 3;
        case 2: return x ^ 0x55;
        case 3: return x - 7;
        case 4: return x << 3;
        case 5: return ~x;
        case 6: return x / 3;
        case 7: return x % 5;
        default: return -1;
    }
}
template <class F> __device__ int apply(F f, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += f(i);
    return sum;
}
__device__ int called() { static int times = 100; return atomicAdd(&times, 1); }
__global__ void kernel(const int* x, int* lists, int* out, double* d, Given given, int n) {
    extern __shared__ int dynamic[];
    int t = threadIdx.x, B = blockDim.x, at = 0, local[24];
    auto put = [&](int value) { out[B * at++ + t] = value; };
    put(ackermann(2, t % 4));
    put(even(t) * 2 + odd(t));
    for (int i = 0; i < 24; i++) local[i] = x[t * 24 + i];
    quicksort(local, 0, 23);
    for (int i = 0; i < 24; i++) lists[t * 24 + i] = local[i];
    alignas(16) char room[64];
    Shape* shape = t % 3 == 0 ? (Shape*)new (room) Square(t) : t % 3 == 1 ? (Shape*)new (room) Disc(t)
                                                                           : (Shape*)new (room) Triangle(t);
    d[t] = shape->area();
    put(shape->corners());
    shape->~Shape();
    d[B + t] = operations[(t + n) % 3](t, 2.5f);
    Given other = shifted(given, t);
    d[2 * B + t] = other.value;
    put(other.list[0] + other.list[1] + other.list[2] + other.tag);
    put(jump(t % 9, x[t]));
    int base = x[t];
    put(apply([=](int i) { return base * i + weights[i & 3]; }, 5));
    put(called());
    atomicAdd(&counter, t);
    dynamic[t] = t * t;
    __syncthreads();
    put(dynamic[B - 1 - t] + counter);
    unsigned before = clock();
    __nanosleep(10);
    put(clock() != before);
    assert(t >= 0 && "never");
}
__global__ void prints() {
    int t = threadIdx.x;
    if (t < 3)
        printf("%s %d %5.2f|%-6d|%06x %c %llu %% %+d %e %lld\\n", words[t], t, t * 1.5, -t, 255 + t, 'a' + t,
               1ull << (40 + t), t, 1.0 / (t + 1), -5ll);
}
__global__ void asserts(const int* x) { assert(x[threadIdx.x] < 3 && "too large"); }
__global__ void traps(const int* x) { if (blockIdx.y == 1 && x[threadIdx.x] == 5) __trap(); }
"""


def test_language(stream: Any) -> None:
    x = RANDOM.integers(-1000, 1000, 24 * N).astype(np.int32)
    lists, out, d = np.zeros((N, 24), np.int32), np.zeros((9, N), np.int32), np.zeros((3, N))
    layout = np.dtype([("tag", "i1"), ("value", "f8"), ("list", "i4", 3)], align=True)
    given = np.array((65, 0.25, (1, 2, 3)), layout)
    kernel = ck.Kernel(LANGUAGE, "kernel")
    with ck.memory.limit(16 << 10, "stack"):
        run(stream, kernel, ck.config(1, N, shared_bytes=4 * N), x, lists, out, d, given, 1)
    assert (lists == np.sort(x.reshape(N, 24), 1)).all()
    at, own = np.arange(N), x[:N]
    third = np.sign(own) * (abs(own) // 3)
    fifth = np.sign(own) * (abs(own) % 5)
    jumps = [own + 11, own * 3, own ^ 0x55, own - 7, own << 3, ~own, third, fifth, np.full(N, -1)]
    expected = [
        2 * (at % 4) + 3, np.where(at % 2, 1, 2), np.choose(at % 3, [4, 0, 3]), 6 * at + 66,
        np.choose(at % 9, jumps), own * 10 + 12,
    ]  # fmt: skip
    assert (out[:6] == expected).all()
    assert sorted(out[6]) == list(range(100, 100 + N))
    assert (out[7] == at[::-1] ** 2 + 10 + at.sum()).all()
    assert out[8].all()
    assert (d[0] == np.choose(at % 3, [at * at, 3 * at * at, at * at / 2])).all()
    assert (d[1] == np.choose((at + 1) % 3, [at + 2.5, at * 2.5, at - 2.5])).all()
    assert (d[2] == at + 0.25).all()


def test_printf_writes_what_python_would() -> None:
    lines: list[str] = []
    ck.Kernel(LANGUAGE, "prints")(ck.emulator.stream(output=lines.append), ck.config(1, 32))
    form = "%s %d %5.2f|%-6d|%06x %c %d %% %+d %e %d\n"
    expected = [
        form % (word, t, t * 1.5, -t, 255 + t, ord("a") + t, 1 << (40 + t), t, 1 / (t + 1), -5)
        for t, word in enumerate(["zero", "one", "two"])
    ]
    assert "".join(lines) == "".join(expected)


def test_failures_name_the_thread() -> None:
    x, stream = np.arange(32, dtype=np.int32), ck.emulator.stream()
    with pytest.raises(ck.EmulationError, match=r"asserts.*block 0, thread 3: assertion `.*\"too large\"` failed"):
        ck.Kernel(LANGUAGE, "asserts")(stream, ck.config(2, 32), x)
    with pytest.raises(ck.EmulationError, match=r"block \(0, 1, 0\), thread 5 trapped"):
        ck.Kernel(LANGUAGE, "traps")(stream, ck.config((2, 2), 32), x)


TABLE = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd1, %rd1, %rd2;
    rem.u32 %r2, %r1, 3;
    mov.u32 %r3, 7;
table: .branchtargets first, second, third;
    brx.idx %r2, table;
third:
    add.u32 %r3, %r3, 100;
first:
    add.u32 %r3, %r3, %r1;
    bra.uni last;
second:
    mov.u32 %r3, 5;
last:
    st.global.u32 [%rd1], %r3;
    ret;
}
"""


def test_a_branch_by_a_table() -> None:
    # The compiler makes none from a switch, so that this is PTX.
    out, at = np.zeros(N, np.uint32), np.arange(N)
    emulated.run(TABLE, out, block=N)
    assert (out == np.choose(at % 3, [7 + at, 5, 107 + at])).all()


WIDE = """
using wide = __int128;
using natural = unsigned __int128;
__global__ void kernel(const long long* x, const long long* y, unsigned long long* out, int n) {
    int t = threadIdx.x, at = 0;
    wide a = (wide)x[2 * t] << 64 | (unsigned long long)x[2 * t + 1];
    wide b = (wide)y[2 * t] << 64 | (unsigned long long)y[2 * t + 1];
    auto put = [&](wide v) { out[2 * at * n + t] = v; out[(2 * at + 1) * n + t] = v >> 64; at++; };
    put(a + b); put(a - b); put(a * b); put(a / b); put(a % b); put((natural)a / (natural)b);
    put((natural)a % (natural)b); put(a << (t & 127)); put(a >> (t & 127)); put((natural)a >> (t & 127));
    put(a < b); put(-a);
}
"""


def test_integers_of_128_bits(stream: Any) -> None:
    # The division reads the flag of a subtraction as the carry of an addition.
    n = 200
    x, y = RANDOM.integers(-(2**63), 2**63 - 1, (2, n, 2))
    x[::5, 0] >>= 30
    y[::3, 0] = 0
    y[1::3, 0] >>= 40
    y[::3, 1] = y[::3, 1] >> RANDOM.integers(0, 60, y[::3, 1].size) | 1
    out = np.zeros((12, 2, n), np.uint64)
    options = ck.CompileOptions(extra={"device_int128": True})
    run(stream, ck.Kernel(WIDE, options=options), ck.config(1, n), x.reshape(-1), y.reshape(-1), out, n)
    most = 2**128
    for t in range(n):
        a, b = (int(v[t, 0]) << 64 | int(v[t, 1]) % 2**64 for v in (x, y))
        natural, divisor = a % most, b % most
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        expected = [
            a + b, a - b, a * b, quotient, a - quotient * b, natural // divisor, natural % divisor, a << (t & 127),
            a >> (t & 127), natural >> (t & 127), a < b, -a,
        ]  # fmt: skip
        got = [int(low) | int(high) << 64 for low, high in out[:, :, t]]
        assert got == [value % most for value in expected], (t, hex(a), hex(b))
