"""`docs/support.md`: every public name is marked stable or provisional, and the versions are the package's."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path
from types import ModuleType

import cudakit as ck

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ROW = re.compile(r"^\| `(cudakit[.\w]*)` \|(.*)\|(.*)\|$", re.MULTILINE)


def names_in(cell: str) -> list[str]:
    return [name for span in re.findall(r"`([^`]+)`", cell) for name in span.split()]


#: By module.
STABLE = {row[1]: names_in(row[2]) for row in ROW.finditer(PAGE)}
PROVISIONAL = {row[1]: names_in(row[3]) for row in ROW.finditer(PAGE)}


def public() -> dict[str, list[str]]:
    """The names of the package and of its public modules."""
    modules = [value for name in ck.__all__ if isinstance(value := getattr(ck, name), ModuleType)]
    names = {"cudakit": sorted(ck.__all__)}
    for module in modules:
        own = [name for name, value in vars(module).items() if isinstance(value, type) and name[0] != "_"]
        names[module.__name__] = sorted(getattr(module, "__all__", own))
    return names


def test_every_public_name_is_marked_once() -> None:
    assert {module: sorted([*STABLE[module], *PROVISIONAL[module]]) for module in STABLE} == public()


def test_a_name_has_one_mark_wherever_it_is() -> None:
    for module, names in STABLE.items():
        inside = importlib.import_module(module)
        twice = {name for name in ck.__all__ if getattr(inside, name, None) is getattr(ck, name)}
        assert twice & {*names} == twice & {*STABLE["cudakit"]}
        assert not names or inside is ck or module.partition(".")[2] in STABLE["cudakit"]


def test_the_versions_are_those_of_the_package() -> None:
    minors = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "Python :: 3." in text]
    assert f"| Python | CPython {', '.join(minors)} |" in PAGE
    assert {"cu12", "cu13"} <= PROJECT["optional-dependencies"].keys()
    oldest = [text for text in PROJECT["optional-dependencies"]["cu12"] if text.startswith("nvidia-cuda-nvrtc")]
    assert oldest == ["nvidia-cuda-nvrtc-cu12>=12.9"]
    assert "12.9 (`cudakit[cu12]`) and 13 (`cudakit[cu13]`)" in PAGE
    assert "numpy>=2" in PROJECT["dependencies"]
    assert "NumPy | 2.0 and later" in PAGE
