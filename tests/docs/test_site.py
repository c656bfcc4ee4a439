"""The site: it builds without a warning, and every public name has an entry in its reference."""

from __future__ import annotations

import inspect
import json
import re
import zlib
from pathlib import Path

import pytest
from package.test_surface import MODULES, TOP

import cudakit as ck

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_versions_are_listed_and_the_newest_is_led_to(site_root: Path, site: Path) -> None:
    listed = [row["name"] for row in json.loads((site_root / "switcher.json").read_text())]
    assert site.name in listed
    assert f"{listed[0]}/index.html" in (site_root / "index.html").read_text()


@pytest.mark.slow
def test_every_public_name_has_an_entry(site: Path) -> None:
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    there = {line.split()[0] for line in zlib.decompress(inventory).decode().splitlines()}
    names = {*TOP.split(), *(f"{module}.{name}" for module, words in MODULES.items() for name in words.split())}
    names |= {f"math.{name}" for name in ck.math.TABLE}
    assert [name for name in sorted(names) if f"cudakit.{name}" not in there] == []


def test_every_name_of_the_package_has_one_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    import generated

    names = [name for _, _, names, _ in generated.SUBJECTS.values() for name in names.split()]
    modules = [name for name in ck.__all__ if inspect.ismodule(getattr(ck, name))]
    assert sorted([*names, *modules]) == sorted(ck.__all__)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["kernels", "streams", "memory", "graphs", "pipelines", "errors"])
def test_a_page_of_the_reference_has_the_names_of_its_subject(page: str, site: Path) -> None:
    text = (site / "api" / f"{page}.html").read_text(encoding="utf-8")
    examples = {"kernels": "Kernel", "graphs": "capture", "pipelines": "Pipeline", "errors": "CompileError"}
    name = {"streams": "using", "memory": "to_host", **examples}[page]
    assert f'id="cudakit.{name}"' in text
    assert f'id="cudakit.{name}"' not in (site / "api" / "cudakit.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_reference_has_the_docstrings(site: Path) -> None:
    page = re.sub("<[^>]*>", "", (site / "api" / "cudakit.ops.html").read_text(encoding="utf-8"))
    assert "Σ x along axis, as numpy.sum." in page
    assert "|x − max x|" in page  # no substitution
    assert "processed by" not in page


@pytest.mark.slow
def test_every_program_has_a_page(site: Path) -> None:
    examples = DOCS.parent / "examples"
    pages = [path.relative_to(examples).with_suffix(".html") for path in examples.rglob("*.py")]
    assert [str(page) for page in sorted(pages) if not (site / "programs" / page).is_file()] == []


@pytest.mark.slow
def test_a_search_for_install_finds_its_page_first(site: Path) -> None:
    """Sphinx ranks a main index entry that is the searched word above titles, names and text."""
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    for word in ("install", "installation", "pip"):
        ((page, _, is_main),) = index["indexentries"][word]
        assert (index["docnames"][page], is_main) == ("installation", True)
