"""The notebooks run from top to bottom, each in a namespace of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cudakit as ck

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def cells(notebook: Path) -> list[str]:
    """The code of a notebook, a cell each."""
    found = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_notebook_runs(
    notebook: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not request.config.getoption("--gpu"):
        monkeypatch.setattr(ck, "stream", ck.emulator.stream)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells(notebook)):
        exec(compile(cell, f"{notebook.name}, cell {number}", "exec"), names)


def test_there_are_the_four_of_the_first_hour_and_one_to_tune() -> None:
    assert [notebook.stem for notebook in NOTEBOOKS] == ["emulator", "quickstart", "streams", "templates", "tune"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_outputs_are_stored_and_no_cell_failed(notebook: Path) -> None:
    outputs = [cell["outputs"] for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    assert any(outputs)
    assert not [each for output in outputs for each in output if each["output_type"] == "error"]
