"""A release up to the upload: ``python .ci/release.py FOLDER``, with the group ``dev`` installed.

Builds the sdist and, from that, the wheel into FOLDER, and looks at both: what is in them, what they say, how the
README is rendered by a package index, whether the wheel works in an environment of its own. With ``CUDAKIT_RELEASE``
set they are to be published: the commit has its tag, the changelog and `CITATION.cff` the date, the links their
addresses.
"""

from __future__ import annotations

import email.message
import email.parser
import os
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
#: A wheel or sdist that outgrows this has something in it that was not thought of. (All that is in the wheel is source
#: text: 100 kB more than it had when bundles, tables of ops and the command line's documents came.)
MAX_BYTES = {".whl": 2_000_000, ".gz": 5_000_000}
VERSION: Any = runpy.run_path(str(ROOT / ".ci" / "version.py"))
PROGRAM = """
import sys
import numpy as np
import cudakit as ck
assert ck.__file__.startswith(sys.prefix), ck.__file__
assert all(getattr(ck, name) is not None for name in ck.__all__)
stream = ck.emulator.stream("sm_80")
x = np.arange(1000, dtype=np.float32)
assert ck.ops.sum(x, stream=stream) == x.sum()
print(ck.__version__)
"""


def files_of(archive: Path) -> dict[str, bytes]:
    """What is in a wheel, or in an sdist below its folder, by path."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(archive) as sdist:
        return {
            member.name.partition("/")[2]: file.read()
            for member in sdist
            if (file := sdist.extractfile(member)) is not None
        }


def tree(*folders: str) -> dict[str, bytes]:
    """The files below some folders of the repository, by path."""
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    return {
        path.relative_to(ROOT).as_posix(): path.read_bytes()
        for path in paths
        if path.is_file() and "__pycache__" not in path.parts
    }


def told(words: str, names: set[str]) -> Iterator[str]:
    """A line about some files, where there are any."""
    if names:
        yield f"{words}: {', '.join(sorted(names)[:5])}{' …' if len(names) > 5 else ''}"


def wheel_problems(found: Mapping[str, bytes]) -> Iterator[str]:
    """The package, the templates inside of it, what an installer reads, the licence; and nothing else."""
    wanted = tree("cudakit") | {f"cudakit/{path}": data for path, data in tree("templates").items()}
    wanted["pytest_cudakit.py"] = (ROOT / "pytest_cudakit.py").read_bytes()
    about = {name for name in found if name.partition("/")[0].endswith(".dist-info")}
    yield from told("the wheel lacks", wanted.keys() - found.keys())
    yield from told("the wheel has besides", found.keys() - wanted.keys() - about)
    yield from told(
        "not the repository's", {name for name in found.keys() & wanted.keys() if found[name] != wanted[name]}
    )
    told_names = {name.partition("/")[2] for name in about}
    expected = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    yield from told("the wheel lacks or has besides, about itself", told_names ^ expected)
    if "cudakit/py.typed" not in found:
        yield "the wheel is not marked as typed: cudakit/py.typed"


def sdist_problems(found: Mapping[str, bytes]) -> Iterator[str]:
    """All that git knows, so that tests and site can be made from it; and nothing else."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True)
    names = {name for name in listed.stdout.split("\0") if name}
    yield from told("the sdist lacks", names - found.keys())
    yield from told("the sdist has besides", found.keys() - names - {"PKG-INFO"})


