"""The cheat sheet: what it shows runs, and it is one page of paper."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cudakit as ck

TEXT = (Path(__file__).parents[2] / "docs" / "cheatsheet.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
def test_its_code_prints_what_it_says(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not request.config.getoption("--gpu"):
        monkeypatch.setattr(ck, "stream", ck.emulator.stream)
    code = "".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
    exec(compile(code, "cheatsheet.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE)


def test_its_names_are_there() -> None:
    ops = [
        word
        for cells in re.findall(r"^\| (?:reduce|scan|move|others) \| `(.*)` \|$", TEXT, re.M)
        for word in cells.split()
    ]
    assert len(ops) > 30
    assert set(ops) <= set(ck.ops.__all__)
    assert set(re.findall(r"\bck\.(\w+)", TEXT)) <= {*ck.__all__}
    assert all(hasattr(ck, name) for name in re.findall(r"`(\w+Error)`", TEXT))


@pytest.mark.parametrize("page", ["docs/ops.md", "docs/cheatsheet.md"])
def test_every_op_is_in_the_tables(page: str) -> None:
    lines = (Path(__file__).parents[2] / page).read_text("utf-8").splitlines()
    words = re.findall(
        r"\w+", " ".join(code for line in lines if line[:1] == "|" for code in re.findall("`([^`]+)`", line))
    )
    assert set(ck.ops.__all__) <= set(words)


@pytest.mark.site
@pytest.mark.slow
def test_on_paper_it_is_one_page_of_a4(site: Path) -> None:
    path = site / "cheatsheet.pdf"
    if not path.is_file():
        assert "cheatsheet.pdf" not in (site / "cheatsheet.html").read_text(encoding="utf-8")
        pytest.skip("the site was built where there is no Chromium")
    data = path.read_bytes()
    assert len(re.findall(rb"/Type\s*/Page\b", data)) == 1
    box = re.search(rb"/MediaBox\s*\[([\d. ]+)\]", data)
    assert box is not None
    assert [round(float(side)) for side in box[1].split()] == [0, 0, 595, 842]
    assert 'href="cheatsheet.pdf"' in (site / "cheatsheet.html").read_text(encoding="utf-8")
