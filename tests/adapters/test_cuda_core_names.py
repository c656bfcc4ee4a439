"""cuda.core's public names: each is there, or raises; the page's tables say so, and a new name is seen."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from cudakit.adapters.cuda_core import faults, stand_ins

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")


@pytest.fixture(scope="module")
def table() -> Any:
    """The module docs/core_table.py."""
    spec = importlib.util.spec_from_file_location("core_table", DOCS / "core_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_installed_names_are_in_the_list(table: Any) -> None:
    version, names = table.stored()
    new = set(table.installed()) - set(names)
    assert new == set(), "stand in for them, and run python docs/core_table.py names"
    if table.version() == version:
        assert set(names) == set(table.installed())


def test_each_name_is_there_or_raises(table: Any) -> None:
    names = [name for name in table.stored()[1] if not table.is_there(name)]
    assert set(names) == set(table.RAISES) & set(table.stored()[1])


def test_the_page_has_the_names(table: Any) -> None:
    text = (DOCS / "run-cuda-core.md").read_text(encoding="utf-8")
    assert text == table.page(text), "run python docs/core_table.py"


def test_each_note_is_of_a_stand_in(table: Any) -> None:
    names = set(table.stored()[1])
    assert set(table.NOTES) | set(table.RAISES) <= names
    assert not set(table.NOTES) & set(table.RAISES)


def test_what_raises_says_so(table: Any) -> None:
    for name in table.RAISES:
        module, _, last = f"cuda.core.{name}".rpartition(".")
        with pytest.raises(faults.CoreError, match=r"needs a GPU|there is none|emulator has no"):
            stand_ins.names()[module][last](*[1] * (last in ("get_process_name",)))


def test_a_member_that_goes_is_seen(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cudakit.adapters.cuda_core.devices import Device

    monkeypatch.delattr(Device, "allocate")
    with pytest.raises(LookupError, match=r"Device\.allocate"):
        table.is_there("Device.allocate")


def test_a_new_name_is_seen(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("cuda.core.graph"), "__all__", ["Graph", "Sprout"])
    monkeypatch.setattr(importlib.import_module("cuda.core.graph"), "Sprout", object(), raising=False)
    assert "graph.Sprout" in set(table.installed()) - set(table.stored()[1])
