"""The Indigo suite as an exam of the checks: what is found of its racy kernels, and what is told of those without.

Indigo (https://github.com/burtscher/IndigoSuite) generates small graph kernels, with and without planted faults, and
says in the name of each file what was planted. Generate its CUDA codes of type int, then

PYTHONPATH=tests python -m support.indigo FOLDER --output table.md
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

import cudakit as ck

VERTICES = 32
THREADS = 64
#: Of which a data race comes; the rest reads out of bounds.
RACES = ("atomicBug", "guardBug", "raceBug", "syncBug")
BOUNDS = "boundsBug"
#: So many steps are endless here.
_STEPS = 200_000


class Answer(NamedTuple):
    """What is planted in a kernel, and what was told of it."""

    name: str
    planted: tuple[str, ...]
    races: tuple[str, ...]
    others: tuple[str, ...]


class Graph(NamedTuple):
    """Neighbours of each vertex, one after the other: those of `i` lie from ``starts[i]`` to ``starts[i + 1]``."""

    starts: np.ndarray
    neighbours: np.ndarray


def graphs() -> Iterator[Graph]:
    """Stars about the first and the last vertex, a dense graph, and a thin one whose first and last are alone."""
    random = np.random.default_rng(1)
    first, last = np.zeros((2, VERTICES, VERTICES), bool)
    first[0, 1:] = last[:-1, -1] = True
    dense, thin = random.random(first.shape) < 0.3, random.random(first.shape) < 0.08
    thin[0] = thin[:, -3:] = False
    for joined in (first, last, dense, thin):
        both = np.triu(joined, 1) | np.triu(joined, 1).T
        starts = np.concatenate([[0], np.cumsum(both.sum(axis=1))])
        yield Graph(starts.astype(np.int32), np.nonzero(both)[1].astype(np.int32))


def shapes(name: str) -> Iterator[tuple[int, int]]:
    """Blocks and threads: more than the vertices need, just as many, and too few where the kernel goes on for more."""
    # Of a worker, which has one vertex.
    threads = THREADS if "_block" in name else 32 if "_warp" in name else 1
    yield (VERTICES * threads + 8 * THREADS) // THREADS, THREADS
    yield (VERTICES, threads) if threads > 1 else (2, VERTICES // 2)
    if "persistent" in name:
        yield 4, THREADS


def examine(path: Path, schedules: int) -> Answer:
    """What is told of one kernel on all graphs."""
    text = path.read_text()
    text = text[: text.index("void serial_code")].replace('#include "indigo_cuda.h"', "")
    kernel = ck.Kernel(text, "test_kernel")
    races, others = [], []
    for number, graph in enumerate(graphs()):
        size = max(VERTICES, graph.neighbours.size)
        for blocks, threads in shapes(path.stem):
            random = np.random.default_rng(number)
            first = random.integers(0, VERTICES, size, dtype=np.int32)
            second = random.integers(0, graph.neighbours.size, size, dtype=np.int32)
            first[0] = second[0] = 0
            stream = ck.emulator.stream(step_budget=_STEPS)
            given = graph.starts.copy(), graph.neighbours.copy(), first, second, VERTICES
            with ck.check(schedules=schedules) as report:
                try:
                    kernel(stream, ck.config(blocks, threads), *given)
                except ck.EmulationError as error:
                    others.append(str(error))
            races += [str(each) for each in report.findings if each.kind == "race"]
            others += [str(each) for each in report.findings if each.kind != "race"]
    planted = tuple(re.findall("|".join((*RACES, BOUNDS)), path.stem))
    return Answer(path.stem, planted, tuple(races), tuple(others))


def table(answers: Sequence[Answer]) -> Iterator[str]:
    """The lines of a table: by what is planted, kernels, those of which it is told, and those of which anything is."""
    yield "| planted | kernels | found | |"
    yield "|---|---|---|---|"
    count: Counter[tuple[str, bool]] = Counter()
    for each in answers:
        is_racy = any(name in RACES for name in each.planted)
        found = bool(each.races) if is_racy else bool(each.others or each.races)
        count[", ".join(sorted(set(each.planted))), found] += 1
    for planted in sorted({key for key, _ in count}):
        found, missed = count[planted, True], count[planted, False]
        shown = f"{100 * found / (found + missed):.1f} %" if planted else "false alarms"
        yield f"| {planted or 'nothing'} | {found + missed} | {found} | {shown} |"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("folder", type=Path, help="where the generated .cu files are")
    asked.add_argument("--output", type=Path, help="where the table goes")
    asked.add_argument("--schedules", type=int, default=0, help="how many orders of threads are tried")
    asked.add_argument("--every", type=int, default=1, help="only each so many'th kernel")
    asked.add_argument("--processes", type=int, default=2)
    given = asked.parse_args()
    paths = sorted(given.folder.rglob("*.cu"))[:: given.every]
    with ProcessPoolExecutor(given.processes) as pool:
        answers = list(pool.map(examine, paths, [given.schedules] * len(paths), chunksize=4))
    for each in answers:
        is_racy = any(name in RACES for name in each.planted)
        if is_racy and not each.races:
            print(f"missed: {each.name}: {'; '.join(each.others)}")
        if not each.planted and (each.races or each.others):
            print(f"false alarm: {each.name}: {'; '.join((*each.races, *each.others))}")
        if each.planted == (BOUNDS,) and not each.others:
            print(f"missed: {each.name}: {'; '.join(each.races)}")
        if not is_racy and each.planted and each.races:
            print(f"a race beside it: {each.name}: {each.races[0]}")
    text = "\n".join(table(answers)) + "\n"
    print(text)
    if given.output:
        given.output.write_text(text)


if __name__ == "__main__":
    main()
