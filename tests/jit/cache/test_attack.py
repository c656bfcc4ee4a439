"""A short attack on the cache; ``python -m support.cache_attack`` is the long one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cache_attack import Attack

pytestmark = [
    pytest.mark.slow,
    pytest.mark.emulator,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked, and killed by signals"),
]


@pytest.fixture
def attack(tmp_path: Path) -> Iterator[Attack]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12: threads and fork
        made = Attack(tmp_path, "a seed")
        made.check("filling", header=True)
        yield made
    assert made.wrong == []
    assert made.counts["looks"] > 1 or made.counts["races"]


def test_killed_processes(attack: Attack) -> None:
    for _ in range(8):
        attack.kill()
    assert attack.counts["kills"] >= 8
    assert attack.leftovers() == []


@pytest.mark.parametrize("count", [24, pytest.param(120, marks=pytest.mark.exhaustive)])
def test_damaged_files(attack: Attack, count: int) -> None:
    while attack.counts["damages"] < count and not attack.wrong:
        attack.damage()


def test_eight_processes_compile_once(attack: Attack) -> None:
    for _ in range(3):
        attack.race(8)
