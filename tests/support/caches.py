"""Caches for tests."""

from __future__ import annotations

import pytest

from cudakit.jit.cache import cache, settings


def use_cache(monkeypatch: pytest.MonkeyPatch, given: cache.Cache) -> None:
    """Let it be the process's, as long as the environment stays as it is."""
    monkeypatch.setattr(cache, "_caches", {(None, *settings.asked()): given})
