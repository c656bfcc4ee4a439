"""Tuning of ops: right results first, what is kept, the command, and the packaged tables."""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.arrays import tunable
from cudakit.arrays.log import Launched, logging
from cudakit.arrays.place import array_place, device_limits
from cudakit.arrays.tunable import Choice, Question, planned, trying
from cudakit.cli import main, supervised
from cudakit.jit.cache.stages import compiled_of
from cudakit.ops import tuning, tuning_cases
from cudakit.ops.tuning import Outcome, keep, tune_ops
from cudakit.ops.tuning_cases import CASES, Case
from cudakit.tuning.arrays import close
from cudakit.tuning.kept import records

pytestmark = [pytest.mark.emulator, pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")]

#: An op with a choice: one block is slower, and one instance leaves the last element out.
DOUBLED = ck.Kernel(
    "template <int LEFT> __global__ void doubled(const float* x, float* y, int n) {"
    "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n - LEFT; i += blockDim.x * gridDim.x) y[i] = 2 * x[i]; }"
)
CHOICE = Choice("doubled", {"block": (64, 32, 2048), "left": (1, 0)})  # a wrong point is tried first


@planned(8)
def _launch(size: int, device: int | str) -> tuple[Any, Any]:
    block, left = CHOICE.point("float32", size, device, (64, 0))
    return DOUBLED[left], ck.config(1, block)


def doubled(x: Any, out: Any, stream: Any) -> Any:
    """2 x, as an op does it."""
    place, (x,) = array_place("doubled", stream, ("x", x[0]))
    result = place.empty(x.shape, x.dtype) if out is None else out
    kernel, config = _launch(x.size, place.device)
    place.launch(kernel, config, x, result, x.size)
    return result


CASE = Case(
    "doubled", doubled, lambda rng, dtype, size: [rng.standard_normal(size).astype(dtype)], ("float32",), (1000,)
)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(tmp_path / "cache"))
    tunable.renew()
    yield
    tunable.renew()


def outcome_of(stream: Any, **changes: Any) -> Outcome:
    options = {"objective": "instructions", "strategy": "exhaustive", "workers": 0, **changes}
    (outcome,) = tune_ops([CASE], stream=stream, **options)
    return outcome


def test_the_best_point_that_is_right_wins_and_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = ck.emulator.stream()
    seen: list[Any] = []
    outcome = outcome_of(stream, progress=seen.append)
    assert outcome.question == Question("doubled", "float32", 10)
    assert (outcome.present, outcome.best) == ({"block": 64, "left": 0}, {"block": 32, "left": 0})
    states = {(row.point["block"], row.point["left"]): row.state for row in outcome.tuned.table}
    assert states == {(32, 0): "right", (64, 0): "right", (32, 1): "wrong", (64, 1): "wrong",
                      (2048, 0): "invalid", (2048, 1): "invalid"}  # fmt: skip
    wrong = next(row for row in outcome.tuned.table if row.state == "wrong")
    assert "out0[999]" in wrong.why
    assert outcome.is_better
    assert len(seen) == 6
    row = outcome.to_dict()
    assert row["point"] == outcome.best
    assert row["ratio"] == round(outcome.values[0] / outcome.values[1], 3)
    # Outside of the search nothing has changed, until the outcome is kept.
    assert _launch(1000, stream.arch)[1].block == (64, 1, 1)
    monkeypatch.setattr(tuning, "card_name", lambda stream: device_limits(stream.arch).name)
    keep(outcome, stream)
    assert _launch(1000, stream.arch)[1].block == (32, 1, 1)
    assert _launch(10_000, stream.arch)[1].block == (64, 1, 1)
    # The kept point is the present one of the next search, and stays.
    again = outcome_of(stream)
    assert again.present == outcome.best
    assert not again.is_better
    assert again.to_dict()["point"] is None


def test_an_interrupted_search_ends_with_what_is_known() -> None:
    tried: list[Any] = []

    def interrupt(progress: Any) -> None:
        tried.append(progress)
        if len(tried) == 5:
            raise KeyboardInterrupt

    outcomes = tune_ops(
        [CASE, CASE._replace(sizes=(100_000,))], stream=ck.emulator.stream(), objective="instructions",
        strategy="exhaustive", workers=0, progress=interrupt,
    )  # fmt: skip
    (outcome,) = outcomes
    assert outcome.tuned.ended == "interrupted"
    assert len(tried) == 5
    assert outcome.tuned.confirmed["fresh data"] == "right"
    with pytest.raises(ck.ArgumentError, match="budget is a number of candidates from 1 up"):
        next(tune_ops([CASE], budget=0))


