"""CUDA's tile assembler at work: Tile IR becomes machine code, with what the assembler says of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

from cudakit.errors import CompileError, CompileWarning
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.explained import as_log, explained, remarks_of
from cudakit.jit.compile.tile_ir import Tile
from cudakit.jit.specialise.specialise import Specialization

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
    group: dict[str, Any] = {} if os.name == "nt" else {"start_new_session": True}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **group) as running:
        try:
            told, _ = running.communicate(timeout=PATIENCE)
        except BaseException as error:
            running.kill() if os.name == "nt" else os.killpg(running.pid, signal.SIGKILL)
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
