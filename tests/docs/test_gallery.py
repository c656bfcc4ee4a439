"""The gallery has every program and notebook, its pictures are small, and its figures are in the benchmarks' tables."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples"


@pytest.fixture
def gallery(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(DOCS))
    for name in ("generated", "plots", "tables_of_code"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return runpy.run_path(str(DOCS / "gallery.py"))


def test_every_program_and_notebook_has_one_card(gallery: dict[str, Any]) -> None:
    cards = [card for _, section in gallery["sections"]() for card in section]
    paths = [path for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".ipynb")]
    wanted = {path.relative_to(EXAMPLES).with_suffix("").as_posix() for path in paths} - {"tutorial/tutorial_tools"}
    assert sorted(card.page for card in cards) == sorted(wanted)
    assert [card.page for card in cards if not card.about or not card.shown] == []


def test_pictures_are_of_programs_and_small(gallery: dict[str, Any]) -> None:
    pages = {Path(card.page).name for _, section in gallery["sections"]() for card in section}
    pictures = sorted((DOCS / "_static" / "gallery").iterdir())
    assert len(pictures) >= 12
    assert [path.name for path in pictures if path.stem not in pages or path.stat().st_size > 100_000] == []
    drawn = [gallery["drawn"](card) for _, section in gallery["sections"]() for card in section]
    assert sum("<img" in card for card in drawn) == len(pictures)


def test_figures_are_cells_of_the_tables(gallery: dict[str, Any]) -> None:
    for page, cells, column, text in gallery["MEASURED"].values():
        figure = gallery["measured"](page, cells, column, "{}")
        lines = (ROOT / "benchmarks" / "results" / f"{page}-h200.md").read_text(encoding="utf-8").splitlines()
        assert any(all(f"| {cell} " in line for cell in (*cells, figure)) for line in lines)
        assert re.fullmatch(r"[\d.]+( µs| ns)?", figure)
        assert text.format(figure) == gallery["measured"](page, cells, column, text)


def test_a_notebook_becomes_a_page(gallery: dict[str, Any]) -> None:
    page = gallery["notebook_page"](EXAMPLES / "notebooks" / "quickstart.ipynb")
    assert page.startswith("# Quickstart\n")
    assert page.count("```python\n") >= 6
    assert "[streams](streams.md)" in page
    assert ".ipynb" not in page
