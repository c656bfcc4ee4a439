"""The output recorded in the examples is real, and what varies in it is listed."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from support import printed
from support.tiles import needs_tiles

import cudakit as ck

PROGRAMS = {printed.name_of(path): path.read_text(encoding="utf-8") for path in printed.EXAMPLES.rglob("*.py")}


#: The programs beside the tutorial; the tutorial's own are run by test_tutorial.py.
LONGER = sorted(
    name for name in PROGRAMS if (printed.EXAMPLES / f"{name}.py").is_file() and printed.recorded(PROGRAMS[name])
)


def test_recorded_lines_have_no_masks() -> None:
    assert [name for name, text in PROGRAMS.items() for line in printed.recorded(text) if "..." in line] == []


def test_each_varying_line_is_recorded() -> None:
    for name, lines in printed.patterns().items():
        recorded = printed.recorded(PROGRAMS[name])
        assert [line for line in lines if not any(printed.is_like(line, found) for found in recorded)] == [], name


def test_a_line_that_varies_is_compared_with_its_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed, "patterns", lambda: {"program": ["took ... ms"]})
    text = f'"""Program.\n\n{printed.HEAD}\n    took 3 ms\n    sum: 6\n"""\n'
    assert printed.difference("program", text, "took 50 ms\nsum: 6\n") == ""
    assert "took ... ms" in printed.difference("program", text, "took 50 ms\nsum: 7\n")
    assert printed.difference("other", text, "took 50 ms\nsum: 6\n")


def test_a_program_is_recorded_until_the_lines_that_it_names_agree(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f'"""Program.\n\n{printed.HEAD}"""\n\nimport sys\n\n'
        'print("a\\\\b", sys._getframe().f_lineno)\nprint("word " * 30)\n'
    )
    printed.record(program)
    text = program.read_text()
    long_line = ("word " * 30).strip()
    assert printed.recorded(text) == [f"a\\b {text.splitlines().index('import sys') + 3}", long_line]
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
@pytest.mark.parametrize("name", LONGER)
def test_a_longer_program_prints_what_is_recorded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if name == "transformer_block":
        needs_tiles()
    monkeypatch.setattr(ck, "stream", ck.emulator.stream)
    monkeypatch.setattr(ck, "has_gpu", lambda: False)
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(printed.EXAMPLES / f"{name}.py"), run_name="__main__")
    assert printed.difference(name, PROGRAMS[name], capfd.readouterr().out) == ""
