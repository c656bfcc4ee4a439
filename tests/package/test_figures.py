"""Times in README and CONTRIBUTING are those that the last run of CI wrote down, to the order of magnitude."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMES = json.loads((ROOT / ".ci" / "times.json").read_text())
README, CONTRIBUTING = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md"))
QUICK = r'-m "not slow" .*\b(\d+) minutes on two cores'
WHOLE = r'-m "not exhaustive" .*\b(\d+) minutes on two cores'


@pytest.mark.parametrize(
    ("text", "pattern", "steps"),
    [
        (README, QUICK, ["tests"]),
        (CONTRIBUTING, QUICK, ["tests"]),
        (CONTRIBUTING, WHOLE, ["tests", "slow tests"]),
        (CONTRIBUTING, r"bash \.ci/run .*\b(\d+) minutes on two cores", ["all"]),
    ],
    ids=["README", "quick", "whole", "CI"],
)
def test_a_time_is_that_of_the_last_run(text: str, pattern: str, steps: list[str]) -> None:
    (minutes,) = re.findall(pattern, text)
    measured = sum(TIMES[step] for step in steps) / 60
    assert measured / 2 < int(minutes) < measured * 2, (
        f"{minutes} minutes in the text, {measured:.1f} in .ci/times.json"
    )
