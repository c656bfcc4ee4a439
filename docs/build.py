"""Build the site: ``python docs/build.py``, with the group ``docs`` installed.

Warnings are errors. The built site is ``site/<version>/``, ready to be published beside the published versions.
``site/switcher.json`` lists all versions for the menu, and ``site/index.html`` leads to the newest.

``python docs/build.py --links`` builds nothing. It tests each address outside the site.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import conf
import paper
import versions
from sphinx.cmd.build import main as sphinx
from sphinx.util.inventory import InventoryFile


def missing(built: Path) -> list[str]:
    """Return the public names that have no entry in the reference."""
    inventory = InventoryFile.loads((built / "objects.inv").read_bytes(), uri="")
    entries = {name for kind in inventory.data if kind.startswith("py:") for name in inventory.data[kind]}
    public = {f"{module}.{name}" for module in conf.generated.modules() for name in conf.generated.public(module)}
    return sorted(public - entries)


def main() -> int:
    """Build the site, and check that the reference is complete."""
    parser = argparse.ArgumentParser(description="Build the site into FOLDER/<version>/.")
    parser.add_argument("folder", nargs="?", type=Path, default=conf.ROOT / "site")
    parser.add_argument("--links", action="store_true", help="only ask whether the addresses outside are there")
    options = parser.parse_args()
    if options.links:
        with TemporaryDirectory() as folder:
            return run_builder("linkcheck", Path(folder))
    site = options.folder
    built = site / conf.version
    if status := run_builder("html", built):
        return status
    if names := missing(built):
        print(f"no entry in the reference: {', '.join(names)}", file=sys.stderr)
        return 1
    paper.print_page(built)
    versions.write(site)
    print(built / "index.html")
    return 0


def run_builder(builder: str, folder: Path) -> int:
    """Run a builder of Sphinx on the pages; return its exit status."""
    quiet = ["-q"] if builder == "html" else []
    with TemporaryDirectory() as doctrees:
        arguments = ["-W", "--keep-going", "-E", "-n", *quiet, "-b", builder, "-d", doctrees]
        return sphinx([*arguments, str(conf.HERE), str(folder)])


if __name__ == "__main__":
    sys.exit(main())