def test_kept_points_are_exported_and_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = ck.emulator.stream()
    monkeypatch.setattr(tuning, "card_name", lambda stream: device_limits(stream.arch).name)
    monkeypatch.setattr(tuning, "is_slower", lambda *rows: True)
    outcome = Outcome("doubled", Question("doubled", "float32", 10), {"block": 64, "left": 0},
                      {"block": 32, "left": 0}, (2.0, 1.0), "µs", True, _Result())  # fmt: skip
    keep(outcome, stream)
    assert records().export_to(tmp_path / "rows.json") == 1
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(tmp_path / "other"))
    tunable.renew()
    assert _launch(1000, stream.arch)[1].block == (64, 1, 1)
    assert records().import_from(tmp_path / "rows.json") == 1
    tunable.renew()
    assert _launch(1000, stream.arch)[1].block == (32, 1, 1)
    # A damaged file is no row.
    (file,) = (tmp_path / "other").rglob("*.tuned")
    file.write_bytes(file.read_bytes()[:-9])
    records()._memory.clear()
    tunable.renew()
    assert _launch(1000, stream.arch)[1].block == (64, 1, 1)


class _Result:
    objective = "time"


def test_a_dry_call_launches_nothing() -> None:
    stream = ck.emulator.stream()
    x = np.ones(8, np.float32)
    out = np.zeros_like(x)
    with logging(is_dry=True) as log:
        doubled([x], out, stream)
    (step,) = log.steps
    assert isinstance(step, Launched)
    assert step.config.block == (64, 1, 1)
    assert not out.any()


