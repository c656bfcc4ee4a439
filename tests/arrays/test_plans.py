"""Launches of reductions and scans: which way they go, over how many blocks, with how much memory.

`plans.txt` has a line of each. It changes where the way to run is changed on purpose: measure then.
``PYTHONPATH=tests python tests/arrays/test_plans.py`` writes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import cudakit as ck
from cudakit.arrays import plans
from cudakit.arrays.plans import DIRECT, PACKED, RAW, Array, ReductionTask, ScanTask, Writer, array_of, backward
from cudakit.emulator.ready import limits_of

pytestmark = pytest.mark.emulator
FILE = Path(__file__).with_name("plans.txt")
PAIR = np.dtype([("a", "f4"), ("b", "f4")])


class View(NamedTuple):
    """How an array lies: dtype, shape of its memory, and the view of that."""

    dtype: Any
    memory: tuple[int, ...]
    of: Any = ...
    transposed: tuple[int, ...] = ()


def seen(view: View | None, shape: tuple[int, ...]) -> Array | None:
    if view is None:
        return None
    dtype = np.dtype(view.dtype)
    whole = np.lib.stride_tricks.as_strided(
        np.zeros(1, dtype),
        view.memory,
        [int(np.prod(view.memory[d + 1 :])) * dtype.itemsize for d in range(len(view.memory))],
    )
    made = whole[view.of]
    made = made.transpose(view.transposed) if view.transposed else made
    return array_of("op", (made.dtype, made.shape, made.strides), shape)


def words(launch: Any) -> str:
    grid, block, shared, cluster, cooperative, programmatic = launch.config
    assert cluster is None
    assert not programmatic
    shape = "×".join(map(str, grid)), "×".join(map(str, block))
    layout = {name: launch.layout[name].tolist() for name in launch.layout.dtype.names}
    numbers = "; ".join(f"{name} {value}" for name, value in layout.items())
    size = f"{shape[0]} of {shape[1]}, {shared}{' together' * cooperative}"
    return f"{launch.how} | {size} | {launch.scratch_bytes} | {numbers}"


#: Arrays; shape; axes; state bytes; then more of the task, and whether it is in order.
REDUCTIONS: dict[str, tuple[Any, ...]] = {
    "all": ([View("f4", (1 << 22,))], (1 << 22,), (0,), 4),
    "all of little": ([View("f4", (1000,))], (1000,), (0,), 4),
    "all of some": ([View("f4", (100_000,))], (100_000,), (0,), 4),
    "all of large states": ([View("f4", (1 << 24,))], (1 << 24,), (0,), 16),
    "all of bytes": ([View("u1", (1 << 24,))], (1 << 24,), (0,), 8),
    "all of structs": ([View(PAIR, (1 << 20,))], (1 << 20,), (0,), 8),
    "all, every second": ([View("f4", (1 << 20,), np.s_[::2])], (1 << 19,), (0,), 4),
    "all, backwards": ([View("f4", (1 << 20,), np.s_[::-1])], (1 << 20,), (0,), 4),
    "all of several": ([View("f4", (1 << 22,)), View("f8", (1 << 22,)), None], (1 << 22,), (0,), 8),
    "all of nine": ([View("f4", (1 << 20,))] * 9, (1 << 20,), (0,), 8),
    "all of two, eight loads": ([View("f4", (1 << 22,))] * 2, (1 << 22,), (0,), 8, {"loads": 8}),
    "no elements": ([View("f4", (0,))], (0,), (0,), 4),
    "no axes": ([View("f4", (1000,))], (1000,), (), 4),
    "no axes of a view": ([View("f4", (30, 50), np.s_[::2, ::2])], (15, 25), (), 4),
    "one number": ([View("f4", (1,))], (1,), (0,), 4),
    "rows": ([View("f4", (4096, 4096))], (4096, 4096), (1,), 4),
    "few long rows": ([View("f4", (8, 1 << 20))], (8, 1 << 20), (1,), 4),
    "short rows": ([View("f4", (100_000, 32))], (100_000, 32), (1,), 4),
    "odd rows": ([View("f4", (1000, 63))], (1000, 63), (1,), 4),
    "odd long rows": ([View("f2", (1000, 4099))], (1000, 4099), (1,), 4),
    "rows of two and a bit": ([View("f4", (1000, 258))], (1000, 258), (1,), 4),
    "rows apart": ([View("f4", (1000, 300), np.s_[:, :256])], (1000, 256), (1,), 4),
    "rows of several that lie otherwise": (
        ([View("f4", (1000, 300), np.s_[:, :256]), View("f4", (1000, 258), np.s_[:, :256])], (1000, 256), (1,), 4)
    ),
    "rows of one that is spread": ([View("f4", (1000, 1)), View("f4", (1000, 512))], (1000, 512), (1,), 4),
    "rows, blocks of 128": ([View("f4", (4096, 4096))], (4096, 4096), (1,), 4, {"block": 128}),
    "short rows, blocks of 64": ([View("f4", (5000, 24))], (5000, 24), (1,), 4, {"block": 64}),
    "rows of few elements": ([View("f8", (3000, 3))], (3000, 3), (1,), 8),
    "more rows than tickets": ([View("f4", (1025, 40_000))], (1025, 40_000), (1,), 4),
    "as many rows as tickets": ([View("f4", (1024, 40_000))], (1024, 40_000), (1,), 4),
    "columns": ([View("f4", (4096, 4096))], (4096, 4096), (0,), 4),
    "few columns": ([View("f4", (1 << 20, 5))], (1 << 20, 5), (0,), 4),
    "columns of bytes": ([View("u1", (3000, 6400))], (3000, 6400), (0,), 8),
    "columns of doubles": ([View("f8", (3000, 640))], (3000, 640), (0,), 8),
    "odd columns": ([View("f4", (3000, 641))], (3000, 641), (0,), 4),
    "columns of large states": ([View("f4", (3000, 640))], (3000, 640), (0,), 48),
    "columns of larger states": ([View("f4", (3000, 640))], (3000, 640), (0,), 72),
    "columns in the middle": ([View("f4", (7, 300, 90))], (7, 300, 90), (1,), 4),
    "many sets of columns": ([View("f4", (2000, 5, 64))], (2000, 5, 64), (1,), 4),
    "columns, blocks of 96": ([View("f4", (4096, 640))], (4096, 640), (0,), 4, {"block": 96}),
    "columns of several": ([View("f4", (400, 640)), View("f4", (1, 640)), None], (400, 640), (0,), 4),
    "columns of no length": ([View("f4", (0, 640))], (0, 640), (0,), 4),
    "columns of a part": ([View("f4", (400, 800), np.s_[:, 3:643])], (400, 640), (0,), 4),
    "outer and inner": ([View("f4", (9, 300, 40))], (9, 300, 40), (0, 2), 4),
    "outer and inner, in order": ([View("f4", (9, 300, 40))], (9, 300, 40), (0, 2), 4, {}, True),
    "transposed": ([View("f4", (300, 40, 9), ..., (2, 1, 0))], (9, 40, 300), (0, 1), 4),
    "transposed, in order": ([View("f4", (300, 40, 9), ..., (2, 1, 0))], (9, 40, 300), (0, 1), 4, {}, True),
    "all, transposed, in order": ([View("f4", (300, 400), ..., (1, 0))], (400, 300), (0, 1), 4, {}, True),
    "all, transposed": ([View("f4", (300, 400), ..., (1, 0))], (400, 300), (0, 1), 4),
    "many results apart": ([View("f4", (3, 90_000, 2), np.s_[:, ::2])], (3, 45_000, 2), (0, 2), 4),
    "many results of neighbours": (
        [View("f4", (3, 140_000, 4), np.s_[..., ::3], (0, 2, 1))],
        (3, 2, 140_000),
        (0, 1),
        4,
    ),
}
#: Rows and their length.
SEGMENTS: dict[str, tuple[Any, ...]] = {
    "segments": ([View("f4", (1 << 20,))], 1000, 1 << 20, 4),
    "few segments": ([View("f4", (1 << 20,)), View("f4", (1 << 20,))], 3, 1 << 20, 8),
    "segments of steps": ([View("f4", (1 << 20,), np.s_[::2])], 1000, 1 << 19, 4),
    "one segment": ([View("f8", (100,))], 1, 100, 8),
}
#: Arrays that are read; what is written; shape; axis; item bytes; more of the task.
SCANS: dict[str, tuple[Any, ...]] = {
    "a line": ([View("f4", (1 << 22,))], [("f4", PACKED)], (1 << 22,), 0, 4),
    "a short line": ([View("f4", (1000,))], [("f4", PACKED)], (1000,), 0, 4),
    "a line of one": ([View("f4", (1,))], [("f4", PACKED)], (1,), 0, 4),
    "a line of bytes": ([View("u1", (1 << 22,))], [("i8", PACKED)], (1 << 22,), 0, 8),
    "a line of halves": ([View("f2", (1 << 22,))], [("f2", PACKED)], (1 << 22,), 0, 4),
    "a line of doubles": ([View("f8", (1 << 22,))], [("f8", DIRECT)], (1 << 22,), 0, 8),
    "a line of complex": ([View("c16", (1 << 22,))], [("c16", PACKED)], (1 << 22,), 0, 16),
    "a line of structs": ([View(PAIR, (1 << 20,))], [("f4", PACKED)], (1 << 20,), 0, 8),
    "a line of threes": ([View("V3", (1 << 20,))], [("f4", PACKED)], (1 << 20,), 0, 8),
    "a line of 33 bytes": ([View("V33", (1 << 20,))], [("f4", PACKED)], (1 << 20,), 0, 8),
    "a line of 32 bytes": ([View("V32", (1 << 20,))], [("f4", PACKED)], (1 << 20,), 0, 8),
    "a line of large items": ([View("f4", (1 << 20,))], [("f4", PACKED)], (1 << 20,), 0, 128),
    "a line of items of 40 bytes": ([View("f2", (1 << 20,))], [("f4", PACKED)], (1 << 20,), 0, 40),
    "a line of several": (
        ([View("f4", (1 << 20,)), View("i2", (1 << 20,)), None], [("f4", PACKED), ("f8", DIRECT)], (1 << 20,), 0, 12)
    ),
    "a raw output": ([View("f4", (1 << 20,))], [(None, RAW)], (1 << 20,), 0, 4),
    "nothing read": ([None], [("f4", PACKED)], (1 << 20,), 0, 4),
    "a line with keys": ([View("f4", (1 << 22,))], [("f4", PACKED)], (1 << 22,), 0, 8, {"keys": "i4"}),
    "a line with keys of bytes": ([View("f4", (1 << 22,))], [("f4", PACKED)], (1 << 22,), 0, 8, {"keys": "u1"}),
    "every third": ([View("f4", (1 << 20,), np.s_[::3])], [("f4", PACKED)], (349_526,), 0, 4),
    "one for all": ([View("f4", (1,)), View("f4", (1 << 20,))], [("f4", PACKED)], (1 << 20,), 0, 4),
    "a line, blocks of 256": ([View("f4", (1 << 22,))], [("f4", PACKED)], (1 << 22,), 0, 4, {"block": 256}),
    "a line, blocks of 224": ([View("f4", (1 << 22,))], [("f4", PACKED)], (1 << 22,), 0, 4, {"block": 224}),
    "a line, blocks of 128": ([View("f4", (1 << 22,))], [("f4", PACKED)], (1 << 22,), 0, 4, {"block": 128}),
    "few lines": ([View("f4", (4, 1 << 20))], [("f4", PACKED)], (4, 1 << 20), 1, 4),
    "half as many lines as blocks": ([View("f4", (66, 1 << 16))], [("f4", PACKED)], (66, 1 << 16), 1, 4),
    "one more": ([View("f4", (67, 1 << 16))], [("f4", PACKED)], (67, 1 << 16), 1, 4),
    "rows": ([View("f4", (4096, 4096))], [("f4", PACKED)], (4096, 4096), 1, 4),
    "short rows": ([View("f4", (4096, 100))], [("f4", PACKED)], (4096, 100), 1, 4),
    "shorter rows": ([View("f4", (4096, 7))], [("f4", PACKED)], (4096, 7), 1, 4),
    "rows of 300": ([View("f4", (4096, 300))], [("f4", PACKED)], (4096, 300), 1, 4),
    "rows of large items": ([View("f4", (4096, 300))], [("f4", PACKED)], (4096, 300), 1, 64),
    "rows, blocks of 64": ([View("f4", (4096, 4096))], [("f4", PACKED)], (4096, 4096), 1, 4, {"block": 64}),
    "short rows, blocks of 64": ([View("f4", (4096, 50))], [("f4", PACKED)], (4096, 50), 1, 4, {"block": 64}),
    "rows, backwards": ([View("f4", (4096, 1000), np.s_[:, ::-1])], [("f4", PACKED)], (4096, 1000), 1, 4),
    "columns": ([View("f4", (4096, 4096))], [("f4", PACKED)], (4096, 4096), 0, 4),
    "few columns": ([View("f4", (1 << 18, 40))], [("f4", PACKED)], (1 << 18, 40), 0, 4),
    "seven columns": ([View("f4", (1 << 18, 7))], [("f4", PACKED)], (1 << 18, 7), 0, 4),
    "eight columns": ([View("f4", (1 << 18, 8))], [("f4", PACKED)], (1 << 18, 8), 0, 4),
    "columns of 16 bytes": ([View("f4", (4096, 640))], [("f4", PACKED)], (4096, 640), 0, 16),
    "columns of 64 bytes": ([View("f4", (4096, 640))], [("f4", PACKED)], (4096, 640), 0, 64),
    "columns of 68 bytes": ([View("f4", (4096, 640))], [("f4", PACKED)], (4096, 640), 0, 68),
    "columns, blocks of 128": ([View("f4", (4096, 640))], [("f4", PACKED)], (4096, 640), 0, 4, {"block": 128}),
    "columns in the middle": ([View("f4", (7, 300, 90))], [("f4", PACKED)], (7, 300, 90), 1, 4),
    "short columns": ([View("f4", (3, 10_000))], [("f4", PACKED)], (3, 10_000), 0, 4),
}
REFUSED = [
    (
        "a line of items",
        [View("f4", (1000,))],
        (1000,),
        132,
        {},
        "an item of the scan has 132 bytes; the limit is 128",
    ),
    (
        "a line",
        [View("f4", (1 << 22,))],
        (1 << 22,),
        4,
        {"block": 96},
        "block_size 96: one line takes 128 threads at least",
    ),
    (
        "columns",
        [View("f4", (4096, 640))],
        (4096, 640),
        64,
        {"block": 512},
        "parts of columns take 65536 bytes of shared",
    ),
    (
        "a line",
        [View("f4", (1 << 20,))],
        (1 << 20,),
        128,
        {"block": 1024},
        "parts of a line take .* bytes of shared memory",
    ),
]


@pytest.fixture(scope="module")
def expected() -> dict[str, str]:
    lines = FILE.read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines)


@pytest.fixture(autouse=True)
def h100(monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_h100(monkeypatch)


def as_on_h100(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let scans be planned for the limits of an H100."""
    monkeypatch.setattr(plans, "device_limits", lambda device: limits_of("sm_90"))


