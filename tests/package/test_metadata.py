"""What the package says of itself, in `pyproject.toml` and in `CITATION.cff`: the same, and true."""

from __future__ import annotations

import re
import runpy
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION: Any = runpy.run_path(str(ROOT / ".ci" / "version.py"))
HEADS = [(head["version"], head["when"]) for head in VERSION["HEAD"].finditer((ROOT / "CHANGELOG.md").read_text())]


def test_the_citation_says_what_the_package_says() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    said = dict(re.findall(r"^([a-z-]+): (.+)$", text, re.MULTILINE))
    assert said["cff-version"] == "1.2.0"
    assert (said["title"], said["version"], said["license"]) == (
        PROJECT["name"],
        HEADS[0][0],
        PROJECT["license"],
    )
    assert said.get("date-released", "unreleased") == HEADS[0][1]
    assert said["abstract"] == PROJECT["description"]
    authors, keywords = text.split("authors:\n")[1].split("keywords:\n")
    assert re.findall(r"- name: (.+)", authors) == [author["name"] for author in PROJECT["authors"]]
    assert re.findall(r"- (.+)", keywords) == PROJECT["keywords"]


def test_classifiers_name_the_versions_of_python_that_are_required() -> None:
    found = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"])
    assert found is not None
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "Python :: 3." in text]
    assert named == [f"3.{minor}" for minor in range(int(found[1]), int(found[2]))]


def test_the_changelog_is_by_versions_the_newest_first() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert len(HEADS) == len(re.findall(r"^## ", text, re.MULTILINE))
    versions = [tuple(map(int, version.split("."))) for version, _ in HEADS]
    assert versions == sorted(set(versions), reverse=True)
    assert "unreleased" not in [when for _, when in HEADS[1:]]
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert [line for line in lines if lines.count(line) > 1] == []


def test_the_changelog_of_an_unreleased_first_version_is_a_page() -> None:
    if [when for _, when in HEADS] == ["unreleased"]:
        assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= 100


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder of files, at a version that is not released."""
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0 (unreleased)\n\n- New.\n\n## 1.1.0 (2026-01-31)\n")
    return tmp_path


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_files_without_git_are_of_the_version_that_the_changelog_says(files: Path) -> None:
    assert VERSION["version"](files) == "1.2.0.dev0"
    changelog = files / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("unreleased", "2026-12-01"))
    assert VERSION["version"](files) == "1.2.0"
    changelog.write_text("# Changelog\n\n- New.\n")
    with pytest.raises(ValueError, match="no head such as"):
        VERSION["version"](files)


def test_a_clone_is_of_the_version_of_its_tag(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(files, "init")
    git(files, "add", ".")
    git(files, "commit", "-m", "First")
    assert VERSION["version"](files) == "1.2.0.dev0"  # a clone that has no tags
    git(files, "tag", "old")
    assert VERSION["version"](files) == "1.2.0.dev0"
    git(files, "tag", "v1.2.0rc1")
    assert VERSION["version"](files) == "1.2.0rc1"
    (files / "CHANGELOG.md").write_text((files / "CHANGELOG.md").read_text() + "- Not committed.\n")
    assert VERSION["version"](files) == "1.2.0.dev0"
    git(files, "commit", "-am", "Second")
    assert VERSION["version"](files) == "1.2.0.dev0"
    git(files, "tag", "v1.2.0")
    assert VERSION["version"](files) == "1.2.0"
    monkeypatch.setenv("PATH", "")
    assert VERSION["version"](files) == "1.2.0.dev0"  # no git
