"""The version of the package: that of the tag on the commit, or else the changelog's next one, as ``0.2.0.dev0``.

Hatchling asks for it when it builds or installs (``[tool.hatch.version]``). It needs no tags, no git and no other
package: a clone without tags, and a folder of files, are of a version too. An sdist says in its ``PKG-INFO`` what it
was built as.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: A head of the changelog: a version, and when it was released, or "unreleased".
HEAD = re.compile(r"^## (?P<version>\S+) \((?P<when>unreleased|\d{4}-\d\d-\d\d)\)$", re.MULTILINE)


def version(root: Path = ROOT) -> str:
    """What is built from the files below `root`."""
    head = HEAD.search((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if head is None:
        raise ValueError("CHANGELOG.md has no head such as '## 0.2.0 (unreleased)' or '## 0.2.0 (2027-01-31)'")
    if not (root / ".git").exists():  # an archive of a tag has the files only
        return head["version"] + (".dev0" if head["when"] == "unreleased" else "")
    return tagged(root) or f"{head['version']}.dev0"


def tagged(root: Path = ROOT) -> str | None:
    """The version that a tag gives to the very files below `root`; None where the files or the commit have none."""
    command = ["git", "-C", str(root), "describe", "--tags", "--exact-match", "--match", "v[0-9]*", "--dirty"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        return None
    return None if not said or said.endswith("-dirty") else said.removeprefix("v")
