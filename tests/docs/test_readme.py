"""The README: its links lead somewhere, in the repository and in a package index, and its badges are true."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINKS = re.findall(r"\]\(([^)\s]+)\)", TEXT)


def metadata(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Any:
    """What a build says of the package."""
    pytest.importorskip("hatchling", reason="the test extra is not installed")
    from hatchling.metadata.core import ProjectMetadata
    from hatchling.plugin.manager import PluginManager

    for name in ("CUDAKIT_REPOSITORY", "CUDAKIT_RELEASE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return ProjectMetadata(str(ROOT), PluginManager()).core


def test_links_into_the_repository_lead_somewhere() -> None:
    assert len(LINKS) > 15
    assert [link for link in LINKS if not (ROOT / link.partition("#")[0]).exists()] == []


def test_a_package_index_gets_whole_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    core = metadata(monkeypatch, CUDAKIT_REPOSITORY="https://example.org/them/cudakit/", CUDAKIT_RELEASE="1")
    address = "https://example.org/them/cudakit"
    links = re.findall(r"\]\(([^)\s]+)\)", core.readme)
    assert len(links) == len(LINKS)
    version = runpy.run_path(str(ROOT / ".ci" / "version.py"))["version"]()
    assert f"[ARCHITECTURE.md]({address}/blob/v{version}/ARCHITECTURE.md)" in core.readme
    assert f"({address}/raw/v{version}/docs/pictures/readme.png)" in core.readme
    assert [link for link in links if not link.startswith(f"{address}/")] == []
    assert core.urls["Changelog"] == f"{address}/blob/v{version}/CHANGELOG.md"
    assert core.readme_content_type == "text/markdown"


def test_where_the_address_is_unknown_no_link_is_left_to_break(monkeypatch: pytest.MonkeyPatch) -> None:
    core = metadata(monkeypatch)
    assert re.findall(r"\]\(([^)\s]+)\)", core.readme) == []
    assert "ARCHITECTURE.md" in core.readme
    assert core.urls == {}
    assert re.findall(r"```\w+\n.*?```", core.readme, re.DOTALL) == re.findall(r"```\w+\n.*?```", TEXT, re.DOTALL)


def test_a_release_without_an_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="CUDAKIT_REPOSITORY is not set"):
        _ = metadata(monkeypatch, CUDAKIT_RELEASE="1").readme


def test_badges_say_what_the_package_says() -> None:
    badges = dict(re.findall(r"!\[([^\]]+)\]\((docs/pictures/badge-\w+\.svg)\)", TEXT))
    minors = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "Python :: 3." in text]
    cuda = sorted(extra[2:] for extra in PROJECT["optional-dependencies"] if re.fullmatch(r"cu\d+", extra))
    assert list(badges) == [
        f"Python {minors[0]} – {minors[-1]}",
        f"CUDA {', '.join(cuda)}",
        f"License {PROJECT['license']}",
    ]
    for words, path in badges.items():
        assert words in (ROOT / path).read_text(encoding="utf-8")


def test_the_commands_that_install_are_there() -> None:
    assert "pip install 'cudakit[cu13]'" in TEXT
    assert TEXT.count("pip install -e") == 2
    assert (ROOT / "docs" / "pictures" / "readme.png").stat().st_size <= 100_000
