"""Cost of the tests as counts: distinct compiles, modules of machine code and child processes of each room.

`tests/budget.json` holds the agreed counts by the marker expression of a run. ``--budget check`` compares a run with
them, ``--budget write`` replaces them. Counts do not depend on the machine or on what the cache holds; CPU
seconds do, and are only printed.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cudakit.jit.cache.cache import Cache

BUDGET = Path(__file__).parents[1] / "budget.json"
KINDS = ("compiles", "modules", "children")
#: A room may grow by a tenth and by a few. The order of tests decides which of two rooms meets a kernel first; drawn
#: examples differ between runs; how many lanes a processor has decides which launches share machine code.
GROWTH, SLACK = 1.1, {"compiles": 10, "modules": 20, "children": 10}
_CHILDREN = ("subprocess.Popen", "os.fork", "os.forkpty")  # subprocess may use os.posix_spawn, which reports itself too


def room_of(nodeid: str) -> str:
    """Room of a test: its folder below ``tests``, two levels at most."""
    return "/".join(Path(nodeid.partition("::")[0]).parts[1:-1][:2])


def over_budget(counts: dict[str, dict[str, int]], budget: dict[str, dict[str, int]]) -> list[str]:
    """Rooms whose counts exceed the budget, a line each."""
    lines = []
    for room in sorted(counts):
        for kind in KINDS:
            count, agreed = counts[room][kind], budget.get(room, {}).get(kind, 0)
            if count > agreed * GROWTH + SLACK[kind]:
                lines.append(f"tests/{room}: {count} {kind}, budget {agreed}")
    return lines


def _cpu_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


class Costs:
    """Plugin that counts in each process of a run and adds the counts up in the first one.

    A kernel that several rooms compile counts for the first of them in alphabetical order.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        #: Room → kind → what was made, by a name that is the same in every process.
        self.made: dict[str, dict[str, set[str]]] = defaultdict(lambda: {kind: set() for kind in KINDS})
        self.seconds: dict[str, float] = {}
        self._running: dict[str, set[str]] | None = None
        self._nodeid, self._number = "", 0
        self.session: pytest.Session | None = None

    def note(self, kind: str, name: str | None = None) -> None:
        """Count something that the running test makes; a nameless one is distinct from every other."""
        if self._running is not None:
            self._number += 1
            self._running[kind].add(name or f"{self._nodeid} {self._number}")

    def watch(self, shared: Path) -> None:
        """Count from now on. The cache in the folder `shared` makes a kernel once; other caches each time."""
        sys.addaudithook(lambda event, _: self.note("children") if event in _CHILDREN else None)
        get, make = Cache.get, Cache._compile

        def get_counted(cache: Cache, keyed: Any, compile: Any) -> Any:
            if cache._folder == shared:
                self.note("compiles", keyed.base)
            return get(cache, keyed, compile)

        def make_counted(cache: Cache, keyed: Any, compile: Any) -> Any:
            if cache._folder != shared:
                self.note("compiles")
            return make(cache, keyed, compile)

        Cache.get, Cache._compile = get_counted, make_counted  # type: ignore[method-assign]
        try:
            from cudakit.emulator.compiled import native
        except ImportError:  # without the extra cpu there is no machine code
            return
        find_code, make_code = native.stored_code, native.object_code

        def found_counted(digest: str) -> bytes | None:
            self.note("modules", digest)
            return find_code(digest)

        def made_counted(text: str, optimised: bool) -> bytes:
            self.note("modules", native.digest_of(text, optimised))
            return make_code(text, optimised)

        native.stored_code, native.object_code = found_counted, made_counted

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Keep the session, whose exit status says that a room is over its budget."""
        self.session = session

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Charge what happens to the test's room."""
        self._running, self._nodeid, self._number = self.made[room_of(item.nodeid)], item.nodeid, 0
        start = _cpu_seconds()
        try:
            return (yield)
        finally:
            self._running = None
            self.seconds[item.nodeid] = _cpu_seconds() - start

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Hand a worker's counts to the first process."""
        if hasattr(self.config, "workeroutput"):
            made = {room: {kind: sorted(names) for kind, names in kinds.items()} for room, kinds in self.made.items()}
            self.config.workeroutput["costs"] = (made, self.seconds)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add a worker's counts."""
        made, seconds = getattr(node, "workeroutput", {}).get("costs", ({}, {}))
        self.seconds |= seconds
        for room, kinds in made.items():
            for kind, names in kinds.items():
                self.made[room][kind].update(names)

    def counts(self) -> dict[str, dict[str, int]]:
        """Counts by room and kind."""
        seen: dict[str, set[str]] = {kind: set() for kind in KINDS}
        found: dict[str, dict[str, int]] = {}
        for room in sorted(self.made):
            found[room] = {kind: len(self.made[room][kind] - seen[kind]) for kind in KINDS}
            for kind in KINDS:
                seen[kind] |= self.made[room][kind]
        return found

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the rooms and their dearest tests; compare with the budget or write it."""
        counts, reporter = self.counts(), terminalreporter
        times: dict[str, Counter[str]] = defaultdict(Counter)
        for nodeid, seconds in self.seconds.items():
            times[room_of(nodeid)][nodeid] = seconds  # type: ignore[assignment]
        reporter.section("cost of each room, and its ten dearest tests")
        for room, made in counts.items():
            line = ", ".join(f"{count} {kind}" for kind, count in made.items())
            reporter.line(f"tests/{room}: {len(times[room])} tests, {sum(times[room].values()):.0f} s, {line}")
            for nodeid, seconds in times[room].most_common(10):
                reporter.line(f"    {seconds:6.1f} s  {nodeid}")
        expression = self.config.option.markexpr
        budgets = json.loads(BUDGET.read_text()) if BUDGET.exists() else {}
        if self.config.option.budget == "write":
            budgets[expression] = counts
            BUDGET.write_text(json.dumps(budgets, indent=1) + "\n")
            return
        exceeded = over_budget(counts, budgets.get(expression, {}))
        for line in exceeded:
            reporter.line(f"over budget: {line}", red=True)
        if exceeded:
            reporter.line("Share kernels between tests, or agree to the cost: run again with --budget write.", red=True)
            if self.session is not None and self.session.exitstatus == 0:
                self.session.exitstatus = pytest.ExitCode.TESTS_FAILED
