"""Stepping: where it stops, what is seen there, and that going back is exact."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cudakit as ck
from cudakit.emulator.debug import timeline
from cudakit.emulator.debug.debug import Terminal
from cudakit.emulator.debug.session import Session
from cudakit.emulator.debug.timeline import Undo
from cudakit.emulator.machine.heap import device_limits

pytestmark = pytest.mark.emulator


@pytest.fixture(autouse=True, scope="module")
def _own_heap() -> Iterator[None]:
    """What a test leaves on the heap is nobody else's."""
    limits = device_limits()
    former, limits._heap = limits._heap, None
    yield
    limits._heap = former


SUMS = ck.Kernel(
    """
struct Part { float x; int n; };
__constant__ float weights[4] = {1, 2, 3, 4};
template <class T> __device__ T twice(T v) {
    T w = v + v;
    return w;
}
template <class T, int B> __global__ void sums(const T* x, T* out, int n) {
    __shared__ T tile[B];
    int i = blockIdx.x * B + threadIdx.x;
    T v = i < n ? x[i] : T(0);
    Part part{float(v), i};
    T held[4];
    for (int k = 0; k < 4; ++k) held[k] = v * k;
    tile[threadIdx.x] = twice(v) + held[2] * weights[1];
    __syncthreads();
    for (int s = B / 2; s > 0; s /= 2) {
        if (threadIdx.x < s)
            tile[threadIdx.x] += tile[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = tile[0] + part.x;
}"""
)["float", 64]

#: What a machine has beside registers: lanes that wait for others, at barriers with a result, atomics, a heap.
MIXED = ck.Kernel(
    """
__device__ int total;
__global__ void mixed(int* x, int* y) {
    __shared__ int held[64];
    int t = threadIdx.x, sum = 0;
    held[t] = x[t];
    __syncthreads();
    if (t % 3 == 0)
        sum = __shfl_xor_sync(0xffffffff, held[t], 1);
    else
        sum = __shfl_xor_sync(0xffffffff, held[t] * 2, 1);
    if (t == 5) printf("five %d\\n", sum);
    int many = __syncthreads_count(sum & 1);
    int* p = (int*)malloc(8);
    p[1] = sum + many;
    atomicAdd(&total, p[1]);
    atomicMax(x + (t & 7), p[1]);
    free(p);
    while (atomicCAS(x + 8, t, t + 1) != t);
    y[t] = sum + x[t & 7];
}"""
)

REVERSE = ck.Kernel(
    """
__global__ void reverse(const float* x, float* y) {
    __shared__ float held[256];
    int t = threadIdx.x;
    held[t] = x[t];
    y[t] = held[255 - t];
}  // A text of its own: where two places have one text, no line is told.
"""
)

SCALE = ck.Kernel(
    """
__global__ void scale(float* x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = a * x[i];
}"""
)


def sums() -> tuple[Session, np.ndarray]:
    x, out = np.arange(128, dtype="f4"), np.zeros(2, "f4")
    return ck.emulator.debug(SUMS, ck.config(2, 64), x, out, 128), out


def mixed(**options: Any) -> tuple[Session, list[np.ndarray], list[str]]:
    x, y, said = np.arange(64, dtype="i4"), np.zeros(64, "i4"), list[str]()
    x[8] = 0
    stream = ck.emulator.stream(output=said.append, **options)
    return ck.emulator.debug(MIXED, ck.config(1, 64), x, y, stream=stream, checks=False), [x, y], said


def state(session: Session, arrays: list[np.ndarray]) -> bytes:
    """All that can be seen of a session."""
    parts = [str(session.where._replace(reason="")), str(session.lanes)]
    for named in (session.variables, session.registers):
        for name, value in named.items():
            parts += [name, np.ma.getmaskarray(value).tobytes().hex(), np.ascontiguousarray(value.data).tobytes().hex()]
    parts += [f"{name} {value.tobytes().hex()}" for name, value in session.shared.items()]
    return "\n".join(parts + [each.tobytes().hex() for each in arrays]).encode()


