"""The command ``cudakit cache``: look into the kernel cache, clear it, move kernels to another machine."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cudakit.cli.parsers import command, split_arguments
from cudakit.jit.cache.cache import default_cache
from cudakit.types.shown import byte_size, counted

if TYPE_CHECKING:
    from cudakit.jit.cache.cache import Entry, Explanation

_NEIGHBOURS_SHOWN: Final = 3


def add(commands: Any) -> None:
    """Add the command and its actions."""
    cache = commands.add_parser(
        "cache", help="show the cache of compiled kernels, clear it, or move kernels to another machine"
    )
    actions = cache.add_commands("actions", "ACTION")

    command(actions, "info", _cache_info, "show the folder of the cache, its number of kernels and its size", "")
    command(actions, "list", _list, "list the compiled kernels, most recently used first", "", "--json")

    text = "show whether a kernel is in the cache and, if not, what differs"
    explain = command(actions, "explain", _explain, text, "saxpy.cu --args float --arch sm_90")
    explain.add_argument("source", type=Path, metavar="SOURCE", help="CUDA C++ file")
    explain.add_argument("--kernel", metavar="NAME", help="name of the kernel, if the file has several")
    explain.add_argument(
        "--args", default="", metavar="LIST", help="template arguments, separated by commas, such as float,256"
    )
    explain.add_argument("--arch", help="arch, such as sm_90; default: that of the GPU, or of the emulator")

    clear = command(actions, "clear", _clear, "remove compiled kernels from the cache", "", "'saxpy.cu: *'")
    clear.add_argument(
        "pattern",
        nargs="?",
        metavar="PATTERN",
        help="only kernels whose file or name contains this text; * stands for any text",
    )

    text = "write compiled kernels to a file, for machines without a compiler"
    giving = command(actions, "export", _export, text, "kernels.ckx", "kernels.ckx saxpy")
    giving.add_argument("file", type=Path, metavar="FILE", help="file to write")
    giving.add_argument(
        "pattern", nargs="?", metavar="PATTERN", help="only kernels whose file or name contains this text"
    )

    taking = command(
        actions,
        "import",
        _import,
        "read compiled kernels from an exported file; their code will run here: trust its source",
        "kernels.ckx",
    )
    taking.add_argument("file", type=Path, metavar="FILE", help="file to read")


def _cache_info(options: argparse.Namespace) -> int:
    info = default_cache().info()
    options.result = {name: getattr(info, name) for name in ("folder", "entries", "blobs", "bytes", "max_bytes")}
    if options.json:
        pass
    elif info.folder is None:
        print("There is no cache on disk: CUDAKIT_CACHE_DIR is empty.")
    else:
        print(f"folder   {info.folder}")
        print(f"kernels  {info.entries}")
        print(f"size     {byte_size(info.bytes)} of at most {byte_size(info.max_bytes)}")
    return 0


def _list(options: argparse.Namespace) -> int:
    entries = default_cache().entries()
    options.result = {"kernels": [_entry_record(entry) for entry in entries]}
    if options.json:
        pass
    elif not entries:
        print("The cache holds no kernels.")
    else:
        print(f"{'last used':<16}  {'size':>9}  {'arch':<8}  kernel")
        for entry in entries:
            used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.last_used))
            print(f"{used:<16}  {byte_size(entry.bytes):>9}  {entry.parts.get('arch', ''):<8}  {entry.label}")
    return 0


def _entry_record(entry: Entry) -> dict[str, object]:
    return {
        "label": entry.label,
        "parts": dict(entry.parts),
        "bytes": entry.bytes,
        "last_used": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry.last_used)),
        "path": str(entry.path),
    }


def _explain(options: argparse.Namespace) -> int:
    # Imported here: the other commands need neither the parser nor the compiler.
    from cudakit.jit.cache.compiling import first_request
    from cudakit.jit.cache.stages import bundled_code_of
    from cudakit.kernel.kernel import Kernel

    kernel = Kernel.from_file(options.source, options.kernel)
    if arguments := split_arguments(options.args):
        kernel = kernel[arguments if len(arguments) > 1 else arguments[0]]
    specialization = kernel.specialization(arch=options.arch)
    request = first_request(specialization)
    if bundled_code_of(specialization) is not None:
        lines, where = [f"hit: {request.label} is in the cache, imported."], "imported"
    else:
        explanation = default_cache().explain(request)
        lines, where = list(_explanation_lines(explanation)), explanation.where
    options.result = {"kernel": request.label, "where": where, "lines": lines}
    if not options.json:
        print("\n".join(lines))
    return 0


def _explanation_lines(explanation: Explanation) -> Iterator[str]:
    if explanation.where != "miss":
        where = "in memory" if explanation.where == "memory" else "on disk"
        yield f"hit: {explanation.label} is in the cache, {where}."
        return
    yield f"miss: {explanation.label} is not in the cache."
    if explanation.unstorable is not None:
        yield f"It is never kept on disk: {explanation.unstorable}."
    elif not explanation.neighbours:
        yield "Nothing of this kernel or this file is stored."
    for neighbour in explanation.neighbours[:_NEIGHBOURS_SHOWN]:
        yield f"Stored is {neighbour.entry.label}, which differs in:"
        for difference in neighbour.differences:
            yield f"  {difference.part}: asked for {_value(difference.requested)}, stored {_value(difference.stored)}"
    more = len(explanation.neighbours) - _NEIGHBOURS_SHOWN
    if more > 0:
        yield f"And {more} more that differ at least as much."


def _value(value: str | None) -> str:
    if value is None:
        return "nothing"
    return f"{value[:12]}…" if re.fullmatch("[0-9a-f]{40,}", value) else value or "(empty)"


def _export(options: argparse.Namespace) -> int:
    count, alone = default_cache().export_to(options.file, options.pattern)
    options.result = {"kernels": count, "file": str(options.file), "left_out": list(alone)}
    print(f"Wrote {counted(count, 'kernel')} to {options.file}.")
    for label in alone:
        print(f"left out, because it depends on files of this machine: {label}", file=sys.stderr)
    return 0 if count else 1


def _import(options: argparse.Namespace) -> int:
    count = default_cache().import_from(options.file)
    options.result = {"kernels": count}
    print(f"Imported {counted(count, 'kernel')}.")
    return 0


def _clear(options: argparse.Namespace) -> int:
    removed = default_cache().clear(options.pattern)
    options.result = {"kernels": removed}
    print(f"Removed {counted(removed, 'kernel')} from the cache.")
    return 0
