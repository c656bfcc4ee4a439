"""Build rowkit by setuptools: compile what kernels.toml lists into the wheel."""

import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py


class CompileKernels(build_py):
    """Step that adds the bundle before the files are collected."""

    def run(self) -> None:
        """Compile, then collect."""
        bundle = "src/rowkit/rows.ckb"
        subprocess.run([sys.executable, "-m", "cudakit", "bundle", "build", "kernels.toml", "-o", bundle], check=True)
        super().run()


setup(cmdclass={"build_py": CompileKernels})
