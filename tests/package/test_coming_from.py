"""The pages docs/from-*.md: each example "cudakit" runs and prints the result that the page shows."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import cudakit as ck
from cudakit.adapters.cupy import cupy_stand_in

DOCS = Path(__file__).parents[2] / "docs"
#: Pages of sections: a heading, the code before, the code after.
PAGES = tuple(page.name for page in sorted(DOCS.glob("from-*.md")))
BLOCK = re.compile(r"^#{2,3} (?P<heading>[^\n]+)$|^```(?:python|c)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
#: The comment that ends a line with `print(…)` is the printed line; a kernel's own output follows "prints:".
PRINTED = re.compile(r"^ *(?:print\(.*\)  # |.*  # prints: )(.*)$", re.MULTILINE)
AFTER, AFTER_ON_GPU = "# cudakit", "# cudakit, on a GPU"


class Example(NamedTuple):
    """A code block of a page."""

    heading: str
    code: str

    @property
    def label(self) -> str:
        """The first line, which names the library."""
        return self.code.partition("\n")[0]


def examples(page: str) -> Iterator[Example]:
    """The code blocks of a page in order, each with the heading above it."""
    heading = ""
    for match in BLOCK.finditer((DOCS / page).read_text(encoding="utf-8")):
        heading = match["heading"] or heading
        if match["code"]:
            yield Example(heading, match["code"])


def setup(page: str) -> str:
    """The code block that every example of the page starts with: the first one without a library's name."""
    return next(example.code for example in examples(page) if example.label == "import numpy as np")


def is_after(example: Example) -> bool:
    return example.label in (AFTER, AFTER_ON_GPU)


CASES = [
    pytest.param(page, example, id=f"{page[5:-3]}-{example.heading}-{number}")
    for page in PAGES
    for number, example in enumerate(examples(page))
    if is_after(example)
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
@pytest.mark.parametrize(("page", "example"), CASES)
def test_an_example_prints_the_result_that_the_page_shows(
    page: str,
    example: Example,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    on_gpu = request.config.getoption("--gpu")
    if example.label == AFTER_ON_GPU and not on_gpu:
        pytest.skip("needs a GPU")
    monkeypatch.chdir(tmp_path)
    if not on_gpu:
        monkeypatch.setattr(ck, "stream", ck.emulator.stream)
    names: dict[str, Any] = {}
    exec(compile(setup(page), page, "exec"), names)
    exec(compile(example.code, page, "exec"), names)
    names["stream"].sync()
    assert capfd.readouterr().out.splitlines() == PRINTED.findall(example.code)


#: Pages whose examples "before" run after the first of them: on a GPU, CuPy's also on the emulator's stand-in for CuPy.
BEFORE = {"from-cuda-core.md": "# cuda.core", "from-cupy.md": "# CuPy"}
CASES_BEFORE = [
    pytest.param(page, example, id=f"{page[5:-3]}-{example.heading}-{number}")
    for page, label in BEFORE.items()
    for number, example in enumerate(examples(page))
    if example.label in (label, f"{label}, on a GPU")
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
@pytest.mark.parametrize(("page", "example"), CASES_BEFORE)
def test_an_example_before_prints_the_result_that_the_page_shows(
    page: str,
    example: Example,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if not request.config.getoption("--gpu"):
        if example.label != "# CuPy":
            pytest.skip("needs a GPU")
        monkeypatch.setattr(ck, "stream", ck.emulator.stream)
        for name, module in cupy_stand_in().items():
            monkeypatch.setitem(sys.modules, name, module)
    first = next(other for other in examples(page) if other.label == BEFORE[page])
    names: dict[str, Any] = {}
    program = setup(page) + first.code + (example.code if example != first else "")
    exec(compile(program, page, "exec"), names)
    assert capfd.readouterr().out.splitlines() == PRINTED.findall(program)


@pytest.mark.parametrize("page", PAGES)
def test_each_section_shows_code_before_and_after_with_a_printed_result(page: str) -> None:
    by_heading: dict[str, list[Example]] = {}
    for example in examples(page):
        if example.code == setup(page):
            continue
        by_heading.setdefault(example.heading, []).append(example)
        if not example.label.startswith("//"):
            compile(example.code, page, "exec")
        assert [line for line in example.code.splitlines() if len(line) > 80] == []
        assert not is_after(example) or PRINTED.search(example.code), f"{example.heading}: prints no result"
    for heading, blocks in by_heading.items():
        assert [is_after(block) for block in blocks[:2]] == [False, True], heading


def test_the_page_of_pycuda_has_its_common_names() -> None:
    page = (DOCS / "from-pycuda.md").read_text(encoding="utf-8")
    names = (
        "SourceModule get_function InOut( drv.In( drv.Out( mem_alloc memcpy_htod memcpy_dtoh_async managed gpuarray "
        "ElementwiseKernel ReductionKernel InclusiveScanKernel cumath curand Stream time_till prepared_call get_global "
        "texref struct autoinit DeviceMemoryPool get_attribute Context.synchronize LogicError gpuarray.zeros "
        "gpuarray.empty .get() memset_d32 mem_get_info Device.count total_memory"
    )
    assert [name for name in names.split() if name not in page] == []
