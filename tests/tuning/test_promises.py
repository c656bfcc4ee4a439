"""Promises of docs/tune.md: what is kept answers the same question, damaged files are not used, threads search once."""

from __future__ import annotations

import concurrent.futures
import copy
import functools
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.jit.cache.store import Store
from cudakit.tuning import kept
from cudakit.tuning.kept import Records, records_of

TEXT = """
template <typename T, int ITEMS> __global__ void scale(const T* x, T* y, T by, int n) {
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) * ITEMS;
    for (int i = first; i < first + ITEMS; i++)
        if (i < n) y[i] = by * x[i];
}"""
SPACE = {"ITEMS": [2, 1]}


def blocks(ITEMS: int, n: int) -> ck.Config:
    return ck.config(-(-n // (32 * ITEMS)), 32)


def tuned_in(folder: Path, space: Any = SPACE, config: Any = blocks, **more: Any) -> Any:
    kernel = ck.Kernel(TEXT, options=ck.CompileOptions(cache=folder))
    search = {"objective": "sectors", "strategy": "exhaustive", "workers": 0, **more}
    return kernel.tuned(space, by="n", config=config, **search)


def call(tuned: Any, n: int = 100, kind: Callable[[Any], Any] | None = None) -> str:
    """Call a tuned kernel, check what it writes, and return how its result came about."""
    stream = ck.emulator.stream()
    x, y = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    if kind is None:
        there = ck.to_device(y, stream)
        tuned(stream, ck.to_device(x, stream), there, 2.0, n)
        stream.sync()
        y = ck.to_host(there, stream)
    else:
        tuned(stream, ck.In(x), ck.Out(y), 2.0, n)
        stream.sync()
    assert np.array_equal(y, 2 * x)
    (result,) = tuned.results.values()
    assert result.best["ITEMS"] == 1
    return str(result.ended)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache with a kept result; tests copy its record."""
    folder = tmp_path_factory.mktemp("kept")
    assert call(tuned_in(folder)) == "exhausted"
    return folder


def record_in(folder: Path) -> tuple[str, dict[str, Any]]:
    ((key, record),) = records_of(ck.Kernel(TEXT, options=ck.CompileOptions(cache=folder)))
    return key, copy.deepcopy(record)


@pytest.mark.emulator
def test_arrays_of_the_host_are_tuned_with(shared: Path) -> None:
    tuned = tuned_in(shared)
    assert call(tuned, kind=ck.In) == "kept"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def garble(path: Path) -> None:
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


@pytest.mark.emulator
@pytest.mark.parametrize("damage", [cut, garble, Path.unlink, functools.partial(Path.chmod, mode=0o666)])
def test_a_file_that_is_damaged_or_of_others_is_not_used(
    damage: Callable[[Path], None], shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = (shared / "tuned").glob("*.tuned")
    content = path.read_bytes()
    monkeypatch.setattr(kept, "_RECORDS", {})  # as in another process
    damage(path)
    try:
        assert call(tuned_in(shared)) == "exhausted"
        path.unlink()  # what was kept again
    finally:
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        path.chmod(0o600)
    assert call(tuned_in(shared)) == "kept"


@pytest.mark.emulator
@pytest.mark.parametrize(
    "change",
    [
        {"format": 0},
        {"rows": []},
        {"rows": [{"point": [1], "state": "wrong", "runs": 1}]},
        {"rows": [{"point": [7], "state": "right", "runs": 1}]},
        {"rows": [{"point": [1], "state": "right", "runs": 1, "colour": "red"}]},
        {"rows": 5},
        {"headers": "[["},
        {"headers": None},
        {"unit": None},
    ],
    ids=lambda change: json.dumps(change)[:20],
)
def test_a_record_that_is_not_whole_is_not_used(
    change: dict[str, Any], shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, record = record_in(shared)
    monkeypatch.setattr(kept, "_RECORDS", {})
    store = Store(str(tmp_path / "tuned"), 1 << 20)
    store.write("tuned", key, {}, json.dumps({**record, **change}).encode())
    assert call(tuned_in(tmp_path)) == "exhausted"
    assert record_in(tmp_path)[1]["rows"] == record["rows"]


@pytest.mark.emulator
def test_a_best_point_that_cannot_be_launched_here_costs_a_word(tmp_path: Path) -> None:
    space = {"ITEMS": [2, 1], "BLOCK": [32, 2048]}
    config = lambda BLOCK, n: ck.config(-(-n // 32), BLOCK)  # noqa: E731
    assert call(tuned_in(tmp_path, space, config)) == "exhausted"
    key, record = record_in(tmp_path)
    record["rows"][0]["point"] = [1, 1]
    Store(str(tmp_path / "tuned"), 1 << 20).write("tuned", key, {}, json.dumps(record).encode())
    with pytest.warns(ck.CacheWarning, match="its best point cannot be launched here: .*block.x is 2048"):
        assert call(tuned_in(tmp_path, space, config)) == "exhausted"
    assert call(tuned_in(tmp_path, space, config)) == "kept"


@pytest.mark.emulator
def test_another_order_of_values_is_another_question(shared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(shared, folder)
    assert call(tuned_in(folder, {"ITEMS": [1, 2]})) == "exhausted"
    assert call(tuned_in(folder)) == "kept"


def test_what_is_wrong_in_one_table_is_wrong_in_both(shared: Path, tmp_path: Path) -> None:
    key, record = record_in(shared)
    best, other = record["rows"]
    refuted = {**record, "rows": [{**other, "state": "right"}, {**best, "state": "wrong", "runs": 0}]}
    for order in ([record, refuted], [refuted, record]):
        records = Records(tmp_path / str(order[0] is record))
        for part in order:
            records.merge(key, copy.deepcopy(part))
        rows = records.read(key)["rows"]  # type: ignore[index]
        assert [row["state"] for row in rows] == ["right", "wrong"]


def test_an_imported_file_is_checked(shared: Path, tmp_path: Path) -> None:
    key, record = record_in(shared)
    path = tmp_path / "records.json"
    records = Records(tmp_path)
    for part, message in (
        ({key: {**record, "rows": []}}, f"record {key[:12]} is damaged"),
        ({key: {"format": 1}}, "is damaged"),
        ({"../evil": record}, "cannot name a cache entry"),
    ):
        path.write_text(json.dumps({"format": 1, "records": part}))
        with pytest.raises(ck.ArgumentError, match=message):
            records.import_from(path)
    assert not dict(records)


@pytest.mark.emulator
def test_a_full_disk_costs_words_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*values: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Store, "write", full)
    with pytest.warns(ck.CacheWarning) as words:
        assert call(tuned_in(tmp_path)) == "exhausted"
    texts = [str(word.message) for word in words]
    assert len(texts) == 2
    assert "cannot be written (No space left on device)" in texts[0]
    assert "is kept in this process only" in texts[1]
    assert call(tuned_in(tmp_path)) == "kept"


@pytest.mark.emulator
def test_a_configuration_may_take_an_array(tmp_path: Path) -> None:
    tuned = tuned_in(tmp_path, config=lambda ITEMS, x: ck.config(-(-x.shape[0] // (32 * ITEMS)), 32))
    assert [call(tuned, n) for n in (100, 100, 120)] == ["exhausted"] * 3
    assert len(tuned._ready) == 2
    assert call(tuned, 101, kind=ck.In) == "exhausted"


class Interrupted:
    """An objective that the user interrupts in its second call."""

    name, unit, repeats = "calls", "calls", False
    calls = 0

    def measure(self, launch: Callable[[], None], stop_above: float) -> list[float]:
        self.calls += 1
        if self.calls == 2:
            raise KeyboardInterrupt
        return [float(self.calls)]


@pytest.mark.emulator
def test_a_winner_that_was_not_confirmed_is_not_kept(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudakit.tuning.trials.Trials.confirm", Interrupted.measure)
    tuned = tuned_in(shared, {"ITEMS": [1, 2]}, objective=Interrupted())
    tuned._search["objective"].name = "unconfirmed"
    with monkeypatch.context() as patch:
        patch.setattr("cudakit.tuning.trials.Trials.confirm", _interrupt)
        assert call(tuned) == "interrupted"
    (result,) = tuned.results.values()
    assert result.confirmed == {}
    assert "unconfirmed" not in {record["objective"] for _, record in records_of(tuned.kernel)}


def _interrupt(*values: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.emulator
def test_threads_search_once(tmp_path: Path) -> None:
    tried: list[Any] = []
    tuned = tuned_in(tmp_path, progress=tried.append)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert {*pool.map(lambda _: call(tuned), range(6))} == {"exhausted"}
    assert len(tried) == 2


@pytest.mark.emulator
def test_a_tuned_kernel_and_a_result_can_be_sent(shared: Path) -> None:
    tuned = tuned_in(shared)
    for other in (pickle.loads(pickle.dumps(tuned)), copy.deepcopy(tuned)):
        assert call(other) == "kept"
    (result,) = other.results.values()
    assert pickle.loads(pickle.dumps(result)).best == {"ITEMS": 1}
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(tuned_in(shared, config=lambda n: ck.config(n, 32)))


def test_what_no_search_takes_is_said_at_once(tmp_path: Path) -> None:
    for options, message in (
        ({"colour": 1}, "a search has no parameter 'colour'; it has space"),
        ({"stream": 1}, "a search has no parameter 'stream'"),
        ({"budget": 0}, "budget is a number of candidates"),
        ({"arguments": 5}, "arguments is a function of the stream and a size, got 5"),
        ({"sizes": 5}, "sizes is a list of numbers"),
    ):
        with pytest.raises(ck.ArgumentError, match=message):
            tuned_in(tmp_path, **options)
    tuned = tuned_in(tmp_path)
    stream = ck.emulator.stream()
    with pytest.raises(ck.ArgumentError, match="by takes 'n', a whole number; got 'many'"):
        tuned(stream, None, None, 2.0, "many")
    with pytest.raises(ck.ArgumentError, match="by takes 'n', which the call leaves out"):
        tuned(stream, None)
    with pytest.raises(ck.ArgumentError, match="the restrictions leave no point of 2"):
        tuned_in(tmp_path, where=lambda ITEMS: ITEMS > 2)(stream, None, None, 2.0, 1)


@pytest.mark.emulator
def test_a_budget_of_no_time_tries_one(shared: Path) -> None:
    stream = ck.emulator.stream()
    x, y = (ck.to_device(np.ones(8, np.float32), stream) for _ in range(2))
    tuned = ck.tune(
        tuned_in(shared).kernel, (x, y, 2.0, 8), SPACE, config=ck.config(1, 32), stream=stream, objective="sectors",
        budget=timedelta(microseconds=1), workers=0, strategy="exhaustive",
    )  # fmt: skip
    assert (len(tuned.table), tuned.ended) == (1, "budget")


STEP = 1


def stepped(n: int) -> int:
    return n + STEP


def through(n: int) -> int:
    return stepped(n) if n else through(n)


def test_what_a_function_takes_from_outside_is_part_of_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(step: int) -> Callable[[int], int]:
        return lambda n: n + step

    content = kept._content_of
    assert content(closed(1)) == content(closed(1))
    assert content(closed(1)) != content(closed(2))
    assert content(functools.partial(stepped, 1)) != content(functools.partial(stepped, 2))
    former = content(through)
    assert "0x" not in repr(former)
    monkeypatch.setattr(sys.modules[__name__], "STEP", 2)
    assert content(through) != former


QUESTION = """
import sys
sys.path.insert(0, sys.argv[1])
from cudakit.tuning import kept
print(kept._content_of(lambda LAYOUT: LAYOUT in {"row", "column", "tile", "block"}))
"""


@pytest.mark.slow
def test_the_question_is_the_same_in_each_process() -> None:
    answers = {
        subprocess.run(
            [sys.executable, "-c", QUESTION, str(Path(__file__).parent)],
            capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in range(3)
    }  # fmt: skip
    assert len(answers) == 1
