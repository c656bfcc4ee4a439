"""Tuning of ops on a GPU: times, the packaged tables, and a kept point that the next plan takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cudakit as ck
from cudakit.arrays import tunable
from cudakit.arrays.log import logging
from cudakit.arrays.tunable import trying
from cudakit.ops.tuning import keep, tune_ops
from cudakit.ops.tuning_cases import CASES

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(tmp_path / "cache"))
    tunable.renew()
    yield
    tunable.renew()


def test_a_point_is_measured_and_kept_for_this_card() -> None:
    stream = ck.stream()
    case = next(case for case in CASES if case.op == "sum")
    (outcome,) = tune_ops(
        [case], stream=stream, dtypes=("float32",), sizes=(1 << 20,), budget=4, strategy="random", workers=0
    )
    assert {row.state for row in outcome.tuned.table} <= {"right", "slow"}
    assert outcome.unit == "µs"
    assert outcome.values[1] > 0
    other = next(row.point for row in outcome.tuned.table if row.point != outcome.present)
    keep(outcome._replace(best=other, values=(2.0, 1.0)), stream)  # whichever of the two was faster
    x = ck.empty(1 << 20, np.float32, stream=stream)
    with trying({}) as answers, logging(is_dry=True):
        ck.ops.sum(x, stream=stream)
    assert answers[outcome.question].values == answers[outcome.question].choice.values_of(other)


def test_the_nearest_table_is_named_by_this_card() -> None:
    tables = tunable.tables_for(0)
    assert {table.model for table in tables} == {"H100", "H200"}
