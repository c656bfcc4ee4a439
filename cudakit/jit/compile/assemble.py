"""Machine code of tile kernels by CUDA's tile assembler, and what became of kernels in machine code.

`Assembly` is what the cache asks for; `assembled` runs the assembler; `Explained` has what a kernel uses and, of tile
kernels, which instructions were chosen.
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
from functools import cache, cached_property
from math import prod
from pathlib import Path
from typing import NamedTuple

from cudakit import system
from cudakit.errors import CompileError, CompileWarning
from cudakit.jit.compile import elf
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.diagnostics import line_of_text
from cudakit.jit.compile.nvrtc import FORMAT, digest_of
from cudakit.jit.compile.portable import portable_key, written_digest
from cudakit.jit.compile.tile_ir import Tile
from cudakit.jit.source import headers
from cudakit.jit.source.closure import NOTHING_READ, Closure
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.specialise import Specialization

#: A remark as the assembler prints it.
_TOLD = re.compile(
    r'remark\[(?P<outcome>\w+)\]: (?P<what>.*)\n\s*--> "(?P<file>.*?)":(?P<line>\d+):\d+\n'
    r"(?P<notes>(?:\s*\|\n|\s*= .*\n?)*)"
)
_NOTE = re.compile(r"= note: (\w+) = (.*)")
#: The same in a log, a line each.
_KEPT = re.compile(r"^(?P<file>.*)\((?P<line>\d+)\): remark: (?P<what>.*)$", re.MULTILINE)


class Remark(NamedTuple):
    """What the assembler says of a line of the source.

    Attributes
    ----------
    file, line : str, int
    what : str
        Such as ``TMA Load instruction [64, 128]``.
    """

    file: str
    line: int
    what: str


class Explained(NamedTuple):
    """What became of a kernel.

    Attributes
    ----------
    kernel : str
    registers : int
        A thread has.
    spill_bytes : int
        Stack of a thread, to which registers are spilled; arrays that are indexed at run time are there too.
    shared_bytes : int
        Static shared memory of a block.
    remarks : tuple of Remark
        Of a tile kernel, in the order of its lines.
    arrays : tuple of str
        Of a tile kernel the arrays that it takes whole, and how they lie.
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
        lines = [f"{each.file}:{each.line}: {each.what}" for each in self.remarks]
        return "\n".join([f"{self.kernel}: {uses}", *self.arrays, *lines, *self.advice])

    @property
    def advice(self) -> tuple[str, ...]:
        """What mostly helps, where something is slow for sure."""
        found = []
        if self.remarks and self.spill_bytes:
            found.append(
                "advice: registers are spilled: take smaller tiles, or more warps: "
                "[[cutile::hint(0, num_worker_warps_per_cta=8)]]"
            )
        if any("Global-memory" in each.what for each in self.remarks):
            found.append(
                "advice: without TMA: it needs addresses and row pitches that are promised to be multiples of 16 "
                "bytes, as in p = ct::assume_aligned(p, 16_ic), n = ct::assume_divisible(n, 16_ic), and one stride of "
                "1; of cudakit::tensor it needs arrays that lie so"
            )
        return tuple(found)


def remarks_of(printed: str) -> Iterator[Remark]:
    """What the assembler has printed, a remark each; of what it tried, the last word only."""
    for match in _TOLD.finditer(printed):
        notes = dict(_NOTE.findall(match["notes"]))
        if match["outcome"] == "passed" and "Instruction" in notes:
            shape = f" {notes['Shape']}" if "Shape" in notes else ""
            yield Remark(match["file"], int(match["line"]), f"{notes['Instruction']}{shape}")


def as_log(remarks: Iterator[Remark]) -> str:
    """Remarks as lines of a compiler's log."""
    return "\n".join(f"{each.file}({each.line}): remark: {each.what}" for each in sorted(set(remarks)))


def explained(compiled: Compiled, expression: str, source: Source | None = None) -> Explained:
    """What became of a kernel in a cubin; lines of a text in a Python file are told as that file's."""
    symbol = compiled.lowered[expression]
    found = elf.resources(compiled.code, symbol)
    shift, shown = (0, "") if source is None else line_of_text(source)
    remarks = []
    for file, line, what in _KEPT.findall(compiled.log):
        is_own = source is not None and file == source.name
        remarks.append(Remark(shown if is_own else file, int(line) + shift * is_own, what))
    return Explained(expression, *found, tuple(remarks))


