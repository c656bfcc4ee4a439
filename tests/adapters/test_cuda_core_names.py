"""cuda.core's public names: each is there, or raises; the page's tables say so, and a new name is seen."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from cudakit.adapters.cuda_core import faults, stand_ins

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")


@pytest.fixture
def table(name_tables: Any) -> Any:
    return name_tables.PEERS["cuda_core"]


def test_the_installed_names_are_in_the_list(table: Any) -> None:
    version, names = table.stored()
    new = set(table.installed()) - set(names)
    assert new == set(), "stand in for them, and run python docs/name_tables.py cuda_core"
    if table.version() == version:
        assert set(names) == set(table.installed())


def test_what_raises_says_so(table: Any) -> None:
    for name in table.raises:
        module, _, last = f"cuda.core.{name}".rpartition(".")
        with pytest.raises(faults.CoreError, match=r"needs a GPU|there is none|emulator has no"):
            stand_ins.names()[module][last](*[1] * (last in ("get_process_name",)))


def test_a_member_that_goes_is_seen(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cudakit.adapters.cuda_core.devices import Device

    monkeypatch.delattr(Device, "allocate")
    with pytest.raises(LookupError, match=r"Device\.allocate"):
        table.state("Device.allocate")


def test_a_new_name_is_seen(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("cuda.core.graph"), "__all__", ["Graph", "Sprout"])
    monkeypatch.setattr(importlib.import_module("cuda.core.graph"), "Sprout", object(), raising=False)
    assert "graph.Sprout" in set(table.installed()) - set(table.stored()[1])
