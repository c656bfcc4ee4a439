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
    assert "go by a tile in shared memory" in text
    assert "NVIDIA A100 datasheet" in text
    assert 'aria-label="roofline"' in text
    assert 'class="heat2"' in text


def test_without_numbers_there_is_no_roofline(page: Path) -> None:
    stream = ck.emulator.stream()
    with ck.emulator.counters(stream) as report:
        assert "There are no floating-point operations" in report.html()
        ck.Module(TEXT)["copied"](stream, ck.config(1, 32), np.zeros(32, np.int32), np.zeros(32, np.int32))
    assert 'aria-label="roofline"' not in report.html()
    with pytest.raises(ck.ArgumentError, match="unknown card"):
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


#: Every text that is shown: what it says, how high its letters are, and its contrast with what is behind it.
TEXTS = """() => {
    const numbers = colour => colour.match(/[0-9.]+/g).map(Number);
    const light = colour => numbers(colour).slice(0, 3).map(c => c / 255)
        .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = element => {
        for (let e = element; e; e = e.parentElement) {
            const back = getComputedStyle(e).backgroundColor;
            if (numbers(back).length < 4 || numbers(back)[3] > 0) return back;
        }
        return "rgb(255, 255, 255)";
    };
    return [...document.body.querySelectorAll("*")]
        .filter(e => [...e.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
        .map(e => {
            const style = getComputedStyle(e), svg = e instanceof SVGElement;
            const [a, b] = [light(svg ? style.fill : style.color), light(behind(e))].sort((x, y) => y - x);
            const scale = svg ? e.getScreenCTM().a : 1;
            return [e.textContent, parseFloat(style.fontSize) * scale, (a + 0.05) / (b + 0.05)];
        });
}"""


@pytest.mark.site
@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_shown_whole(page: Path, browser: Any, width: int, scheme: str, request: pytest.FixtureRequest) -> None:
    shown = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problems: list[str] = []
    shown.on("console", lambda message: problems.append(message.text))
    shown.on("pageerror", lambda error: problems.append(str(error)))
    shown.on("request", lambda request: problems.append(request.url) if not request.url.startswith("file:") else None)
    shown.goto(page.as_uri())
    if folder := request.config.getoption("--screenshots"):
        shown.screenshot(path=folder / f"counters-{width}-{scheme}.png", full_page=True)
    assert problems == []
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    backs = shown.evaluate(
        "[document.body, document.querySelector('.heat2')].map(e => getComputedStyle(e).backgroundColor)"
    )
    assert backs == (
        ["rgb(255, 255, 255)", "rgb(247, 201, 196)"] if scheme == "light" else ["rgb(22, 24, 28)", "rgb(92, 38, 34)"]
    )
    hot = shown.locator("table.source tr.heat2").all_inner_texts()
    assert "y[column * n + row]" in hot[-1]
    small_or_faint = [each for each in shown.evaluate(TEXTS) if each[1] < 10.5 or each[2] < 4.5]
    assert small_or_faint == []
    # Wide tables are moved within the page; the source is broken into lines where there is little room.
    beyond = shown.evaluate("(e => e.scrollWidth - e.clientWidth)(document.querySelector('.source').parentElement)")
    assert beyond == 0
    shown.close()


@pytest.mark.site
@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
def test_its_plots(page: Path, browser: Any, width: int) -> None:
    """Bars are as long as what they stand for, and the roofline's marks stand under its line where they should."""
    shown = browser.new_page(viewport={"width": width, "height": 900})
    shown.goto(page.as_uri())
    outside = shown.evaluate(
        "[...document.querySelectorAll('svg, svg *, .plot, .plot *')].map(e => e.getBoundingClientRect())"
        ".filter(box => box.right > innerWidth || box.left < 0).length"
    )
    assert outside == 0
    kinds = _bars(shown, "instructions by kind")
    assert kinds["load"] == pytest.approx(4 * kinds["store"], abs=1)  # of parameters too
    assert max(kinds.values()) > 80
    # Four sectors are read and 32 written: 36 where 8 would do.
    plot = shown.locator("[aria-label='sectors by line']")
    least, more = (plot.locator(f"i.{kind}").first.bounding_box()["width"] for kind in ("least", "more"))
    assert more / least == pytest.approx(28 / 8, rel=0.05)
    assert "4,608, least 1,024" in plot.inner_text()
    assert shown.locator("[aria-label='wavefronts by line']").count() == 0
    roof = shown.locator("[aria-label=roofline]")
    assert roof.bounding_box()["width"] > 300
    (left, top), (right, level) = [
        (float(mark.get_attribute("cx")), float(mark.get_attribute("cy"))) for mark in roof.locator("circle").all()
    ]
    points = [tuple(map(float, each.split(","))) for each in roof.locator("polyline").get_attribute("points").split()]
    slope = (points[1][1] - points[0][1]) / (points[1][0] - points[0][0])
    for x, y in ((left, top), (right, level)):
        assert y == pytest.approx(points[0][1] + slope * (x - points[0][0]), abs=0.2)
    assert left < right < points[1][0]
    shown.close()


def _bars(shown: Any, label: str) -> dict[str, float]:
    """The width of each bar of a plot, by its name."""
    found: dict[str, float] = shown.locator(f"[aria-label='{label}']").evaluate(
        "plot => Object.fromEntries([...plot.querySelectorAll('span:nth-child(odd)')].map(name => "
        "[name.textContent, name.nextElementSibling.querySelector('i').getBoundingClientRect().width]))"
    )
    return found
