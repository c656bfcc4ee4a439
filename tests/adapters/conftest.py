"""A context of PyCUDA's for the tests of its modules, and the script of the tables of names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import loaded

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def _context(request: pytest.FixtureRequest) -> Iterator[None]:
    """Push a context around each test of PyCUDA's modules, as ``import pycuda.autoinit`` does for a program."""
    if not request.node.path.name.startswith("test_pycuda"):
        yield
        return
    from cudakit.adapters.pycuda.contexts import Context, Device

    before = Context.depth()
    Device(0).make_context()
    yield
    while Context.depth() > before:
        Context.pop()


@pytest.fixture(scope="session")
def name_tables() -> ModuleType:
    """The module docs/name_tables.py."""
    return loaded(DOCS / "name_tables.py")
