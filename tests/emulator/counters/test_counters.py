"""What is counted, against what follows from the kernels by hand and from lanes looked at one by one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator.counters import requests
from cudakit.emulator.counters.tally import category_of, operations_of
from cudakit.emulator.ptx.program import Instruction

pytestmark = pytest.mark.emulator

KERNELS = """
__global__ void copy(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}
__global__ void strided(const float* x, float* y, int by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i * by];
}
__global__ void wide(const float4* x, float4* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}
__global__ void gather(const float* x, const int* at, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[at[i]];
}
template <int PAD> __global__ void transpose(const float* x, float* y, int n) {
    __shared__ float tile[32][32 + PAD];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x * 32 + threadIdx.y;
    y[row * n + column] = tile[threadIdx.x][threadIdx.y];
}
__global__ void slow_axis(const float* x, float* y, int n) {
    int row = blockIdx.x * 32 + threadIdx.x, column = blockIdx.y * 32 + threadIdx.y;
    y[column * n + row] = x[row * n + column];
}
template <typename T> __global__ void in_shared(T* y, int by) {
    __shared__ T held[1024];
    held[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = held[threadIdx.x * by];
}
__global__ void moving_bytes(unsigned char* y, int by) {
    __shared__ unsigned char held[8192];
    for (int k = threadIdx.x; k < 8192; k += 32) held[k] = k;
    __syncthreads();
    unsigned sum = 0;
    #pragma unroll 1
    for (int k = 0; k < 4; ++k) sum += held[threadIdx.x * by + k];
    y[threadIdx.x] = sum;
}
__global__ void moving_rows(const float* x, float* y, int n) {
    float sum = 0;
    #pragma unroll 1
    for (int k = 0; k < n; ++k) sum += x[threadIdx.x % 16 + threadIdx.x / 16 * 64 + k];
    y[threadIdx.x] = sum;
}
__global__ void by_blocks(const int* at, int* y) {
    __shared__ int held[1024];
    held[at[blockIdx.x] * threadIdx.x] = 1;
    __syncthreads();
    y[blockIdx.x * 32 + threadIdx.x] = held[threadIdx.x];
}
__global__ void count(const int* x, int* bins) { atomicAdd(&bins[x[blockIdx.x * blockDim.x + threadIdx.x]], 1); }
__global__ void half_of_them(float* x) {
    if (threadIdx.x % 32 < 8) x[threadIdx.x] = sqrtf(x[threadIdx.x]); else x[threadIdx.x] = 3 * x[threadIdx.x] + 1;
}
__global__ void rows_in_registers(float* x, int at) {
    float held[8];
    for (int k = 0; k < 8; ++k) held[k] = x[threadIdx.x + k];
    x[threadIdx.x] = held[at];
}
__global__ void through_a_pointer(float* x, int which) {
    __shared__ float held[32];
    held[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    volatile float* from = threadIdx.x < which ? held : x;
    x[threadIdx.x] = from[threadIdx.x];
}
__global__ void staged(const float4* x, float4* y) {
    __shared__ float4 held[32];
    unsigned at = __cvta_generic_to_shared(&held[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(x + threadIdx.x));
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    y[threadIdx.x] = held[threadIdx.x ^ 1];
}
"""
MODULE = ck.Module(KERNELS)


@pytest.fixture
def stream() -> Any:
    return ck.emulator.stream()


def counted(kernel: str, config: Any, *arguments: Any) -> Any:
    """The report of one launch."""
    stream = ck.emulator.stream()
    with ck.emulator.counters(stream) as report:
        MODULE[kernel](stream, config, *arguments)
    return report


def floats(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32)


def test_coalesced_accesses_take_four_sectors() -> None:
    report = counted("copy", ck.config(4, 64), floats(256), floats(256))
    loads, stores = report.global_.loads, report.global_.stores
    assert loads == stores
    assert (loads.requests, loads.accesses, loads.bytes, loads.sectors, loads.least_sectors) == (8, 256, 1024, 32, 32)
    assert loads.coalescing == 1.0
    assert loads.bytes_moved == 1024
    assert report.global_.requests == 16
    assert report.footprint == 2048
    assert report.active_lanes == 32.0
    assert report.advice == []


@pytest.mark.parametrize(("by", "sectors"), [(0, 1), (1, 4), (2, 8), (3, 12), (4, 16), (8, 32), (16, 32)])
def test_strided_accesses(by: int, sectors: int) -> None:
    report = counted("strided", ck.config(2, 128), floats(256 * max(by, 1)), floats(256), by)
    assert report.global_.loads.sectors == 8 * sectors
    assert report.global_.loads.least_sectors == 8 * min(sectors, 4)


@pytest.mark.parametrize("begin", [0, 1, 4, 8, 9])
def test_where_an_array_begins_counts_and_not_where_the_host_put_it(begin: int) -> None:
    for _ in range(4):
        held = np.zeros(300 + np.random.default_rng().integers(64), np.float32)
        report = counted("copy", ck.config(2, 128), held[begin : begin + 256], floats(256))
        assert report.global_.loads.sectors == 8 * (4 if begin % 8 == 0 else 5)
        assert report.global_.stores.sectors == 32


def test_vectors() -> None:
    report = counted("wide", ck.config(1, 64), floats(256), floats(256))
    assert (report.global_.loads.requests, report.global_.loads.sectors, report.global_.loads.bytes) == (2, 32, 1024)


def test_a_gather_is_counted_lane_by_lane() -> None:
    random = np.random.default_rng(3)
    at = random.integers(0, 4096, 500).astype(np.int32)
    report = counted("gather", ck.config(4, 128), floats(4096), at, floats(500), 500)
    warps = [at[first : first + 32] for first in range(0, 500, 32)]
    sectors = sum(len(set(warp * 4 // 32)) for warp in warps)
    least = sum(-(-len(set(warp)) * 4 // 32) for warp in warps)
    loads = report.global_.loads
    assert loads.sectors == sectors + -(-500 * 4 // 32)
    assert loads.least_sectors == least + -(-500 * 4 // 32)
    assert loads.requests == 2 * len(warps)
    assert [str(each) for each in report.advice][-1].endswith("are scattered over x")


@pytest.mark.parametrize(("pad", "conflicts"), [(0, 31), (1, 0), (2, 1), (4, 3)])
def test_bank_conflicts_of_a_transpose(pad: int, conflicts: int) -> None:
    x, y = floats(64 * 64).reshape(64, 64), np.zeros((64, 64), np.float32)
    report = counted(f"transpose<{pad}>", ck.config((2, 2), (32, 32)), x, y, 64)
    assert np.array_equal(y, x.T)
    warps = 4 * 32
    assert report.shared.loads.requests == report.shared.stores.requests == warps
    assert report.shared.loads.bank_conflicts == conflicts * warps
    assert report.shared.stores.bank_conflicts == 0
    assert report.shared.bank_conflicts == conflicts * warps
    assert report.shared.wavefronts == (2 + conflicts) * warps
    assert report.barrier_waits == warps
    assert report.global_.coalescing == 1.0


@pytest.mark.parametrize(
    ("dtype", "by", "wavefronts"),
    [("i4", 1, 1), ("i4", 2, 2), ("i4", 0, 1), ("i2", 1, 1), ("i2", 2, 1), ("i1", 4, 1), ("i1", 8, 2),
     ("f8", 1, 2), ("f8", 2, 4), ("f8", 3, 2), ("f8", 16, 32), ("f8", 0, 1)],
)  # fmt: skip
def test_wavefronts_by_width_and_stride(dtype: str, by: int, wavefronts: int) -> None:
    report = counted("in_shared", ck.config(1, 32), np.zeros(32, dtype), by)
    assert report.shared.loads.wavefronts == wavefronts
    assert report.shared.stores.bank_conflicts == 0


def test_bytes_that_move_within_a_word_meet_other_banks() -> None:
    report = counted("moving_bytes", ck.config(1, 32), np.zeros(32, np.uint8), 66)
    lanes = [[(0, lane, 66 * lane + k) for lane in range(32)] for k in range(4)]
    wanted = [_wavefronts(each, 1)[0] for each in lanes]
    assert len(set(wanted)) > 1
    assert report.shared.loads.wavefronts == sum(wanted)


def test_rows_that_move_within_a_sector() -> None:
    report = counted("moving_rows", ck.config(1, 32), floats(128), floats(32), 16)
    wanted = [_sectors([(0, lane, 4 * (lane % 16 + lane // 16 * 64 + k)) for lane in range(32)], 4) for k in range(16)]
    loads = report.global_.loads
    assert (loads.sectors, loads.least_sectors) == tuple(map(sum, zip(*wanted, strict=True))) == (4 * 2 + 6 * 14, 64)


def test_a_block_of_many_that_does_otherwise() -> None:
    at = np.ones(8, np.int32)
    at[3] = 2
    report = counted("by_blocks", ck.config(8, 32), at, np.zeros(256, np.int32))
    assert report.shared.stores.bank_conflicts == 1


def test_what_is_evenly_apart() -> None:
    for count in (2, 32, 33, 34, 9000):
        addresses = np.arange(count, dtype=np.uint64) * np.uint64(12)
        assert requests.evenly_apart(addresses)
        assert requests.evenly_apart(addresses[::-1])
        for place in {*range(0, count, 17), count - 1} if count > 2 else ():
            moved = addresses.copy()
            moved[place] += np.uint64(4)
            assert not requests.evenly_apart(moved)


@pytest.mark.parametrize("order", ["random", "alike", "backwards"])
def test_launches_of_many_warps(order: str) -> None:
    """More lanes than are looked at together."""
    count = 20 * 1024
    at = np.random.default_rng(1).integers(0, count, count)
    at = {"random": at, "alike": at * 0 + 5, "backwards": np.arange(count)[::-1]}[order].astype(np.int32)
    report = counted("gather", ck.config(count // 256, 256), floats(count), at, floats(count), count)
    warps = (at * 4 // 32).reshape(-1, 32)
    assert report.global_.loads.sectors == sum(len(set(warp)) for warp in warps) + 4 * len(warps)
    bins = np.zeros(count, np.int32)
    report = counted("count", ck.config(count // 256, 256), at, bins)
    lanes = [(number // 32, number % 32, 4 * int(each)) for number, each in enumerate(at)]
    distinct, rounds, sectors = _contention(lanes)
    assert (report.atomics.addresses, report.atomics.rounds, report.atomics.sectors) == (distinct, rounds, sectors)
    assert report.footprint == 32 * (len(set(at // 8)) + count // 8)


def test_atomics() -> None:
    all_alike = counted("count", ck.config(2, 64), np.zeros(128, np.int32), np.zeros(4, np.int32))
    assert (all_alike.atomics.requests, all_alike.atomics.operations) == (4, 128)
    assert (all_alike.atomics.addresses, all_alike.atomics.rounds, all_alike.atomics.contention) == (4, 128, 32.0)
    assert "reduce over the warp first" in str(all_alike.advice[0])
    spread = counted("count", ck.config(2, 64), np.arange(128, dtype=np.int32), np.zeros(128, np.int32))
    assert (spread.atomics.addresses, spread.atomics.contention) == (128, 1.0)
    assert spread.advice == []


def test_divergence() -> None:
    report = counted("half_of_them", ck.config(3, 64), floats(64))
    assert report.divergent_branches == 6
    assert 8 < report.active_lanes < 32
    assert report.kernels["half_of_them"].threads == 192
    straight = counted("copy", ck.config(3, 64), floats(192), floats(192))
    assert straight.divergent_branches == 0


def test_local_memory_lies_by_warps() -> None:
    report = counted("rows_in_registers", ck.config(1, 32), floats(64), 3)
    local = report.local
    assert (local.loads.requests, local.loads.sectors) == (1, 4)
    assert local.stores.bytes == 8 * 32 * 4
    assert local.stores.sectors == local.stores.least_sectors == 8 * 4


def test_generic_addresses_count_where_they_lead() -> None:
    report = counted("through_a_pointer", ck.config(1, 32), floats(32), 8)
    assert report.shared.loads.accesses == 8
    assert report.global_.loads.accesses == 32 + 24
    assert report.global_.loads.sectors == 4 + 3


def test_asynchronous_copies() -> None:
    report = counted("staged", ck.config(1, 32), floats(128), floats(128))
    assert report.global_.copies.sectors == 16
    assert report.shared.copies.wavefronts == 4
    assert report.shared.loads.bank_conflicts == 0
    assert report.not_counted == {}


def test_lanes_one_by_one() -> None:
    """The functions that count, on random lanes of random warps, beside loops over them."""
    random = np.random.default_rng(7)

    class Machine:
        threads, blocks = 96, 4
        lanes = threads * blocks
        warp_of = np.arange(lanes) // 32
        lane_id = np.arange(lanes, dtype=np.uint32) % 32

    for number in range(60):
        index = None if number % 3 == 0 else np.flatnonzero(random.random(Machine.lanes) < random.random())
        group = requests.Group(Machine, index)  # type: ignore[arg-type]
        if group.lanes == 0:
            continue
        size = int(random.choice([1, 2, 4, 8, 16]))
        most = int(random.choice([4, 64, 4096]))
        addresses = random.integers(0, most, group.lanes).astype(np.uint64) * np.uint64(size)
        lanes = [(int(w), int(k), int(a)) for w, k, a in zip(group.warp, group.lane, addresses, strict=True)]
        assert requests.sectors(group, addresses, size) == _sectors(lanes, size)
        if number % 5 == 0:
            addresses = addresses[np.arange(group.lanes) // 2 * 2]
            lanes = [(warp, lane, int(a)) for (warp, lane, _), a in zip(lanes, addresses, strict=True)]
        assert requests.wavefronts(group, addresses, size) == _wavefronts(lanes, size)
        assert requests.wavefronts(group, addresses, size, unites=True) == _wavefronts(lanes, size, unites=size > 4)
        assert requests.contention(group, addresses) == _contention(lanes)


def _by_warp(lanes: list[tuple[int, int, int]], parts: int = 1) -> dict[tuple[int, int], list[int]]:
    found: dict[tuple[int, int], list[int]] = {}
    for warp, lane, address in lanes:
        found.setdefault((warp, lane * parts // 32), []).append(address)
    return found


def _sectors(lanes: list[tuple[int, int, int]], size: int) -> tuple[int, int]:
    warps = _by_warp(lanes).values()
    return sum(len({a // 32 for a in warp}) for warp in warps), sum(-(-len(set(warp)) * size // 32) for warp in warps)


def _unite(lanes: list[tuple[int, int, int]], warp: int) -> bool:
    """An H200's rule, as its counters show it."""
    at = {lane: address for number, lane, address in lanes if number == warp}
    return any(all(at.get(lane ^ other, at[lane]) == at[lane] for lane in at) for other in (1, 2))


def _wavefronts(lanes: list[tuple[int, int, int]], size: int, unites: bool = False) -> tuple[int, int]:
    parts = max(1, size // 4)
    united = {warp for warp, _, _ in lanes if unites and _unite(lanes, warp)}
    taken = least = 0
    alone = [each for each in lanes if each[0] not in united]
    together = [each for each in lanes if each[0] in united]
    for part in (*_by_warp(alone, parts).values(), *_by_warp(together, parts // 2).values()):
        words = {word for a in part for word in range(a // 4, (a + size - 1) // 4 + 1)}
        taken += max(sum(word % 32 == bank for word in words) for bank in range(32))
        least += 1
    return taken, least


def _contention(lanes: list[tuple[int, int, int]]) -> tuple[int, int, int]:
    distinct = rounds = sectors = 0
    for warp in _by_warp(lanes).values():
        turns: list[set[int]] = []
        for number, address in enumerate(warp):
            turn = warp[:number].count(address)
            turns += [set()] * (turn == len(turns))
            turns[turn] = turns[turn] | {address}
        distinct, rounds = distinct + len(turns[0]), rounds + len(turns)
        sectors += sum(len({a // 32 for a in turn}) for turn in turns)
    return distinct, rounds, sectors


def test_advice_names_line_and_remedy(stream: Any) -> None:
    x, y = floats(64 * 64).reshape(64, 64), np.zeros((64, 64), np.float32)
    (slow,) = counted("slow_axis", ck.config((2, 2), (32, 32)), x, y, 64).advice
    assert slow.text == (
        "32 sectors a request where 4 suffice; threadIdx.x runs along the slow axis of x (256 bytes a step), and along "
        "the fast one of y: go by a tile in shared memory"
    )
    (upright,) = counted("slow_axis", ck.config((2, 2), (32, 32)), x, y, 64).kernels["slow_axis"].advice
    assert upright == slow
    narrow = ck.Kernel("__global__ void down(float* x, int n) { x[threadIdx.y * n] = 1; }")
    with ck.emulator.counters(stream) as report:
        narrow(stream, ck.config(1, (1, 32)), x, 64)
    assert "; neighbouring threads run along the slow axis of x" in report.advice[0].text
    source = Path(__file__).read_text().splitlines()
    assert source[slow.line - 1].strip() == "y[column * n + row] = x[row * n + column];"
    assert Path(slow.file) == Path(__file__)
    (conflict,) = counted("transpose<0>", ck.config((2, 2), (32, 32)), x, y, 64).advice
    assert "32 wavefronts of shared memory a request where 1 would do" in conflict.text
    assert conflict.text.endswith("pad the rows by one word")
    (apart,) = counted("strided", ck.config(1, 64), floats(256), floats(64), 4).advice
    assert "neighbouring threads access x 16 bytes apart" in apart.text
    (shifted,) = counted("copy", ck.config(1, 64), floats(100)[1:65], floats(64)).advice
    assert "5 sectors a request where 4 suffice: x begins 4 bytes into a sector" in shifted.text
    (idle,) = counted("copy", ck.config(2, 40), floats(80), floats(80)).advice
    assert "leave 24 of 32 lanes" in str(idle)


def test_kinds_and_operations() -> None:
    report = counted("half_of_them", ck.config(1, 32), floats(32))
    # fma for 24 threads, a root for 8.
    assert report.flops == {"single": 24 * 2 + 8}
    assert report.kinds["special"] == 1
    for text, kind, operations in (
        ("fma.rn.f64", "double", ("double", 2)),
        ("fma.rn.f16x2", "half", ("half", 4)),
        ("add.s32", "integer", (None, 0)),
        ("div.s32", "integer", (None, 0)),
        ("div.rn.f32", "special", ("single", 1)),
        ("max.f32", "single", (None, 0)),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "tensor", ("tensor", 2 * 16 * 8 * 16 / 32)),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "tensor", ("tensor", 2 * 64 * 8 * 16 / 128)),
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16", "tensor", (None, 0)),
    ):
        opcode, *modifiers = text.split(".")
        given = Instruction(opcode, tuple(modifiers), (), None, 1, None)
        assert (category_of(given), operations_of(given)) == (kind, operations), text


def test_roofline() -> None:
    report = counted("half_of_them", ck.config(1, 32), floats(32))
    roof = report.roofline("a100")
    assert roof.intensity == pytest.approx(56 / (8 * 32))
    assert roof.best_intensity == pytest.approx(56 / 128)
    assert roof.limit == "memory"
    assert roof.share == pytest.approx(roof.best_intensity * 2039 / 19500)
    with pytest.raises(ck.ArgumentError, match=r"unknown card 'B12'; expected one of H200, H100"):
        report.roofline("B12")


def test_what_is_shown() -> None:
    x, y = floats(64 * 64).reshape(64, 64), np.zeros((64, 64), np.float32)
    report = counted("transpose<0>", ck.config((2, 2), (32, 32)), x, y, 64)
    heads, row, advice = str(report).splitlines()
    assert heads.split()[:3] == ["kernel", "launches", "instructions"]
    assert row.split()[:2] == ["transpose<0>", "1"]
    assert "pad the rows" in advice
    assert repr(report).startswith("<Report of 1 kernel, ")
    plain, coloured = report.annotated(colour=False), report.annotated(colour=True)
    assert "\x1b" not in plain
    assert re.search(r"\x1b\[31m.*3,968 conflicts.*tile\[threadIdx\.x\]\[threadIdx\.y\];\x1b\[0m", coloured)
    assert plain.splitlines()[0] == __file__
    found = json.loads(report.to_json())
    (kernel,) = found["kernels"]
    assert kernel["shared"]["bank_conflicts"] == 3968
    assert kernel["global"]["loads"]["sectors"] == 512
    assert sum(line["instructions"] for line in kernel["lines"]) == kernel["instructions"]
    assert found["advice"][0]["line"] > 0


def test_which_streams_are_counted(stream: Any) -> None:
    x, y = floats(64), floats(64)
    other = ck.emulator.stream()
    with ck.emulator.counters(stream) as one, ck.emulator.counters() as everything:
        MODULE["copy"](stream, ck.config(1, 64), x, y)
        assert one.global_.requests == 4, "while the block runs"
        MODULE["copy"](other, ck.config(1, 64), x, y)
        MODULE["copy"](stream.alike(), ck.config(1, 64), x, y)
    MODULE["copy"](stream, ck.config(1, 64), x, y)
    assert one.kernels["copy"].launches == 2
    assert everything.kernels["copy"].launches == 3
    assert one.global_.requests == 8
    assert stream.observers == ()
    with pytest.raises(ck.ArgumentError, match="stream is the emulator's, got int"), ck.emulator.counters(3):  # type: ignore[arg-type]
        pass
    with pytest.raises(AttributeError, match="its counts are instructions"):
        one.sectors  # type: ignore[attr-defined]


def test_library_calls_and_graphs_are_counted(stream: Any) -> None:
    with ck.using(stream), ck.emulator.counters(stream) as report:
        assert ck.ops.sum(floats(1000)) == 499500
    assert report.global_.loads.bytes >= 4000
    x, y = floats(64), floats(64)
    with ck.capture(stream) as graph:
        MODULE["copy"](stream, ck.config(1, 64), x, y)
    with ck.emulator.counters(stream) as report:
        graph.launch(stream)
    assert report.kernels["copy"].launches == 1


def test_ptx_has_lines_of_its_own(stream: Any) -> None:
    text = ck.Kernel('extern "C" __global__ void f(float* x) { x[threadIdx.x] *= 2; }').ptx(arch="sm_90")
    kernel = ck.Kernel.from_ptx(text, "f")
    with ck.emulator.counters(stream) as report:
        kernel(stream, ck.config(1, 32), floats(32))
    store = next(line for line in report.lines if line.text.startswith("st.global"))
    assert store.file == "PTX of f"
    assert text.splitlines()[store.line - 1].strip().startswith("st.global")


def test_kernels_launched_by_kernels_are_counted(stream: Any) -> None:
    kernel = ck.Kernel(
        "__global__ void child(int* x, int more) { x[threadIdx.x] += 1; if (more) child<<<1, 1>>>(x, more - 1); }\n"
        "__global__ void parent(int* x) { child<<<1, 32>>>(x, 0); child<<<1, 1>>>(x, 3); }",
        "parent",
    )
    with ck.emulator.counters(stream) as report:
        kernel(stream, ck.config(1, 1), np.zeros(32, np.int32))
    launches = {name: kernel.launches for name, kernel in report.kernels.items()}
    assert launches == {"parent": 1, "child, launched by parent": 2, "child, launched by child": 3}
    assert report.global_.stores.sectors >= 4
