"""Caches for tests."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from cudakit.jit.cache import cache, settings

_PACKAGE = Path(cache.__file__).parents[2]
#: Code that makes what a cache holds; the keys of what other code makes have all that it depends on.
MAKERS = ("jit/cache", "jit/compile", "jit/signature", "jit/source", "emulator/compiled/native.py")
_KEPT = 2  # states of that code


def use_cache(monkeypatch: pytest.MonkeyPatch, given: cache.Cache) -> None:
    """Let it be the process's, as long as the environment stays as it is."""
    monkeypatch.setattr(cache, "_caches", {(None, *settings.environment_values()): given})


def requests() -> dict[str, int]:
    """Requests of this process that the cache answered from ``memory``, from ``disk``, and by a compile: a ``miss``.

    `Cache.info` says the same, but looks at each file of the folder: the kept one has ten thousands.
    """
    return dict(cache.default_cache()._count)


class OneCache:
    """Plugin that makes the cache of a session the process's again before each test.

    A hook costs a fiftieth of an autouse fixture, and each name that a test asks for, or a fixture for it, 10 µs a
    test: so the first test alone asks for the fixture that makes the cache.
    """

    def __init__(self) -> None:
        self.session_cache: cache.Cache | None = None

    def use(self, session_cache: cache.Cache) -> None:
        """Drop the caches that other settings of an earlier test made."""
        self.session_cache = session_cache
        cache._caches = {(None, *settings.environment_values()): session_cache}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Have the cache ready."""
        if self.session_cache is not None:
            self.use(self.session_cache)
        elif isinstance(item, pytest.Function) and "one_cache" not in item.fixturenames:
            item.fixturenames.insert(0, "one_cache")


def makers_digest() -> str:
    """Digest of the code that makes what a cache holds."""
    made = hashlib.sha256()
    for maker in MAKERS:
        path = _PACKAGE / maker
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            made.update(f"{file.relative_to(_PACKAGE)}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\0".encode())
    return made.hexdigest()[:16]


def kept_folder(config: pytest.Config) -> Path | None:
    """Folder that this run shares with the next while the code that fills it is the same; None where none is kept."""
    if not hasattr(config, "cache") or config.cache is None:
        return None
    kept = Path(config.cache.mkdir("kernels"))
    folder = kept / makers_digest()
    folder.mkdir(exist_ok=True)
    folder.touch()
    if "workerinput" not in vars(config):
        for old in sorted(kept.iterdir(), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return folder
