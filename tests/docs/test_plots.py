"""The plots of the benchmarks say what the tables say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plots() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "plots.py"))


def test_every_measured_op_is_in_a_panel(plots: dict[str, Any]) -> None:
    text = (ROOT / "benchmarks" / "results" / "kernels-h200.md").read_text(encoding="utf-8")
    large = {line.split(" | ")[0].strip("| ") for line in text.splitlines() if "268,435,456 |" in line}
    panels = {panel.title: {bar.name for bar in panel.bars} for panel in plots["ops"](small=False)}
    assert large <= set().union(*panels.values())
    assert {"sum of rows", "argmax of columns", "dot"} <= panels["reduce"]
    assert {"bincount, 256 bins", "histogram, zipf"} <= panels["count"]


def test_a_mark_is_the_ratio_of_its_row(plots: dict[str, Any]) -> None:
    text = (ROOT / "benchmarks" / "results" / "kernels-h200.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| sum \| float32 \| 1,024 \|.*$", text, re.MULTILINE)
    wanted = {name: float(ratio) for name, ratio in re.findall(r"(\w+) [\d.]+ µs \(([\d.]+) ×\)", row)}
    (reduce,) = (panel for panel in plots["ops"](small=True) if panel.title == "reduce")
    (bar,) = (bar for bar in reduce.bars if bar.name == "sum")
    assert {name.lower(): ratio for name, ratio in bar.ratios.items()} == wanted
    assert len(wanted) == 3


def test_a_cost_twice_its_peers_is_half_as_fast(plots: dict[str, Any]) -> None:
    panels = plots["costs"]()
    assert [len(panel.bars) > 1 for panel in panels] == [True] * 5
    text = (ROOT / "benchmarks" / "results" / "launch-h200.md").read_text(encoding="utf-8")
    found = re.search(r"checked call, 3 arrays \+ 1 int \| \d+ ns \| ([\d.]+)", text)
    (bar,) = (bar for bar in panels[0].bars if bar.name == "checked call, 3 arrays + 1 int")
    assert found
    assert list(bar.ratios.values()) == [pytest.approx(1 / float(found[1]))]


def test_what_lies_beyond_the_axis_is_at_its_end(plots: dict[str, Any]) -> None:
    bar, panel = plots["Bar"], plots["Panel"]
    drawn = plots["drawn"](
        [panel("a <family>", [bar("1", {"CuPy": 1.0}), bar("`f`", {"CuPy": 40.0, "CUB": 2.0})])], -1, 4
    )
    assert "a &lt;family&gt;" in drawn
    assert "<code>f</code>" in drawn
    assert re.findall(r'<i class="(\w+)" style="left: ([\d.]+)%', drawn) == [
        ("CuPy", "20.0"), ("CUB", "40.0"), ("CuPy", "100.0"),
    ]  # fmt: skip
    assert re.findall(r"<span>([\d.]+)</span></div>", drawn) == ["1.00", "2.00"]
