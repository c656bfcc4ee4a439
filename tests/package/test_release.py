"""What keeps a release from being uploaded is found by `.ci/release.py`: each thing is broken once."""

from __future__ import annotations

import email.message
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RELEASE: Any = runpy.run_path(str(ROOT / ".ci" / "release.py"))
ABOUT = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")


@pytest.fixture
def wheel() -> dict[str, bytes]:
    """What is in a wheel that is right."""
    package, templates = RELEASE["tree"]("cudakit"), RELEASE["tree"]("templates")
    assert len(package) > 250
    inside = {f"cudakit/{path}": data for path, data in templates.items()}
    inside["pytest_cudakit.py"] = (ROOT / "pytest_cudakit.py").read_bytes()
    return package | inside | {f"cudakit-1.0.dist-info/{name}": b"" for name in ABOUT}


def of_wheel(found: dict[str, bytes]) -> str:
    return "\n".join(RELEASE["wheel_problems"](found))


@pytest.mark.parametrize(
    "name",
    [
        "cudakit/ops/reduce.py",
        "cudakit/py.typed",
        "cudakit/templates/image.cuh",
        "cudakit/templates/include/host/cmath",
        "pytest_cudakit.py",
    ],
)
def test_a_file_that_the_wheel_lacks_or_has_otherwise(wheel: dict[str, bytes], name: str) -> None:
    assert of_wheel(wheel) == ""
    wheel[name] = b"other" + wheel[name]
    assert of_wheel(wheel) == f"not the repository's: {name}"
    del wheel[name]
    assert f"the wheel lacks: {name}" in of_wheel(wheel)


@pytest.mark.parametrize("name", ["tests/conftest.py", "cudakit/notes.txt", "cudakit/templates/own.cuh"])
def test_a_file_that_does_not_belong_into_the_wheel(wheel: dict[str, bytes], name: str) -> None:
    assert of_wheel(wheel | {name: b""}) == f"the wheel has besides: {name}"


def test_the_wheel_has_the_licence_and_the_command(wheel: dict[str, bytes]) -> None:
    for name in ("licenses/LICENSE", "entry_points.txt"):
        without = {path: data for path, data in wheel.items() if not path.endswith(name)}
        assert of_wheel(without) == f"the wheel lacks or has besides, about itself: {name}"


def test_the_sdist_has_what_git_knows() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: git is asked what belongs into an sdist")
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True).stdout
    found = dict.fromkeys(names.splitlines(), b"") | {"PKG-INFO": b""}
    assert list(RELEASE["sdist_problems"](found)) == []
    assert list(RELEASE["sdist_problems"](found | {"mine.txt": b""})) == ["the sdist has besides: mine.txt"]
    del found["tests/conftest.py"]
    assert list(RELEASE["sdist_problems"](found)) == ["the sdist lacks: tests/conftest.py"]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> email.message.Message:
    """What a build says of the package, the address of the repository given."""
    pytest.importorskip("hatchling", reason="the group test is not installed")
    from hatchling.metadata.core import ProjectMetadata
    from hatchling.metadata.spec import construct_metadata_file_2_4
    from hatchling.plugin.manager import PluginManager

    monkeypatch.setenv("CUDAKIT_REPOSITORY", "https://example.org/them/cudakit")
    parser = email.parser.Parser()
    return parser.parsestr(construct_metadata_file_2_4(ProjectMetadata(str(ROOT), PluginManager())))


def of_metadata(said: email.message.Message, release: bool = False) -> str:
    return "\n".join(RELEASE["metadata_problems"](said, release))


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("Name", "cudakits", "Name is 'cudakits'"),
        ("Version", "9.9", "the version is 9.9"),
        ("Requires-Python", ">=3.8", "Requires-Python is >=3.8"),
        ("License-Expression", "GPL-3.0-only", "the licence is not"),
        ("License-File", "COPYING", "the licence is not"),
        ("Provides-Extra", "cu11", "the extras are"),
    ],
)
def test_what_the_package_says_of_itself(said: email.message.Message, field: str, value: str, told: str) -> None:
    assert of_metadata(said) == ""
    del said[field]
    said[field] = value
    assert of_metadata(said).startswith(told)


