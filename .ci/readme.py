"""The README as the package carries it: of a package index no link leads into the repository but by its whole address.

The publisher gives the address: ``CUDAKIT_REPOSITORY=https://… python -m build``; the files are looked for under
``<address>/blob/v<version>/`` and ``<address>/raw/v<version>/``. Without it, as in a checkout, links into the
repository become words, and pictures are left out. With ``CUDAKIT_RELEASE`` set, as a release is
built, the address must be there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

INSIDE = re.compile(r"(?P<picture>!?)\[(?P<words>[^\]]*)\]\((?!https?:|mailto:|#)(?P<path>[^)\s]+)\)")


def published(text: str, repository: str, version: str) -> str:
    """`text` in Markdown with whole addresses, or without links and pictures where `repository` is empty."""

    def whole(link: re.Match[str]) -> str:
        if not repository:
            return "" if link["picture"] else link["words"]
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['words']}]({repository.rstrip('/')}/{kind}/v{version}/{link['path']})"

    return INSIDE.sub(whole, text)


class Readme(MetadataHookInterface):
    """What hatchling asks for the fields that pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README and, where the address is known, the links beside it."""
        repository = os.environ.get("CUDAKIT_REPOSITORY", "")
        if not repository and os.environ.get("CUDAKIT_RELEASE"):
            raise ValueError("CUDAKIT_REPOSITORY is not set: a release says where the repository is, as https://…")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = published(text, repository, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {}
        if repository:
            metadata["urls"] = {
                "Source": repository,
                "Changelog": f"{repository.rstrip('/')}/blob/v{metadata['version']}/CHANGELOG.md",
            }
