"""CUDA's tile assembler, which makes machine code of tile kernels, and the resources of machine code.

`Assembly` is a request to the cache. `assembled` runs the assembler. `Explained` has a kernel's resources and, for tile
kernels, the chosen instructions.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import NamedTuple

from cudakit import system
from cudakit.errors import CompileError, CompileWarning
from cudakit.jit.compile import elf
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.diagnostics import line_of_text
from cudakit.jit.compile.nvrtc import FORMAT, digest_of
from cudakit.jit.compile.portable import source_digest
from cudakit.jit.compile.tile_ir import Tile
from cudakit.jit.source import headers
from cudakit.jit.source.closure import NOTHING_READ, Closure
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.specialise import Specialization

#: A remark as the assembler prints it.
_REMARK = re.compile(
    r'remark\[(?P<outcome>\w+)\]: (?P<what>.*)\n\s*--> "(?P<file>.*?)":(?P<line>\d+):\d+\n'
    r"(?P<notes>(?:\s*\|\n|\s*= .*\n?)*)"
)
_NOTE = re.compile(r"= note: (\w+) = (.*)")
#: A remark in a log, one a line.
_LOGGED_REMARK = re.compile(r"^(?P<file>.*)\((?P<line>\d+)\): remark: (?P<what>.*)$", re.MULTILINE)


class Remark(NamedTuple):
    """A remark of the assembler about a line of the source.

    Attributes
    ----------
    file, line : str, int
        File of the source, and line in it.
    what : str
        Message, such as ``TMA Load instruction [64, 128]``.
    """

    file: str
    line: int
    what: str


class Explained(NamedTuple):
    """The resources of a kernel in machine code.

    Attributes
    ----------
    kernel : str
        Name of the kernel.
    registers : int
        Registers of a thread.
    spill_bytes : int
        Stack of a thread: spilled registers, and arrays that are indexed at run time.
    shared_bytes : int
        Static shared memory of a block.
    remarks : tuple of Remark
        Remarks about a tile kernel, in the order of its lines.
    arrays : tuple of str
        Tensor parameters of a tile kernel, with their layouts.
    """

    kernel: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    remarks: tuple[Remark, ...] = ()
    arrays: tuple[str, ...] = ()

    def __str__(self) -> str:
        spills = f"{self.spill_bytes} bytes of stack" if self.spill_bytes else "no spills"
        uses = f"{self.registers} registers a thread, {spills}, {self.shared_bytes} bytes of shared memory a block"
        lines = [f"{remark.file}:{remark.line}: {remark.what}" for remark in self.remarks]
        return "\n".join([f"{self.kernel}: {uses}", *self.arrays, *lines, *self.advice])

    @property
    def advice(self) -> tuple[str, ...]:
        """Lines of advice for a tile kernel that is surely slow; empty if nothing is.

        There is a line for spilled registers, and a line for memory accesses without TMA.
        """
        lines = []
        if self.remarks and self.spill_bytes:
            lines.append(
                "advice: registers are spilled: take smaller tiles, or more warps: "
                "[[cutile::hint(0, num_worker_warps_per_cta=8)]]"
            )
        if any("Global-memory" in remark.what for remark in self.remarks):
            lines.append(
                "advice: without TMA: it needs addresses and row pitches that are promised to be multiples of 16 "
                "bytes, as in p = ct::assume_aligned(p, 16_ic), n = ct::assume_divisible(n, 16_ic), and one stride of "
                "1; of cudakit::tensor it needs arrays that lie so"
            )
        return tuple(lines)


def remarks_of(printed: str) -> Iterator[Remark]:
    """Yield the remarks in the assembler's output; of several attempts, only the last."""
    for match in _REMARK.finditer(printed):
        notes = dict(_NOTE.findall(match["notes"]))
        if match["outcome"] == "passed" and "Instruction" in notes:
            shape = f" {notes['Shape']}" if "Shape" in notes else ""
            yield Remark(match["file"], int(match["line"]), f"{notes['Instruction']}{shape}")


def as_log(remarks: Iterator[Remark]) -> str:
    """Return remarks as lines of a compiler's log, sorted and each once."""
    return "\n".join(f"{remark.file}({remark.line}): remark: {remark.what}" for remark in sorted(set(remarks)))


