"""Outcomes of Z3, kept for the next run."""

from __future__ import annotations

import hashlib
import inspect
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

from cudakit.proof import solver
from cudakit.proof.solver import Context, Outcome


class KeptOutcomes:
    """Outcomes in a file, by the text of the question, its limit, Z3's version and the code that asks."""

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path, timeout=60, isolation_level=None)
        self._file.execute("pragma journal_mode = wal")
        self._file.execute("pragma synchronous = off")
        self._file.execute("create table if not exists outcomes (key text primary key, outcome text) without rowid")
        self._state = f"{solver.z3_module().get_full_version()}\0{inspect.getsource(solver)}"

    def of(self, made: Callable[[Context, str, int], Outcome]) -> Callable[[Context, str, int], Outcome]:
        """Return a method that looks for an outcome in the file, and writes there what `made` returns."""

        def outcome(context: Context, text: str, most_steps: int) -> Outcome:
            key = hashlib.sha256(f"{self._state}\0{most_steps}\0{text}".encode()).hexdigest()
            if row := self._file.execute("select outcome from outcomes where key = ?", (key,)).fetchone():
                return Outcome(*json.loads(row[0]))
            result = made(context, text, most_steps)
            values = json.dumps([result.verdict, result.steps, result.values])
            self._file.execute("insert or ignore into outcomes values (?, ?)", (key, values))
            return result

        return outcome