def test_nothing_has_run() -> None:
    session, out = sums()
    assert session.where.text.endswith("__global__ void sums(const T* x, T* out, int n) {")
    assert (session.where.reason, session.where.lanes, session.is_over) == ("begin", tuple(range(32)), False)
    assert session.where.file.endswith("test_debug.py")
    assert not out.any()
    session.run()
    assert session.is_over
    x = np.arange(128, dtype="f4")
    assert np.array_equal(out, x.reshape(2, 64).sum(1) * 6 + x[::64])


def test_a_breakpoint_with_a_condition() -> None:
    session, _ = sums()
    session.break_at("tile[threadIdx.x] +=", when="s == 4 && threadIdx.x == 2 && blockIdx.x == 1")
    where = session.run().where
    assert (where.block, where.warp, where.reason, where.lanes) == (1, 0, "breakpoint 1", (0, 1, 2, 3))
    assert where.text.strip() == "tile[threadIdx.x] += tile[threadIdx.x + s];"
    assert session["s"][2] == 4
    assert session["i"].tolist() == [64, 65, 66, 67] + [None] * 28
    assert session["part.n"].tolist()[:4] == [64, 65, 66, 67]
    assert session["part"].dtype.names == ("x", "n")
    assert np.array_equal(session["held"][1], [0, 65, 130, 195])
    assert session["x[i - 1] * 2"][1] == 128
    assert session["weights[3]"][0] == 4
    assert session.shared["tile"].shape == (64,)
    assert session.shared["tile"].dtype == "f4"
    assert np.array_equal(session["tile[threadIdx.x + s]"].compressed(), session.shared["tile"][4:8])
    assert [lane.state for lane in session.lanes] == ["active"] * 4 + ["elsewhere"] * 28
    assert "k" not in session.variables  # of a loop that is left


def test_breakpoints_of_a_block_and_thread() -> None:
    session, _ = sums()
    made = session.break_at("T v =", block=1, thread=40)
    where = session.run().where
    assert (where.block, where.warp, made.hits) == (1, 1, 1)
    assert session.run().is_over
    session.clear(1)
    assert session.stops == []
    with pytest.raises(ck.ArgumentError, match="no breakpoint 1"):
        session.clear(1)
    with pytest.raises(ck.ArgumentError, match="no line with code has 'nothing'"):
        session.break_at("nothing")
    with pytest.raises(ck.ArgumentError, match="no code comes from line 100000"):
        session.break_at(100000)


def test_a_line_by_its_number_in_the_file() -> None:
    session, _ = sums()
    first = session.where.line
    assert session.break_at(first + 3).line.text.strip().startswith("T v =")
    assert session.break_at(f"test_debug.py:{first + 1}").line.line == first + 2  # the next line with code
    assert session.run().where.line == first + 2


def test_steps_go_into_functions_and_next_goes_over_them() -> None:
    session, _ = sums()
    session.until("twice(v) + held")
    called = session.where
    session.step()
    assert session.where.function == "twice<float>"
    assert session.variables["v"].mask.all()  # not yet handed over
    session.step()
    assert session.where.text.strip() == "T w = v + v;"
    assert list(session.variables) == ["v", "w"]
    session.finish()
    assert session.where.line == called.line
    session.next()
    assert session.where.line == called.line + 1
    session.back()
    assert session.where.line == called.line
    assert session.next().where.line == called.line + 1


def test_others_run_where_the_warp_waits_for_them() -> None:
    session, _ = sums()
    session.warp(1).until("for (int s")
    assert session.where.warp == 1
    session.warp(0)
    assert session.where.text.strip() == "for (int s = B / 2; s > 0; s /= 2) {"
    session.block(1)
    assert session.where.text.startswith("template <class T, int B> __global__")  # no block waits for another


def test_a_loop_in_one_line_is_gone_through_turn_by_turn() -> None:
    session, _ = sums()
    session.until("for (int k")
    turns = []
    while "int k" in session.where.text:
        turns.append(session["k"].tolist()[0] if "k" in session.variables else None)
        session.step()
    assert turns[-4:] == [1, 2, 3, 4]


