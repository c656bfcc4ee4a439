"""Files of spaces and results: read and written, and read again; what is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudakit.errors import ArgumentError
from cudakit.tuning import formats
from cudakit.tuning.expression import Expression
from cudakit.tuning.recorded import Measurement, Recorded
from cudakit.tuning.replay import replay
from cudakit.tuning.space import Space

POINTS: list[dict[str, Any]] = [
    {"BLOCK": block, "ITEMS": items, "LAYOUT": layout}
    for block in (128, 32, 64)
    for items in (1, 2)
    for layout in ("row", "column")
    if block * items <= 128
]
RECORDED = Recorded(
    [
        Measurement(POINTS[0], 2.5),
        Measurement(POINTS[1], None, "compile"),
        Measurement(POINTS[2], None, "runtime"),
        *(Measurement(point, 1.0 + number) for number, point in enumerate(POINTS[3:])),
    ],
    kernel="scale",
    card="A card",
    problem_size=(4096, 16),
)
WRITERS: dict[str, Callable[[Recorded, Path], None]] = {"cache": formats.write_cache, "t4": formats.write_t4}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_record_is_read_as_it_was_written(name: str, is_packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    WRITERS[name](RECORDED, path)
    if is_packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    record = formats.read(path)
    assert record.measurements == RECORDED.measurements
    assert (record.kernel, record.card, record.objective, record.unit) == ("scale", "A card", "time", "ms")
    assert record.optimum == 1.0
    assert list(record.space) == POINTS
    assert {"BLOCK": 128, "ITEMS": 2, "LAYOUT": "row"} not in record.space
    assert [record.value(point) for point in POINTS] == [m.value for m in RECORDED.measurements]


def test_a_cache_has_what_kernel_tuner_reads(tmp_path: Path) -> None:
    formats.write_cache(RECORDED, tmp_path / "cache.json")
    document = json.loads((tmp_path / "cache.json").read_text())
    assert document["tune_params"] == {"BLOCK": [32, 64, 128], "ITEMS": [1, 2], "LAYOUT": ["row", "column"]}
    assert document["tune_params_keys"] == ["BLOCK", "ITEMS", "LAYOUT"]
    assert document["problem_size"] == [4096, 16]
    assert document["cache"]["128,1,row"]["time"] == 2.5
    assert document["cache"]["128,1,column"]["time"] == "CompilationFailedConfig"
    assert document["cache"]["32,1,row"]["time"] == "RuntimeFailedConfig"


def test_a_cache_of_a_search_that_was_ended_is_read(tmp_path: Path) -> None:
    formats.write_cache(RECORDED, tmp_path / "cache.json")
    text = (tmp_path / "cache.json").read_text()
    (tmp_path / "ended.json").write_text(text.removesuffix("}}") + ",\n")
    assert formats.read(tmp_path / "ended.json").measurements == RECORDED.measurements


def test_errors_of_older_caches_and_values_of_several_runs(tmp_path: Path) -> None:
    cache = {"1": {"A": 1, "time": 1e20}, "2": {"A": 2, "time": 3.0}, "3": {"A": 3, "time": "InvalidConfig"}}
    document = {"kernel_name": "f", "device_name": "", "tune_params_keys": ["A"], "tune_params": {"A": [1, 2, 3]}}
    (tmp_path / "old.json").write_text(json.dumps({**document, "cache": cache}))
    values = [(m.value, m.invalidity) for m in formats.read(tmp_path / "old.json").measurements]
    assert values == [(None, "runtime"), (3.0, "correct"), (None, "constraints")]
    entry = {"configuration": {"A": 1}, "times": {}, "invalidity": "correct", "correctness": 1}
    results = [{**entry, "measurements": [{"name": "time", "value": [1.0, 3.0], "unit": "ms"}]}]
    (tmp_path / "t4.json").write_text(json.dumps({"results": results}))
    assert formats.read(tmp_path / "t4.json").optimum == 2.0


def test_a_result_of_ours_is_read(tmp_path: Path) -> None:
    rows = [("right", 2.0), ("slow", 9.0), ("wrong", 1.0), ("invalid", None), ("failed", None)]
    table = [{"point": {"A": number}, "state": state, "value": value} for number, (state, value) in enumerate(rows)]
    document = {"kernel": "f", "objective": "time", "unit": "ms", "best": {"A": 0}, "table": table}
    (tmp_path / "tuned.json").write_text(json.dumps(document))
    record = formats.read(tmp_path / "tuned.json")
    assert [m.value for m in record.measurements] == [2.0, 9.0, None, None, None]
    words = ["correct", "correct", "correctness", "constraints", "runtime"]
    assert [m.invalidity for m in record.measurements] == words


def test_a_space_is_read_as_it_was_written(tmp_path: Path) -> None:
    values = {"BLOCK": [32, 64], "SHARE": [0.5, 1.5], "FAST": [False, True], "LAYOUT": ["row", "column"]}
    space = Space(values, where=["BLOCK * SHARE <= 64", "FAST or LAYOUT in ('row', 'tile')"])
    sizes = {"X": "BLOCK"}, {"X": "n // BLOCK"}
    formats.write_t1(space, tmp_path / "t1.json", kernel="f", file="f.cu", local_size=sizes[0], global_size=sizes[1])
    again = formats.read_t1(tmp_path / "t1.json")
    assert again.names == space.names
    assert again.values == space.values
    assert list(again) == list(space)
    assert len(again) == 9
    document = json.loads((tmp_path / "t1.json").read_text())
    parameters = document["ConfigurationSpace"]["TuningParameters"]
    assert [parameter["Type"] for parameter in parameters] == ["int", "float", "bool", "string"]
    assert document["KernelSpecification"]["LocalSize"] == {"X": "BLOCK"}


def test_a_space_with_functions_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="T1 has restrictions as text"):
        formats.write_t1(
            Space({"A": [1, 2]}, where=lambda A: A > 1),
            tmp_path / "t1.json",
            **{"kernel": "f", "file": "f.cu", "local_size": {"X": "1"}, "global_size": {"X": "1"}},
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{]", "expected a JSON object"),
        ("[1]", "expected a JSON object"),
        ('{"a": 1, "b": 2}', "expected a result's JSON, Kernel Tuner's cache or T4; got a, b"),
        ('{"results": []}', "the record has no measurements"),
    ],
)
def test_another_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(ArgumentError) as caught:
        formats.read(tmp_path / "file.json")
    assert message in str(caught.value)


def test_what_is_no_t1_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t1.json").write_text('{"ConfigurationSpace": {}}')
    with pytest.raises(ArgumentError, match="expected T1, with ConfigurationSpace"):
        formats.read_t1(tmp_path / "t1.json")
    parameter = {"Name": "A", "Type": "int", "Values": "open('x')"}
    (tmp_path / "t1.json").write_text(json.dumps({"ConfigurationSpace": {"TuningParameters": [parameter]}}))
    with pytest.raises(ArgumentError, match="parameter A: expected a list of values"):
        formats.read_t1(tmp_path / "t1.json")


@pytest.mark.parametrize(
    ("text", "point", "is_true"),
    [
        ("32 <= A * B <= 1024", {"A": 32, "B": 32}, True),
        ("32 <= A * B <= 1024", {"A": 64, "B": 32}, False),
        ("A == 0 or (((A*B+(3-1)))) < 12*1024", {"A": 0, "B": 1}, True),
        ("not A and min(A, B) // 2 % 3 == -1 + 1", {"A": 0, "B": 1}, True),
        ("(A if B else 0) in [1, 2]", {"A": 2, "B": True}, True),
    ],
)
def test_expressions(text: str, point: dict[str, Any], is_true: bool) -> None:
    expression = Expression(text)
    assert expression(**point) is is_true
    assert set(expression.names) == set(point)


@pytest.mark.parametrize(
    "text",
    ["A.real", "A ** 9", "open('x')", "__import__('os')", "(lambda: 1)()", "[x for x in A]", "A[0]", "A :", "f'{A}'"],
)
def test_an_expression_can_only_compute(text: str) -> None:
    with pytest.raises(ArgumentError, match="restriction"):
        Expression(text)


def test_a_replay_counts_invalid_points_and_ends_at_its_budget(tmp_path: Path) -> None:
    result = replay(RECORDED, "exhaustive")
    assert [measurement.point for measurement in result.measurements] == POINTS
    assert result.shares[:4] == [0.4, 0.4, 0.4, 1.0]
    formats.write_t4(RECORDED, tmp_path / "t4.json")
    again = replay(str(tmp_path / "t4.json"), "exhaustive", budget=4)
    assert again.shares == result.shares[:4]
    assert again.measurements == result.measurements[:4]
    assert replay(RECORDED, seed=3).shares[-1] == 1.0
    with pytest.raises(ArgumentError, match="expected a positive number of points, got 0"):
        replay(RECORDED, budget=0)


def test_a_record_without_a_valid_point_has_no_optimum() -> None:
    record = Recorded([Measurement({"A": 1}, None, "compile"), Measurement({"A": 2}, None, "compile")])
    assert record.optimum == float("inf")
    assert replay(record).shares == [0.0, 0.0]


def test_a_cache_has_the_problem_size_that_is_passed_and_a_result_its_card(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    row = {"point": {"A": 1}, "state": "right", "value": 2.0}
    document = {"kernel": "f", "objective": "sectors", "unit": "sectors", "table": [row], "traffic": {"card": "a card"}}
    path.write_text(json.dumps(document))
    recorded = formats.read(path)
    assert recorded.card == "a card"
    formats.write_cache(recorded, path, [100, 200])
    assert json.loads(path.read_text())["problem_size"] == [100, 200]
    formats.write_cache(RECORDED, path)
    assert json.loads(path.read_text())["problem_size"] == [4096, 16]
