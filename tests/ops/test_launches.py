"""What is launched for a kind of call, on an H200 and on the emulator: decided without either, and compiled nowhere.

`launches.txt` has a line for each: kernel, grid, block, bytes of shared memory, further arguments. How much a thread or
a block takes was measured. Results are the same with other numbers, so that no other test sees a change. Where a change
is meant, ``PYTHONPATH=tests python -m support.launches`` writes the file anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import launches

WRITTEN = launches.written()


@pytest.fixture(scope="module", autouse=True)
def _h200() -> Iterator[None]:
    with launches.of_h200():
        yield


@pytest.mark.emulator
@pytest.mark.parametrize("kind", launches.CALLS)
def test_what_is_launched(kind: str) -> None:
    assert launches.shown(kind) == WRITTEN[kind]


@pytest.mark.emulator
def test_every_kind_is_written_down() -> None:
    assert [*WRITTEN] == [*launches.CALLS]