#: Seconds after which assembling is given up: tiles that are too large take minutes, and spill.
PATIENCE = 60
#: Bytes of stack that are no spills worth telling: arguments of printf and assert are there too.
_LITTLE = 256


def assembled(spec: Specialization, own: Compiled, command: Sequence[str]) -> Compiled:
    """The machine code of a specialization's Tile IR, by a program with its flags.

    Raises
    ------
    CompileError
    """
    with tempfile.TemporaryDirectory(prefix="cudakit-") as folder:
        given, made = Path(folder) / "kernel.tilebc", Path(folder) / "kernel.cubin"
        given.write_bytes(own.code)
        status, told = _run(spec, own, [*command, "--remarks=all", str(given), "-o", str(made)])
        told = told.replace(str(given), spec.source.name)
        if spec.source.folder is None:  # the compiler puts a text into whatever folder it was started in
            told = re.sub(rf'"[^"\n]*/{re.escape(spec.source.name)}"', lambda _: f'"{spec.source.name}"', told)
        if status != 0 or not made.is_file():
            raise _failure(spec, told)
        log = "\n".join(filter(None, (own.log, as_log(remarks_of(told)))))
        compiled = own._replace(code=made.read_bytes(), target="cubin", log=log)
    _warn_of_spills(spec, compiled)
    return compiled


def _run(spec: Specialization, own: Compiled, command: Sequence[str]) -> tuple[int, str]:
    """The status of a program, and what it prints; it and what it started are ended when it takes too long."""
    # It starts ptxas, which would go on alone.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **system.GROUP
    ) as running:
        try:
            told, _ = running.communicate(timeout=PATIENCE)
        except BaseException as error:
            system.end(running)
            if isinstance(error, subprocess.TimeoutExpired):
                raise _too_large(spec, own) from error
            raise
    return running.returncode, told


def _too_large(spec: Specialization, own: Compiled) -> CompileError:
    from cudakit.jit.compile import tile_bytecode

    module = tile_bytecode.read(own.code)
    operations = (each for function in module.functions.values() for each in function.walk())
    shapes = {tile.shape for each in operations for tile in each.types if isinstance(tile, Tile)}
    largest = max(shapes, key=lambda shape: (prod(shape), len(shape)), default=())
    return CompileError(
        f"{spec.title}: the tile assembler did not end in {PATIENCE} s; its largest tile, "
        f"{' × '.join(map(str, largest))}, is too large for a block: take smaller ones, or more warps "
        "(num_worker_warps_per_cta)",
        source=spec.source.text,
    )


def _warn_of_spills(spec: Specialization, compiled: Compiled) -> None:
    for name, _ in spec.asked:
        found = explained(compiled, name)
        if found.spill_bytes > _LITTLE:
            warnings.warn(
                f"{name} for {spec.arch} has {found.spill_bytes} bytes of registers a thread spilled to memory, which "
                "is slow: take smaller tiles, or more warps: [[cutile::hint(0, num_worker_warps_per_cta=8)]]",
                CompileWarning,
                stacklevel=2,
            )


def _failure(spec: Specialization, told: str) -> CompileError:
    lines = [line for line in told.strip().splitlines() if line.strip()]
    text = "\n".join([f"the tile assembler cannot make {spec.title} for {spec.arch}", *lines])
    if len(lines) < 2:
        text += "\nhint: it says no more; mostly the tiles need more registers or shared memory than a block has"
    return CompileError(text, log=told, source=spec.source.text, template_arguments=spec.name_expression)


_INSTALL = "pip install 'cudakit[cu13,tile]'"
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
    ptxas = folder / f"ptxas{system.PROGRAM_SUFFIX}"
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
        for path in sorted(root.glob(f"cu[0-9]*/bin/tileiras{system.PROGRAM_SUFFIX}"), reverse=True):
            return path
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        path = Path(os.environ.get(variable, "/usr/local/cuda")) / "bin" / f"tileiras{system.PROGRAM_SUFFIX}"
        if path.is_file():
            return path
    on_path = shutil.which("tileiras")
    return Path(on_path).resolve() if on_path else None
