"""The site in a browser, at three widths, light and dark: links, pictures, code, errors, copying, search."""

from __future__ import annotations

import functools
import http.server
import re
import runpy
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag

import pytest

pytestmark = [pytest.mark.site, pytest.mark.slow]

DOCS = Path(__file__).parents[2] / "docs"
WIDTHS = (360, 1280, 1920)
SCHEMES = ("light", "dark")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SHOWN = ("index", "gallery", "benchmarks", "api/cudakit.ops", "emulator", "from-pycuda", "programs/tutorial/saxpy")

READ = """async () => ({
    links: [...document.links].map(link => link.href),
    names: [...document.querySelectorAll("[id]")].map(element => element.id),
    broken: (await Promise.all([...document.images].map(image => {
        image.loading = "eager";
        return image.decode().then(() => "", () => image.src);
    }))).filter(source => source),
})"""
IS_IN = "scheme => document.documentElement.dataset.theme === scheme"
#: What is wider than the page, or than the column of text, which then scrolls as a whole; code and tables may.
TOO_WIDE = """() => [document.documentElement, ...document.querySelectorAll(".bd-article-container, article, section")]
    .filter(part => part.scrollWidth > part.clientWidth + 1 || part.getBoundingClientRect().right > innerWidth + 1)
    .map(part => part.cloneNode().outerHTML + " " + part.scrollWidth).slice(0, 3)"""
#: Blocks of code that are wider than their frame; a card of the gallery shows only the start of its output.
CUT_CODE = """may_wrap => {
    const blocks = [...document.querySelectorAll(".bd-article pre")].filter(block => !block.closest(".cards"));
    blocks.forEach(block => block.style.whiteSpace = may_wrap ? "" : "pre");
    const cut = blocks.filter(block => block.scrollWidth > block.clientWidth + 1);
    blocks.forEach(block => block.style.whiteSpace = "");
    return cut.map(block => block.textContent.slice(0, 60));
}"""
#: Pages whose lines have any length: docstrings, outputs of notebooks, comments of headers. They wrap on every screen.
LONG_LINES = ("api/", "programs/notebooks/", "templates.html")


class Visit(NamedTuple):
    """Contents and faults of a page, as the browser shows it."""

    links: list[str]
    names: set[str]
    broken: list[str]
    errors: list[str]
    overflow: list[str]
    cut_code: list[str]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder that this machine serves to itself."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Of the version."""
    with served(site.parent) as root:
        yield f"{root}{site.name}/"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright, of the extra dev, is not installed")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium here")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def visits(browser: Any, site: Path, address: str) -> dict[str, Visit]:
    """Each page of the site, opened once and looked at in each width and scheme."""
    found = {}
    page = browser.new_page(reduced_motion="reduce")  # the width of the page list changes at once
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("response", lambda answer: errors.append(f"{answer.status} {answer.url}") if answer.status > 399 else None)
    schemes = SCHEMES
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        if name.startswith("_static/"):
            continue
        page.goto(address + name)
        read, overflow, cut = page.evaluate(READ), [], []
        for scheme in schemes:
            page.emulate_media(color_scheme=scheme)
            page.wait_for_function(IS_IN, arg=scheme, polling=20)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                overflow += [f"{width} {scheme}: {element}" for element in page.evaluate(TOO_WIDE)]
                may_wrap = width < 1280 or name.startswith(LONG_LINES)
                cut += [f"{width}: {code}" for code in page.evaluate(CUT_CODE, may_wrap)]
        schemes = schemes[::-1]  # the next page begins as this one ends: each change takes time
        found[name] = Visit(read["links"], set(read["names"]), read["broken"], list(errors), overflow, cut)
        errors.clear()
    page.close()
    assert len(found) > 60
    return found


def test_no_link_is_broken(visits: dict[str, Visit], site: Path, address: str) -> None:
    def broken(link: str) -> bool:
        target, fragment = urldefrag(link.removeprefix(address))
        name = unquote(target.partition("?")[0]) or "index.html"
        if name in visits:
            return bool(fragment) and unquote(fragment) not in visits[name].names
        return not (site / name).is_file()

    root = address.removesuffix(f"{site.name}/")
    inside = {(page, link) for page, visit in visits.items() for link in visit.links if link.startswith(root)}
    assert len(inside) > 1000
    assert sorted(f"{page}: {link}" for page, link in inside if broken(link)) == []


