"""Which of CUDA's headers NVRTC takes, each alone, beside what ``host_code="skip"`` keeps; no GPU.

A header that is kept and refused would break a program; one that is taken and cut may only be missed.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path

from tables import table

TITLE = "CUDA's headers in NVRTC"
FOLDERS = (
    *("", "cuda", "cuda/std", "cub", "cub/block", "cub/device", "cub/grid", "cub/iterator", "cub/thread", "cub/warp"),
    *("thrust", "thrust/iterator", "thrust/random", "cooperative_groups", "nv"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", help="headers whose names have this")
    parser.add_argument("--std", default="c++17")


def lines(options: argparse.Namespace) -> Iterator[str]:
    from cudakit.jit.source import headers

    rows, taken, kept, wrong = [], 0, 0, []
    for name in _names():
        if options.only not in name:
            continue
        error, is_kept = _error(name, options.std), headers.is_for_device(name)
        taken += not error
        kept += is_kept
        if error and is_kept:
            wrong.append(name)
        if error:
            rows.append([f"`{name}`", "kept" if is_kept else "cut", error])
    yield f"NVRTC takes {taken} of {taken + len(rows)} headers alone ({options.std}); {kept} are kept."
    yield f"Kept though refused alone: {', '.join(wrong) or 'none'}."
    yield ""
    yield from table(["refused", "with `skip`", "because"], rows)


def _names() -> Iterator[str]:
    """Headers as they are included, of the wheels or the toolkit that is first."""
    from cudakit.jit.source import headers

    found: dict[str, None] = {}
    for top in headers.toolkit_folders():
        for folder in FOLDERS:
            place = Path(top, folder)
            if place.is_dir() and (folder or "cccl" not in top.parts):
                names = sorted(entry for entry in os.listdir(place) if (place / entry).is_file())
                found |= dict.fromkeys(f"{folder}/{name}".removeprefix("/") for name in names)
    # Names with underscores and dots are parts of others.
    return (name for name in found if not re.search(r"/__|cuda/std/.*\.|\.hpp$", name))


def _error(name: str, std: str) -> str:
    import cudakit as ck

    try:
        kernel = ck.Kernel(f"#include <{name}>\n__global__ void f() {{}}", options=ck.CompileOptions(std=std))
        kernel.compile(arch="sm_90", target="ptx")
    except ck.CompileError as error:
        found = re.search(r"error: (.*)", str(error))
        return (found[1] if found else str(error).partition("\n")[0])[:90].replace("|", "\\|")
    return ""
