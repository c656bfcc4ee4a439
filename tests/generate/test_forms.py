"""Plans and sources of generated functions: which form of kernel a call takes, and its text, without compiling it.

`forms.txt` has them, a line each. Where a change is meant, ``PYTHONPATH=tests python -m support.forms`` writes it anew.
"""

from __future__ import annotations

import pytest
from support import forms

WRITTEN = forms.written()


@pytest.mark.emulator
@pytest.mark.parametrize("kind", forms.CALLS)
def test_forms(kind: str) -> None:
    assert forms.shown(kind) == WRITTEN[kind]


@pytest.mark.emulator
def test_every_kind_is_written_down() -> None:
    assert [*WRITTEN] == [*forms.CALLS]
