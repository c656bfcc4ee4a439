"""The pages of docs/ and the README: what they show runs, in both places. The pages from-*.md: test_coming_from.py."""

from __future__ import annotations

import contextlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from support.tiles import needs_tiles

import cudakit as ck
from cudakit.adapters.program import stand_ins

DOCS = Path(__file__).parents[2] / "docs"


GUIDES = [
    page.name
    for page in sorted(DOCS.glob("*.md"))
    if not page.name.startswith("from-") and "```python" in page.read_text()
]


def runs(snippet: str, on_gpu: bool) -> bool:
    """Whether a snippet can run here: its first line may ask for a GPU, or for other packages."""
    asks = re.match(r"# (on a GPU)?(?:, )?(?:with ([\w., ]+))?\n", snippet)
    if asks is None:
        return True
    if asks[1] and not on_gpu:
        return False
    return all(map(is_installed, asks[2].split(", "))) if asks[2] else True


def is_installed(name: str) -> bool:
    parent = name.rpartition(".")[0]
    return (not parent or is_installed(parent)) and importlib.util.find_spec(name) is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
@pytest.mark.filterwarnings("ignore:The 'generic' unit for NumPy timedelta:DeprecationWarning")  # of Numba
@pytest.mark.parametrize("page", GUIDES)
def test_the_snippets_of_a_guide_print_what_they_say(
    page: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One after the other in one namespace; the comment after a `print(…)` is what it prints."""
    monkeypatch.chdir(tmp_path)
    on_gpu = request.config.getoption("--gpu")
    if page in {"tiles.md", "emulator.md"}:
        needs_tiles(on_gpu)
    if not on_gpu:
        monkeypatch.setattr(ck, "stream", ck.emulator.stream)
    found = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    snippets = "".join(snippet for snippet in found if compile(snippet, page, "exec") and runs(snippet, on_gpu))
    # Programs of other libraries stand on these pages as `cudakit run` takes them.
    with stand_ins(on_gpu) if page.startswith("run-") else contextlib.nullcontext():
        exec(compile(snippets, page, "exec", dont_inherit=True), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"^ *print\(.*\)  # (.*)$", snippets, re.MULTILINE)


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_code_fits_the_page(page: str) -> None:
    """A guide has room for 96 columns on a window of 1280 px."""
    blocks = re.findall(r"^ *```\w+\n(.*?)^ *```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    assert [line for block in blocks for line in block.splitlines() if len(line) > 92] == []


@pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
def test_the_programs_of_the_readme_run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them in one namespace, as somebody would run them who reads on."""
    if not request.config.getoption("--gpu"):
        monkeypatch.setattr(ck, "stream", ck.emulator.stream)
    programs = re.findall(r"```python\n(.*?)```", (DOCS.parent / "README.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    for program in programs:
        exec(compile(program, "README.md", "exec"), names)
    assert len(programs) > 1


def test_the_readme_is_short() -> None:
    assert len((DOCS.parent / "README.md").read_text().splitlines()) <= 130


def test_no_page_or_program_advises_an_older_assembler() -> None:
    """The extra `tileiras` of cuda-tile holds the assembler below the version that tile kernels need."""
    root = DOCS.parent
    files = [root / "README.md", root / "CONTRIBUTING.md", *DOCS.glob("*.md"), *(root / "examples").rglob("*.py")]
    assert len(files) > 100
    assert [file.name for file in files if "cuda-tile[" in file.read_text(encoding="utf-8")] == []