def explained(compiled: Compiled, expression: str, source: Source | None = None) -> Explained:
    """Report the resources of a kernel in a cubin, and the assembler's remarks. `expression` is its name expression.

    Remarks about a `source` that is a string in a Python file have the lines of the Python file.
    """
    symbol = compiled.lowered[expression]
    used = elf.resources(compiled.code, symbol)
    shift, shown = (0, "") if source is None else line_of_text(source)
    remarks = []
    for file, line, message in _LOGGED_REMARK.findall(compiled.log):
        is_own = source is not None and file == source.name
        remarks.append(Remark(shown if is_own else file, int(line) + shift * is_own, message))
    return Explained(expression, *used, tuple(remarks))


#: Time limit of the assembler in seconds: tiles that are too large take minutes, and spill.
PATIENCE = 60
#: Stack size in bytes up to which there is no warning: arguments of printf and assert are on the stack too.
_LITTLE = 256


def assembled(spec: Specialization, own: Compiled, command: Sequence[str]) -> Compiled:
    """Assemble `own`, the Tile IR of a specialization, to machine code, by a command.

    `command` starts the assembler. The files and the flag for remarks are added to it.

    Raises
    ------
    CompileError
    """
    with tempfile.TemporaryDirectory(prefix="cudakit-") as folder:
        bytecode_file, cubin_file = Path(folder) / "kernel.tilebc", Path(folder) / "kernel.cubin"
        bytecode_file.write_bytes(own.code)
        status, output = _run(spec, own, [*command, "--remarks=all", str(bytecode_file), "-o", str(cubin_file)])
        output = output.replace(str(bytecode_file), spec.source.name)
        if spec.source.folder is None:  # the compiler adds its working directory to the name of a text
            output = re.sub(rf'"[^"\n]*/{re.escape(spec.source.name)}"', lambda _: f'"{spec.source.name}"', output)
        if status != 0 or not cubin_file.is_file():
            raise _failure(spec, output)
        log = "\n".join(filter(None, (own.log, as_log(remarks_of(output)))))
        compiled = own._replace(code=cubin_file.read_bytes(), target="cubin", log=log)
    _warn_of_spills(spec, compiled)
    return compiled


def _run(spec: Specialization, own: Compiled, command: Sequence[str]) -> tuple[int, str]:
    """Run a command, and return its status and output.

    After `PATIENCE` seconds, the command and its child processes are ended.

    Raises
    ------
    CompileError
        If the time was up.
    """
    # It starts ptxas, which would otherwise continue alone.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **system.GROUP
    ) as running:
        try:
            output, _ = running.communicate(timeout=PATIENCE)
        except BaseException as error:
            system.end(running)
            if isinstance(error, subprocess.TimeoutExpired):
                raise _too_large(spec, own) from error
            raise
    return running.returncode, output


def _too_large(spec: Specialization, own: Compiled) -> CompileError:
    from cudakit.jit.compile import tile_bytecode

    module = tile_bytecode.read(own.code)
    operations = (operation for function in module.functions.values() for operation in function.walk())
    shapes = {tile.shape for operation in operations for tile in operation.types if isinstance(tile, Tile)}
    largest = max(shapes, key=lambda shape: (prod(shape), len(shape)), default=())
    return CompileError(
        f"{spec.title}: the tile assembler did not end in {PATIENCE} s; its largest tile, "
        f"{' × '.join(map(str, largest))}, is too large for a block: take smaller ones, or more warps "
        "(num_worker_warps_per_cta)",
        source=spec.source.text,
    )


def _warn_of_spills(spec: Specialization, compiled: Compiled) -> None:
    for name, _ in spec.requested:
        used = explained(compiled, name)
        if used.spill_bytes > _LITTLE:
            warnings.warn(
                f"{name} for {spec.arch} has {used.spill_bytes} bytes of registers a thread spilled to memory, which "
                "is slow: take smaller tiles, or more warps: [[cutile::hint(0, num_worker_warps_per_cta=8)]]",
                CompileWarning,
                stacklevel=2,
            )


def _failure(spec: Specialization, output: str) -> CompileError:
    lines = [line for line in output.strip().splitlines() if line.strip()]
    text = "\n".join([f"the tile assembler cannot make {spec.title} for {spec.arch}", *lines])
    if len(lines) < 2:
        text += "\nhint: it says no more; mostly the tiles need more registers or shared memory than a block has"
    return CompileError(text, log=output, source=spec.source.text, template_arguments=spec.name_expression)