def test_an_access_out_of_bounds_stops_before_it_happens() -> None:
    x = np.ones(100, "f4")
    session = ck.emulator.debug(SCALE, ck.config(2, 64), x, 2.0, 100)
    where = session.run().where
    assert "element 100 is past the end" in session.error
    assert where.reason == "error of block 1, thread 36"
    assert (where.block, where.warp, where.text.strip()) == (1, 1, "x[i] = a * x[i];")
    assert session["i"][4] == 100
    assert (x == 1).all()
    assert session.back().where.text.strip() == "x[i] = a * x[i];"
    assert session.error == ""
    assert session.back().where.text.strip().startswith("int i =")
    assert "element 100" in session.run().error
    session.rewind()
    assert (x == 1).all()


def test_a_race_stops_once() -> None:
    x, y = np.arange(256, dtype="f4"), np.zeros(256, "f4")
    session = ck.emulator.debug(REVERSE, ck.config(1, 256), x, y)
    session.run()
    assert "race: block 0, thread 0 reads held[255]" in session.error
    assert session.where.text.strip() == "y[t] = held[255 - t];"
    assert np.array_equal(session.shared["held"], x)
    assert session.run().is_over
    unchecked = ck.emulator.debug(REVERSE, ck.config(1, 256), x, y, checks=False)
    assert unchecked.run().is_over
    assert unchecked.error == ""


def test_a_watch_stops_where_a_value_changes() -> None:
    session, _ = sums()
    session.break_at("for (int s")
    session.run()
    session.clear()
    session.watch("tile[3]")
    before = session.shared["tile"].copy()
    session.run()
    assert session.where.reason.startswith(f"watch 2: tile[3]: {before[3]} → {before[3] + before[35]}")
    assert session.shared["tile"][3] == before[3] + before[35]
    with pytest.raises(ck.ArgumentError, match="no variable nope is known here; those seen from this line are x, out"):
        session.watch("nope")


def test_a_deadlock_stops() -> None:
    kernel = ck.Kernel(
        "__global__ void stuck(int* x) { if (threadIdx.x < 40) { __syncwarp(0x3); x[0] = 1; } else __syncthreads(); }"
    )
    session = ck.emulator.debug(kernel, ck.config(1, 64), np.zeros(4, "i4"), checks=False)
    assert session.run().error
    assert session.where.reason.startswith("error")


def test_what_is_printed_is_printed_once() -> None:
    session, _, said = mixed()
    assert session.run().is_over
    first = list(said)
    assert "".join(first).startswith("five ")
    session.back(3).back_instruction().rewind().run()
    assert said == first


def test_variables_of_the_module_are_its_own_and_are_put_back() -> None:
    MIXED.globals["total"] = 5
    session, (_, y), _ = mixed()
    session.run()
    assert int(MIXED.globals["total"]) > 5
    session.rewind()
    assert not y.any()
    assert int(MIXED.globals["total"]) == 5


@pytest.mark.parametrize("machine", ["compiled", "auto", "numpy"])
def test_no_other_machine_takes_it(machine: str) -> None:
    pytest.importorskip("llvmlite")
    stream = ck.emulator.stream(machine=machine)
    x = np.ones(64, "f4")
    session = ck.emulator.debug(SCALE, ck.config(1, 64), x, 2.0, 64, stream=stream)
    session.break_at("x[i] =", when="i == 40")
    assert session.run().where.reason == "breakpoint 1"
    assert session.run().is_over
    assert (x == 2).all()
    assert stream.recorder is None


