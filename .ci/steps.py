"""What CI runs: ``python .ci/steps.py``, or ``python .ci/steps.py nightly``. All steps run, whatever fails.

The last lines say what failed. Once a night CI runs all combinations of parameters and a sample of mutants.

Steps that use one core run two at a time. The output of a step is printed when the step ends, with its time. The
times go into `.ci/times.json`, from which the figures in README.md and CONTRIBUTING.md are taken. With ``BUDGET=write``
in the environment the counts go into `tests/budget.json`; else they are compared with it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIMES = ROOT / ".ci" / "times.json"
#: torch by the version that names its build for CPUs: an index that has other builds gives none.
BRIDGES = """
pip install -q -U pip
timeout 900 pip install -q torch==2.13.0+cpu jax pyarrow -e '.[cu13,examples,prove,grad]' --group test
"""
#: What the other steps need; of other projects what installs here.
INSTALL = """
pip install -q -U pip
pip install -q -e '.[cu13,examples,prove]' --group dev
for other in "-e .[dask]" "-e .[ray]" "zarr xarray" "numba-cuda[cu13]"
do pip install -q $other || echo "$other does not install here: its tests are left out"
done
"""


#: The package of docs/write-a-library.md, in an environment that has neither compiler nor parser nor headers nor CuPy.
WITHOUT_COMPILER = """
pip install -q -U pip
pip install -q '.[run]' pytest {library}/dist/*.whl
python -c "import importlib.util as u; assert not any(map(u.find_spec, ('nvidia', 'cupy', 'tree_sitter')))"
cd {library}/tests
python -m pytest -q -W ignore::cudakit.EmulatorWarning -k 'not headers' --rootdir .
"""


@dataclass(frozen=True)
class Step:
    """A command, run by bash in the repository's root.

    Attributes
    ----------
    name : str
    environment : str
        The virtual environment that the command runs in, made when it is first named.
    command : str
    needs : tuple of str
        Steps that must have passed; if one failed or was left out, this one is left out.
    cores : int
    optional : bool
        Whether the step may fail: its tests are then left out, with a line that says so.
    variables : tuple of (str, str)
        Added to the environment variables.
    """

    name: str
    environment: str
    command: str
    needs: tuple[str, ...] = ()
    cores: int = 1
    optional: bool = False
    variables: tuple[tuple[str, str], ...] = ()


def readme_command() -> str:
    """The README's test command as it stands there."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^.*python -m pytest -q.*$", text, re.MULTILINE)[:1]
    return line.partition(" #")[0].strip()


def steps(folder: Path) -> list[Step]:
    """All steps, in the order in which they are begun."""
    pytest, site = "python -m pytest -q", folder / "site"
    machine_code = (("CUDAKIT_MACHINE", "compiled"),)
    budget = os.environ.get("BUDGET", "check")
    library = folder / "library"
    bridge_words = "use-in or other-arrays or torch or jax"
    return [
        Step("tests", "tests", readme_command(), cores=2, variables=(("PYTEST_ADDOPTS", f"--budget {budget}"),)),
        Step(
            "slow tests",
            "tests",
            f"{pytest} -n 2 --dist worksteal -m 'slow and not exhaustive' --budget {budget}",
            cores=2,
        ),
        Step(
            "emulator as machine code",
            "tests",
            f"{pytest} -n 2 --dist worksteal -W ignore::cudakit.EmulatorWarning -m 'not slow' tests/emulator/test_*.py",
            cores=2,
            variables=machine_code,
        ),
        Step("install dev", "tests", INSTALL),
        Step("install bridges", "bridges", BRIDGES, optional=True),
        Step("format and lint", "tests", "ruff check . && ruff format --check .", ("install dev",)),
        Step("import contract", "tests", "lint-imports", ("install dev",)),
        Step("mypy", "tests", "mypy", ("install dev",)),
        Step("pyright", "tests", f"{pytest} tests/package/test_typing.py", ("install dev",)),
        Step("site", "tests", f"python docs/build.py {site}", ("install dev",)),
        Step("site in a browser", "tests", f"{pytest} -m site --site {site} tests/docs", ("site",)),
        Step("release", "tests", f"python .ci/release.py {folder / 'dist'}", ("install dev",)),
        Step(
            "package with a bundle",
            "tests",
            f"cp -r docs/library {library} && python -m build -q --wheel --no-isolation {library}",
            ("install dev",),
        ),
        Step(
            "package without a compiler",
            "run",
            WITHOUT_COMPILER.format(library=library),
            ("package with a bundle",),
            variables=(("CUDAKIT_CACHE_DIR", ""),),
        ),
        Step("beside Dask and Ray", "tests", f"{pytest} -m bridges tests/scale", ("install dev",)),
        Step("beside Numba", "tests", f"{pytest} -m bridges tests/adapters", ("install dev",)),
        Step("beside torch and JAX", "bridges", f"{pytest} -m bridges tests/bridges", ("install bridges",)),
        Step(
            "programs beside torch and JAX",
            "bridges",
            f"{pytest} -k '{bridge_words}' tests/package/test_docs.py tests/examples/test_tutorial.py",
            ("install bridges",),
        ),
    ]


def nightly_steps(seed: int) -> list[Step]:
    """Steps of a night: all tests, and mutants drawn anew each night."""
    install = "pip install -q -U pip && pip install -q -e '.[cu13,examples,prove]' --group dev"
    tests = "python -m pytest -q -n 2 --dist worksteal"
    sample = f"python -m support.package_mutants --count 100 --seed {seed}"
    path = (("PYTHONPATH", "tests"),)
    return [
        Step("install", "tests", install),
        Step("all tests", "tests", tests, ("install",), cores=2),
        Step("mutants of the tutorial", "tests", "python -m support.mutant_runs", ("install",), 2, variables=path),
        Step("mutants of the package", "tests", sample, ("install",), 2, variables=path),
    ]


class Run:
    """Runs steps as cores are free, and keeps how they ended.

    Attributes
    ----------
    outcomes : dict of str to str
        Step → ``passed``, ``failed``, ``left out``; a step that has not ended is not there.
    seconds : dict of str to float
        Step → how long it took.
    """

    def __init__(self, folder: Path, cores: int = 2) -> None:
        self.folder, self.free = folder, cores
        self.outcomes: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self._changed = threading.Condition()

    def all(self, wanted: list[Step]) -> None:
        """Run the steps; returns when the last one has ended."""
        waiting, threads = list(wanted), []
        with self._changed:
            while waiting:
                step = next((step for step in waiting if self._may_begin(step)), None)
                if step is None:
                    self._changed.wait()
                    continue
                waiting.remove(step)
                if any(self.outcomes[need] != "passed" for need in step.needs):
                    self.outcomes[step.name] = "left out"
                    print(f"=== {step.name}: left out, since {' or '.join(step.needs)} did not pass", flush=True)
                    continue
                self.free -= step.cores
                threads.append(threading.Thread(target=self._run, args=(step,)))
                threads[-1].start()
        for thread in threads:
            thread.join()

    def _may_begin(self, step: Step) -> bool:
        return step.cores <= self.free and all(need in self.outcomes for need in step.needs)

    def _run(self, step: Step) -> None:
        print(f"--- {step.name}: {step.command}", flush=True)
        start = time.monotonic()
        try:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", f"{self._activated(step.environment)}\n{step.command}"],
                cwd=ROOT,
                env={**os.environ, **self._variables(step)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
            output, has_passed = done.stdout, done.returncode == 0
        except OSError as error:
            output, has_passed = str(error), False
        with self._changed:
            self.seconds[step.name] = time.monotonic() - start
            self.outcomes[step.name] = "passed" if has_passed else "left out" if step.optional else "failed"
            print(f"{output.rstrip()}\n=== {step.name}: {self.outcomes[step.name]} in {self.seconds[step.name]:.0f} s")
            sys.stdout.flush()
            self.free += step.cores
            self._changed.notify()

    def _variables(self, step: Step) -> dict[str, str]:
        """Add to the environment; byte code is kept in the folder, or every child process would compile the package."""
        own = {
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "CUDAKIT_CACHE_DIR": str(self.folder / "cache"),
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(self.folder / "pycache"),
        }
        return {**own, **dict(step.variables)}

    def _activated(self, environment: str) -> str:
        place = shlex.quote(str(self.folder / environment))
        return f"[ -d {place} ] || python3 -m venv {place}\n. {place}/bin/activate"


def main() -> int:
    """Run all steps; 1 if one failed."""
    if sys.argv[1:] not in ([], ["nightly"]):
        raise SystemExit(__doc__)
    is_nightly, seed = bool(sys.argv[1:]), int(time.time()) // 86_400
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        wanted = nightly_steps(seed) if is_nightly else steps(Path(folder))
        run.all(wanted)
    times = {step.name: round(run.seconds[step.name]) for step in wanted if step.name in run.seconds}
    times["all"] = round(time.monotonic() - start)
    for name, seconds in times.items():
        print(f"{seconds:6} s  {run.outcomes.get(name, '')} {name}")
    failed = [name for name, outcome in run.outcomes.items() if outcome == "failed"]
    left_out = [name for name, outcome in run.outcomes.items() if outcome == "left out"]
    if left_out:
        print(f"left out: {', '.join(left_out)}")
    if failed:
        print(f"failed: {', '.join(failed)}")
        return 1
    if not is_nightly:
        TIMES.write_text(json.dumps(times, indent=1) + "\n")
        print(f"the times are in {TIMES.relative_to(ROOT)}")
    print("all passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
