"""Fixtures: where kernels run, a cache folder of each test's own, and the `--gpu` switch."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import emulated
from support.caches import use_cache

import cudakit as ck
from cudakit.jit.cache import cache


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="run kernels on a GPU; finding none is a failure")
    parser.addoption("--site", type=Path, help="look at this site, as docs/build.py made it, in place of building one")
    parser.addoption("--screenshots", type=Path, help="keep the pictures that a browser takes of the site here")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--gpu") and not ck.has_gpu():
        raise pytest.UsageError("--gpu was given, but there is no CUDA driver or no GPU here")
    emulated.place.is_gpu = config.getoption("--gpu")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    gpu = config.getoption("--gpu")
    marker, reason = ("emulator", "is about the emulator itself") if gpu else ("gpu", "needs a GPU; run with --gpu")
    skip = pytest.mark.skip(reason=reason)
    for item in items:
        if item.get_closest_marker(marker):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> cache.Cache:
    """One for the whole run: pytest-xdist's workers have folders of their own in one that they share."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    return cache.Cache(folder / "cache", 2**30)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, session_cache: cache.Cache) -> None:
    """No test reads or fills the user's cache; all tests of a run share one, so that a kernel compiles once."""
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(session_cache.info().folder))
    use_cache(monkeypatch, session_cache)


@pytest.fixture(scope="module", autouse=True)
def _looked_through_once() -> Iterator[None]:
    """Millions of objects stay after a module, mostly decoded programs: no later collection sees them."""
    yield
    gc.freeze()


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
