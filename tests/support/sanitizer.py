"""Asks compute-sanitizer, on a GPU, about the faults that the emulator's checks find: a table for docs/checks.md.

PYTHONPATH=tests python -m support.sanitizer --output table.md
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from support.scripts import loaded

CHECKS = Path(__file__).parents[1] / "emulator" / "checks"
#: The tool that has a check of a kind.
TOOLS = {
    "race": "racecheck", "copy": "racecheck", "uninitialised": "initcheck", "unwritten": "initcheck",
    "barrier": "synccheck", "mask": "synccheck", "memory": "memcheck",
}  # fmt: skip
_SECONDS = 20
_AT_ONCE = 15

MAIN = """
#include <cstring>
#include <cstdio>
int main(int count, char** given) {
    float *x, *y;
    cudaMalloc(&x, 4096);
    cudaMalloc(&y, 4096);
    cudaMemset(y, 0, 4096);
    if (CLEARED) cudaMemset(x, 0, 4096);
    const char* name = given[1];
    CALLS
    cudaError_t status = cudaDeviceSynchronize();
    printf("%s\\n", cudaGetErrorString(status));
}
"""


class Fault(NamedTuple):
    """A kernel with a fault, and the lines of its text that have to do with it."""

    file: str
    name: str
    kind: str
    lines: frozenset[int]
    blocks: int
    parameters: str


class Answer(NamedTuple):
    """What a tool says: how many faults, and on which lines of the text."""

    count: int
    lines: frozenset[int]
    text: str


def faults(file: str) -> tuple[str, str, list[Fault]]:
    """The head and the text of a test file's faults, and the faults."""
    module = loaded(CHECKS / f"{file}.py")
    text: str = module.FAULTS
    rows, found = text.splitlines(), []
    for begin, row in enumerate(rows):
        head = re.match(r"__global__ void (\w+)\((.*)\) \{", row)
        if head is None:
            continue
        end = next(k for k in range(begin, len(rows)) if rows[k] == "}")
        words = [(k + 1, word) for k in range(begin, end) for word in re.findall(r"//(.*)", rows[k])]
        kinds = [word.strip().split(",")[0] for _, word in words]
        kind = next(each for each in kinds if each != "other")
        blocks = 2 if head[1] in getattr(module, "SEVERAL", ()) else 1
        found.append(Fault(file, head[1], kind, frozenset(k for k, _ in words), blocks, head[2]))
    return getattr(module, "HEAD", ""), text, found


def program(head: str, text: str, some: Sequence[Fault]) -> str:
    """A program that launches the fault that it is told."""
    calls = []
    for each in some:
        given, threads = ("y", 256) if each.file == "test_checks" else ("x, y", 64)
        given += ", 4" if each.parameters.endswith("int n") else ", x" if each.kind == "const" else ""
        calls.append(f'if (!strcmp(name, "{each.name}")) {each.name}<<<{each.blocks}, {threads}>>>({given});')
    cleared = "0" if some[0].file == "test_unwritten" else "1"
    main = MAIN.replace("CALLS", "\n    ".join(calls)).replace("CLEARED", cleared)
    return f'{head}\n#line 1 "faults.cu"\n{text}\n#line 1 "main.cu"\n{main}'


def ask(binary: Path, fault: Fault) -> Answer:
    """What the tool for a fault's kind says."""
    tool = TOOLS[fault.kind]
    more = {"racecheck": ["--racecheck-report", "all"], "memcheck": ["--padding", "512"]}.get(tool, [])
    command = ["timeout", str(_SECONDS), "compute-sanitizer", "--tool", tool, *more, str(binary), fault.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    lines = frozenset(int(each) for each in re.findall(r"faults\.cu:(\d+)", text))
    counts = re.findall(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+)", text)
    return Answer(int(counts[-1]) if counts else -1, lines, text)


def table(rows: Sequence[tuple[Fault, Answer]]) -> Iterator[str]:
    """A row a fault."""
    yield "| fault | cudakit | compute-sanitizer | |"
    yield "|---|---|---|---|"
    for fault, answer in rows:
        kind = "uninitialised" if fault.kind == "unwritten" else fault.kind
        said = {-1: "ended by time", 0: "nothing"}.get(answer.count, "found")
        where = "the same line" if answer.lines & fault.lines else "another line" if answer.lines else ""
        yield f"| `{fault.name}` | {kind} | {TOOLS[fault.kind]}: {said} | {where} |"


def main() -> None:
    """Compile, ask about all, and write the table and what was said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    path: Path = parser.parse_args().output
    files = ("test_checks", "test_async_copies", "test_unwritten", "test_accesses")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_AT_ONCE) as pool:

        def compiled(file: str) -> tuple[Path, list[Fault]]:
            head, text, found = faults(file)
            source, binary = Path(folder, f"{file}.cu"), Path(folder, file)
            source.write_text(program(head, text, found), "utf-8")
            options = ["-arch=sm_90", "-lineinfo", "-std=c++17", "-w"]
            subprocess.run(["nvcc", *options, "-o", str(binary), str(source)], check=True)
            return binary, found

        built = list(pool.map(compiled, files))
        asked = [(binary, fault) for binary, found in built for fault in found if fault.kind in TOOLS]
        answers = list(pool.map(lambda each: ask(*each), asked))
    rows = [(fault, answer) for (_, fault), answer in zip(asked, answers, strict=True)]
    path.write_text("\n".join(table(rows)) + "\n", "utf-8")
    said = (f"==== {fault.file} {fault.name} {fault.kind}\n{answer.text}" for fault, answer in rows)
    path.with_suffix(".log").write_text("\n".join(said), "utf-8")


if __name__ == "__main__":
    main()
