"""A context of PyCUDA's for the tests of its modules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


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
