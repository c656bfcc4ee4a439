"""Files beside the versions of the site: the list for their menu, and the page that leads to the newest."""

from __future__ import annotations

import json
from pathlib import Path

from packaging.version import Version


def write(site: Path) -> None:
    """Write `switcher.json` and `index.html` into the folder of all versions."""
    folders = [path.name for path in site.iterdir() if (path / "objects.inv").is_file()]
    newest_first = sorted(folders, key=Version, reverse=True)
    rows = [{"name": name, "version": name, "url": f"{name}/"} for name in newest_first]
    (site / "switcher.json").write_text(json.dumps(rows, indent=2) + "\n")
    leads = f'<meta http-equiv="refresh" content="0; url={newest_first[0]}/index.html">'
    (site / "index.html").write_text(f"<!doctype html><title>cudakit</title>{leads}\n")