def reduction(name: str) -> str:
    views, shape, axes, state, *more = REDUCTIONS[name]
    task = ReductionTask([seen(view, shape) for view in views], state, 132, **(more[0] if more else {}))
    return words(plans.plan_reduction(task, shape, axes, len(more) > 1))


def segments(name: str) -> str:
    views, rows, length, state = SEGMENTS[name]
    return words(
        plans.plan_segments(ReductionTask([seen(view, (length,)) for view in views], state, 132), rows, length)
    )


def scan_of(views: Any, writers: Any, shape: Any, axis: int, item: int, more: Any, device: Any) -> Any:
    keys = seen(View(more["keys"], shape), shape) if "keys" in more else None
    outputs = [
        Writer(None if dtype is None else seen(View(dtype, shape), shape), writing) for dtype, writing in writers
    ]
    task = ScanTask([seen(view, shape) for view in views], outputs, item, device, keys, more.get("block"))
    return plans.plan_scan("op", task, shape, axis)


def scan(name: str, device: Any = 0) -> str:
    views, writers, shape, axis, item, *more = SCANS[name]
    return words(scan_of(views, writers, shape, axis, item, more[0] if more else {}, device))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, expected: dict[str, str]) -> None:
    assert reduction(name) == expected[f"reduction, {name}"]


