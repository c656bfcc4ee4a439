"""The lines of the source that instructions belong to, as the user knows them."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cudakit.emulator.machine.module import Module
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.source.headers import search_folders
from cudakit.jit.source.source import Source as Text


class Line(NamedTuple):
    """A line of the source."""

    file: str
    line: int
    text: str


class Lines:
    """The lines of a program's functions.

    Parameters
    ----------
    module : Module
    source : Text
        The kernel's.
    text : str
        What of it was compiled.
    placed : callable
        What the user calls a file and line of the compiler.
    """

    def __init__(self, module: Module, source: Text, text: str, placed: Callable[[str, int], str]) -> None:
        self._source, self._placed = source, placed
        self._text = text.splitlines()
        self._libraries = tuple(str(folder) for folder in search_folders())
        self._known: dict[tuple[str, int], Line | None] = {}
        #: Of each function: each instruction's line, None where it is a library's or none is known.
        self.of: list[list[Line | None]] = []
        for function in module.functions:
            lines: list[Line | None] = []
            for given in function.code:
                own = None if given.source is None else self._line(given.source.file, given.source.line)
                caller = None if given.source is None else given.source.caller
                while own is None and caller is not None:
                    own, caller = self._line(caller.file, caller.line), caller.caller
                if own is None and given.source is None and lines:
                    own = lines[-1]
                lines.append(own)
            self.of.append(lines)

    @property
    def files(self) -> set[str]:
        """The files of the user's that code comes from."""
        return {line.file for line in self._known.values() if line is not None}

    def text(self, first: int, last: int) -> list[Line]:
        """Lines of the kernel's own text around the places that it has, by the user's numbers."""
        shown = [self._line(self._source.name, line) for line in range(1, len(self._text) + 1)]
        return [line for line in shown if line is not None and first <= line.line <= last]

    def _line(self, file: str, line: int) -> Line | None:
        known = self._known.get((file, line), ...)
        if known is ...:
            known = self._known[file, line] = self._made(file, line)
        return known

    def _made(self, file: str, line: int) -> Line | None:
        shown, _, number = self._placed(file, line).rpartition(":")
        if self._source.named(file) == self._source.name or file == self._source.name:
            text = self._text[line - 1] if 0 < line <= len(self._text) else ""
            return Line(shown, int(number), text)
        if file.startswith(self._libraries) or not Path(file).is_file():
            return None
        return Line(shown, int(number), linecache.getline(file, line).rstrip("\n"))

    def places(self, wanted: int | str) -> tuple[Line, frozenset[tuple[int, int]]]:
        """A line, and where it begins: (function, instruction).

        It is named by its number, ``file:number``, or a part of its text. Of a number without code, the next line that
        has any is taken.

        Raises
        ------
        ArgumentError
        """
        lines = {line for of in self.of for line in of if line is not None}
        if isinstance(wanted, str):
            file, _, number = wanted.rpartition(":")
            if number.isdigit() and (not file or any(Path(line.file).name == Path(file).name for line in lines)):
                lines = {line for line in lines if not file or Path(line.file).name == Path(file).name}
                wanted = int(number)
        if isinstance(wanted, str):
            found = min((line for line in lines if wanted in line.text), default=None, key=lambda line: line.line)
            if found is None:
                raise ArgumentError(f"no line with code has {shortened(wanted)} in it")
        else:
            after = [line for line in lines if line.line >= wanted]
            if not after:
                last = max((line.line for line in lines), default=0)
                raise ArgumentError(f"no code comes from line {wanted} or after it; the last line with any is {last}")
            found = min(after, key=lambda line: line.line)
        starts = frozenset(
            (number, code)
            for number, of in enumerate(self.of)
            for code, line in enumerate(of)
            if line == found and (code == 0 or of[code - 1] != found)
        )
        return found, starts
