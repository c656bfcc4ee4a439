"""Lines that instructions belong to, and how they are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cudakit.emulator.debug.stops import Line, Lines
from cudakit.errors import ArgumentError

TEXT = "__global__ void f() {\n    x = 1;\n    y = 2;\n    x = 3;\n}"


def at(line: int, file: str = "kernel.cu", caller: Any = None) -> Any:
    return SimpleNamespace(file=file, line=line, caller=caller)


def lines_of(*functions: list[Any], placed: Callable[[str, int], str] | None = None) -> Lines:
    """Lines of functions, whose instructions come from these places; the user's lines count from 100."""
    module: Any = SimpleNamespace(
        functions=[SimpleNamespace(code=[SimpleNamespace(source=each) for each in code]) for code in functions]
    )
    source: Any = SimpleNamespace(name="kernel.cu", named=lambda file: Path(file).name)
    return Lines(module, source, TEXT, placed or (lambda file, line: f"app.py:{99 + line}"))


def test_instructions_have_the_lines_of_the_text() -> None:
    lines = lines_of([at(1), at(2), at(2), at(9), at(0)], [at(3)])
    assert lines.of[0] == [
        Line("app.py", 100, "__global__ void f() {"),
        Line("app.py", 101, "    x = 1;"),
        Line("app.py", 101, "    x = 1;"),
        Line("app.py", 108, ""),
        Line("app.py", 99, ""),
    ]
    assert lines.of[1] == [Line("app.py", 102, "    y = 2;")]
    assert lines.files == {"app.py"}
    assert lines_of([at(5, "/some/folder/kernel.cu")]).of[0] == [Line("app.py", 104, "}")]


def test_instructions_of_libraries_have_the_line_that_called_them() -> None:
    inside = at(7, "/nowhere/library.cuh", at(9, "/nowhere/library.cuh", at(2)))
    lines = lines_of([None, at(1), None, inside, None, at(7, "/nowhere/library.cuh")])
    assert [line and line.line for line in lines.of[0]] == [None, 100, 100, 101, 101, None]


def test_lines_of_other_files(tmp_path: Path) -> None:
    header = tmp_path / "header.cuh"
    header.write_text("first\nsecond \n")
    assert lines_of([at(2, str(header))]).of[0] == [Line("app.py", 101, "second ")]


def test_the_text_around_a_line() -> None:
    assert [line.line for line in lines_of([at(1)]).text(101, 103)] == [101, 102, 103]


def test_places() -> None:
    lines = lines_of([at(1), at(2), at(2), at(4), at(2)], [at(2), at(3)])
    assert lines.places(101) == (Line("app.py", 101, "    x = 1;"), frozenset({(0, 1), (0, 4), (1, 0)}))
    assert lines.places("x =")[0].line == 101
    assert lines.places("x = 3") == (Line("app.py", 103, "    x = 3;"), frozenset({(0, 3)}))
    assert lines.places("102")[0].line == 102
    assert lines.places("app.py:102")[0].line == 102
    assert lines.places("/a/folder/app.py:103")[0].line == 103
    assert lines.places(5)[0].line == 100


def test_places_of_one_file_of_two(tmp_path: Path) -> None:
    header = tmp_path / "header.cuh"
    header.write_text("a\nb\nc\n")
    lines = lines_of([at(1), at(4), at(2, str(header))], placed=lambda file, line: f"{file}:{line}")
    assert lines.places("kernel.cu:2")[0] == Line("kernel.cu", 4, "    x = 3;")
    assert lines.places("header.cuh:1")[0] == Line(str(header), 2, "b")
    assert lines.places(2)[0] == Line(str(header), 2, "b")
    with pytest.raises(ArgumentError, match=r"no line with code has 'other\.cuh:1' in it"):
        lines.places("other.cuh:1")


def test_places_that_have_no_code() -> None:
    with pytest.raises(ArgumentError, match="no line with code has 'z = 1' in it"):
        lines_of([at(1)]).places("z = 1")
    with pytest.raises(ArgumentError, match="no code comes from line 105 or after it; the last line with any is 101"):
        lines_of([at(2), at(1)]).places(105)
    with pytest.raises(ArgumentError, match="the last line with any is 0"):
        lines_of([None]).places(1)
