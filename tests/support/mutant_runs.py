"""Runs mutants of the tutorial's programs on the emulator, each in a process of its own, and says which ones survive.

``PYTHONPATH=tests python -m support.mutant_runs [PROGRAM …]`` runs all of them.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from support import printed
from support.forks import in_a_fork
from support.mutants import Mutant, equivalents, is_like, mutants

import cudakit as ck

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "tutorial"
SECONDS = 60  # of a mutant; the longest program takes a sixth of it
VERBOSE = "MUTANTS_VERBOSE"  # in the environment: say why a mutant dies


class Job(NamedTuple):
    """A mutant of a program, by its place among all of them; no place: the program as it is."""

    program: str
    place: int | None = None


def programs() -> list[str]:
    """The names of all programs."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "tutorial_tools")


@functools.cache
def mutants_of(program: str) -> list[Mutant]:
    """All mutants of a program."""
    return mutants((FOLDER / f"{program}.py").read_text())


@functools.cache
def listed() -> list[tuple[str, str, str]]:
    """The mutants that are as right as their program."""
    return equivalents(ROOT / "tests" / "examples" / "equivalent_mutants.txt")


def outcomes(jobs: Iterable[Job], processes: int = 2) -> dict[Job, str]:
    """What becomes of each job: it ``survives``, ``dies``, is ``endless``, or ``lacks`` a library.

    It survives if the program runs to its end and prints what it says.
    """
    jobs = list(jobs)
    shares = [share for share in (jobs[first::processes] for first in range(processes)) if share]
    with ThreadPoolExecutor(len(shares) or 1) as pool:
        return {job: outcome for found in pool.map(_in_a_process, shares) for job, outcome in found}


def unlisted(found: dict[Job, str]) -> list[str]:
    """The mutants that survive and are not among the equivalents."""
    lines = []
    for job, outcome in found.items():
        if job.place is not None and outcome == "survives":
            mutant = mutants_of(job.program)[job.place]
            if not any(is_like(pattern, job.program, mutant.line) for pattern in listed()):
                lines.append(f"{job.program}: {mutant.kind}: {mutant.line}")
    return sorted(lines)


def _in_a_process(jobs: list[Job]) -> list[tuple[Job, str]]:
    """The outcomes of jobs, run by a process that has imported all they need, and forks."""
    command = [sys.executable, "-m", "support.mutant_runs", "--serve"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    # Not the user's cache; and one that is kept, so that what survived is run again without compiling.
    cache = str(Path(tempfile.gettempdir()) / f"cudakit-mutants-{os.getuid()}")
    given = {"CUDAKIT_CACHE_DIR": cache, **os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, input=json.dumps(jobs), stdout=subprocess.PIPE, text=True, check=True, env=given)
    return list(zip(jobs, json.loads(done.stdout.splitlines()[-1]), strict=True))


def _serve() -> None:
    """Read jobs, and write what becomes of them."""
    from matplotlib import colormaps, figure, image  # noqa: F401  # imported once, not in each process

    sys.path.insert(0, str(FOLDER))
    first = ck.Kernel("__global__ void first(int* x) { *x = 1; }")  # loads what all of them use
    first(ck.emulator.stream(), ck.config(1, 1), np.zeros(1, np.int32))
    found = []
    for job in json.load(sys.stdin):
        found.append(_run(Job(*job)))
        if VERBOSE in os.environ:
            print(job, found[-1], file=sys.stderr, flush=True)
    print(json.dumps(found))


def _run(job: Job) -> str:
    """What becomes of a job, in a process of its own."""
    original = (FOLDER / f"{job.program}.py").read_text()
    text = original if job.place is None else mutants_of(job.program)[job.place].text

    def run() -> int:
        try:
            _run_here(job.program, text, original)
        except SystemExit as end:
            return 2 if end.code is None else 1
        except BaseException:
            if VERBOSE in os.environ:
                traceback.print_exc()
            return 1
        return 0

    status = in_a_fork(run, SECONDS)
    return "endless" if status is None else {0: "survives", 2: "lacks"}.get(status, "dies")


def _run_here(program: str, text: str, original: str) -> None:
    """Run a mutant's text where there is no GPU, and compare its output with the one recorded in the original."""
    ck.stream, ck.has_gpu = ck.emulator.stream, lambda: False  # type: ignore[assignment]
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", DeprecationWarning)
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "out", "w+") as out:
        path = Path(folder) / f"{program}.py"
        path.write_text(text)
        sys.argv, tempfile.tempdir = [str(path)], folder  # pictures, too, go there
        os.dup2(out.fileno(), 1)
        if VERBOSE not in os.environ:
            os.dup2(out.fileno(), 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        runpy.run_path(str(path), run_name="__main__")
        sys.stdout.flush()
        out.seek(0)
        got = out.read()
    if difference := printed.difference(program, original, got):
        raise AssertionError(difference)


def main() -> None:
    """Run all mutants of some programs, or of all, and print those that survive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=programs())
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return _serve()
    start = time.monotonic()
    plain = outcomes(map(Job, options.programs), options.processes)
    if broken := [job.program for job, outcome in plain.items() if outcome in ("dies", "endless")]:
        sys.exit(f"these fail as they are: {', '.join(broken)}")
    if lacking := [job.program for job, outcome in plain.items() if outcome == "lacks"]:
        print(f"not run, for the lack of a library: {', '.join(lacking)}")
    names = [job.program for job, outcome in plain.items() if outcome == "survives"]
    found = outcomes((Job(name, place) for name in names for place in range(len(mutants_of(name)))), options.processes)
    lines = unlisted(found)
    print(*lines, sep="\n")
    alive = [(job.program, mutants_of(job.program)[job.place or 0].line) for job in found if found[job] == "survives"]
    for pattern in listed():
        if pattern[0] in names and not any(is_like(pattern, *each) for each in alive):
            print(f"listed, but none survives: {pattern[0]}: {pattern[1]}")
    counts = collections.Counter(found.values())
    print(f"{len(found)} mutants of {len(names)} programs: {dict(counts)}; {len(lines)} that survive are not listed")
    print(f"{time.monotonic() - start:.0f} s with {options.processes} processes")


if __name__ == "__main__":
    main()
