"""Runs tests against mutants: a process that has imported what tests need, but nothing of cudakit, and forks.

Each server works in a copy of the checkout, into which it writes the changed file and then the original again. Compiled
kernels come from a linked copy of the kept cache that is thrown away with the mutant. If the mutant changes what fills
that cache, it begins with an empty one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.executed import KEPT, environment
from support.forks import in_a_fork

#: What tests import; what is missing is left out.
IMPORTED = (
    *("hypothesis", "hypothesis.extra.numpy", "numpy", "numpy.testing", "scipy.ndimage", "scipy.special", "cupy"),
    *("cuda.core", "cuda.bindings.driver", "cuda.bindings.nvrtc", "cuda.pathfinder", "llvmlite.binding", "llvmlite.ir"),
    *("ml_dtypes", "tree_sitter", "tree_sitter_cuda", "filelock", "platformdirs", "z3", "sympy"),
)
#: A server has imported what pytest would rewrite.
WARNINGS = ("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
#: Code that fills the cache of compiled kernels: `support.caches` says the same for the kept cache.
MAKERS = ("jit/cache/", "jit/compile/", "jit/signature/", "jit/source/", "emulator/compiled/native.py")


class Trial(NamedTuple):
    """A changed file and the tests to be run, in this order, until one fails, or all of them."""

    file: str
    text: str
    tests: Sequence[str]
    seconds: float
    is_whole: bool = False


class Outcome(NamedTuple):
    """How a trial ends: ``survived``, ``seen`` or ``endless``.

    Attributes
    ----------
    outcome : str
    seconds : float
    words : str
        The tests that fail, a line each, or how pytest ends.
    """

    outcome: str
    seconds: float
    words: str


class Server:
    """A server in a copy of the checkout."""

    def __init__(self, copy: Path, gpu: bool = False) -> None:
        command = [sys.executable, "-m", "support.mutant_server", *(["--gpu"] if gpu else [])]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=copy, env=environment(copy), stdin=pipe, stdout=pipe, text=True)

    def run(self, trial: Trial) -> Outcome:
        """Run the tests of a trial."""
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(trial), file=self._process.stdin, flush=True)
        return Outcome(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the server."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


class Chosen:
    """Plugin that keeps the chosen tests, in their order, and names the one that fails."""

    def __init__(self, tests: Sequence[str], told: Path) -> None:
        self.places = {test: place for place, test in enumerate(tests)}
        self.told = told

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self.places), key=lambda it: self.places[it.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note(report)

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.outcome == "failed":
            with self.told.open("a") as out:
                print(report.nodeid, file=out)


def run(trial: Trial, version: int) -> Outcome:
    """Run a trial in the working directory, a copy of the checkout."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, changed(trial, version):
        scratch, told = Path(folder), Path(folder) / "told"
        cache = scratch / "cache"
        if not trial.file.startswith(tuple(f"cudakit/{maker}" for maker in MAKERS)) and (KEPT / "cache").exists():
            shutil.copytree(KEPT / "cache", cache, copy_function=os.link)
        files = dict.fromkeys(test.partition("::")[0] for test in trial.tests)
        options = ["-q", "-p", "no:xdist", "-o", f"cache_dir={cache}", f"--basetemp={scratch / 'tests'}", *WARNINGS]
        options += sys.argv[1:]

        def act() -> int:
            with open(os.environ.get("MUTANTS_LOG", os.devnull), "a") as out, open(os.devnull) as nothing:
                os.dup2(nothing.fileno(), 0)
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
            return int(
                pytest.main(
                    [*options, *([] if trial.is_whole else ["-x"]), *files], plugins=[Chosen(trial.tests, told)]
                )
            )

        status = in_a_fork(act, trial.seconds)
        words = told.read_text().strip() if told.exists() else "" if not status else f"pytest ends with {status}"
    words = words if trial.is_whole else words.partition("\n")[0]
    outcome = "endless" if status is None else "survived" if status in (0, 5) else "seen"
    return Outcome(outcome, time.monotonic() - start, words)


@contextlib.contextmanager
def changed(trial: Trial, version: int) -> Iterator[None]:
    """Write the changed file for the time of the ``with``.

    Its time stamp is one that neither the original nor another mutant has: bytecode is kept by time stamp and size.
    """
    path = Path(trial.file)
    original, state = path.read_bytes(), path.stat()
    try:
        path.write_text(trial.text)
        os.utime(path, (state.st_mtime, state.st_mtime + version))
        yield
    finally:
        path.write_bytes(original)
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def main() -> None:
    """Read trials, a line each, and write their outcomes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert not any(name.partition(".")[0] == "cudakit" for name in sys.modules)
    for version, line in enumerate(sys.stdin, 1):
        read: list[Any] = json.loads(line)
        print(json.dumps(run(Trial(*read), version)), file=answers, flush=True)


if __name__ == "__main__":
    main()
