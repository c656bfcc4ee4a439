"""The output of the examples: recorded in their docstrings under ``Prints::``, and compared but for what varies.

Each program's output is recorded on the emulator. ``tests/examples/varying_output.txt`` lists the lines that depend on
the machine. ``PYTHONPATH=tests python -m support.printed PROGRAM.py …`` runs programs and writes their docstrings anew.
"""

from __future__ import annotations

import ast
import doctest
import functools
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
VARYING = ROOT / "tests" / "examples" / "varying_output.txt"
HEAD = "Prints::\n"
WIDTH = 116  # of a line of a docstring's block, which is indented by four
HOOK = "    ↳ "  # at the start of a line that goes on the one before
#: Runs a program as where there is no GPU.
RUN = """
import runpy, sys
import cudakit as ck
ck.stream, ck.has_gpu = ck.emulator.stream, lambda: False
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def name_of(program: Path) -> str:
    """Return a program's name in the list: its path in ``examples``, and its own name only if it is in the tutorial."""
    return program.relative_to(EXAMPLES).with_suffix("").as_posix().removeprefix("tutorial/")


def docstring(text: str) -> str:
    """Return the docstring of a program's text."""
    return ast.get_docstring(ast.parse(text)) or ""


@functools.cache
def patterns() -> dict[str, list[str]]:
    """Return the varying lines of each program, with ``...`` for any text."""
    sections: dict[str, list[str]] = {}
    for line in VARYING.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            lines = sections.setdefault(line[1:-1], [])
        elif line and sections:
            lines.append(line)
    return sections


def is_like(pattern: str, line: str) -> bool:
    """Return whether a line is one that a pattern stands for."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("..."))), line) is not None


def wrapped(line: str) -> str:
    """Return a line of output as several lines that fit a docstring."""
    if len(line) <= WIDTH:
        return line.rstrip()
    return textwrap.fill(line, WIDTH, subsequent_indent=HOOK, break_long_words=False, break_on_hyphens=False)


def recorded(text: str) -> list[str]:
    """Return the lines under ``Prints::`` in a program's docstring, wrapped ones joined."""
    block = textwrap.dedent(docstring(text).partition(HEAD)[2]).strip("\n")
    return block.replace(f"\n{HOOK}", " ").splitlines()


def expected(name: str, text: str) -> str:
    """Return the recorded output, with the pattern in place of each line that varies."""
    varying = patterns().get(name, [])
    return "".join(f"{next((each for each in varying if is_like(each, line)), line)}\n" for line in recorded(text))


def difference(name: str, text: str, output: str) -> str:
    """Compare a program's output with the recorded one; return nothing, or both."""
    want = expected(name, text)
    if doctest.OutputChecker().check_output(want, output, doctest.ELLIPSIS):
        return ""
    return f"expected\n{want}\ngot\n{output}"


def record(program: Path) -> None:
    """Run a program on the emulator, and write its output into its docstring.

    A longer docstring moves the lines that an output may name: the program is then run once more.
    """
    if _record_once(program):
        _record_once(program)


def _record_once(program: Path) -> bool:
    """Run a program, and write its output; return whether it was another one."""
    text = program.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TMPDIR": folder}
        command = [sys.executable, "-c", RUN, str(program)]
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        output = done.stdout.replace(folder, "/tmp").replace(f"{program.parent}/", "")
    block = textwrap.indent("\n".join(map(wrapped, output.rstrip().splitlines())), "    ").replace("\\", "\\\\")
    start, end = text.index(HEAD) + len(HEAD), text.index('"""', 3)
    renewed = f"{text[:start]}\n{block}\n{text[end:]}"
    program.write_text(renewed, encoding="utf-8")
    return renewed != text


if __name__ == "__main__":
    for name in sys.argv[1:]:
        record(Path(name).resolve())
