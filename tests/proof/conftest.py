"""Fixtures of proofs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.outcomes import KeptOutcomes

from cudakit.proof.solver import Context


@pytest.fixture(scope="session")
def outcomes(session_folder: Path) -> KeptOutcomes:
    """Outcomes of this run and of earlier ones."""
    return KeptOutcomes(session_folder.with_name("outcomes.sqlite"))


@pytest.fixture
def kept_outcomes(outcomes: KeptOutcomes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take Z3's outcomes from earlier runs. It is for tests of kernels; tests of the solver ask Z3 each time."""
    monkeypatch.setattr(Context, "outcome", outcomes.of(Context.outcome))
