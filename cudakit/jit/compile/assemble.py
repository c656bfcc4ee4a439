"""Tile IR becomes machine code by CUDA's tile assembler, from its wheels or an installed toolkit."""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from cudakit.errors import CompileError, CompileWarning
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.explained import as_log, explained, remarks_of
from cudakit.jit.compile.nvrtc import FORMAT, digest_of
from cudakit.jit.compile.tile_ir import Tile
from cudakit.jit.source import headers
from cudakit.jit.source.closure import NOTHING_READ, Closure
from cudakit.jit.specialise.specialise import Specialization

_INSTALL = "pip install 'cudakit[cu13,tile]'"
#: Seconds after which assembling is given up: tiles that are too large take minutes, and spill.
PATIENCE = 60
#: Bytes of stack that are no spills worth telling: arguments of printf and assert are there too.
_LITTLE = 256
_SUFFIX = ".exe" if os.name == "nt" else ""
#: Where the assembler looks for NVVM, from its own folder.
_NVVM = ("../nvvm/lib64/libnvvm.so", "../lib/libnvvm.so.4", "../nvvm/bin/nvvm64_40_0.dll")
_WHEELS = ("nvidia_cuda_tileiras", "nvidia_nvvm", "nvidia_cuda_nvcc")


class Assembler(NamedTuple):
    """CUDA's tile assembler: its program, and which version of it and of its parts it is."""

    program: Path
    identity: str


class Assembly:
    """Machine code of a tile kernel, as the cache asks for it. What the compiler read is in the Tile IR's own key."""

    closure: Closure | None = NOTHING_READ
    unstorable: str | None = None

    def __init__(self, specialization: Specialization, own: Compiled, portable: str | None) -> None:
        self._specialization, self._own, self.portable = specialization, own, portable
        self.label = f"{specialization.source.name}: {specialization.title}"
        self.parts: Mapping[str, str] = {
            "format": FORMAT,
            "name": specialization.title,
            "file": specialization.source.name,
            "tile ir": digest_of({"code": own.code.hex(), "lowered": repr(sorted(own.lowered.items()))}),
            "flags": " ".join(_flags(specialization)),
            "assembler": assembler().identity,
            # The code has a part that runs on the host, when it is loaded and launched.
            "host": f"{platform.system()} {platform.machine()}",
            # Two texts may have one Tile IR, and are known elsewhere by themselves.
            "elsewhere": portable or "",
        }
        self.key = self.base = digest_of(self.parts)

    def run(self) -> Compiled:
        """Assemble now, whatever the cache holds.

        Raises
        ------
        CompileError
        """
        spec = self._specialization
        with tempfile.TemporaryDirectory(prefix="cudakit-") as folder:
            given, made = Path(folder) / "kernel.tilebc", Path(folder) / "kernel.cubin"
            given.write_bytes(self._own.code)
            flags = [*_flags(spec), "--remarks=all", str(given), "-o", str(made)]
            status, told = self._run_patiently([str(assembler().program), *flags])
            told = told.replace(str(given), spec.source.name)
            if spec.source.folder is None:  # the compiler puts a text into whatever folder it was started in
                told = re.sub(rf'"[^"\n]*/{re.escape(spec.source.name)}"', lambda _: f'"{spec.source.name}"', told)
            if status != 0 or not made.is_file():
                raise self._failure(told)
            log = "\n".join(filter(None, (self._own.log, as_log(remarks_of(told)))))
            made_of_it = self._own._replace(code=made.read_bytes(), target="cubin", log=log)
        self._warn_of_spills(made_of_it)
        return made_of_it

    def _run_patiently(self, command: list[str]) -> tuple[int, str]:
        """The status of a program, and what it prints; it and what it started are ended when it takes too long."""
        # It starts ptxas, which would go on alone.
        group: dict[str, Any] = {} if os.name == "nt" else {"start_new_session": True}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **group) as running:
            try:
                told, _ = running.communicate(timeout=PATIENCE)
            except BaseException as error:
                running.kill() if os.name == "nt" else os.killpg(running.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise self._too_large() from error
                raise
        return running.returncode, told

    def _too_large(self) -> CompileError:
        from cudakit.jit.compile import tile_bytecode

        module, spec = tile_bytecode.read(self._own.code), self._specialization
        operations = (each for function in module.functions.values() for each in function.walk())
        shapes = {tile.shape for each in operations for tile in each.types if isinstance(tile, Tile)}
        largest = max(shapes, key=lambda shape: (prod(shape), len(shape)), default=())
        return CompileError(
            f"{spec.title}: the tile assembler did not end in {PATIENCE} s; its largest tile, "
            f"{' × '.join(map(str, largest))}, is too large for a block: take smaller ones, or more warps "
            "(num_worker_warps_per_cta)",
            source=spec.source.text,
        )

    def _warn_of_spills(self, compiled: Compiled) -> None:
        for name, _ in self._specialization.asked:
            found = explained(compiled, name)
            if found.spill_bytes > _LITTLE:
                warnings.warn(
                    f"{name} for {_arch(self._specialization)} has {found.spill_bytes} bytes of registers a thread "
                    "spilled to memory, which is slow: take smaller tiles, or more warps: "
                    "[[cutile::hint(0, num_worker_warps_per_cta=8)]]",
                    CompileWarning,
                    stacklevel=2,
                )

    def _failure(self, told: str) -> CompileError:
        spec = self._specialization
        lines = [line for line in told.strip().splitlines() if line.strip()]
        text = "\n".join([f"the tile assembler cannot make {spec.title} for {_arch(spec)}", *lines])
        if len(lines) < 2:
            text += "\nhint: it says no more; mostly the tiles need more registers or shared memory than a block has"
        return CompileError(text, log=told, source=spec.source.text, template_arguments=spec.name_expression)


def _flags(specialization: Specialization) -> list[str]:
    options = specialization.options
    flags = {"--lineinfo": options.lineinfo and not options.debug, "--sanitize=memcheck": options.sanitize}
    debug = ["-O0", "-g"] if options.debug else []
    return [f"--gpu-name={_arch(specialization)}", *debug, *(flag for flag, is_wanted in flags.items() if is_wanted)]


def _arch(specialization: Specialization) -> str:
    """The arch as the assembler has it, which adds `a` where it is needed."""
    return specialization.arch.rstrip("af")


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
