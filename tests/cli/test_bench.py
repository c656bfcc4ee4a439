"""``cudakit bench``: the recorded figures are those of their page, and without a GPU no time is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import cudakit as ck
from cudakit import cli
from cudakit.cli import bench, supervised

ROOT = Path(__file__).parents[2]
NO_GPU = "there is no GPU here, and the emulator measures no time: only the recorded card is shown"


def test_the_recorded_figures_are_those_of_the_page() -> None:
    record = bench.recorded()
    page = (ROOT / record["page"]).read_text(encoding="utf-8")
    assert f"- date: {record['date']}\n" in page
    assert f"- {record['card']}, driver" in page
    assert list(record["figures"]) == list(bench.CASES)
    for name, row in record["figures"].items():
        match = re.search(rf"^\| {name} \| float32 \| {bench.SIZE:,} \| (\d+) \| cupy (\d+) ", page, re.MULTILINE)
        assert match is not None
        assert row == {"cudakit": int(match[1]), "cupy": int(match[2])}


def test_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(ck, "has_gpu", lambda: False)
    monkeypatch.setattr(supervised, "is_needed", lambda options: False)
    assert cli.main(["bench", "sum", "--output", str(tmp_path / "bench.png")]) == 1
    out = capsys.readouterr().out
    assert NO_GPU in out
    assert "no GPU, GB/s" in out
    assert [line.split()[:1] for line in out.splitlines()[1:2]] == [["sum"]]
    assert (tmp_path / "bench.png").read_bytes()[:4] == b"\x89PNG"
    assert cli.main(["bench", "--json"]) == 1
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [problem["text"] for problem in document["problems"]] == [NO_GPU]
    assert (document["card"], set(map(str, document["figures"].values()))) == (None, {"{}"})
    with pytest.raises(SystemExit):
        cli.main(["bench", "sun"])
    assert "unknown op 'sun'; expected one of add, sum" in capsys.readouterr().err


@pytest.mark.gpu
def test_on_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(supervised, "is_needed", lambda options: False)
    assert cli.main(["bench", "add", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["figures"]["add"]
    assert row.keys() == {"cudakit", "cupy"}
    assert min(row.values()) > 0