def test_back_and_forth_is_exact() -> None:
    session, out = sums()
    session.break_at("tile[threadIdx.x] +=", when="s == 8")
    session.run()
    before = state(session, [out])
    session.back().step()
    assert state(session, [out]) == before
    session.back(5).step(5)
    assert state(session, [out]) == before
    session.step(3).back(3)
    assert state(session, [out]) == before


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["step", "next", "step_instruction", "back", "back_instruction", "run", "rewind"]),
        st.integers(0, 1),
    ),
    min_size=3,
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(MOVES, st.sampled_from([None, 3]), st.sampled_from([timeline.MOST_BYTES, 1 << 12]))
def test_each_step_has_one_state_however_it_is_come_to(
    moves: list[tuple[str, int]], schedule: int | None, most: int
) -> None:
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(timeline, "MOST_BYTES", most)
        session, arrays, _ = mixed(schedule=schedule)
    session.break_at("atomicAdd")
    session.break_at("y[t] =")
    seen: dict[int, bytes] = {}
    for move, warp in [*moves, ("rewind", 0), *[("step_instruction", 1)] * 40, ("rewind", 1), ("run", 0)]:
        session.warp(warp)
        getattr(session, move)()
        for other in (0, 1):
            session.warp(other)
            key = 2 * session.position + other
            assert seen.setdefault(key, state(session, arrays)) == state(session, arrays)


def test_many_steps_and_blocks_one_after_the_other() -> None:
    kernel = ck.Kernel(
        """
__global__ void walk(int* x) {
    int sum = 0;
    for (int k = 0; k < 40; ++k) {
        sum += k * (threadIdx.x + 1);
    }
    x[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}"""
    )
    x = np.zeros(12 * 512, "i4")
    session = ck.emulator.debug(kernel, ck.config(12, 512), x)
    session.break_at("x[blockIdx.x", block=11)
    session.run()
    assert session.where.block == 11
    assert x[: 8 * 512].all()  # blocks 8 to 11 run when these are done
    there = session.position
    assert session["sum"][0] == 780
    session.back(3)
    assert session.position < there
    assert session["sum"][0] < 780 or session["k"][0] == 40
    session.step(3)
    assert session.position == there
    session.rewind()
    assert not x.any()
    assert session.block(0).run().where.block == 11
    assert session.position == there
    assert session.run().is_over


@pytest.mark.slow
def test_what_was_overwritten_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ck.Kernel(
        """
__global__ void often(int* x) {
    for (int k = 0; k < 60; ++k) {
        x[threadIdx.x] += k;
        ((long long*)x)[threadIdx.x] += 3;
        ((char*)x)[9 * threadIdx.x + 1] = k;
        ((int2*)x)[threadIdx.x] = int2{x[0], k};
    }
}"""
    )
    assert timeline.MOST_BYTES >= 1 << 20
    monkeypatch.setattr(timeline, "MOST_BYTES", 1 << 16)
    taken, noted = [0], Undo.note

    def note(self: Undo, *given: Any) -> None:
        noted(self, *given)
        taken[0] = max(taken[0], self.bytes)

    monkeypatch.setattr(Undo, "note", note)
    before = np.arange(256, dtype="i4")
    x = before.copy()
    session = ck.emulator.debug(kernel, ck.config(1, 32), x, checks=False)
    assert session.run().is_over
    assert 1 << 15 < taken[0] < 1 << 17
    after, end = x.copy(), session.position
    monkeypatch.setattr(timeline, "MOST_BYTES", 1 << 28)
    y = before.copy()
    whole = ck.emulator.debug(kernel, ck.config(1, 32), y, checks=False).run()
    for count in (1, 7, 60):
        session.back(count)
        whole.back(count)
        assert session.position == whole.position
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(session.rewind() and x, before)
    session.run()
    assert session.position == end
    np.testing.assert_array_equal(x, after)


def test_many_states_are_thinned_and_each_step_can_be_gone_back_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "_STEPS", 8)
    monkeypatch.setattr(timeline, "_MOST", 4)
    session, arrays, _ = mixed()
    states = {}
    for step in range(1, 82):
        session.step_instruction()
        if step in (9, 31, 32, 33, 60, 80):
            states[step] = state(session, arrays)
    assert [each.tick for each in session._time._states] == [0, 32, 56, 72]
    assert session.run().is_over
    assert len(session._time._states) <= 5
    for step in (80, 33, 32, 60, 31, 9):
        session._time.seek(step)
        assert state(session, arrays) == states[step]


