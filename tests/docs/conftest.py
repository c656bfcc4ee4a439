"""The site that the tests of this folder look at: built once for all of them, or the one that ``--site`` names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="session")
def site_root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all versions."""
    given: Path | None = request.config.getoption("--site")
    if given is not None:
        return given.resolve()
    pytest.importorskip("sphinx.application", reason="the site is built with the group docs")
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share one
        folder = folder.parent
    built = folder / "site"
    with FileLock(folder / "site.lock"):
        if not (built / "index.html").is_file():
            command = [sys.executable, DOCS / "build.py", built]
            run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300)
            assert run.returncode == 0, run.stderr
    return built


@pytest.fixture(scope="session")
def site(site_root: Path) -> Path:
    """The folder of the version that was built last."""
    built = [path for path in site_root.iterdir() if (path / "objects.inv").is_file() and not path.is_symlink()]
    return max(built, key=lambda path: (path / "objects.inv").stat().st_mtime)