_INSTALL = "pip install 'cudakit[cu13,tile]'"
#: Where the assembler looks for NVVM, from its own folder.
_NVVM = ("../nvvm/lib64/libnvvm.so", "../lib/libnvvm.so.4", "../nvvm/bin/nvvm64_40_0.dll")
_WHEELS = ("nvidia_cuda_tileiras", "nvidia_nvvm", "nvidia_cuda_nvcc")


class Assembler(NamedTuple):
    """CUDA's tile assembler: its program, its version and the versions of its parts."""

    program: Path
    identity: str


class Assembly:
    """A tile kernel to assemble, as a request to the cache. The closure of the source is in the Tile IR's own key.

    Parameters
    ----------
    specialization : Specialization
        Specialization to assemble.
    own : Compiled
        Tile IR of the specialization.
    read : Closure or None
        Closure of the specialization's source.
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
            # Two sources may have the same Tile IR, but have different portable keys.
            "text": source_digest(specialization),
            "arch": specialization.arch,
            "flags": " ".join(_flags(specialization)),
            "assembler": assembler().identity,
            # The code has a part that runs on the host, when it is loaded and launched.
            "host": f"{platform.system()} {platform.machine()}",
        }
        self.key = self.base = digest_of(self.parts)

    @property
    def origin(self) -> tuple[Specialization, tuple[Closure | None, ...]]:
        return self._specialization, (self._read,)

    def run(self) -> Compiled:
        """Assemble now, without the cache.

        Raises
        ------
        CompileError
        """
        return assembled(self._specialization, self._own, [str(assembler().program), *_flags(self._specialization)])


def _flags(specialization: Specialization) -> list[str]:
    options = specialization.options
    flags = {"--lineinfo": options.lineinfo and not options.debug, "--sanitize=memcheck": options.sanitize}
    debug = ["-O0", "-g"] if options.debug else []
    return [
        f"--gpu-name={specialization.arch.rstrip('af')}",
        *debug,
        *(flag for flag, is_set in flags.items() if is_set),
    ]


@cache
def assembler() -> Assembler:
    """Return the installed assembler, checked to be complete.

    Raises
    ------
    CompileError
        If a part is missing or does not match. The message names the part, and the command that installs it.
    """
    program = _program()
    if program is None:
        raise CompileError(f"CUDA's tile assembler (tileiras) is not installed: {_INSTALL}")
    folder = program.parent
    if not any((folder / name).is_file() for name in _NVVM):
        raise CompileError(f"the tile assembler {program} needs libnvvm beside it: {_INSTALL}")
    ptxas = folder / f"ptxas{system.PROGRAM_SUFFIX}"
    ptxas_path = ptxas if ptxas.is_file() else shutil.which("ptxas")
    if ptxas_path is None:
        raise CompileError(f"the tile assembler {program} needs ptxas beside it, or on the PATH: {_INSTALL}")
    if not headers.in_wheel(str(program)):
        return Assembler(program, f"{headers.file_mark(str(program))} {headers.file_mark(str(ptxas_path))}")
    wheels = [headers.wheel_versions(name) for name in (*_WHEELS, "nvidia_cuda_nvrtc")]
    versions = {re.sub(r"^.*-(\d+\.\d+).*$", r"\1", wheel) for wheel in wheels if wheel}
    if len(versions) > 1:
        raise CompileError(
            f"the parts of CUDA's tile compiler are of different versions, and work together only in one: "
            f"{', '.join(filter(None, wheels))}: {_INSTALL} --upgrade"
        )
    return Assembler(program, " ".join(filter(None, wheels[:3])))


def is_here() -> bool:
    """Return whether a complete assembler is installed."""
    try:
        assembler()
    except CompileError:
        return False
    return True


def _program() -> Path | None:
    for root in headers.wheel_roots():
        for path in sorted(root.glob(f"cu[0-9]*/bin/tileiras{system.PROGRAM_SUFFIX}"), reverse=True):
            return path
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        path = Path(os.environ.get(variable, "/usr/local/cuda")) / "bin" / f"tileiras{system.PROGRAM_SUFFIX}"
        if path.is_file():
            return path
    on_path = shutil.which("tileiras")
    return Path(on_path).resolve() if on_path else None