def test_the_command_refuses_what_it_cannot_tune(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cudakit.ops.tuning_command.has_gpu", lambda: False)
    for words, message in (
        ([], "there is no GPU here, and ops are tuned by their time"),
        (["nothing", "--objective", "instructions"], "nothing to tune of nothing; expected one of sort"),
        (["sum", "--dtype", "int3", "--objective", "instructions"], "--dtype int3: these ops are tuned for float16"),
        (["sum", "--sizes", "3x3", "--objective", "instructions"], "numbers of elements"),
        (["sum", "--sizes", "0", "--objective", "instructions"], "from 1 up"),
    ):
        assert main(["tune", "ops", *words]) == 1
        assert message in capsys.readouterr().err
    assert main(["tune", "app.py:kernel", "sort"]) == 1
    assert "sort belongs to ops" in capsys.readouterr().err


def test_on_a_gpu_ops_are_tuned_by_their_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cudakit.ops.tuning_command.has_gpu", lambda: True)
    monkeypatch.setattr(supervised, "is_needed", lambda options: False)
    assert main(["tune", "ops", "sort", "--objective", "instructions"]) != 0
    assert "ops are tuned by their time; got --objective instructions" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float16", "float64"])
def test_numbers_of_a_case_are_of_the_whole_range(dtype: str) -> None:
    values = tuning_cases.numbers(np.random.default_rng(0), dtype, 40, 50)
    assert (values.shape, values.dtype) == ((40, 50), np.dtype(dtype))
    if values.dtype.kind in "iu":
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        assert least <= values.min() < least + 0.01 * most
        assert most >= values.max() > 0.99 * most - 1
    else:
        assert abs(values.mean(dtype="f8")) < 0.1
        assert abs(values.std(dtype="f8") - 1) < 0.1


def test_the_command_shows_a_ranking_and_keeps_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cudakit.ops.tuning_command.has_gpu", lambda: False)
    monkeypatch.setattr("cudakit.ops.tuning_command.stream", ck.emulator.stream)
    monkeypatch.setattr("cudakit.ops.tuning_command.CASES", (CASE,))
    monkeypatch.setattr(supervised, "is_needed", lambda options: False)
    monkeypatch.setattr(tuning, "_MOST_WORKERS", 0)
    words = ["tune", "ops", "doubled", "--objective", "instructions", "--strategy", "exhaustive"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "doubled: doubled, float32, 2^10: block=32, left=0: " in out
    assert "1 of 1 choices are 2% faster or more with another point: shown and not kept" in out
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert all(candidate["state"] for candidate in document["candidates"])
    (outcome,) = document["outcomes"]
    assert (outcome["choice"], outcome["point"]) == ("doubled", {"block": 32, "left": 0})
    assert [*records()] == []


# --- packaged tables --------------------------------------------------------------------------------------------------

Rows = dict[tuple[str, str, tuple[Any, ...]], Question]
#: Rows of the tables with a point, each point of a form once, by choice, form and values.
ROWS: Rows = {
    (question.choice, question.form, tuple(point.items())): question
    for table in tunable.tables()
    for question, point in table.rows.items()
    if point
}
#: One row of each choice; the others are tested once a night.
FIRST = {row[0]: row for row in reversed(ROWS)}
#: Sizes at which an op with another point runs on the emulator.
SMALL = {"matmul": 1 << 18, "attention": 1 << 14, "matvec": 1 << 16, "sort": 20_000, "argsort": 20_000}


def _answers(case: Case, dtype: str, size: int) -> dict[Question, Any]:
    """Return what a call asks for."""
    with trying({}) as answers, logging(is_dry=True):
        case.call(case.arrays(np.random.default_rng(0), dtype, size), None, ck.emulator.stream("sm_90"))
    return answers


@pytest.fixture
def _no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let arrays of cases be of zeros, which take no time: only their shapes count."""
    monkeypatch.setattr(tuning_cases, "numbers", lambda rng, dtype, *shape: np.zeros(shape, dtype))


@functools.cache
def _calls() -> dict[Question, tuple[Case, str, int]]:
    """Return the call that asks each question."""
    calls = [(case, dtype, size) for case in CASES for dtype in case.dtypes for size in case.sizes]
    return {question: call for call in calls for question in _answers(*call)}


@pytest.mark.usefixtures("_no_numbers")
def test_all_defaults_are_points_of_their_spaces() -> None:
    sizes = {"matmul": 1 << 21, "attention": 1 << 18}
    checked = set()
    for case in CASES:
        for dtype in case.dtypes:
            for question, answer in _answers(case, dtype, sizes.get(case.op, 1 << 18)).items():
                point = dict(zip(answer.choice.values, answer.default, strict=True))
                assert point in answer.space(), question
                checked.add(question.choice)
    assert {"sort", "long rows", "short rows", "columns", "attention", "stencil", "filter"} <= checked


@pytest.mark.usefixtures("_no_numbers")
def test_each_row_of_a_table_answers_a_call_and_is_a_gain() -> None:
    files = list(tunable.FOLDER.glob("*.json"))
    assert {file.name for file in files} == {"h100.json", "h200.json"}
    assert len(tunable.tables()) == len(files)
    for file in files:
        parts = json.loads(file.read_text(encoding="utf-8"))
        assert parts["model"] in parts["card"]
        for row in parts["rows"]:
            question = Question(row["choice"], row["form"], row["size"])
            case, dtype, size = _calls()[question]
            if row["point"] is None:
                continue
            assert row["point"] in _answers(case, dtype, size)[question].space(), row
            assert row["ratio"] >= tuning.WORTH


def test_the_benchmark_merges_new_rows_into_the_table_of_its_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    points = importlib.import_module("cases.points")
    file = tmp_path / "h100.json"
    limits = device_limits("sm_90")._replace(name="NVIDIA H100 80GB HBM3")
    assert points.table_rows(file, limits.name) == {}
    for packaged in tunable.FOLDER.glob("*.json"):  # a run that measures nothing changes the head only
        text = packaged.read_text(encoding="utf-8")
        file.write_text(text, encoding="utf-8")
        points.write_table(file, points.table_rows(file, json.loads(text)["card"]), limits, "13000")
        assert file.read_text(encoding="utf-8").partition("\n")[2] == text.partition("\n")[2]
    before = points.table_rows(file, limits.name)
    question, new = next(iter(before)), Question("test", "float32", 20)
    rows = {
        asked: {"choice": asked.choice, "form": asked.form, "size": asked.size_class, "point": None, "ratio": 0.5}
        for asked in (question, new)
    }
    points.write_table(file, {**before, **rows}, limits, "13000")
    after = points.table_rows(file, limits.name)
    assert after == {**before, **rows}
    assert [*after] == [*before, new]  # the order of a file is kept
    assert tunable.Table.read(file).rows[new] is None
    with pytest.raises(ck.ArgumentError, match=r"expected the table of this card, NVIDIA H200; got that of NVIDIA H1"):
        points.table_rows(file, "NVIDIA H200")
    file.write_text('{"card": "NVIDIA H100', encoding="utf-8")  # cut short
    with pytest.raises(ck.ArgumentError, match=r"h100\.json: expected a table of points or a new file"):
        points.table_rows(file, limits.name)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=pytest.mark.slow if row in FIRST.values() else pytest.mark.exhaustive, id=str(row))
        for row in ROWS
    ],
)
def test_each_row_compiles_for_its_card_and_is_right(
    row: tuple[str, str, tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    question, values = ROWS[row], tuple(value for _, value in row[2])
    stream = ck.emulator.stream("sm_90")
    with monkeypatch.context() as patch:
        patch.setattr(tuning_cases, "numbers", lambda rng, dtype, *shape: np.zeros(shape, dtype))
        case, dtype, size = _calls()[question]
        with trying({question: values}), logging(is_dry=True) as log:
            case.call(case.arrays(np.random.default_rng(0), dtype, size), None, stream)
    launches = [step for step in log.steps if isinstance(step, Launched)]
    assert launches
    for step in launches:
        specialization = step.kernel.specialization_of(stream, *step.arguments)
        assert compiled_of(specialization._replace(target="cubin")).code
    small = SMALL.get(case.op, 1 << 13)
    points = {other: values for other in _answers(case, dtype, small) if other.choice == question.choice}
    assert points
    inputs = case.arrays(np.random.default_rng(1), dtype, small)
    expected = case.call(inputs, None, stream)
    with trying(points):
        result = case.call(inputs, None, stream)
    assert close(expected, result).all()
