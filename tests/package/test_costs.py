"""The budget of each room: what is counted, for whom, and what exceeds it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.caches import kept_folder, makers_digest, use_cache
from support.costs import BUDGET, KINDS, SLACK, Costs, over_budget, room_of
from support.forks import in_a_fork

import cudakit as ck
from cudakit.jit.cache.cache import Cache

ROOT = Path(__file__).parents[2]


def counts(compiles: int, modules: int = 0, children: int = 0) -> dict[str, int]:
    return dict(zip(KINDS, (compiles, modules, children), strict=True))


@pytest.mark.parametrize(
    ("nodeid", "room"),
    [
        ("tests/ops/test_sort.py::test_a[x/y]", "ops"),
        ("tests/jit/cache/test_cache.py::T::test_b", "jit/cache"),
        ("tests/emulator/compiled/test_agreement.py::test_c", "emulator/compiled"),
        ("tests/emulator/test_call.py::test_d", "emulator"),
    ],
)
def test_the_room_is_the_folder(nodeid: str, room: str) -> None:
    assert room_of(nodeid) == room


@pytest.mark.parametrize("agreed", [0, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_a_tenth_and_a_few_are_within_the_budget(agreed: int, kind: str) -> None:
    for made in (0, agreed, agreed * 11 // 10 + SLACK[kind]):
        assert over_budget({"ops": {**counts(0), kind: made}}, {"ops": {**counts(0), kind: agreed}}) == []


@pytest.mark.parametrize("agreed", [0, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_more_is_over_the_budget(agreed: int, kind: str) -> None:
    made = agreed * 11 // 10 + SLACK[kind] + 1
    ops = {**counts(0), kind: made}
    lines = [f"tests/ops: {made} {kind}, budget {agreed}"]
    assert (
        over_budget({"ops": ops, "types": counts(1)}, {"ops": {**counts(0), kind: agreed}, "types": counts(1)}) == lines
    )


def test_a_room_that_has_no_budget_has_none_to_spend() -> None:
    assert over_budget({"new": counts(11)}, {}) == ["tests/new: 11 compiles, budget 0"]


def charged(costs: Costs, nodeid: str, *calls: Any) -> None:
    """Let `calls` happen while a test runs."""
    running = costs.pytest_runtest_protocol(SimpleNamespace(nodeid=nodeid))  # type: ignore[arg-type]
    next(running)
    for call in calls:
        call()
    with pytest.raises(StopIteration):
        running.send(True)


def test_what_two_rooms_make_is_counted_once() -> None:
    costs = Costs(SimpleNamespace())  # type: ignore[arg-type]
    charged(costs, "tests/ops/test_a.py::a", lambda: costs.note("compiles", "k"), lambda: costs.note("compiles", "l"))
    charged(costs, "tests/arrays/test_b.py::b", lambda: costs.note("compiles", "k"), lambda: costs.note("children"))
    charged(costs, "tests/arrays/test_b.py::c", lambda: costs.note("compiles", "k"), lambda: costs.note("children"))
    costs.note("compiles", "outside of tests")
    assert costs.counts() == {"arrays": counts(1, 0, 2), "ops": counts(1)}
    other = SimpleNamespace(
        workeroutput={"costs": ({"types": {"compiles": ["k", "m"], "modules": [], "children": []}}, {})}
    )
    costs.pytest_testnodedown(other)
    assert costs.counts()["types"] == counts(1)


def in_a_process_of_its_own(act: Callable[[], None]) -> None:
    """Run part of a test in a fork: an audit hook stays for ever, and would slow down all later tests."""

    def acted() -> int:
        act()
        return 0

    assert in_a_fork(acted, 120) == 0


def test_compiles_modules_and_children_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of the shared cache once, whatever the cache holds; that of an own cache each time it is compiled."""
    costs = Costs(SimpleNamespace())  # type: ignore[arg-type]
    shared, own = tmp_path / "shared", tmp_path / "own"

    def launch(folder: Path, number: int, machine: str = "numpy") -> None:
        use_cache(monkeypatch, Cache(folder, 2**20))
        kernel = ck.Kernel(f"__global__ void counted(int* x) {{ x[threadIdx.x] = {number}; }}")
        x = np.zeros(4, np.int32)
        kernel(ck.emulator.stream(machine=machine), ck.config(1, 4), x)
        assert (x == number).all()

    def count() -> None:
        costs.watch(shared)
        charged(costs, "tests/a/test.py::a", lambda: launch(shared, 2), lambda: launch(shared, 3))
        assert costs.counts()["a"] == counts(2)
        charged(costs, "tests/b/test.py::b", lambda: launch(own, 4), lambda: launch(own, 4))
        assert costs.counts()["b"] == counts(1)
        charged(costs, "tests/c/test.py::c", lambda: subprocess.run([sys.executable, "-S", "-c", ""], check=True))
        assert costs.counts()["c"] == counts(0, 0, 1)
        if importlib.util.find_spec("llvmlite") is None:
            return
        charged(
            costs, "tests/d/test.py::d", lambda: launch(shared, 5, "compiled"), lambda: launch(shared, 5, "compiled")
        )
        made = costs.counts()["d"]
        assert made["compiles"] == 1
        assert 1 <= made["modules"] <= 2  # the kernel, and what all kernels call where nothing called it before

    launch(own, 1)  # what a process looks up once may take a child
    in_a_process_of_its_own(count)


