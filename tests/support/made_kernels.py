"""Kernels for a run of the tests elsewhere: made beside those of this run, on a machine that has the tile compiler."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from cudakit.errors import CompileError, CompileWarning
from cudakit.jit.cache.cache import Cache
from cudakit.jit.cache.stages import compiled_of
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.specialise.specialise import Specialization


class MakingCache(Cache):
    """A cache that keeps machine code of every tile kernel, too, which is asked of it for the emulator.

    Attributes
    ----------
    refused : list of str
        What the assembler said of those that it could not make.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        super().__init__(folder, max_bytes)
        self.refused: list[str] = []
        self._asked: set[Specialization] = set()

    def get(self, keyed: Any, compile: Any) -> Compiled:
        found = super().get(keyed, compile)
        wanted = getattr(keyed, "specialization", None)
        # The compiler of a text with tile kernels is that of its kernels of threads, too.
        if isinstance(wanted, Specialization) and wanted.has_tiles and wanted.target in ("tileir", "ptx"):
            self._make(wanted._replace(target="cubin", options=wanted.options.replace(lineinfo=False)))
        return found

    def _make(self, wanted: Specialization) -> None:
        if wanted not in self._asked:
            self._asked.add(wanted)
            try:
                with warnings.catch_warnings(
                    action="ignore", category=CompileWarning
                ):  # of speed, which no test is about
                    compiled_of(wanted)
            except CompileError as error:
                self.refused.append(str(error).splitlines()[0])