def test_no_picture_is_broken(visits: dict[str, Visit]) -> None:
    assert {page: visit.broken for page, visit in visits.items() if visit.broken} == {}


def test_no_page_is_wider_than_the_window(visits: dict[str, Visit]) -> None:
    assert {page: visit.overflow for page, visit in visits.items() if visit.overflow} == {}


def test_no_code_is_cut(visits: dict[str, Visit]) -> None:
    assert {page: visit.cut_code for page, visit in visits.items() if visit.cut_code} == {}


def test_no_page_reports_an_error(visits: dict[str, Visit]) -> None:
    assert {page: visit.errors for page, visit in visits.items() if visit.errors} == {}


def test_code_is_copied_whole(browser: Any, address: str) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(address + "index.html")
    code = page.locator("div.highlight-python").first
    code.hover()
    code.locator("button.copybtn").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    context.close()
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert copied.strip() == re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0].strip()


def test_each_code_block_has_a_button_that_copies_it(browser: Any, address: str) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(address + "from-pycuda.html")
    section = page.locator("section#memcpy-htod")
    code = section.locator("div.highlight").last
    code.hover()
    code.locator("button.copybtn").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    blocks, buttons = page.locator("div.highlight").count(), page.locator("div.highlight button.copybtn").count()
    context.close()
    assert buttons == blocks > 100
    source = (DOCS / "from-pycuda.md").read_text(encoding="utf-8").partition("### memcpy_htod\n")[2]
    assert copied.strip() == re.findall(r"```python\n(.*?)```", source, re.DOTALL)[1].strip()


@pytest.mark.parametrize("by_server", [True, False], ids=["served", "from files"])
@pytest.mark.parametrize(
    ("word", "entry"),
    [
        ("Kernel", "kernels.html#cudakit.Kernel"),
        ("In", "memory.html#cudakit.In"),
        ("softmax", "#cudakit.ops.softmax"),
        ("install", "installation.html#index-0"),
    ],
)
def test_search_finds(word: str, entry: str, by_server: bool, browser: Any, site: Path, address: str) -> None:
    page = browser.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.set_default_timeout(10_000)
    page.goto(f"{address if by_server else site.as_uri() + '/'}search.html?q={word}")
    page.wait_for_function("document.querySelector('#search-results p')?.textContent.includes('found')")
    first = page.locator("#search-results li a").evaluate_all("links => links.map(link => link.href)")[:10]
    page.close()
    assert any(link.endswith(entry) for link in first), first
    assert not by_server or errors == []  # of files no excerpts can be read, which Chromium reports


def test_the_menu_leads_to_the_same_page_of_another_version(browser: Any, site: Path, tmp_path: Path) -> None:
    for version in ("0.9.0", "0.10.0rc1", "0.10.0"):
        (tmp_path / version).symlink_to(site)
    runpy.run_path(str(DOCS / "versions.py"))["write"](tmp_path)
    page = browser.new_page()
    with served(tmp_path) as root:
        page.goto(root)
        page.wait_for_url(f"{root}0.10.0/index.html")
        page.goto(f"{root}0.10.0/api/cudakit.ops.html")
        menu = page.locator("select.versions").first
        page.wait_for_function("document.querySelector('select.versions').length > 3")
        assert menu.locator("option").all_text_contents() == [site.name, "0.10.0", "0.10.0rc1", "0.9.0"]
        menu.select_option("0.9.0")
        page.wait_for_url(f"{root}0.9.0/api/cudakit.ops.html")
    page.close()


def test_pictures_are_taken(browser: Any, address: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder = request.config.getoption("--screenshots") or tmp_path
    for width in WIDTHS:
        for scheme in SCHEMES:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            for name in SHOWN:
                page.goto(f"{address}{name}.html")
                page.screenshot(path=folder / f"{name.replace('/', '.')}-{width}-{scheme}.png")
            page.close()
    assert len(list(folder.glob("*.png"))) >= len(SHOWN) * len(WIDTHS) * len(SCHEMES)
