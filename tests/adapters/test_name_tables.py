"""The tables of other libraries' names: each name has a state, and the pages say so."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")


@pytest.mark.parametrize("peer", ["pycuda", "cuda_core", "numba"])
def test_the_page_has_the_names(name_tables: Any, peer: str) -> None:
    table = name_tables.PEERS[peer]
    text = table.page_path.read_text(encoding="utf-8")
    assert text == table.page(text), "run python docs/name_tables.py"


@pytest.mark.parametrize("peer", ["pycuda", "cuda_core", "numba"])
def test_each_note_is_of_a_name_that_is_there(name_tables: Any, peer: str) -> None:
    table = name_tables.PEERS[peer]
    assert set(table.differs) | set(table.raises) <= set(table.stored()[1])
    assert {name for name in table.differs if table.state(name)[0] != "differs"} == set()
