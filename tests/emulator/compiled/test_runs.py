"""Rows of threads that run at once leave the same bytes, and fail in the same words, as threads one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.machines import agreed, failed
from support.tiers import thinned

import cudakit as ck

kernel = pytest.importorskip("cudakit.emulator.compiled.kernel", reason="the compiled machine needs llvmlite")
native = pytest.importorskip("cudakit.emulator.compiled.native")
pytestmark = [pytest.mark.emulator, pytest.mark.parametrize("code", ["best"], indirect=True)]

SOURCE = Path(__file__).with_name("runs.cuh")


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The IR of each kernel, which is written anew."""
    written: list[str] = []
    make = kernel.make

    def made(*arguments: Any) -> Any:
        ir = make(*arguments)
        written.append(ir.text)
        return ir

    monkeypatch.setattr(kernel, "make", made)
    monkeypatch.setattr(native, "_stored", lambda *_: None)
    return written


def ints(count: int) -> np.ndarray:
    return np.arange(-7, count - 7, dtype=np.int32) * 31


#: Of each kernel: whether its rows run at once, and launches: blocks, block, arguments.
def cases(name: str) -> Iterator[tuple[Any, Any, list[Any]]]:
    lines = [(70, 32), (3, 256), (1, 96), (2, 33), (65, 64)]
    x, y = ints(5000), np.zeros(5000, np.int32)
    if name == "inner":
        for h, w, block in ((9, 70, (32, 8)), (10, 2300, (32, 4)), (5, 64, (16, 2)), (3, 6, (32, 8)), (17, 40, (8, 8))):
            image = np.random.default_rng(h).random((h, w), np.float32)
            yield (-(-w // block[0]), -(-h // block[1])), block, [np.zeros_like(image), image, np.int32(h), np.int32(w)]
    for grid, block in lines:
        threads = grid * block
        if name in ("behind", "without", "own", "some", "blocks"):
            for n in {0, 1, 31, 33, threads - 3, threads - 40}:
                most = np.int32(n) if name != "behind" else np.uint32(n)
                yield grid, block, [y[:threads].copy(), x[:threads], most]
        if name == "wrapped":
            for start in (0, 1 << 31, 2**32 - 70, 2**32 - 1):
                yield grid, block, [y[:threads].copy(), x[:threads], np.uint32(start), np.uint32(threads - 9)]
        if name == "large":
            for n in (0, 1, threads - 1, threads):
                yield grid, block, [np.zeros(threads, np.int64), x[:threads], np.uint64(n)]
        if name == "between":
            for first, last in ((0, threads), (5, 70), (-9, 0), (70, 5), (40, 40), (-(2**31), 2**31 - 1)):
                yield grid, block, [x[:threads].copy(), np.int32(first), np.int32(last), True]
            yield grid, block, [x[:threads].copy(), np.int32(0), np.int32(threads), False]
        if name == "exact":
            yield grid, block, [np.zeros(threads, np.float32), x[:threads].astype(np.float32)]
        if name == "fours":
            for n in (threads, threads - 5):
                values = np.random.default_rng(n).random((n, 4), np.float32)
                yield grid, block, [np.zeros_like(values), values, np.int32(n)]
        if name == "octets":
            for n in (threads, threads - 7, 5):
                yield grid, block, [x[:threads].astype(np.uint8), y[:threads].astype(np.uint8) + 9, np.int32(n)]
        if name == "otherwise":
            yield grid, block, [y[:40].copy(), y[: threads - 40].copy(), np.int32(40)]


RUNS = ("inner", "behind", "wrapped", "large", "between", "exact", "fours", "octets")
QUICK = ("inner", "wrapped", "large", "between", "otherwise", "own")


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in (*RUNS, "otherwise", "own", "without", "some", "blocks")
    ],
)
def test_rows_leave_what_threads_leave(name: str, texts: list[str]) -> None:
    function = ck.Kernel.from_file(SOURCE, name)
    for grid, block, arguments in cases(name):
        agreed(lambda: function, ck.config(grid, block), *arguments)
    whole_vectors = [text for text in texts if "vectors:" in text]
    assert whole_vectors
    assert any("row.done:" in text for text in whole_vectors) == (name in RUNS)


@pytest.mark.slow
@pytest.mark.parametrize("gathers", [True, False])
def test_rows_on_processors_with_fewer_masks(gathers: bool, texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The last vector of a row has a mask."""
    here = native.processor()
    if gathers and not (here.masks or here.gathers):
        pytest.skip("the processor has no AVX2")
    monkeypatch.setattr(native, "processor", lambda: here._replace(native=8, masks=False, gathers=gathers))
    for name in ("inner", "large", "fours", "octets"):
        test_rows_leave_what_threads_leave(name, texts)


@pytest.mark.parametrize("short", thinned([1, 40, 100, 300], 1))
def test_the_first_thread_outside_is_named(short: int) -> None:
    """The row is not run where its last thread is outside, and threads before the first such one have run."""
    x, n = ints(400), np.int32(400)
    function = ck.Kernel.from_file(SOURCE, "large")
    said = failed(lambda: function, ck.config(7, 64), np.zeros(400 - short, np.int64), x, np.uint64(n))
    assert "large" in said


def test_a_block_of_an_earlier_row_is_named_first() -> None:
    """A later row of the first block and the first row of a later block are both outside."""
    image, small = np.ones((16, 200), np.float32), np.ones(9 * 200, np.float32)
    function = ck.Kernel.from_file(SOURCE, "inner")
    said = failed(lambda: function, ck.config((7, 2), (32, 8)), image, small, np.int32(16), np.int32(200))
    assert "inner" in said


def test_what_rows_touch_is_noted() -> None:
    """Exactly the elements before the last thread's: the next one is another stream's, and this one races."""
    y, x = np.zeros(300, np.int64), ints(300)
    function = ck.Kernel.from_file(SOURCE, "large")
    with ck.hazards.manual():
        first, second = (ck.emulator.stream(machine="compiled") for _ in "12")
        function(first, ck.config(5, 64), y, x, np.uint64(290))
        function(second, ck.config(1, 32), y[290:], x, np.uint64(10))
        with pytest.raises(ck.EmulationError, match=r"\(element 289\)"):
            function(second, ck.config(1, 32), y[289:], x, np.uint64(1))
