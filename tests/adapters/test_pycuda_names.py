"""PyCUDA's public names: each is there, or says what to use; the page's tables say so."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from cudakit.adapters import pycuda

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")


@pytest.fixture(scope="module")
def table() -> Any:
    """The module docs/pycuda_table.py."""
    spec = importlib.util.spec_from_file_location("pycuda_table", DOCS / "pycuda_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_says_which_names_are_there(table: Any) -> None:
    text = (DOCS / "run-pycuda.md").read_text(encoding="utf-8")
    assert text == table.page(text), "run python docs/pycuda_table.py"


def test_each_note_is_of_a_name_that_is_there(table: Any) -> None:
    assert set(table.NOTES) <= set(table.names())
    assert [name for name in table.NOTES if table.state_of(name) is not None] == []


def test_a_missing_name_says_what_to_use(table: Any) -> None:
    count = 0
    for name in table.names():
        part, _, rest = name.partition(".")
        use = table.state_of(name)
        if use is None or "." in rest or part not in pycuda.MODULES:
            continue
        count += 1
        module = importlib.import_module(f"cudakit.adapters.pycuda.{part}")
        with pytest.raises(AttributeError) as error:
            getattr(module, rest)
        assert str(error.value) == f"cudakit's pycuda.{part} has no {rest!r}: {use}"
    assert count > 20


def test_a_name_that_goes_is_seen(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cudakit.adapters.pycuda import scan, tools

    monkeypatch.delattr(tools, "bitlog2")
    with pytest.raises(LookupError, match=r"tools\.bitlog2"):
        table.state_of("tools.bitlog2")
    assert table.has(scan.InclusiveScanKernel, "neutral")  # set by __init__


def test_a_missing_module_says_what_to_use() -> None:
    pycuda.install()
    try:
        for name in ("pycuda.sparse", "pycuda.gl.autoinit", "pycuda.debug"):
            with pytest.raises(ModuleNotFoundError, match="is not in cudakit's PyCUDA: "):
                importlib.import_module(name)
        assert importlib.import_module("pycuda").VERSION == (2026, 1)
    finally:
        pycuda.uninstall()
