"""Atomics of the emulator, lane by lane, against plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.emulated import IS_COMPILED, of_numpy, run
from support.tiers import in_tiers

from cudakit import emulator

RANDOM = np.random.default_rng(13)
DTYPES = {
    "u32": "u4", "s32": "i4", "b32": "u4", "u64": "u8", "s64": "i8", "b64": "u8", "b16": "u2", "f32": "f4", "f64": "f8",
    "f16": "f2", "bf16": ml_dtypes.bfloat16,
}  # fmt: skip


REFERENCE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "min": min, "max": max, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b, "exch": lambda a, b: b,
    "inc": lambda a, b: type(a)(0) if a >= b else a + type(a)(1),
    "dec": lambda a, b: b if a == 0 or a > b else a - type(a)(1),
}  # fmt: skip
FORMS = [
    *(f"add.{t}" for t in ("u32", "s32", "u64", "f32", "f64", "noftz.f16", "noftz.bf16")),
    *(f"{o}.{t}" for o in ("min", "max") for t in ("u32", "s32", "u64", "s64")),
    *(f"{o}.{t}" for o in ("and", "or", "xor", "exch") for t in ("b32", "b64")),
    "inc.u32", "dec.u32",
]  # fmt: skip


#: The emulator's lanes come in the order of their numbers, a GPU's in any.
IN_ORDER = pytest.mark.emulator
#: Forms whose result in memory depends on the order.
ORDERED = [form for form in FORMS if form.startswith(("exch", "inc", "dec")) or "f" in form.split(".")[-1]]


def kernel(form: str, kind: str, space: str, wanted: bool, operands: str = "%v") -> str:
    """PTX: lane i applies the form to cell where[i] with value[i]; in shared memory, cells go there and back."""
    size = np.dtype(DTYPES[kind]).itemsize
    bits = 8 * size
    address = "cvt.u64.u32 %c, %s; cvta.shared.u64 %c, %c;" if space == "generic" else ""
    name = {"global": ".global", "shared": ".shared", "generic": ""}[space]
    base = "%c" if space in ("global", "generic") else "%s"
    there = "" if space == "global" else f"ld.global.b{bits} %o, [%c]; st.shared.b{bits} [%s], %o; bar.sync 0;"
    back = "" if space == "global" else f"bar.sync 0; ld.shared.b{bits} %o2, [%s]; st.global.b{bits} [%c2], %o2;"
    act = f"atom{name}.{form} %o, [{base}], {operands};" if wanted else f"red{name}.{form} [{base}], {operands};"
    keep = f"st.global.b{bits} [%r], %o;" if wanted else ""
    return f""".version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 cells, .param .u64 where, .param .u64 value, .param .u64 compare, .param .u64 result)
{{ .reg .b64 %c, %c2, %w, %x, %r, %y; .reg .b32 %i, %n, %s, %t; .reg .b{bits} %v, %o, %o2, %e; .reg .pred %p;
.shared .align 8 .b8 space[4096];
mov.u32 %t, %tid.x; mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %i, %i, %n, %t;
ld.param.u64 %w, [where]; mad.wide.u32 %w, %i, 4, %w; ld.global.u32 %n, [%w]; ld.param.u64 %c, [cells];
mad.wide.u32 %c, %n, {size}, %c; mov.u64 %c2, %c; mov.u32 %s, space; mad.lo.u32 %s, %n, {size}, %s;
ld.param.u64 %x, [value]; mad.wide.u32 %x, %i, {size}, %x; ld.global.b{bits} %v, [%x];
ld.param.u64 %y, [compare]; mad.wide.u32 %y, %i, {size}, %y; ld.global.b{bits} %e, [%y];
ld.param.u64 %r, [result]; mad.wide.u32 %r, %i, {size}, %r; {there} {address}
{act} {keep} {back} ret; }}"""


def spread(kind: str, count: int, few: bool) -> np.ndarray:
    dtype = np.dtype(DTYPES[kind])
    if dtype.kind in "iu":
        if few:
            return RANDOM.integers(0, 4, count).astype(dtype)
        info = np.iinfo(dtype)
        return RANDOM.integers(info.min, info.max, count, dtype, endpoint=True)
    return (RANDOM.standard_normal(count) * 10.0 ** RANDOM.integers(-3, 3, count)).astype(dtype)


@in_tiers(
    "form, space, cells, wanted",
    FORMS,
    ["global", "shared", "generic"],
    [1, 2, 3, 50, 400],
    [True, False],
    marks=lambda form, space, cells, wanted: [IN_ORDER] if wanted or form in ORDERED else [],
)
def test_lanes_are_applied_in_order(form: str, space: str, cells: int, wanted: bool) -> None:
    if not wanted and form.startswith("exch"):
        return
    operation, kind = form.split(".")[0], form.split(".")[-1]
    count = 200
    memory = spread(kind, cells, operation in ("inc", "dec"))
    where = RANDOM.integers(0, cells, count).astype(np.uint32)
    value = spread(kind, count, operation in ("inc", "dec"))
    if operation in ("inc", "dec") and cells % 2:
        value[:] = 5
    expected, olds = memory.copy(), np.zeros_like(value)
    function = REFERENCE[operation]
    with np.errstate(all="ignore"):
        for i in range(count):
            olds[i] = expected[where[i]]
            expected[where[i]] = function(expected[where[i]], value[i])
    result = np.zeros_like(value)
    run(kernel(f"relaxed.gpu.{form}" if cells == 3 else form, kind, space, wanted), *(
        a.view(f"u{a.itemsize}") for a in (memory, where, value, value, result)), block=count)  # fmt: skip
    assert memory.tobytes() == expected.tobytes()
    if wanted:
        assert result.tobytes() == olds.tobytes()


@pytest.mark.emulator
@pytest.mark.parametrize("kind", ["b16", "b32", "b64"])
@pytest.mark.parametrize("cells", [1, 7, 300])
@pytest.mark.parametrize("values", [2, 5])
def test_compare_and_swap(kind: str, cells: int, values: int) -> None:
    count = 300
    dtype = DTYPES[kind]
    memory, where = np.zeros(cells, dtype), RANDOM.integers(0, cells, count).astype(np.uint32)
    compare, value = (RANDOM.integers(0, values, count).astype(dtype) for _ in range(2))
    expected, olds = memory.copy(), np.zeros_like(value)
    for i in range(count):
        olds[i] = expected[where[i]]
        if expected[where[i]] == compare[i]:
            expected[where[i]] = value[i]
    result = np.zeros_like(value)
    run(kernel(f"cas.{kind}", kind, "global", True, "%e, %v"), memory, where, value, compare, result, block=count)
    assert (memory == expected).all()
    assert (result == olds).all()


@pytest.mark.emulator
def test_compare_and_swap_one_after_the_other() -> None:
    count = 256
    memory, where = np.zeros(1, np.uint32), np.zeros(count, np.uint32)
    compare = np.arange(count, dtype=np.uint32)
    result = np.zeros(count, np.uint32)
    run(kernel("cas.b32", "b32", "global", True, "%e, %v"), memory, where, compare + 1, compare, result, block=count)
    assert memory[0] == count
    assert (result == compare).all()


def test_float_add_flushes_in_global_memory_only() -> None:
    value = np.full(3, 1e-40, np.float32)
    for space, expected in (("global", 0.0), ("shared", 4e-40), ("generic", 4e-40)):
        memory = np.full(1, 1e-40, np.float32)
        run(kernel("add.f32", "f32", space, True), memory, np.zeros(3, np.uint32), value, value, value.copy(), block=3)
        assert memory[0] == pytest.approx(expected, rel=1e-4), space


def test_pairs_and_vectors() -> None:
    from_float = np.arange(8, dtype=np.float16)
    halves, floats = from_float.copy(), np.arange(4, dtype=np.float32)
    olds = np.zeros((33, 4), np.float32)
    text = """#include <cuda_fp16.h>
    extern "C" __global__ void k(__half2* h, float4* f, float4* out) {
        int i = threadIdx.x; atomicAdd(h + i % 4, __floats2half2_rn(1.f, i));
        out[i] = atomicAdd(f, float4{1, 2, 3, i}); }"""
    run(text, halves, floats, olds, block=33)
    for pair in range(4):
        lanes = range(pair, 33, 4)
        assert halves[2 * pair] == 2 * pair + len(lanes)
        assert halves[2 * pair + 1] == 2 * pair + 1 + sum(lanes)
    assert floats.tolist() == [33, 1 + 66, 2 + 99, 3 + sum(range(33))]
    steps, first = np.arange(33)[:, None], np.arange(3)
    np.testing.assert_array_equal(np.sort(olds[:, :3], axis=0), first + steps * (first + 1))
    assert olds[:, 3].min() == 3


def test_a_lane_that_is_masked_does_nothing() -> None:
    count = np.zeros(1, np.int32)
    out = np.full(70, -1, np.int32)
    text = """extern "C" __global__ void k(int* count, int* out) {
        if (threadIdx.x % 3 == 1) out[threadIdx.x] = atomicAdd(count, 2); }"""
    run(text, count, out, block=70)
    assert count[0] == 46
    assert sorted(out[1::3].tolist()) == list(range(0, 46, 2))
    assert (np.delete(out, np.arange(1, 70, 3)) == -1).all()


def test_memory_that_is_both_read_only_and_written_is_writable() -> None:
    array = np.zeros(4, "u4")
    for order in (True, False), (False, True):
        for sizes in (4, 2), (2, 4):
            memory = emulator.Memory()
            for readonly, size in zip(order, sizes, strict=True):
                address = memory.add(array[:size], "array", readonly)
            memory.store("global", np.array([address + 12], "u8"), np.array([7], "u4"), None)
            assert array.tolist() == [0, 0, 0, 7]
            array[:] = 0


# ── loops that try until they succeed ──

#: What such a loop makes of what memory holds and a lane's own value, in C++ and in Python.
UPDATES: dict[str, tuple[str, str, Callable[[Any, Any], Any]]] = {
    "float_add": ("float", "old + v", lambda old, v: old + v),
    "float_multiply": ("float", "old * v", lambda old, v: old * v),
    "float_min": ("float", "fminf(old, v)", min),
    "double_add": ("double", "old + v", lambda old, v: old + v),
    "choice": ("unsigned", "old % 7 == 3 ? old * 5 - v : (old ^ v) + 11", lambda old, v: _choice(old, v)),
    "the_same_for_all": ("unsigned", "old * 5 + 3", lambda old, v: np.uint32((int(old) * 5 + 3) % 2**32)),
    "not_of_what_is_there": ("unsigned", "v", lambda old, v: v),
}  # fmt: skip


def _choice(old: Any, v: Any) -> Any:
    return old * np.uint32(5) - v if old % 7 == 3 else (old ^ v) + np.uint32(11)


RETRY = """
template <typename T> __device__ unsigned to_bits(T x) { return *(unsigned*)&x; }
template <> __device__ unsigned to_bits(float x) { return __float_as_uint(x); }
__device__ unsigned long long to_bits(double x) { return __double_as_longlong(x); }
template <typename T> __device__ T from_bits(unsigned x) { return *(T*)&x; }
template <> __device__ float from_bits(unsigned x) { return __uint_as_float(x); }
template <typename T> __device__ T from_bits(unsigned long long x) { return __longlong_as_double(x); }
extern "C" __global__ void f(KIND* cells, const unsigned* where, const KIND* values, KIND* found, unsigned* rounds) {
    SPACE
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n = 0;
    if (i % 4 == 1) return;
    KIND v = values[i];
    WORD* at = (WORD*)&CELLS[where[i]];
    WORD bits = *at, expected;
    do {
        expected = bits;
        KIND old = from_bits<KIND>(bits);
        n += 3;
        bits = atomicCAS(at, expected, (WORD)to_bits((KIND)(UPDATE)));
    } while (bits != expected);
    found[i] = from_bits<KIND>(bits);
    rounds[i] = n;
    END
}"""


@pytest.mark.emulator
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize(("cells", "shared"), [(1, False), (3, False), (2, True)])
def test_lanes_that_try_until_they_succeed_come_one_after_the_other(update: str, cells: int, shared: bool) -> None:
    kind, text, function = UPDATES[update]
    dtype = np.dtype({"float": "f4", "double": "f8", "unsigned": "u4"}[kind])
    count = 1024
    values = RANDOM.integers(1, 1000, count).astype(dtype) if dtype.kind == "u" else np.empty(count, dtype)
    if dtype.kind == "f":
        values[:] = RANDOM.uniform(0.5, 1.5, count)
    memory, where = np.full(cells, 3, dtype), RANDOM.integers(0, cells, count).astype("u4")
    expected, olds = memory.copy(), np.zeros(count, dtype)
    with np.errstate(all="ignore"):
        for i in range(count):
            if i % 4 != 1:
                olds[i] = expected[where[i]]
                expected[where[i]] = function(olds[i], values[i])
    space = "__shared__ KIND own[9]; if (threadIdx.x < 9) own[threadIdx.x] = 3; __syncthreads();" if shared else ""
    end = f"__syncthreads(); if (i == 0) for (n = 0; n < {cells}; n++) cells[n] = own[n];" if shared else ""
    words = {"SPACE": space, "END": end, "UPDATE": text, "CELLS": "own" if shared else "cells", "KIND": kind}
    made = RETRY.replace("return;", "{ __syncthreads(); return; }") if shared else RETRY
    for word, meaning in {**words, "WORD": "unsigned" if dtype.itemsize == 4 else "unsigned long long"}.items():
        made = made.replace(word, meaning)
    found, rounds = np.zeros(count, dtype), np.zeros(count, "u4")
    steps = run(made, memory, where, values, found, rounds, block=count)
    assert memory.tobytes() == expected.tobytes()
    assert found.tobytes() == olds.tobytes()
    assert steps < 300
    lanes = np.arange(count) % 4 != 1
    # Together, and then in turn; as machine code lanes go round until they succeed.
    assert IS_COMPILED or set(rounds[lanes].tolist()) == {3, 6}


@pytest.mark.emulator
@pytest.mark.parametrize("order", ["ascending", "random", "descending"])
@pytest.mark.parametrize("text", [
    "while (v > __int_as_float(old)) { int e = old; old = atomicCAS(at, e, __float_as_int(v)); if (old == e) break; }",
    "int e; do { e = old; if (__int_as_float(e) >= v) break; old = atomicCAS(at, e, __float_as_int(v)); } "
    "while (e != old);",
    "int e; do { e = old = *(volatile int*)at; } "
    "while (__int_as_float(e) < v && (old = atomicCAS(at, e, __float_as_int(v))) != e);",
    "int e = old; while (__int_as_float(e) < v && (old = atomicCAS(at, e, __float_as_int(v))) != e) e = old;",
])  # fmt: skip
def test_lanes_that_give_up_leave_what_is_there(text: str, order: str) -> None:
    count = 2048
    values = RANDOM.permutation(count).astype("f4") if order == "random" else np.arange(count, dtype="f4")
    values = values[::-1].copy() if order == "descending" else values
    cell, seen = np.full(2, -1, "f4"), np.zeros(count, "f4")
    steps = run(
        f"""__global__ void f(float* cell, const float* values, float* seen) {{
            int i = blockIdx.x * blockDim.x + threadIdx.x, *at = (int*)(cell + i % 2), old = *at;
            float v = values[i];
            {text}
            seen[i] = __int_as_float(old);
        }}""",
        cell, values, seen, grid=count // 256, block=256,
    )  # fmt: skip
    assert cell.tolist() == [values[::2].max(), values[1::2].max()]
    assert steps < 300
    # What a lane saw last was there: what an earlier lane stored, or what was there at first.
    for cells in (slice(0, None, 2), slice(1, None, 2)):
        there = np.concatenate(([-1], values[cells]))
        assert np.isin(seen[cells], there).all()
        # Vectors that wait for memory to change go on by turns.
        assert (
            IS_COMPILED or ((seen[cells] >= values[cells]) | (seen[cells] <= np.maximum.accumulate(there)[:-1])).all()
        )


@of_numpy
@pytest.mark.emulator
def test_a_loop_that_gives_up_or_has_effects_of_its_own_tries_again_and_again() -> None:
    """Such a loop is run round by round: what it does in a round that fails can be seen."""
    text = """__global__ void f(unsigned* cell, unsigned* tries, unsigned most) {
        unsigned old = *cell, expected;
        do {
            expected = old;
            if (old >= most) break;
            tries[threadIdx.x]++;
            __threadfence();
            old = atomicCAS(cell, expected, expected + 1);
        } while (old != expected);
    }"""
    cell, tries = np.zeros(1, "u4"), np.zeros(64, "u4")
    run(text, cell, tries, 40, block=64)
    assert cell[0] == 40
    assert tries.tolist() == [*range(1, 41), *[40] * 24]
