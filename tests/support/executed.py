"""Which tests execute each line of the package, and how long each test takes: measured by coverage.py, and kept.

A test folder is measured once for a state of package, templates and tests. It runs in a copy of the checkout. Code
that runs before the first test, as imports do, has the context ``""``; code of child processes ``child TEST``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".pytest_cache" / "mutants"
EXPRESSIONS = {"quick": "not slow and not exhaustive", "whole": "not exhaustive"}
CHILD = "child "
#: Test folders whose tests compile anew, since they are about compiling: a filled cache would leave lines out.
COLD = ("tests/jit", "tests/emulator/compiled")
_STATES = 2  # of package and tests, whose measurements are kept
_SETTINGS = """
[run]
branch = true
source = cudakit
data_file = {data}
parallel = true
relative_files = true
context = ${{CUDAKIT_RUNNING_TEST-}}
patch = _exit
disable_warnings = module-not-measured,no-data-collected,trace-changed
[paths]
source =
    cudakit
    */cudakit
"""


class Executed:
    """What the tests of one folder or file execute.

    Attributes
    ----------
    seconds : dict of str to float
        Passed test → time, with set-up and measuring.
    failed : list of str
        Tests that fail without any mutant, which are left out.
    """

    def __init__(self, folder: Path) -> None:
        from coverage import CoverageData

        self.folder = folder
        times = json.loads((folder / "times.json").read_text())
        self.seconds: dict[str, float] = times["seconds"]
        self.failed: list[str] = times["failed"]
        self.data = CoverageData(str(folder / ".coverage"))
        self.data.read()
        self.lines = functools.cache(self._lines)

    def _lines(self, file: str) -> dict[int, set[str]]:
        """Line of a file → tests that execute it."""
        return {line: set(contexts) for line, contexts in self.data.contexts_by_lineno(file).items()}


def measured(tests: str, mode: str, copy: Path, gpu: bool = False) -> Executed:
    """Measure a folder or file of tests in a copy of the checkout, or take what is kept."""
    states = KEPT / "executed"
    state = states / state_digest()
    folder = (
        state / (f"{mode}-gpu" if gpu else mode) / tests.replace("/", "-").removesuffix(".py").replace("*", "files")
    )
    if not (folder / "times.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"measuring {tests} …", file=sys.stderr, flush=True)
        compiled, kernels = ROOT / ".pytest_cache" / "d" / "kernels", KEPT / "cache" / "d" / "kernels"
        if compiled.exists() and not kernels.exists():
            shutil.copytree(compiled, kernels, copy_function=os.link)
        with tempfile.TemporaryDirectory() as scratch:
            cache = Path(scratch) / "cache" if tests.startswith(COLD) else KEPT / "cache"
            (Path(scratch) / "sitecustomize.py").write_text("import coverage\n\ncoverage.process_startup()\n")
            (Path(scratch) / "settings").write_text(_SETTINGS.format(data=folder / ".coverage"))
            command = [sys.executable, "-m", "support.executed", tests, EXPRESSIONS[mode], str(folder), str(cache)]
            command += ["--gpu"] if gpu else []
            given = {**environment(copy, scratch), "COVERAGE_PROCESS_START": f"{scratch}/settings"}
            subprocess.run(command, cwd=copy, env=given, check=True, stdout=subprocess.DEVNULL)
    state.touch()
    for old in sorted(states.iterdir(), key=lambda path: path.stat().st_mtime)[:-_STATES]:
        shutil.rmtree(old, ignore_errors=True)
    return Executed(folder)


@functools.cache
def state_digest() -> str:
    """Digest of package, templates and tests."""
    made = hashlib.sha256()
    for file in files_of_checkout():
        if (
            file.startswith(("cudakit/", "templates/", "tests/", "pytest_cudakit.py"))
            and "equivalent_mutants" not in file
        ):
            made.update(f"{file}\0{hashlib.sha256((ROOT / file).read_bytes()).hexdigest()}\0".encode())
    return made.hexdigest()[:16]


def files_of_checkout() -> list[str]:
    """Files that git knows or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted(name for name in names if name and (ROOT / name).is_file())


@contextlib.contextmanager
def copied_checkout() -> Iterator[Path]:
    """A copy of the checkout for the time of the ``with``, in which files may be changed."""
    with tempfile.TemporaryDirectory(prefix="cudakit-mutants-", ignore_cleanup_errors=True) as folder:
        for name in files_of_checkout():
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, Path(folder) / name)
        yield Path(folder)


def environment(copy: Path, *folders: str) -> dict[str, str]:
    """Environment of processes that use the copy."""
    path = os.pathsep.join([*folders, str(copy), str(copy / "tests"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Measuring:
    """Plugin that names the running test to coverage.py, here and in child processes, and takes its time."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.times: dict[str, float] = {}
        self.passed: dict[str, None] = {}
        self.failed: dict[str, None] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        os.environ["CUDAKIT_RUNNING_TEST"] = CHILD + item.nodeid
        result = yield
        self.coverage.switch_context("")
        return result  # so wrappers pay out what they wrap

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.times[report.nodeid] = self.times.get(report.nodeid, 0) + report.duration
        if report.outcome == "failed":
            self.failed[report.nodeid] = None
        elif report.outcome == "passed" and report.when == "call":
            self.passed[report.nodeid] = None


def main(tests: str, expression: str, folder: str, cache: str, *more: str) -> None:
    """Run tests under coverage.py and write what they execute into a folder."""
    import coverage

    running = coverage.Coverage.current()  # which `sitecustomize` has begun, before anything of cudakit
    assert running is not None
    plugin = Measuring(running)
    options = ["-q", "-p", "no:xdist", "-o", f"cache_dir={cache}", "-m", expression, *more]
    files = sorted(map(str, Path().glob(f"{tests}.py"))) if tests.endswith("*") else [tests]
    pytest.main([*options, *files], plugins=[plugin])
    running.stop()
    running.save()
    combined = coverage.Coverage(config_file=os.environ["COVERAGE_PROCESS_START"])
    combined.combine([folder])
    combined.save()
    seconds = {test: plugin.times[test] for test in plugin.passed if test not in plugin.failed}
    (Path(folder) / "times.json").write_text(json.dumps({"seconds": seconds, "failed": list(plugin.failed)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