def metadata_problems(said: email.message.Message, release: bool) -> Iterator[str]:
    """What the package says of itself against pyproject.toml; for a release tag, changelog and citation too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for field, wanted in (("Name", project["name"]), ("Summary", project["description"])):
        if said[field] != wanted:
            yield f"{field} is {said[field]!r}, expected {wanted!r}"
    if set(said["Requires-Python"].split(",")) != set(project["requires-python"].split(",")):
        yield f"Requires-Python is {said['Requires-Python']}, expected {project['requires-python']}"
    if said["License-Expression"] != project["license"] or said.get_all("License-File") != project["license-files"]:
        yield "the licence is not pyproject.toml's"
    if set(said.get_all("Provides-Extra", ())) != project["optional-dependencies"].keys():
        yield f"the extras are {said.get_all('Provides-Extra')}"
    version = VERSION["version"]()
    if said["Version"] != version:
        yield f"the version is {said['Version']}, expected {version}"
    if not release:
        return
    version = version.removesuffix(".dev0")
    if VERSION["tagged"]() != version:
        yield f"no tag v{version} is on this commit, or files were changed since"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    head = VERSION["HEAD"].search(changelog)
    if head is None or head["version"] != version or head["when"] == "unreleased":
        yield f"the changelog's head is not '## {version} (…)' with a date"
    if "not yet sorted" in changelog:
        yield "the changelog's last lines are not yet sorted"
    citation = dict(re.findall(r"^([a-z-]+): (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE))
    if head is not None and (citation["version"], citation.get("date-released")) != (version, head["when"]):
        yield f"CITATION.cff is not of version {version} with date-released: {head['when']}"
    if not said.get_all("Project-URL"):
        yield "no address of the repository: CUDAKIT_REPOSITORY"


def readme_problems(said: email.message.Message) -> Iterator[str]:
    """The description as a package index renders it: no link that leads nowhere there, no table left as text."""
    from readme_renderer import markdown

    text = said.get_payload()
    html = markdown.render(text)
    if html is None:
        yield "the README cannot be rendered"
        return
    if short := re.findall(r'(?:href|src)="(?!https?:|mailto:|#)([^"]*)"', html):
        yield f"the README's links lead nowhere: {', '.join(short[:5])}"
    if re.search(r"\|-{3}", re.sub(r"<pre.*?</pre>", "", html, flags=re.DOTALL)):
        yield "a table of the README is left as text"
    if html.count("<h2") < text.count("\n## ") or "<pre" not in html or "<table" not in html:
        yield "the README's heads, code or tables are not rendered"


def installed_problems(wheel: Path, version: str) -> Iterator[str]:
    """The wheel alone in a new environment; of the present one it sees the libraries that cudakit depends on."""
    with TemporaryDirectory() as folder:
        venv.create(folder, with_pip=False)
        python = Path(folder, "Scripts" if os.name == "nt" else "bin", "python")
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "-q",
            "--no-deps",
            "--no-index",
            str(wheel),
        ]
        subprocess.run(pip, check=True)
        import numpy

        (place,) = {path.parents[1] for path in Path(folder).rglob("cudakit/__init__.py")}
        for path in Path(numpy.__file__).parents[1].iterdir():
            if "cudakit" not in path.name and not (place / path.name).exists():
                (place / path.name).symlink_to(path)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        for command in ([python, "-W", "ignore", "-c", PROGRAM], [python, "-m", "cudakit", "--version"]):
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if done.returncode or version not in done.stdout:
                yield f"installed, the wheel does not work: {done.stderr or done.stdout}"


def problems(wheel: Path, sdist: Path, release: bool) -> Iterator[str]:
    """All that keeps the two from being uploaded."""
    in_wheel, in_sdist = files_of(wheel), files_of(sdist)
    for path in (wheel, sdist):
        if path.stat().st_size > MAX_BYTES[path.suffix]:
            yield f"{path.name} has {path.stat().st_size} bytes, more than {MAX_BYTES[path.suffix]}"
    yield from wheel_problems(in_wheel)
    yield from sdist_problems(in_sdist)
    texts = [data for name, data in in_wheel.items() if name.endswith(".dist-info/METADATA")]
    for text in (*texts, in_sdist["PKG-INFO"]):
        said = email.parser.Parser().parsestr(text.decode())
        yield from metadata_problems(said, release)
    yield from readme_problems(said)
    twine = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)], capture_output=True, text=True
    )
    if twine.returncode:
        yield f"twine check: {twine.stdout}{twine.stderr}"
    yield from installed_problems(wheel, said["Version"])


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist that it was built from."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def main() -> int:
    """Build, look, and say what is in the way of a release."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    wheel, sdist = build(Path(sys.argv[1]))
    found = dict.fromkeys(problems(wheel, sdist, release=bool(os.environ.get("CUDAKIT_RELEASE"))))
    for problem in found:
        print(problem, file=sys.stderr)
    for path in (wheel, sdist):
        print(f"{path} ({path.stat().st_size / 1e6:.2f} MB)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
