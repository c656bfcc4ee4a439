"""kernel.tuned: one search for a size class, kept results, and what makes them stale."""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.jit.cache.store import Store
from cudakit.tuning import kept
from cudakit.tuning.kept import records_of

TEXT = """
#include "step.h"
template <typename T, int ITEMS> __global__ void scale(const T* x, T* y, T by, int n) {
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) * ITEMS;
    for (int i = first; i < first + ITEMS; i++)
        if (i < n) y[i] = STEP * by * x[i];
}"""
SPACE = {"ITEMS": [4, 1, 2], "BLOCK": [32, 64]}


def blocks(BLOCK: int, ITEMS: int, n: int) -> ck.Config:
    return ck.config(-(-n // (BLOCK * ITEMS)), BLOCK)


def kernel_in(folder: Path, step: int = 1) -> ck.Kernel:
    folder.mkdir(exist_ok=True)
    (folder / "step.h").write_text(f"#define STEP {step}\n")
    (folder / "scale.cu").write_text(TEXT)
    return ck.Kernel.from_file(folder / "scale.cu", options=ck.CompileOptions(cache=folder / "cache"))


def tuned_in(folder: Path, step: int = 1, **more: Any) -> Any:
    return kernel_in(folder, step).tuned(
        SPACE, by="n", config=blocks, objective="sectors", strategy="exhaustive", workers=0, **more
    )


def call(tuned: Any, n: int = 1000, dtype: Any = np.float32) -> np.ndarray:
    stream = ck.emulator.stream()
    x = ck.to_device(np.arange(n, dtype=dtype), stream)
    y = ck.to_device(np.zeros(n, dtype), stream)
    tuned(stream, x, y, 2.0, n)
    stream.sync()
    return ck.to_host(y, stream)


@pytest.mark.emulator
def test_each_size_class_is_searched_once_and_every_size_is_right(tmp_path: Path) -> None:
    tuned = tuned_in(tmp_path)
    for n in (1000, 1001, 700, 5000, 4100):
        assert np.array_equal(call(tuned, n), 2 * np.arange(n, dtype=np.float32))
    assert [key[1:] for key in tuned.results] == [("float32", "float32", 10), ("float32", "float32", 13)]
    call(tuned, 1000, np.float64)
    assert len(tuned.results) == 3
    assert {result.best["ITEMS"] for result in tuned.results.values()} == {1}


@pytest.mark.emulator
def test_a_kept_result_needs_no_meter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here measures energy."""
    monkeypatch.setattr(kept.Keys, "here", "ab" * 32)
    call(tuned_in(tmp_path))
    by_energy = kernel_in(tmp_path).tuned(SPACE, by="n", config=blocks, objective=["energy", "time"])
    call(by_energy)
    (result,) = by_energy.results.values()
    assert (result.ended, result.objectives) == ("kept", {"energy": "mJ", "time": "µs"})


@pytest.mark.emulator
def test_a_kept_result_is_used_until_a_header_changes(tmp_path: Path) -> None:
    call(tuned_in(tmp_path))
    again = tuned_in(tmp_path)
    call(again)
    (result,) = again.results.values()
    assert result.ended == "kept"
    assert result.best["ITEMS"] == 1
    changed = tuned_in(tmp_path, step=3)
    assert np.array_equal(call(changed), 6 * np.arange(1000, dtype=np.float32))
    assert next(iter(changed.results.values())).ended == "exhausted"
    # Another function of the configuration is another question.
    other = kernel_in(tmp_path, 3).tuned(
        SPACE, by="n", objective="sectors", workers=0, config=lambda BLOCK, ITEMS, n: ck.config(n, BLOCK)
    )
    call(other)
    assert next(iter(other.results.values())).ended == "exhausted"


@pytest.mark.emulator
def test_the_variable_turns_searches_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDAKIT_TUNE", "kept")
    tuned = tuned_in(tmp_path)
    with pytest.warns(ck.CacheWarning, match="no kept result for .* and CUDAKIT_TUNE is kept: the first point"):
        assert np.array_equal(call(tuned), 2 * np.arange(1000, dtype=np.float32))
    monkeypatch.setenv("CUDAKIT_TUNE", "off")
    tuned = tuned_in(tmp_path)
    call(tuned)
    (result,) = tuned.results.values()
    assert (result.best, result.ended) == ({"ITEMS": 4, "BLOCK": 32}, "not searched")
    monkeypatch.setenv("CUDAKIT_TUNE", "never")
    with pytest.raises(ck.CudakitError, match="CUDAKIT_TUNE is one of off, kept, search; got 'never'"):
        call(tuned_in(tmp_path))


@pytest.mark.emulator
def test_records_are_exported_imported_and_merged(tmp_path: Path) -> None:
    call(tuned_in(tmp_path / "a"))
    records = records_of(kernel_in(tmp_path / "a"))
    assert records.export_to(tmp_path / "records.json") == 1
    document = json.loads((tmp_path / "records.json").read_text())
    ((key, record),) = document["records"].items()
    assert (record["kernel"], record["card"], len(record["rows"])) == ("scale", "emulator sm_90", 6)
    halves = [{**record, "rows": record["rows"][:3]}, {**record, "rows": record["rows"][3:]}]
    elsewhere = records_of(kernel_in(tmp_path / "b"))
    for half in halves:
        (tmp_path / "half.json").write_text(json.dumps({"format": 1, "records": {key: half}}))
        assert elsewhere.import_from(tmp_path / "half.json") == 1
    merged = elsewhere.read(key)
    assert merged is not None
    assert sorted(map(str, merged["rows"])) == sorted(map(str, record["rows"]))
    assert merged["rows"][0]["point"] == record["rows"][0]["point"]
    (tmp_path / "half.json").write_text('{"format": 0, "records": {}}')
    with pytest.raises(ck.ArgumentError, match="no tuning records of format 1: its format is 0"):
        elsewhere.import_from(tmp_path / "half.json")


@pytest.mark.emulator
def test_a_folder_that_cannot_be_written_costs_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = tuned_in(tmp_path)

    write = Store.write

    def full(store: Store, category: str, *others: Any) -> None:
        if category == "tuned":
            raise OSError(28, "No space left on device")
        write(store, category, *others)

    monkeypatch.setattr(Store, "write", full)
    with pytest.warns(ck.CacheWarning, match="kept in this process only: .*No space left"):
        call(tuned)
    assert next(iter(tuned.results.values())).ended == "exhausted"


@pytest.mark.slow
@pytest.mark.emulator
def test_processes_that_keep_results_at_once_lose_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, context = kernel_in(tmp_path), multiprocessing.get_context("fork")
    all_searched, points, write, merge = context.Barrier(3), context.SimpleQueue(), Store.write, kept.Records.merge

    def merge_together(*arguments: Any) -> None:
        all_searched.wait(60)
        merge(*arguments)

    def write_late(*arguments: Any) -> None:
        time.sleep(0.02)  # what another process reads meanwhile lacks these results
        write(*arguments)

    monkeypatch.setattr(kept.Records, "merge", merge_together)
    monkeypatch.setattr(Store, "write", write_late)

    def tune(seed: int) -> None:
        mine = ck.Kernel.from_file(tmp_path / "scale.cu", options=ck.CompileOptions(cache=tmp_path / "cache"))
        search = {"objective": "sectors", "strategy": "random", "budget": 1, "seed": seed, "workers": 0}
        tuned = mine.tuned(SPACE, by="n", config=blocks, **search)
        call(tuned)
        (result,) = tuned.results.values()
        points.put([tuple(row.point.values()) for row in result.table])

    children = [context.Process(target=tune, args=(seed,)) for seed in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0] * 3
    searched = {point for _ in children for point in points.get()}
    assert len(searched) > 1
    ((_, record),) = records_of(kernel)
    axes = SPACE.values()
    assert {tuple(axis[at] for axis, at in zip(axes, row["point"], strict=True)) for row in record["rows"]} == searched


def test_a_parameter_that_the_kernel_lacks_is_told(tmp_path: Path) -> None:
    with pytest.raises(ck.ArgumentError, match="by: scale has no parameter 'm'; it has x, y, by, n"):
        kernel_in(tmp_path).tuned(SPACE, by="m", config=blocks)
    with pytest.raises(ck.ArgumentError, match=r"config takes 'm': neither the space \(ITEMS\) nor scale"):
        kernel_in(tmp_path).tuned({"ITEMS": [1]}, config=lambda ITEMS, m: ck.config(m, 32))


@pytest.mark.emulator
def test_a_macro_of_a_header_is_a_parameter(tmp_path: Path) -> None:
    kernel = kernel_in(tmp_path)
    (tmp_path / "step.h").write_text("#define STEP (WIDTH / WIDTH)\n")
    tuned = kernel.tuned({"ITEMS": [1], "BLOCK": [32], "WIDTH": [1, 2]}, where="WIDTH > 1", config=blocks, workers=0)
    assert np.array_equal(call(tuned), 2 * np.arange(1000, dtype=np.float32))
    with pytest.raises(ck.ArgumentError, match="'WIDE' of the space changes nothing of scale"):
        kernel.tuned({"ITEMS": [1], "WIDE": [1]}, config=ck.config(1, 32))


@pytest.mark.slow
@pytest.mark.emulator
def test_a_bundle_has_results_for_another_machine(tmp_path: Path) -> None:
    """There a tuned kernel takes the best variant, searches nothing and compiles nothing."""
    from cudakit.bundles.build import build

    first = tuned_in(tmp_path / "a")
    call(first)
    assert records_of(kernel_in(tmp_path / "a")).export_to(tmp_path / "a" / "tuned.json") == 1
    (tmp_path / "a" / "kernels.toml").write_text(
        'ptx = ["sm_90"]\ntuned = "tuned.json"\n'
        'kernels = [{file = "scale.cu", product = {T = ["float"], ITEMS = [4, 1, 2]}}]\n'
    )
    build(tmp_path / "a" / "kernels.toml", tmp_path / "kernels.ckb")
    with ck.use_bundle(tmp_path / "kernels.ckb", compile="never"):
        second = tuned_in(tmp_path / "b")
        assert np.array_equal(call(second), 2 * np.arange(1000, dtype=np.float32))
        ((result,), (expected,)) = (list(kernel.results.values()) for kernel in (second, first))
        assert (result.ended, result.best) == ("kept", expected.best)
        with pytest.warns(ck.CacheWarning, match="compile='never' is in use: the first point"):
            assert np.array_equal(call(second, 100_000), 2 * np.arange(100_000, dtype=np.float32))
