"""What the package says of itself, in `pyproject.toml` and in `CITATION.cff`: the same, and true."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_says_what_the_package_says() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    said = dict(re.findall(r"^([a-z-]+): (.+)$", text, re.MULTILINE))
    assert said["cff-version"] == "1.2.0"
    assert (said["title"], said["version"], said["license"]) == (
        PROJECT["name"],
        PROJECT["version"],
        PROJECT["license"],
    )
    assert said["abstract"] == PROJECT["description"]
    authors, keywords = text.split("authors:\n")[1].split("keywords:\n")
    assert re.findall(r"- name: (.+)", authors) == [author["name"] for author in PROJECT["authors"]]
    assert re.findall(r"- (.+)", keywords) == PROJECT["keywords"]


def test_classifiers_name_the_versions_of_python_that_are_required() -> None:
    found = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"])
    assert found is not None
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "Python :: 3." in text]
    assert named == [f"3.{minor}" for minor in range(int(found[1]), int(found[2]))]


def test_the_changelog_is_at_this_version() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == PROJECT["version"]