def test_a_warp_that_spins_lets_the_others_run() -> None:
    session, (x, _), _ = mixed()
    session.warp(1).until("y[t] =")
    assert (session.where.warp, session.where.reason, session.is_over) == (1, "step", False)
    assert x[8] > 32
    assert session.warp(0).where.lanes == ()
    assert {lane.state for lane in session.lanes} == {"exited"}
    with pytest.raises(ck.ArgumentError, match="block 0, warp 0 does not run: it has no variables"):
        session["t"]
    assert session.thread(40).where.warp == 1
    assert session.thread(31).where.warp == 0
    assert session.thread(32).finish().where.reason == "end"


def test_names_that_every_kernel_has() -> None:
    session, _ = sums()
    session.until("Part part")
    assert session["warpSize"].tolist() == [32] * 32
    assert session["blockDim.x * gridDim.x"][0] == 128
    assert session["x[i]"].tolist() == list(range(32))
    assert session["x[i + 1000]"].mask.all()
    assert session["!(i < 4)"].tolist() == [False] * 4 + [True] * 28
    assert session.thread(33).where.warp == 1
    asked: list[Session] = []
    session._interact = asked.append
    session.interact()
    assert asked == [session]
    assert repr(session).startswith("block 0, warp 1, lanes 0-31 in sums")


def test_ptx_has_its_registers() -> None:
    text = SCALE.ptx(arch="sm_90") if SCALE.specialization is None else None
    ptx = text or ck.Kernel("__global__ void inc(int* x) { x[threadIdx.x] += 1; }").ptx()
    kernel = ck.Kernel.from_ptx(ptx, re.search(r"\.entry (\w+)", ptx)[1])  # type: ignore[index]
    x = np.zeros(32, "i4")
    session = ck.emulator.debug(kernel, ck.config(1, 32), x)
    assert session.variables == {}
    session.step_instruction()
    assert session.registers
    assert session.run().is_over
    assert (x == 1).all()


LIBRARIES = ck.Kernel(
    """
#include <cub/cub.cuh>
#include <cuda_fp16.h>
template <class T> __global__ void total(const T* x, __half* y, int n) {
    using Reduce = cub::BlockReduce<T, 128>;
    __shared__ typename Reduce::TempStorage temp;
    __half2 both = __half2half2(__half(3));
    int i = blockIdx.x * 128 + threadIdx.x;
    T sum = Reduce(temp).Sum(i < n ? x[i] : T(0));
    if (threadIdx.x == 0) y[blockIdx.x] = __half(sum) + both.x;
}"""
)


@pytest.mark.slow
def test_libraries_are_stepped_over_and_no_alarm_is_false() -> None:
    x, y = np.ones(200, "f4"), np.zeros(2, "f2")
    session = ck.emulator.debug(LIBRARIES, ck.config(2, 128), x, y, 200)
    session.until("int i =")
    assert session["both"].data["x"].tolist() == [3] * 32
    first = session.where.line
    assert [session.step().where.line - first for _ in range(2)] == [1, 2]
    assert [session.back().where.line - first for _ in range(2)] == [1, 0]
    session.break_at("if (threadIdx.x == 0)", block=0, thread=0)
    assert session.run()["sum"][0] == 128
    assert session.run().is_over
    assert session.error == ""
    assert y.tolist() == [131, 75]


