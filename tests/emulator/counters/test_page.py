"""The page of a report: nothing is fetched for it; in a browser nothing overflows or fails, in light and dark."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck

pytestmark = pytest.mark.emulator

TEXT = """
__global__ void turned(const float* x, float* y, int n) {  // <b>not bold</b> & "quoted"
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    y[column * n + row] = 2 * x[row * n + column] + 1;
}
__global__ void copied(const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x]; }
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    module, stream = ck.Module(TEXT), ck.emulator.stream()
    x, y = np.ones((64, 64), np.float32), np.empty((64, 64), np.float32)
    with ck.emulator.counters(stream) as report:
        module["turned"](stream, ck.config((2, 2), (32, 32)), x, y, 64)
        module["copied"](stream, ck.config(1, 32), np.zeros(32, np.int32), np.zeros(32, np.int32))
    path = tmp_path_factory.mktemp("page") / "page.html"
    report.save_html(path, "A100")
    return path


def test_it_stands_alone(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    HTMLParser().feed(text)
    assert not re.search(r"<script|<link|src=|href=|url\(|@import", text)
    assert "&lt;b&gt;not bold&lt;/b&gt; &amp; &quot;quoted&quot;" in text
    assert "swap the indices" in text
    assert "NVIDIA A100 datasheet" in text
    assert 'aria-label="roofline"' in text
    assert 'class="heat2"' in text


def test_without_numbers_there_is_no_roofline(page: Path) -> None:
    stream = ck.emulator.stream()
    with ck.emulator.counters(stream) as report:
        assert "There are no floating-point operations" in report.html()
        ck.Module(TEXT)["copied"](stream, ck.config(1, 32), np.zeros(32, np.int32), np.zeros(32, np.int32))
    assert 'aria-label="roofline"' not in report.html()
    with pytest.raises(ck.ArgumentError, match="no figures of a card"):
        report.html("none")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright, of the extra dev, is not installed")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium here")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.mark.site
@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_shown_whole(page: Path, browser: Any, width: int, scheme: str) -> None:
    shown = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problems: list[str] = []
    shown.on("console", lambda message: problems.append(message.text))
    shown.on("pageerror", lambda error: problems.append(str(error)))
    shown.on("request", lambda request: problems.append(request.url) if not request.url.startswith("file:") else None)
    shown.goto(page.as_uri())
    assert problems == []
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    backs = shown.evaluate(
        "[document.body, document.querySelector('.heat2')].map(e => getComputedStyle(e).backgroundColor)"
    )
    assert backs == (
        ["rgb(255, 255, 255)", "rgb(247, 201, 196)"] if scheme == "light" else ["rgb(22, 24, 28)", "rgb(92, 38, 34)"]
    )
    boxes = shown.evaluate("[...document.querySelectorAll('svg *')].map(e => [e.tagName, e.getBoundingClientRect()])"
                           ".filter(([tag, box]) => box.right > innerWidth || box.left < 0).length")  # fmt: skip
    assert boxes == 0
    hot = shown.locator("table.source tr.heat2").all_inner_texts()
    assert "y[column * n + row]" in hot[-1]
    shown.close()
