"""Each test twice: with code that runs as quickest, and with what long kernels are compiled to at first."""

from __future__ import annotations

import pytest
from support.tiers import slow


@pytest.fixture(autouse=True, params=["best", *slow("baseline")])
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    machine = pytest.importorskip("cudakit.emulator.compiled.machine")
    monkeypatch.setattr(machine, "_machine", machine.Machine())  # what the other way compiled is not taken
    monkeypatch.setattr(machine, "_SHORT", 0 if request.param == "baseline" else 1 << 40)
    which: str = request.param
    return which
