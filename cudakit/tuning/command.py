"""The command ``cudakit tune``: tune a kernel of a Python file, list kept results, export and import them."""

from __future__ import annotations

import argparse
import dataclasses
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cudakit.errors import CudakitError
from cudakit.tuning.by_size import TunedKernel
from cudakit.tuning.kept import Records, records
from cudakit.tuning.tune import Progress

_BAR = 20


def run(options: argparse.Namespace) -> int:
    """Carry out ``cudakit tune``. Return the exit status."""
    folder = records()
    if options.ops or options.dtype:
        raise CudakitError(
            f"{' '.join(options.ops) or '--dtype'} belongs to ops: cudakit tune ops OP …; a kernel is one FILE.py:NAME"
        )
    if options.list:
        return _list(folder, options)
    if options.export_to is not None:
        print(f"wrote {folder.export_to(options.export_to)} results to {options.export_to}")
        return 0
    if options.import_from is not None:
        print(f"read {folder.import_from(options.import_from)} results from {options.import_from}")
        return 0
    kernel = _kernel(options.kernel)
    changes = {name: getattr(options, name) for name in ("budget", "strategy", "objective", "seed")}
    chosen = {name: value for name, value in changes.items() if value is not None}
    if options.objective is not None:
        chosen["objective"] = options.objective.split(",")
    results = kernel.search(None, sizes_of(options.sizes), progress_of(options), **chosen)
    options.result |= {
        "sizes": [{"size": size, **tuned.to_dict()} for size, tuned in results.items()],
    }
    for size, tuned in results.items():
        if not options.json:
            print("" if size == () else f"size {size}", tuned, sep="\n" if size != () else "")
    return 0


def _kernel(text: str | None) -> TunedKernel:
    """Return the tuned kernel that ``FILE.py:NAME`` names. The file runs, but for what is guarded by ``__main__``."""
    path, _, name = (text or "").rpartition(":")
    if not path or not name:
        raise CudakitError(
            f"expected FILE.py:NAME, the file and the name of a tuned kernel in it; got {text or 'nothing'}"
        )
    if not Path(path).is_file():
        raise CudakitError(f"there is no file {path}").detailed(kind="file", file=path)
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        names = runpy.run_path(path, run_name="cudakit_tune")
    finally:
        sys.path.pop(0)
    kernel = names.get(name)
    if not isinstance(kernel, TunedKernel):
        there = [name for name, value in names.items() if isinstance(value, TunedKernel)]
        raise CudakitError(
            f"{path} has no tuned kernel {name}; it has {', '.join(there) or 'none'}. kernel.tuned(space, …) makes one"
        )
    return kernel


def sizes_of(text: str) -> list[Any]:
    """Return the sizes of an option, such as ``1000,1000000`` and ``64x64,128x128``."""
    try:
        rows = [tuple(map(int, size.split("x"))) for size in text.split(",") if size]
    except ValueError:
        rows = [(0,)]
    if any(number < 1 for row in rows for number in row):
        raise CudakitError(f"--sizes takes numbers from 1 up, such as 1000,1000000 or 64x64; got {text!r}")
    return [row[0] if len(row) == 1 else row for row in rows]


def _list(folder: Records, options: argparse.Namespace) -> int:
    rows = dict(folder)
    options.result = {"results": rows}
    if options.json:
        return 0
    for record in rows.values():
        best = record["rows"][0]
        value = "" if best["value"] is None else f"{best['value']:,.4g} {record['unit']}"
        print(f"{record['date']}  {record['card']}  {record['kernel']}  {value}  {len(record['rows'])} candidates")
    return 0


def progress_of(options: argparse.Namespace) -> Callable[[Progress], None]:
    """Return a function that draws a bar, and adds each candidate to the command's document and file of candidates."""
    candidates = options.result["candidates"] = []
    path: Path | None = options.candidates
    if path is not None:
        path.write_bytes(b"")

    def progress(step: Progress) -> None:
        candidates.append(dataclasses.asdict(step.candidate))
        if path is not None:
            with path.open("a", encoding="utf-8") as file:
                print(json.dumps(candidates[-1], default=str), file=file)
        _bar(step)

    return progress


def _bar(progress: Progress) -> None:
    """Draw a bar on a terminal: candidates tried, the best so far, the time left."""
    if not sys.stderr.isatty():
        return
    marks = _BAR * progress.tried // progress.total
    best = progress.best
    words = "none right yet" if best is None or best.value is None else f"best {best.value:,.4g}"
    end = "\n" if progress.tried == progress.total else ""
    shown = f"[{'#' * marks}{'.' * (_BAR - marks)}] {progress.tried}/{progress.total}"
    print(f"\r{shown}  {words}  {progress.seconds_left:.0f} s left \x1b[K", end=end, file=sys.stderr, flush=True)
