"""Build hook of hatch: compile what kernels.toml lists into the wheel."""

import subprocess
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_BUNDLE = "src/rowkit/rows.ckb"


class CompileKernels(BuildHookInterface[Any]):
    """Hook that adds the bundle. It needs a compiler, and no GPU."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are collected."""
        command = [sys.executable, "-m", "cudakit", "bundle", "build", "kernels.toml", "-o", _BUNDLE]
        subprocess.run(command, cwd=self.root, check=True)
        build_data["artifacts"].append(_BUNDLE)  # git ignores it
