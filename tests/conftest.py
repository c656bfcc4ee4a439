"""Fixtures: where kernels run, a cache folder of each test's own, and the `--gpu` switch."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from filelock import FileLock
from support import emulated, tiles
from support.caches import OneCache, kept_folder, use_cache
from support.costs import Costs
from support.made_kernels import MakingCache

import cudakit as ck
from cudakit.arrays import place
from cudakit.jit.cache import cache
from cudakit.jit.compile.assemble import assembler

#: How all tests are run that need no more than a change of the code does.
WHOLE = "The whole suite: python -m pytest -q -n 2 --dist worksteal -m 'not exhaustive'"
#: Objects that a test leaves before Python's collector looks at them.
MANY_OBJECTS = 30_000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="run kernels on a GPU; finding none is a failure")
    parser.addoption("--kernels", type=Path, help="take tile kernels from this file, which --make-kernels wrote")
    parser.addoption(
        "--make-kernels", type=Path, help="write the machine code of this run's tile kernels here, for --gpu --kernels"
    )
    parser.addoption(
        "--budget",
        choices=("check", "write"),
        help="print what each room costs, and compare its counts with tests/budget.json, or write them there",
    )
    parser.addoption("--site", type=Path, help="look at this site, as docs/build.py made it, in place of building one")
    parser.addoption("--screenshots", type=Path, help="keep the pictures that a browser takes of the site here")


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(3 * MANY_OBJECTS, 50, 1000)
    # What a shell starts in the background ignores Ctrl-C, and hands that on to the programs of tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--gpu") and not ck.has_gpu():
        raise pytest.UsageError("--gpu was given, but there is no CUDA driver or no GPU here")
    emulated.place.is_gpu = config.getoption("--gpu")
    tiles.toolchain.is_elsewhere = config.getoption("--kernels") is not None
    if config.getoption("--make-kernels"):
        if config.getoption("--gpu") or "PYTEST_XDIST_WORKER" in os.environ:
            raise pytest.UsageError("--make-kernels is for the emulator, in one process")
        assembler()
    if config.getoption("--budget"):
        config.pluginmanager.register(Costs(config), "costs")
    config.pluginmanager.register(LeftOut(config), "left out")
    config.pluginmanager.register(OneCache(), "one cache")
    if config.getoption("--make-kernels") or config.getoption("--kernels"):
        # Kernels that are made for a GPU are those that a GPU of the emulator's arch would ask for.
        place.busy_blocks = place.multiprocessors_of


class LeftOut:
    """Plugin whose last line says what a run with ``-m`` leaves out, and how to run it."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.count = config, 0

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self.count += len(items)

    def pytest_sessionfinish(self) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["left out"] = self.count

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.count = max(self.count, getattr(node, "workeroutput", {}).get("left out", 0))

    @pytest.hookimpl(tryfirst=True)
    def pytest_unconfigure(self) -> None:
        """Print the line after pytest's own last one."""
        expression, reporter = self.config.option.markexpr, self.config.pluginmanager.get_plugin("terminalreporter")
        if self.count and expression and reporter and not hasattr(self.config, "workeroutput"):
            reporter.write_line(f"Left out by -m {expression!r}: {self.count} tests. {WHOLE}")


def _collects_backwards() -> bool:
    return os.environ.get("PYTEST_XDIST_WORKER", "gw0")[-1] in "13579"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Have two processes import the test modules from both ends, so that each writes half of the bytecode."""
    report: Any = yield
    if _collects_backwards() and isinstance(collector, pytest.Directory):
        report.result = report.result[::-1]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect all tests before Python's collector runs: none of them is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Have a worker report of a test that passes its result alone: three of four messages say nothing else.

    Nor does the first process read a test's keywords.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            report.keywords = {}
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Look once through what tests leave, millions of objects, mostly decoded programs: no later collection sees them.

    Full collections took half of a room's time where all tests of a module kept what they made; one after each test,
    and Python's own of 700 objects, took a sixth.
    """
    yield
    if gc.get_count()[0] > MANY_OBJECTS:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:  # all processes of a run have one order
        items.sort(key=lambda item: item.path)
    gpu = config.getoption("--gpu")
    marker, reason = ("emulator", "is about the emulator itself") if gpu else ("gpu", "needs a GPU; run with --gpu")
    skip = pytest.mark.skip(reason=reason)
    for item in items:
        names = {mark.name for mark in item.iter_markers()}
        if marker in names:
            item.add_marker(skip)
        if "exhaustive" in names:
            item.add_marker(pytest.mark.slow)
        if "large" in names and isinstance(item, pytest.Function) and "_room" not in item.fixturenames:
            item.fixturenames.insert(0, "_room")


@pytest.fixture(scope="session")
def session_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the cache of this run and the next; of this run alone where pytest keeps nothing."""
    folder = kept_folder(request.config)
    if folder is None:
        folder = tmp_path_factory.getbasetemp()
        if "PYTEST_XDIST_WORKER" in os.environ:
            folder = folder.parent
    return folder / "cache"


@pytest.fixture(scope="session")
def session_cache(request: pytest.FixtureRequest, session_folder: Path) -> Iterator[cache.Cache]:
    """The cache of all tests that do not ask for one of their own."""
    given, wanted = (request.config.getoption(name) for name in ("--kernels", "--make-kernels"))
    found = (MakingCache if wanted else cache.Cache)(session_folder, 2**31)
    if given:
        found.import_from(given)
    if costs := request.config.pluginmanager.get_plugin("costs"):
        costs.watch(session_folder)
    yield found
    if isinstance(found, MakingCache):
        count, alone = found.export_to(wanted)
        print(f"\n{wanted}: {count} kernels, {wanted.stat().st_size / 2**20:.1f} MiB")
        for each in (*(f"not made: {told}" for told in found.refused), *(f"for here alone: {name}" for name in alone)):
            print(each)


@pytest.fixture(scope="session")
def one_cache(request: pytest.FixtureRequest, session_cache: cache.Cache, session_folder: Path) -> Iterator[None]:
    """No test reads or fills the user's cache; all tests of a run share one, so that a kernel compiles once."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(session_folder))
        request.config.pluginmanager.get_plugin("one cache").use(session_cache)
        yield


@pytest.fixture
def fresh_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> cache.Cache:
    """The process's cache for a test that counts compiles: an empty one, as that of the session may be warm."""
    found = cache.Cache(tmp_path / "cache", 2**31)
    use_cache(monkeypatch, found)
    return found


@pytest.fixture
def _room(session_folder: Path) -> Iterator[None]:
    """Of the large tests one at a time, in all processes of a run; what they took goes back."""
    with FileLock(session_folder.with_name("large.lock")):
        yield
        gc.collect()
        ck.memory.trim()


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Where a kernel test runs: the emulator's stream, a GPU's under --gpu."""
    made = ck.stream() if request.config.getoption("--gpu") else ck.emulator.stream()
    with ck.using(made):
        yield made
    made.sync()


@pytest.fixture
def xp(stream: Any) -> Any:
    """The array module of the stream: NumPy, CuPy under --gpu."""
    with ck.using(stream) as module:
        return module
