"""Machine code of tile kernels, as the cache asks for it: its key, and the assembler that is here to make it."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from cudakit.errors import CompileError
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.nvrtc import FORMAT, digest_of
from cudakit.jit.compile.portable import portable_key, written_digest
from cudakit.jit.source import headers
from cudakit.jit.source.closure import NOTHING_READ, Closure
from cudakit.jit.specialise.specialise import Specialization

_INSTALL = "pip install 'cudakit[cu13,tile]'"
_SUFFIX = ".exe" if os.name == "nt" else ""
#: Where the assembler looks for NVVM, from its own folder.
_NVVM = ("../nvvm/lib64/libnvvm.so", "../lib/libnvvm.so.4", "../nvvm/bin/nvvm64_40_0.dll")
_WHEELS = ("nvidia_cuda_tileiras", "nvidia_nvvm", "nvidia_cuda_nvcc")


class Assembler(NamedTuple):
    """CUDA's tile assembler: its program, and which version of it and of its parts it is."""

    program: Path
    identity: str


class Assembly:
    """Machine code of a tile kernel, as the cache asks for it. What the compiler read is in the Tile IR's own key.

    Parameters
    ----------
    specialization : Specialization
    own : Compiled
        Its Tile IR.
    read : Closure or None
        What the compiler read for that.
    """

    closure: Closure | None = NOTHING_READ
    unstorable: str | None = None

    def __init__(self, specialization: Specialization, own: Compiled, read: Closure | None) -> None:
        self._specialization, self._own, self._read = specialization, own, read
        self.label = f"{specialization.source.name}: {specialization.title}"
        self.parts: Mapping[str, str] = {
            "format": FORMAT,
            "name": specialization.title,
            "file": specialization.source.name,
            "tile ir": digest_of({"code": own.code.hex(), "lowered": repr(sorted(own.lowered.items()))}),
            # Two texts may have one Tile IR, and are known elsewhere by themselves.
            "text": written_digest(specialization),
            "arch": specialization.arch,
            "flags": " ".join(_flags(specialization)),
            "assembler": assembler().identity,
            # The code has a part that runs on the host, when it is loaded and launched.
            "host": f"{platform.system()} {platform.machine()}",
        }
        self.key = self.base = digest_of(self.parts)

    @cached_property
    def portable(self) -> str | None:
        return portable_key(self._specialization, self._read)

    def run(self) -> Compiled:
        """Assemble now, whatever the cache holds.

        Raises
        ------
        CompileError
        """
        from cudakit.jit.compile.assembling import assembled  # a hit starts no program

        return assembled(self._specialization, self._own, [str(assembler().program), *_flags(self._specialization)])


def _flags(specialization: Specialization) -> list[str]:
    options = specialization.options
    flags = {"--lineinfo": options.lineinfo and not options.debug, "--sanitize=memcheck": options.sanitize}
    debug = ["-O0", "-g"] if options.debug else []
    return [
        f"--gpu-name={specialization.arch.rstrip('af')}",
        *debug,
        *(flag for flag, is_wanted in flags.items() if is_wanted),
    ]


@cache
def assembler() -> Assembler:
    """The assembler that is here, whole.

    Raises
    ------
    CompileError
        Naming what is missing, or does not match, and what mends it.
    """
    program = _program()
    if program is None:
        raise CompileError(f"CUDA's tile assembler (tileiras) is not here: {_INSTALL}")
    folder = program.parent
    if not any((folder / each).is_file() for each in _NVVM):
        raise CompileError(f"the tile assembler {program} needs libnvvm beside it: {_INSTALL}")
    ptxas = folder / f"ptxas{_SUFFIX}"
    found = ptxas if ptxas.is_file() else shutil.which("ptxas")
    if found is None:
        raise CompileError(f"the tile assembler {program} needs ptxas beside it, or on the PATH: {_INSTALL}")
    if not headers.in_wheel(str(program)):
        return Assembler(program, f"{headers.file_mark(str(program))} {headers.file_mark(str(found))}")
    wheels = [headers.wheel_versions(each) for each in (*_WHEELS, "nvidia_cuda_nvrtc")]
    versions = {re.sub(r"^.*-(\d+\.\d+).*$", r"\1", each) for each in wheels if each}
    if len(versions) > 1:
        raise CompileError(
            f"the parts of CUDA's tile compiler are of different versions, and work together only in one: "
            f"{', '.join(filter(None, wheels))}: {_INSTALL} --upgrade"
        )
    return Assembler(program, " ".join(filter(None, wheels[:3])))


def is_here() -> bool:
    """Whether there is an assembler, whole."""
    try:
        assembler()
    except CompileError:
        return False
    return True


def _program() -> Path | None:
    for root in headers.wheel_roots():
        for path in sorted(root.glob(f"cu[0-9]*/bin/tileiras{_SUFFIX}"), reverse=True):
            return path
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        path = Path(os.environ.get(variable, "/usr/local/cuda")) / "bin" / f"tileiras{_SUFFIX}"
        if path.is_file():
            return path
    on_path = shutil.which("tileiras")
    return Path(on_path).resolve() if on_path else None