def test_what_is_published_has_tag_dates_and_address(said: email.message.Message, tmp_path: Path) -> None:
    names = RELEASE["metadata_problems"].__globals__
    root, version = names["ROOT"], names["VERSION"]
    made = {name: (ROOT / name).read_text() for name in ("CHANGELOG.md", "CITATION.cff", "pyproject.toml")}
    head = version["HEAD"].search(made["CHANGELOG.md"])[0]
    made["CHANGELOG.md"] = made["CHANGELOG.md"].replace(head, "## 7.0.0 (2027-01-31)", 1) + "\nnot yet sorted\n"
    citation = made["CITATION.cff"].partition("\nversion: ")[0] + "\nversion: 7.0.0\ndate-released: 2027-01-31\n"
    del said["Version"]
    said["Version"] = "7.0.0"

    def problems(**changed: Any) -> str:
        for name, text in (made | {"CITATION.cff": citation} | changed.pop("files", {})).items():
            (tmp_path / name).write_text(text)
        tag = changed.pop("tag", "7.0.0")
        names["ROOT"] = tmp_path
        names["VERSION"] = version | {"version": lambda: tag or "7.0.0.dev0", "tagged": lambda: tag}
        try:
            return of_metadata(said, release=True)
        finally:
            names["ROOT"], names["VERSION"] = root, version

    assert problems() == "the changelog's last lines are not yet sorted"
    made["CHANGELOG.md"] = made["CHANGELOG.md"].replace("not yet sorted", "sorted")
    assert problems() == ""
    assert "no tag v7.0.0 is on this commit" in problems(tag=None)
    undated = made["CHANGELOG.md"].replace("2027-01-31", "unreleased")
    assert "with a date" in problems(files={"CHANGELOG.md": undated})
    assert problems(files={"CITATION.cff": made["CITATION.cff"]}).startswith("CITATION.cff is not of version 7.0.0")
    del said["Project-URL"]
    assert problems() == "no address of the repository: CUDAKIT_REPOSITORY"


def test_the_readme_as_a_package_index_renders_it(said: email.message.Message) -> None:
    pytest.importorskip("readme_renderer", reason="the group dev is not installed")

    def problems(text: str) -> str:
        page = email.message.Message()
        page.set_payload(text)
        return "\n".join(RELEASE["readme_problems"](page))

    text = said.get_payload()
    assert problems(text) == ""
    assert problems(text + "\n[there](docs/streams.md)\n") == "the README's links lead nowhere: docs/streams.md"
    assert "as text" in problems(text.replace("\n|---|---|\n", "\n\n|---|---|\n"))
    assert "not rendered" in problems(text.replace("\n## Limits", "\n````\n## Limits", 1))


@pytest.mark.slow
def test_what_is_built_from_this_checkout(tmp_path: Path) -> None:
    for name in ("build", "hatchling"):
        pytest.importorskip(name, reason="the group test is not installed")
    wheel, sdist = RELEASE["build"](tmp_path)
    assert of_wheel(RELEASE["files_of"](wheel)) == ""
    found = RELEASE["files_of"](sdist)
    assert {name for name in found if name.startswith("templates/")} == RELEASE["tree"]("templates").keys()
    assert list(RELEASE["installed_problems"](wheel, RELEASE["VERSION"]["version"]())) == []
    assert len(list(RELEASE["installed_problems"](wheel, "9.9"))) == 2


def test_the_command_says_how_it_is_called() -> None:
    done = subprocess.run([sys.executable, ROOT / ".ci" / "release.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "CUDAKIT_RELEASE" in done.stderr