def test_what_cannot_be_stepped_through() -> None:
    x = np.ones(4, "f4")
    with pytest.raises(ck.ArgumentError, match="one kernel; this one launches nothing"):
        ck.emulator.debug(SCALE, ck.cover(0), x, 2.0, 4)
    with pytest.raises(ck.ArgumentError, match="stream is the emulator's, got int"):
        ck.emulator.debug(SCALE, ck.config(1, 4), x, 2.0, 4, stream=3)  # type: ignore[arg-type]
    session = ck.emulator.debug(SCALE, ck.config(1, 4), x, 2.0, 4)
    with pytest.raises(ck.ArgumentError, match="block 1: the launch has blocks 0 to 0"):
        session.block(1)
    with pytest.raises(ck.ArgumentError, match="thread 32: a block has threads 0 to 3"):
        session.thread(32)
    with pytest.raises(ck.ArgumentError, match="thread 70: a block has threads 0 to 3"):
        session.break_at(1, thread=70)
    with pytest.raises(ck.ArgumentError, match="block 2: the launch has blocks 0 to 0"):
        session.break_at(1, block=2)
    with pytest.raises(ck.ArgumentError, match="warp 1: a block has warps 0 to 0"):
        session.warp(1)
    with session:
        pass
    with pytest.raises(ck.ArgumentError, match="the session is closed"):
        session.run()


def test_html_has_the_line_and_the_lanes() -> None:
    session, _ = sums()
    html = session.until("tile[threadIdx.x] +=")._repr_html_()
    assert "<span class='here'>" in html
    assert "tile[threadIdx.x] += tile[threadIdx.x + s];" in html
    assert html.count("<th>lane</th>") == 1
    assert "class='new'" in html


TRANSCRIPT = """\
block 0, warp 0, lanes 0-31 in reverse at FILE:1 (begin)
->    1 __global__ void reverse(const float* x, float* y) {
(cudakit) breakpoint 1: FILE:5, when t > 69 && t < 72: y[t] = held[255 - t];
(cudakit) block 0, warp 2, lanes 0-31 in reverse at FILE:5 (breakpoint 1)
->    5     y[t] = held[255 - t];
  t = [64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 …]
(cudakit)   lanes 0-31: active, line 5
(cudakit) t / 32 = 2
(cudakit) t == 64 || t == 95 = [True False False False False False False False False False False False False \
False False False False False False False False False False False False False False False False False False True]
(cudakit) block 0, warp 2, lanes 0-31 in reverse at FILE:4 (step)
->    4     held[t] = x[t];
(cudakit) block 0, warp 2, lanes 0-31 in reverse at FILE:5 (step)
->    5     y[t] = held[255 - t];
(cudakit)   1: FILE:5, when t > 69 && t < 72
(cudakit) no command 'jump'; help lists them
(cudakit) no variable u is known here; those seen from this line are x, y, t, held
(cudakit) (cudakit) block 0, warp 0, lanes 0-31 in reverse at FILE:5 (error of block 0, thread 0)
error: reverse: ld.f32 (PTX line N, FILE:5): race: block 0, thread 0 reads held[255] in shared memory, which \
block 0, thread 255 writes at FILE:4, and nothing orders the two
->    5     y[t] = held[255 - t];
  t = [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 …]
(cudakit) """

COMMANDS = """\
break y[t] = if t > 69 && t < 72
run
info lanes
print t / 32
p t == 64 || t == 95
reverse-step
s
info breakpoints
jump 3
p u
delete
c
quit
"""


def test_a_session_in_the_terminal() -> None:
    x, y = np.arange(256, dtype="f4"), np.zeros(256, "f4")
    out = io.StringIO()
    session = ck.emulator.debug(REVERSE, ck.config(1, 256), x, y)
    first = session.where.line - 1
    Terminal(session, io.StringIO(COMMANDS), out).cmdloop()
    said = re.sub(r"0x[0-9a-f]+", "ADDRESS", out.getvalue())
    said = re.sub(r"[^\s,]*test_debug\.py:(\d+)", lambda place: f"FILE:{int(place[1]) - first}", said)
    said = re.sub(r"(?m)^(->|  ) +(\d+) (?=\S| )", lambda line: f"{line[1]} {int(line[2]) - first:4} ", said)
    said = re.sub(r"active, line (\d+)", lambda line: f"active, line {int(line[1]) - first}", said)
    said = re.sub(r"PTX line \d+", "PTX line N", re.sub(r"(?m)^  [xy] = ADDRESS\n", "", said))
    assert said == TRANSCRIPT
