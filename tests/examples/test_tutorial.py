"""Every program of examples/tutorial runs, checks itself, and prints what its docstring says; the index lists all."""

from __future__ import annotations

import re
import runpy
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from support import printed

import cudakit as ck
from cudakit import demo

FOLDER = Path(__file__).parents[2] / "examples" / "tutorial"
TOOLS = FOLDER / "tutorial_tools.py"
PROGRAMS = sorted(set(FOLDER.glob("*.py")) - {TOOLS})


@pytest.mark.filterwarnings("ignore:The 'generic' unit for NumPy timedelta:DeprecationWarning")  # in Numba
@pytest.mark.filterwarnings("ignore:.*Grid size .* under-utilization")  # likewise: the arrays are small on purpose
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_program_prints_what_it_says(
    program: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if not request.config.getoption("--gpu"):
        monkeypatch.setattr(
            ck, "stream", ck.emulator.stream
        )  # what it gives where there is no GPU, without the warning
        monkeypatch.setattr(ck, "has_gpu", lambda: False)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.syspath_prepend(str(FOLDER))  # as it is for a program that is run
    text = program.read_text(encoding="utf-8")
    assert printed.docstring(text).partition(printed.HEAD)[0], "the docstring says what the program teaches"
    ended: SystemExit | None = None
    try:
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as error:
        ended = error
    got = capfd.readouterr().out
    if ended is not None and ended.code is None:
        pytest.skip(got.strip())  # a library is missing, and the program says so
    assert ended is None
    assert printed.difference(program.stem, text, got) == ""


def test_the_index_lists_each_program_with_its_first_sentence() -> None:
    listed = dict(re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\) \| (.+) \|$", (FOLDER / "README.md").read_text(), re.M))
    sentences = {
        program.stem: printed.docstring(program.read_text()).split("\n\n")[0].replace("\n", " ") for program in PROGRAMS
    }
    assert listed == sentences


def test_the_median_is_that_of_the_launches_after_the_first() -> None:
    stream = ck.emulator.stream()
    given = np.zeros(4 * 90, np.float32)
    sizes = iter((90, 10, 30, 80))
    took = []

    def launch() -> None:
        with ck.Timer(stream) as timer:
            ck.to_device(given[: 4 * next(sizes)], stream)
        took.append(timer.elapsed_ms)

    found = demo.median_ms(stream, launch, repeats=3)
    assert len(took) == 4
    assert took[1] < took[2] == found < took[3] < took[0]


def test_pictures_go_where_the_program_says_or_into_one_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    picture_path = runpy.run_path(str(TOOLS))["picture_path"]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["program"])
    assert picture_path("a.png") == tmp_path / "cudakit-tutorial" / "a.png"
    assert picture_path("b.png").parent.is_dir()
    monkeypatch.setattr(sys, "argv", ["program", "--picture", str(tmp_path / "mine" / "c.png")])
    assert picture_path("a.png") == tmp_path / "mine" / "c.png"
    assert (tmp_path / "mine").is_dir()
