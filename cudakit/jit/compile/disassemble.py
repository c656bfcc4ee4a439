"""Machine code of a cubin, by whichever of NVIDIA's disassemblers is here."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from cudakit.errors import LaunchError

_TOOLS = (("nvdisasm", ("-c",)), ("cuobjdump", ("--dump-sass",)))


def disassemble(cubin: bytes) -> str:
    """SASS of `cubin`.

    Raises
    ------
    LaunchError
        If neither nvdisasm nor cuobjdump is found, or it fails.
    """
    from cuda import pathfinder

    for tool, flags in _TOOLS:
        path = shutil.which(tool)
        if path is None and hasattr(pathfinder, "find_nvidia_binary_utility"):
            path = pathfinder.find_nvidia_binary_utility(tool)
        if path is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "kernel.cubin"
            file.write_bytes(cubin)
            done = subprocess.run([path, *flags, str(file)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LaunchError(f"{tool} failed: {done.stderr.strip()}")
        return done.stdout
    raise LaunchError(
        "no disassembler found; pip install nvidia-cuda-nvdisasm, or put a CUDA toolkit's bin on the PATH"
    )
