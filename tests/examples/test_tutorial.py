"""Every program of examples/tutorial runs, checks itself, and prints what its docstring says; the index lists all."""

from __future__ import annotations

import ast
import doctest
import re
import runpy
import sys
import textwrap
from pathlib import Path

import pytest

import cudakit as ck

FOLDER = Path(__file__).parents[2] / "examples" / "tutorial"
PROGRAMS = sorted(FOLDER.glob("*.py"))


def docstring(program: Path) -> str:
    return ast.get_docstring(ast.parse(program.read_text())) or ""


@pytest.mark.slow
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
    lines, _, expected = docstring(program).partition("Prints::\n")
    assert lines, "the docstring says what the program teaches"
    runpy.run_path(str(program), run_name="__main__")
    got = capfd.readouterr().out
    checker = doctest.OutputChecker()
    wanted = textwrap.dedent(expected).strip("\n") + "\n"
    assert checker.check_output(wanted, got, doctest.ELLIPSIS), f"expected\n{wanted}\ngot\n{got}"


def test_the_index_lists_each_program_with_its_first_sentence() -> None:
    listed = dict(re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\) \| (.+) \|$", (FOLDER / "README.md").read_text(), re.M))
    sentences = {program.stem: docstring(program).split("\n\n")[0].replace("\n", " ") for program in PROGRAMS}
    assert listed == sentences
