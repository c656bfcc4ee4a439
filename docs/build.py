"""Build the site: ``python docs/build.py``, with the extra ``docs`` installed.

Warnings are errors. What is made lies in ``site/<version>/``, ready to be published beside the versions that are there;
``site/switcher.json`` lists them for the menu, and ``site/index.html`` leads to the newest.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import conf
import versions
from sphinx.cmd.build import main as sphinx
from sphinx.util.inventory import InventoryFile


def missing(built: Path) -> list[str]:
    """The public names that have no entry in the reference."""
    inventory = InventoryFile.loads((built / "objects.inv").read_bytes(), uri="")
    there = {name for kind in inventory.data if kind.startswith("py:") for name in inventory.data[kind]}
    wanted = {f"{module}.{name}" for module in conf.generated.modules() for name in conf.generated.public(module)}
    return sorted(wanted - there)


def main() -> int:
    """Build, and look whether the reference is whole."""
    parser = argparse.ArgumentParser(description="Build the site into FOLDER/<version>/.")
    parser.add_argument("folder", nargs="?", type=Path, default=conf.ROOT / "site")
    site = parser.parse_args().folder
    built = site / conf.version
    arguments = ["-W", "--keep-going", "-E", "-n", "-q", "-b", "html"]
    with TemporaryDirectory() as doctrees:
        if status := sphinx([*arguments, "-d", doctrees, str(conf.HERE), str(built)]):
            return status
    if names := missing(built):
        print(f"no entry in the reference: {', '.join(names)}", file=sys.stderr)
        return 1
    versions.write(site)
    print(built / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
