"""Programs that run where packages are absent."""

from __future__ import annotations

import os
import subprocess
import sys

#: The beginning of a program that finds no such packages.
_WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""
#: What is not installed on macOS by `pip install cudakit`, and filelock, which only a compile needs.
ON_MACOS = ("cuda", "cupy", "nvidia", "tree_sitter", "tree_sitter_cuda", "filelock")


def run(program: str, without: tuple[str, ...], **variables: str) -> str:
    """The output of a program that cannot import some packages, and finds no cached kernel."""
    program = _WITHOUT.format(packages=without) + program
    environment = {**os.environ, "CUDAKIT_CACHE_DIR": "", **variables}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