def test_a_kernel_that_the_kept_cache_holds_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run compiles nothing and counts the same."""
    costs = Costs(SimpleNamespace())  # type: ignore[arg-type]
    text = "__global__ void kept(int* x) { *x = 1; }"

    def count() -> None:
        costs.watch(tmp_path)
        for room in "ab":
            use_cache(monkeypatch, Cache(tmp_path, 2**20))
            charged(costs, f"tests/{room}/test.py::a", lambda: ck.Kernel(text).compile(arch="sm_90"))
        assert costs.made["a"] == costs.made["b"] != {kind: set() for kind in KINDS}

    in_a_process_of_its_own(count)


def test_the_budget_names_rooms_that_exist() -> None:
    for budget in json.loads(BUDGET.read_text()).values():
        assert [room for room in budget if not (ROOT / "tests" / room).is_dir()] == []


def test_the_digest_is_that_of_the_code_that_fills_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.caches._PACKAGE", tmp_path)
    native_file = tmp_path / "emulator" / "compiled" / "native.py"
    native_file.parent.mkdir(parents=True)
    native_file.write_text("a = 1")
    for name in ("cache", "compile", "signature", "source"):
        (tmp_path / "jit" / name).mkdir(parents=True)
        (tmp_path / "jit" / name / "made.py").write_text("a = 1")
    digests = [makers_digest()]
    for file in (native_file, *sorted((tmp_path / "jit").rglob("*.py"))):
        file.write_text("a = 2")
        digests.append(makers_digest())
    (tmp_path / "jit" / "other.py").write_text("a = 2")
    assert makers_digest() == digests[-1]
    assert len(set(digests)) == len(digests) == 6


def test_the_kept_cache_goes_with_the_code_that_fills_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config: Any = SimpleNamespace(cache=SimpleNamespace(mkdir=lambda name: tmp_path))
    first = kept_folder(config)
    assert first == tmp_path / makers_digest()
    assert kept_folder(config) == first
    monkeypatch.setattr("support.caches.makers_digest", lambda: "2" * 16)
    second = kept_folder(config)
    monkeypatch.setattr("support.caches.makers_digest", lambda: "3" * 16)
    third = kept_folder(config)
    assert third is not None
    assert len({first, second, third}) == 3
    assert len(list(tmp_path.iterdir())) == 2
    assert third.is_dir()
    assert kept_folder(SimpleNamespace()) is None  # type: ignore[arg-type]
