"""Tuned points: which row answers a plan, kept results, damaged tables, and what a point changes of a launch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.launches import F4, text_of

from cudakit.arrays import plans, tunable
from cudakit.arrays.place import device_limits
from cudakit.arrays.plans import Array, ReductionTask
from cudakit.arrays.tunable import Choice, Question, trying
from cudakit.errors import CacheWarning
from cudakit.ops.sort import Sorting
from cudakit.tuning.kept import FORMAT, records

#: Devices that stand for cards, by name, compute capability and multiprocessors.
CARDS = {
    7001: ("NVIDIA H100 80GB HBM3", (9, 0), 132),
    7002: ("NVIDIA H200", (9, 0), 132),
    7003: ("NVIDIA L4", (8, 9), 58),
    7004: ("NVIDIA A100-SXM4-80GB", (8, 0), 108),
}
H100, H200, L4, A100 = CARDS
CHOICE = Choice("test", {"block": (64, 128, 256), "items": (1, 2)}, where=lambda block, items: block * items < 512)
DEFAULT = (64, 1)


@pytest.fixture(autouse=True)
def _cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    emulated = device_limits("sm_90")
    limits = {
        device: emulated._replace(name=name, compute_capability=capability, multiprocessors=count)
        for device, (name, capability, count) in CARDS.items()
    }
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CUDAKIT_TUNE", raising=False)
    monkeypatch.setattr(tunable, "FOLDER", tmp_path)
    for module in (tunable, import_module("cudakit.arrays.place"), import_module("cudakit.ops.sort")):
        monkeypatch.setattr(module, "device_limits", lambda device: limits.get(device) or device_limits(device))
    tunable.tables.cache_clear()
    tunable.renew()
    yield
    tunable.tables.cache_clear()
    tunable.renew()


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., None]:
    """Write the table of a device: rows are (form, size class, point)."""

    def write(device: int, *rows: tuple[str, int, Any], choice: str = "test") -> None:
        name, capability, count = CARDS[device]
        parts = {
            "card": name,
            "model": name.split()[1],
            "capability": capability,
            "multiprocessors": count,
            "rows": [{"choice": choice, "form": form, "size": size, "point": point} for form, size, point in rows],
        }
        (tmp_path / f"{device}.json").write_text(json.dumps(parts))
        tunable.tables.cache_clear()
        tunable.renew()

    return write


def point(block: int, items: int = 1) -> dict[str, int]:
    return {"block": block, "items": items}


def keep_row(question: Question, values: dict[str, Any], card: str) -> None:
    row = {"point": [*values.values()], "state": "right", "value": 1.0, "runs": 1}
    record = {"format": FORMAT, "kernel": "ops", "card": card, "objective": "time", "unit": "µs", "date": "",
              "headers": "", "names": [*values], "rows": [row]}  # fmt: skip
    records().merge(tunable.record_key(question, card), record)
    tunable.renew()


def test_the_card_of_the_table_decides_and_else_the_nearest(table: Callable[..., None]) -> None:
    assert CHOICE.point("float32", 1 << 20, H100, DEFAULT) == DEFAULT  # no table at all
    table(H100, ("float32", 20, point(128)))
    table(A100, ("float32", 20, point(256)))
    found = {device: CHOICE.point("float32", 1 << 20, device, DEFAULT) for device in CARDS}
    # Of an L4, compute capability 8.9, Hopper is one step away and the A100 nine.
    assert found == {H100: (128, 1), H200: (128, 1), L4: (128, 1), A100: (256, 1)}
    table(H200, ("float32", 20, point(128, 2)))
    assert CHOICE.point("float32", 1 << 20, H200, DEFAULT) == (128, 2)
    assert CHOICE.point("float32", 1 << 20, H100, DEFAULT) == (128, 1)
    assert CHOICE.point("float32", 1 << 20, "sm_90", DEFAULT) == DEFAULT  # the emulator is no card


def test_a_row_that_the_nearest_table_lacks_comes_from_the_next_one(table: Callable[..., None]) -> None:
    table(H100, ("float32", 20, point(128)), ("float16", 20, None))
    table(H200, ("float32", 20, point(256)), ("float16", 20, point(256)), ("float64", 20, point(256)))
    table(A100, ("float64", 20, point(128)), ("int32", 20, point(128)))
    answers = {
        form: CHOICE.point(form, 1 << 20, H100, DEFAULT)[0] for form in ("float32", "float16", "float64", "int32")
    }
    # A row of no point is a row: the default was measured to be the best there.
    assert answers == {"float32": 128, "float16": 64, "float64": 256, "int32": 128}


def test_a_row_serves_the_sizes_around_it_and_no_other_form(table: Callable[..., None]) -> None:
    table(H100, ("float32", 20, point(128)), ("float32", 24, point(256)), ("float16", 20, None))
    answers = {power: CHOICE.point("float32", 1 << power, H100, DEFAULT)[0] for power in range(16, 29)}
    assert answers == {
        **dict.fromkeys((16, 17, 27, 28), 64),
        **dict.fromkeys((18, 19, 20, 21, 22), 128),
        **dict.fromkeys((23, 24, 25, 26), 256),
    }
    assert CHOICE.point("float64", 1 << 20, H100, DEFAULT) == DEFAULT
    assert CHOICE.point("float16", 1 << 20, H100, DEFAULT) == DEFAULT
    # What was measured and not beaten ends the search for a row.
    table(H100, ("float32", 20, None), ("float32", 21, point(128)))
    assert CHOICE.point("float32", 1 << 20, H100, DEFAULT) == DEFAULT
    assert CHOICE.point("float32", 0, H100, DEFAULT) == DEFAULT


@pytest.mark.parametrize(
    "row",
    [point(512), point(256, 2), {"block": 128}, {"block": 128, "items": 1, "more": 1}, {"block": "128", "items": 1}],
)
def test_a_point_outside_of_the_space_is_not_taken(table: Callable[..., None], row: dict[str, Any]) -> None:
    table(H100, ("float32", 20, row))
    assert CHOICE.point("float32", 1 << 20, H100, DEFAULT) == DEFAULT


def test_a_point_that_the_call_does_not_allow_is_not_taken(table: Callable[..., None]) -> None:
    table(H100, ("float32", 20, point(256)))
    assert CHOICE.point("float32", 1 << 20, H100, DEFAULT, fits=lambda block: block < 256) == DEFAULT
    assert CHOICE.point("float32", 1 << 20, H100, DEFAULT, fits=lambda items: items == 1) == (256, 1)


def test_a_kept_row_beats_the_packaged_one_on_its_card_only(
    table: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    table(H100, ("float32", 20, point(128)))
    question = Question("test", "float32", 20)
    keep_row(question, point(256), CARDS[H100][0])
    assert CHOICE.point("float32", 1 << 20, H100, DEFAULT) == (256, 1)
    assert CHOICE.point("float32", 1 << 21, H100, DEFAULT) == (256, 1)
    assert CHOICE.point("float32", 1 << 20, H200, DEFAULT) == (128, 1)
    # A kept row of another version of the choice is passed over.
    keep_row(question, {"block": 256, "width": 1}, CARDS[H100][0])
    assert CHOICE.point("float32", 1 << 20, H100, DEFAULT) == (128, 1)
    keep_row(question._replace(form="int32"), {"block": 256, "width": 1}, CARDS[H100][0])
    assert CHOICE.point("int32", 1 << 20, H100, DEFAULT) == DEFAULT
    monkeypatch.setenv("CUDAKIT_TUNE", "off")
    assert CHOICE.point("float32", 1 << 20, H100, DEFAULT) == DEFAULT


def test_another_cache_folder_has_kept_rows_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question = Question("test", "float32", 20)
    answers = []
    for folder, kept in (("a", 128), ("b", 256), ("c", None), ("a", None), ("", None), ("b", None)):
        monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(tmp_path / folder) if folder else "")
        if kept is not None:
            keep_row(question, point(kept), CARDS[H100][0])
        answers.append(CHOICE.point("float32", 1 << 20, H100, DEFAULT)[0])
    assert answers == [128, 256, 64, 128, 64, 256]


NO_POINT = """{"card": "NVIDIA H100", "model": "H100", "capability": [9, 0], "multiprocessors": 132,
               "rows": [{"choice": "test", "form": "float32", "size": 21, "point": [64, 1]}]}"""


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"rows": []}', '{"rows": [{"choice": "test"}]}', "\x00\xff", NO_POINT]
)
def test_a_damaged_table_is_left_out_with_a_warning(table: Callable[..., None], tmp_path: Path, text: str) -> None:
    table(H100, ("float32", 20, point(128)))
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
    tunable.tables.cache_clear()
    with pytest.warns(CacheWarning, match=r"a\.json is not used"):
        assert CHOICE.point("float32", 1 << 20, H100, DEFAULT) == (128, 1)


def test_a_search_tries_its_point_and_sees_the_questions(table: Callable[..., None]) -> None:
    table(H100, ("float32", 20, point(128)))
    question = Question("test", "float32", 20)
    calls = []

    @tunable.planned(8)
    def plan(size: int) -> Any:
        calls.append(size)
        return CHOICE.point("float32", size, H100, DEFAULT)

    assert plan(1 << 20) == plan(1 << 20) == (128, 1)
    assert len(calls) == 1  # a repeated plan asks nothing
    with trying({question: (256, 1)}) as asked:
        assert plan(1 << 20) == (256, 1)
        assert plan(1 << 23) == DEFAULT
    assert [*asked] == [question, question._replace(size_class=23)]
    assert asked[question].default == DEFAULT
    assert len(asked[question].space()) == 5
    assert plan(1 << 20) == (128, 1)
    assert plan(1 << 25) == DEFAULT
    assert len(asked) == 2  # of the block alone


def test_the_distance_of_cards_is_of_model_capability_and_size() -> None:
    table = tunable.Table("NVIDIA H100 PCIe", "H100", (9, 0), 100, {})
    assert table.distance("NVIDIA H100 80GB HBM3", (9, 0), 200) == (False, 0, 1.0)
    assert table.distance("NVIDIA L4", (8, 9), 50) == (True, 1, 1.0)
    assert table.distance("NVIDIA A100", (8, 0), 100) == (True, 10, 0.0)
    assert table.distance("B200", (10, 3), 100) == (True, 13, 0.0)


def test_a_row_changes_the_sort_that_is_launched(table: Callable[..., None]) -> None:
    plan = import_module("cudakit.ops.sort")._plan
    arguments = "sort", "order", F4, Sorting(True), 1, 1 << 24

    def shown() -> str:
        return text_of(plan(*arguments, H100).passes[0])

    assert "21, 384, 3" in shown()
    table(H100, ("4 bytes", 24, {"items": 17, "block": 512, "resident": 2}), choice="sort")
    assert "17, 512, 2" in shown()
    assert f"({-(-(1 << 24) // (17 * 512))}, 1, 1)" in shown()


def test_a_row_changes_the_reduction_that_is_launched(table: Callable[..., None]) -> None:
    size = 1 << 24
    array = Array(np.dtype("f4"), (1,), 0, None)
    task = ReductionTask([array], 4, 132, 8, tuned=("sum float32", size, H100))

    def how() -> str:
        launch = plans.plan_reduction(task, (size,), (0,), False)
        return f"{launch.how} {launch.config.grid} {launch.config.block}"

    before = how()
    table(H100, ("sum float32, one row", 24, {"block": 256, "waves": 3, "items": 4}), choice="long rows")
    assert how() != before
    assert "256, 256, 4>" in how()
    assert f"({3 * 4 * 132}, 1, 1)" in how()
    # Where the caller asks for a block of its own there is no lookup.
    assert plans.plan_reduction(task._replace(tuned=None), (size,), (0,), False).how in before