@pytest.mark.parametrize("name", SEGMENTS)
def test_segments(name: str, expected: dict[str, str]) -> None:
    assert segments(name) == expected[f"reduction, {name}"]


@pytest.mark.parametrize("name", SCANS)
def test_scans(name: str, expected: dict[str, str]) -> None:
    assert scan(name) == expected[f"scan, {name}"]
    assert scan(name, "sm_90") == expected[f"emulated scan, {name}"]


@pytest.mark.parametrize(("name", "views", "shape", "item", "more", "why"), REFUSED)
def test_scans_that_blocks_cannot_do(name: str, views: Any, shape: Any, item: int, more: Any, why: str) -> None:
    with pytest.raises(ck.ArgumentError, match=f"^op: .*{why}"):
        scan_of(views, [("f4", PACKED)], shape, 0, item, more, 0)


def test_an_array_the_other_way_round() -> None:
    array = seen(View("f4", (4, 6)), (4, 6))
    assert array == Array(np.dtype("f4"), (6, 1), 0, None)
    assert array is not None
    turned = backward(array, 1, 6)
    assert (turned.start, turned.steps) == (5, (6, -1))
    assert backward(turned, 1, 6) == array
    assert backward(array, 0, 4)[1:3] == ((-6, 1), 18)


def test_arrays_among_others_of_a_common_shape() -> None:
    assert array_of("op", (np.dtype("f4"), (3, 1), (8, 999)), (2, 3, 5)) == Array(np.dtype("f4"), (0, 2, 0), 0, (0, 5))
    assert array_of("op", (np.dtype("f4"), (3,), (-4,)), (3,)) == Array(np.dtype("f4"), (-1,), 2, (2, 3))
    with pytest.raises(ck.ArgumentError, match=r"op: strides \(6,\) in bytes are not whole elements of float32"):
        array_of("op", (np.dtype("f4"), (3,), (6,)), (3,))


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        as_on_h100(patch)
        lines = [f"reduction, {name}: {reduction(name)}" for name in REDUCTIONS]
        lines += [f"reduction, {name}: {segments(name)}" for name in SEGMENTS]
        for name in SCANS:
            lines += [f"scan, {name}: {scan(name)}", f"emulated scan, {name}: {scan(name, 'sm_90')}"]
    FILE.write_text("".join(f"{line}\n" for line in lines))
