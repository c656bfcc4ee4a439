"""PyCUDA's public names: each is there, or says what to use; the page's tables say so."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from cudakit.adapters import pycuda

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")


@pytest.fixture
def table(name_tables: Any) -> Any:
    return name_tables.PEERS["pycuda"]


def test_a_missing_name_says_what_to_use(table: Any) -> None:
    count = 0
    for name in table.stored()[1]:
        part, _, rest = name.partition(".")
        word, use = table.state(name)
        if word != "missing" or "." in rest or part not in pycuda.MODULES:
            continue
        count += 1
        module = importlib.import_module(f"cudakit.adapters.pycuda.{part}")
        with pytest.raises(AttributeError) as error:
            getattr(module, rest)
        assert str(error.value) == f"cudakit's pycuda.{part} has no {rest!r}: {use}"
    assert count > 20


def test_a_name_that_goes_is_seen(table: Any, name_tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cudakit.adapters.pycuda import scan, tools

    monkeypatch.delattr(tools, "bitlog2")
    with pytest.raises(LookupError, match=r"tools\.bitlog2"):
        table.state("tools.bitlog2")
    assert name_tables.has(scan.InclusiveScanKernel, "neutral")  # set by __init__


def test_a_missing_module_says_what_to_use() -> None:
    pycuda.install()
    try:
        for name in ("pycuda.sparse", "pycuda.gl.autoinit", "pycuda.debug"):
            with pytest.raises(ModuleNotFoundError, match="is not in cudakit's PyCUDA: "):
                importlib.import_module(name)
        assert importlib.import_module("pycuda").VERSION == (2026, 1)
    finally:
        pycuda.uninstall()
