"""Tile kernels as kernels: signature, compile, launch, what they take for granted, errors; run without a GPU."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.places import to_host
from support.tiers import slow
from support.tiles import HEAD, VIEW, Together, kernel, needs_compiler, needs_tiles, why_no_assembler

import cudakit as ck
from cudakit.jit.signature.reader import parse

ADD = f"""{HEAD}{VIEW}
template <typename T, int TILE>
__tile_global__ void add(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int n) {{
    int i = ct::bid().x;
    tiles_of<TILE>(c, n).store_masked(
        tiles_of<TILE>(a, n).load_masked(i) + tiles_of<TILE>(b, n).load_masked(i), i);
}}
"""
MM = f"""{HEAD}
template <typename T, int BM, int BN, int BK>
[[cutile::hint(900, num_worker_warps_per_cta=8)]]
__tile_global__ void mm(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int m, int n, int k) {{
    a = ct::assume_aligned(a, 16_ic);
    b = ct::assume_aligned(b, 16_ic);
    n = ct::assume_bounded_below(ct::assume_divisible(n, 8_ic), 0_ic);
    k = ct::assume_bounded_below(ct::assume_divisible(k, 8_ic), 0_ic);
    auto left = ct::partition_view{{ct::tensor_span{{a, ct::extents{{m, k}}}}, ct::shape<BM, BK>{{}}}};
    auto right = ct::partition_view{{ct::tensor_span{{b, ct::extents{{k, n}}}}, ct::shape<BK, BN>{{}}}};
    auto out = ct::partition_view{{ct::tensor_span{{c, ct::extents{{m, n}}}}, ct::shape<BM, BN>{{}}}};
    int row = ct::bid().y, column = ct::bid().x;
    auto sum = ct::zeros<ct::tile<float, ct::shape<BM, BN>>>();
    for (auto i : ct::irange(0, (k + BK - 1) / BK))
        sum = ct::mma(left.load_masked(row, i), right.load_masked(i, column), sum);
    out.store_masked(ct::element_cast<T>(sum), row, column);
}}
"""


@pytest.fixture(autouse=True)
def _tiles(request: pytest.FixtureRequest) -> None:
    if "parse" not in request.node.name:
        needs_tiles()


def test_parse() -> None:
    text = "namespace a { template <int N> [[cutile::hint(0, x=1)]] __tile_global__ void k(const float* p, int n); }\n"
    declared = parse(text + "__global__ void s(float* x) {}")
    assert [(each.name, each.is_tile) for each in declared.kernels] == [("a::k", True), ("s", False)]
    assert declared.has_tiles
    assert declared == type(declared).from_json(declared.to_json())


@pytest.mark.parametrize("dtype", ["f4", "f2", "i4", *slow("f8", "i8", "u2")])
def test_types_are_deduced(stream: Any, xp: Any, dtype: str) -> None:
    n = 1000
    a = xp.arange(n).astype(dtype)
    b, c = a[::-1].copy(), xp.zeros(n, dtype)
    add = ck.Kernel(ADD)["TILE":64]
    for _ in range(2):
        add(stream, ck.cover(n, tile=64), a, b, c, n)
    assert (to_host(c) == to_host(a + b)).all()


@pytest.mark.parametrize("shape", [(64, 64, 32), (80, 72, 40), (1, 8, 8), (200, 136, 256)])
def test_products(stream: Any, xp: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(0)
    host = [rng.standard_normal(size).astype(np.float16) for size in ((m, k), (k, n))]
    a, b, c = (xp.asarray(each) for each in (*host, np.zeros((m, n), np.float16)))
    ck.Kernel(MM)["BM":64, "BN":64, "BK":32](stream, ck.cover((m, n), tile=(64, 64)), a, b, c, m, n, k)
    want = host[0].astype(float) @ host[1].astype(float)
    # float16 keeps 11 bits; the sums have 24.
    assert np.abs(to_host(c) - want).max() <= 2**-10 * np.abs(want).max()


def test_what_is_taken_for_granted_is_checked(stream: Any, xp: Any) -> None:
    mm, grid = ck.Kernel(MM)["BM":64, "BN":64, "BK":32], ck.cover((64, 64), tile=(64, 64))
    flat = xp.zeros(64 * 64 + 8, np.float16)
    a = flat[:-8].reshape(64, 64)
    c = xp.zeros((64, 64), np.float16)
    mm(stream, grid, a, a, c, 64, 64, 64)
    plan = mm.plan(stream, grid, a, a, c, 64, 64, 64)
    plan()
    for call in (lambda *given: mm(stream, grid, *given), lambda *given: mm.plan(stream, grid, *given)):
        with pytest.raises(ck.ArgumentError, match=r"parameter k \(int\) is 60: .* a multiple of 8"):
            call(a, a, c, 64, 64, 60)
        with pytest.raises(ck.ArgumentError, match=r"parameter n \(int\) is -8: .* at least 0"):
            call(a, a, c, 64, -8, 64)
        with pytest.raises(ck.ArgumentError, match=r"parameter b .* address must be a multiple of 16 bytes"):
            call(a, flat[1:-7], c, 64, 64, 64)
    mm(stream, grid, a, flat[8:], c, 64, 64, 64)


def test_configurations(stream: Any, xp: Any) -> None:
    add, x = ck.Kernel(ADD)["TILE":64], xp.ones(100, "f4")
    for config in (ck.config(2), ck.config((2, 1)), ck.cover(100, tile=64), ck.cover((100,), tile=(64,))):
        c = xp.zeros(100, "f4")
        add(stream, config, x, x, c, 100)
        assert (to_host(c) == 2).all()
    for config, message in (
        (ck.config(2, 64), "no block of threads, got"),
        (ck.config(2, shared_bytes=64), "the compiler's choice"),
        (ck.cover(100), "covers a shape with tiles"),
    ):
        with pytest.raises(ck.LaunchError, match=message):
            add(stream, config, x, x, x, 100)
    scale = ck.Kernel("__global__ void scale(float* x) { x[threadIdx.x] *= 2; }")
    with pytest.raises(ck.LaunchError, match="needs the number of threads"):
        scale(stream, ck.config(1), x)
    with pytest.raises(ck.LaunchError, match="for tile kernels"):
        scale(stream, ck.cover(100, tile=10), x)
    for wrong in ({"tile": (1, 2)}, {"tile": 0}, {"tile": 1.5}, {"tile": 4, "block": 4}):
        with pytest.raises(ck.LaunchError):
            ck.cover(10, **wrong)  # type: ignore[arg-type]


def test_beside_kernels_of_threads(stream: Any, xp: Any) -> None:
    needs_compiler()
    module = ck.Module(
        ADD + "__device__ int count; __global__ void tell(float* x) { atomicAdd(&count, 1); x[threadIdx.x] += 1; }"
    )
    x = xp.zeros(64, "f4")
    module["tell"](stream, ck.config(1, 2), x)
    module["add<float, 64>"](stream, ck.config(1), x, x, x, 64)
    module["tell"](stream, ck.config(1, 2), x)
    assert int(module.globals["count"]) == 4
    assert to_host(x)[0] == 3


def test_graphs_plans_and_pickles(stream: Any, xp: Any) -> None:
    add = pickle.loads(pickle.dumps(ck.Kernel(ADD)["TILE":64]))
    x, c = xp.ones(100, "f4"), xp.zeros(100, "f4")
    with ck.capture(stream) as graph:
        add(stream, ck.cover(100, tile=64), x, c, c, 100)
    for _ in range(3):
        graph(stream) if callable(graph) else graph.launch(stream)
    stream.sync()
    assert (to_host(c) == 3).all()
    plan = add.plan(stream, ck.cover(100, tile=64), x, c, c, 100)
    plan()
    stream.sync()
    assert (to_host(c) == 4).all()


# ── errors of the compile ──


def test_what_would_trap_is_an_error_with_its_line() -> None:
    needs_compiler()
    with pytest.raises(ck.CompileError, match=r":\d+: error: Cannot invoke non-tile function 'sinf'"):
        kernel("x[0] = sinf(x[1]);").compile(arch="sm_90", target="tileir")


def test_what_the_compiler_prints_is_in_the_error(capfd: pytest.CaptureFixture[str]) -> None:
    needs_compiler()
    recursive = "__tile__ int f(int n) { return n < 2 ? n : f(n - 1); }\n__tile_global__ void k(int* x) { *x = f(*x); }"
    with pytest.raises(ck.CompileError, match=r"non-inlined call to '_Z1fi'"):
        ck.Kernel(HEAD + recursive).compile(arch="sm_90", target="tileir")
    assert capfd.readouterr().err == ""


def test_extents_are_powers_of_two() -> None:
    needs_compiler()
    with pytest.raises(ck.CompileError, match="hint: a tile's extents are powers of two"):
        kernel("tiles_of<192>(x, n).load_masked(0);").compile(arch="sm_90", target="tileir")


def test_structs_are_no_parameters() -> None:
    needs_compiler()
    with pytest.raises(ck.CompileError, match="unsupported type"):
        kernel("", "S s", "struct S { int a; };").compile(arch="sm_90", target="tileir")


# ── errors of a run on the emulator ──


WRONG = [
    ("tiles_of<64>(x, n).store(tiles_of<64>(x, n).load(0), 1);", "elements 64 to 127 of dimension 0, which has 100"),
    ("x[100] = 1;", "element 100 is past the end"),
    ("x[-1] = 1;", "element -1 is before the beginning"),
    ("n = ct::assume_divisible(n / 7, 8_ic); x[n] = 1;", "a promise is broken: a multiple of 8, and it is 14"),
    ("assert(n == 3);", "assertion failed"),
    ("x[0] = 5 / (n - 100);", "divided by 0"),
    ("while (n == 100) x[0] = 2;", "the budget of 500 steps"),
]
together = Together()
for one in WRONG:
    together.declare(f"\n{one[0]}")


@pytest.mark.emulator
@pytest.mark.parametrize(("body", "message"), WRONG)
def test_errors_name_line_and_block(body: str, message: str) -> None:
    wrong = together(f"\n{body}")
    x = np.zeros(100, "f4")
    with pytest.raises(ck.EmulationError, match=message) as caught:
        wrong(ck.emulator.stream(step_budget=500), ck.config(1), x, 100)
    line = next(k for k, text in enumerate(Path(__file__).read_text().splitlines(), 1) if body in text)
    assert "block (0, 0, 0)" in str(caught.value)
    assert line > 0


@pytest.mark.emulator
def test_printf(capsys: pytest.CaptureFixture[str]) -> None:
    kernel('printf("%d: %.1f\\n", n, tiles_of<4>(x, n).load_masked(0));')(
        ck.emulator.stream(), ck.config(1), np.arange(4, dtype="f4"), 4
    )
    assert "4: [0.0, 1.0, 2.0, 3.0]" in capsys.readouterr().out


# ── machine code ──


@pytest.mark.slow
def test_assembled_for_every_arch(tmp_path: Path) -> None:
    if why := why_no_assembler():
        pytest.skip(why)
    add = ck.Kernel(ADD, options=ck.CompileOptions(cache=tmp_path))["float", 64]
    for arch in ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120"):
        assert add.compile(arch=arch, target="cubin").code.startswith(b"\x7fELF")
    with pytest.raises(ck.CompileError, match="sm_80 and later"):
        add.compile(arch="sm_75", target="cubin")


def test_bfloat16(stream: Any, xp: Any) -> None:
    if xp is not np:
        pytest.skip("CuPy has no bfloat16")
    a = np.arange(64).reshape(8, 8).astype(ml_dtypes.bfloat16)
    c = np.zeros((8, 8), ml_dtypes.bfloat16)
    ck.Kernel(MM)["BM":16, "BN":16, "BK":16](stream, ck.config(1), a, a, c, 8, 8, 8)
    np.testing.assert_array_equal(c, (a.astype("f4") @ a.astype("f4")).astype(ml_dtypes.bfloat16))


@pytest.mark.slow
def test_explain(tmp_path: Path) -> None:
    if why := why_no_assembler():
        pytest.skip(why)
    mm = ck.Kernel(MM, options=ck.CompileOptions(cache=tmp_path))
    found = mm["__nv_bfloat16", 128, 128, 64].explain(arch="sm_90")
    lines = MM.splitlines()
    told = {lines[each.line - 1].split("=")[0].strip(): each.what for each in found.remarks}
    assert "Tensor-core" in told["sum"]
    text = f"{HEAD}__tile_global__ void k(int* x) {{ *x = 1; }}"
    (only,) = ck.Kernel(text, options=ck.CompileOptions(cache=tmp_path)).explain(arch="sm_90").remarks or (None,)
    assert only is None or "/<kernel text>" not in only.file
    assert (found.spill_bytes, found.registers > 100) == (0, True)
    with pytest.warns(ck.CompileWarning, match="bytes of registers a thread spilled"):
        spilled = mm["__nv_bfloat16", 256, 256, 64].explain(arch="sm_90")
    assert "advice: registers are spilled" in str(spilled)
    plain = ck.Kernel("__global__ void k(float* x, int i) { x[0] = i; }").explain(arch="sm_90")
    assert plain.registers > 0
    assert not plain.remarks
