"""CI: the README's command as it stands, every step whatever fails, two at a time."""

from __future__ import annotations

import runpy
import shlex
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CI = SimpleNamespace(**runpy.run_path(str(ROOT / ".ci" / "steps.py")))


def step(name: str, command: str = "true", *needs: str, **more: Any) -> Any:
    return CI.Step(name, "none", command, needs, **more)


class Run(CI.Run):  # type: ignore[misc]
    """Runs steps without environments."""

    def _activated(self, environment: str) -> str:
        return ""


def test_the_readme_s_command_is_a_line_that_installs_and_tests() -> None:
    command = CI.readme_command()
    assert "pip install -e '.[cu13,examples,prove]' --group test && python -m pytest" in command
    assert command in (ROOT / "README.md").read_text(encoding="utf-8")
    assert shlex.split(command)[-2:] == ["-m", "not slow"]
    assert "steps.py" in (ROOT / ".ci" / "run").read_text()


def test_the_two_steps_of_tests_are_the_whole_suite() -> None:
    every = {step.name: step for step in CI.steps(Path("folder"))}
    assert every["tests"].command == CI.readme_command()
    assert "-m 'slow and not exhaustive'" in every["slow tests"].command
    assert list(every)[:2] == ["tests", "slow tests"]
    assert all(every[name].cores == 2 for name in ("tests", "slow tests"))
    assert all(need in every for step in every.values() for need in step.needs)


def test_a_package_runs_in_an_environment_without_a_compiler() -> None:
    every = {step.name: step for step in CI.steps(Path("folder"))}
    step = every["package without a compiler"]
    assert step.environment not in {other.environment for other in every.values() if other is not step}
    assert "cu13" not in step.command
    assert dict(step.variables) == {"CUDAKIT_CACHE_DIR": ""}


def test_a_night_runs_all_tests_and_mutants() -> None:
    night = {step.name: step for step in CI.nightly_steps(7)}
    assert " -m " not in night["all tests"].command.replace("python -m pytest", "")
    assert "--seed 7" in night["mutants of the package"].command
    assert "nightly" in (ROOT / ".ci" / "nightly").read_text()


def test_every_step_runs_whatever_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path)
    steps = [
        step("broken", "echo before; false; echo behind", cores=2),
        step("good", "echo $OWN", variables=(("OWN", "seen"),)),
        step("needing", "echo reached", "broken"),
        step("absent", "false", optional=True),
        step("after", 'test -z "$PYTHONDONTWRITEBYTECODE"', "good"),
    ]
    run.all(steps)
    assert run.outcomes == {
        "broken": "failed",
        "good": "passed",
        "needing": "left out",
        "absent": "left out",
        "after": "passed",
    }
    told = capsys.readouterr().out
    assert "before" in told
    assert "seen" in told
    assert "after\n" not in told.replace("--- after", "")
    assert "reached\n" not in told
    assert "=== needing: left out, since broken did not pass" in told
    assert set(run.seconds) == {"broken", "good", "absent", "after"}


def test_steps_take_the_cores_that_are_free(tmp_path: Path) -> None:
    busy, most, lock = 0, 0, threading.Lock()

    class Counting(Run):
        def _run(self, step: Any) -> None:
            nonlocal busy, most
            with lock:
                busy += step.cores
                most = max(most, busy)
            super()._run(step)

        def _activated(self, environment: str) -> str:
            return "sleep 0.05"

    class Outcomes(dict[str, str]):
        def __setitem__(self, name: str, outcome: str) -> None:
            nonlocal busy
            with lock:
                busy -= next(one.cores for one in steps if one.name == name)
            super().__setitem__(name, outcome)

    run = Counting(tmp_path)
    steps = [step("all", cores=2), *(step(f"one {n}") for n in range(5)), step("last", cores=2)]
    run.outcomes = Outcomes()
    run.all(steps)
    assert most == 2
    assert next(iter(run.outcomes)) == "all"
    assert set(run.outcomes.values()) == {"passed"}
