"""Where CUDA's own headers lie on this machine, and which version of them: wheels first, then an installed toolkit."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]

#: Which wheel carries a header, for the error about a missing one: path prefix → wheel (without its CUDA major).
_WHEELS = (
    (("cub/", "cuda/", "thrust/", "nv/"), "nvidia-cuda-cccl"),
    (("curand",), "nvidia-curand"),
    (("crt/", "mma.h"), "nvidia-cuda-crt"),
    (("cuda_", "cooperative_groups", "vector_", "cuComplex", "sm_", "device_", "math_"), "nvidia-cuda-runtime"),
)


def templates_folder() -> Path:
    """Folder of the packaged templates, in a wheel (inside the package) and in an editable install (beside it)."""
    inside = _PACKAGE / "templates"
    return inside if inside.is_dir() else _PACKAGE.parent / "templates"


def own_folders() -> tuple[Path, ...]:
    """Folders of cudakit's own headers: what `#include <cudakit/…>` finds."""
    return (templates_folder() / "include",)


def fallback_folder() -> Path:
    """Folder of stand-ins for host headers that NVRTC lacks (``<cstdint>``, ``<cmath>`` …); searched last."""
    return templates_folder() / "include" / "host"


@cache
def toolkit_folders() -> tuple[Path, ...]:
    """Folders of CUDA's headers that exist here, in the order in which they are searched."""
    found: dict[Path, None] = {}
    for folder in _candidates():
        if folder.is_dir():
            found.setdefault(folder)
    return tuple(found)


def _candidates() -> Iterator[Path]:
    for root in _wheel_roots():
        for major in sorted(root.glob("cu[0-9]*"), reverse=True):
            yield major / "include"
            yield major / "include" / "cccl"
        for component in ("cuda_runtime", "cuda_cccl", "curand", "cuda_nvcc", "cuda_nvrtc"):
            yield root / component / "include"
            yield root / component / "include" / "cccl"
    from cuda import pathfinder

    for library in ("cudart", "cccl", "curand"):
        located = pathfinder.find_nvidia_header_directory(library)
        if located:
            yield Path(located)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield from _toolkit(Path(os.environ[variable]))
    yield from _toolkit(Path("/usr/local/cuda"))


def _toolkit(root: Path) -> Iterator[Path]:
    yield root / "include"
    yield root / "include" / "cccl"


@cache
def _site_folders() -> tuple[str, ...]:
    """Every folder on the import path that holds wheels of NVIDIA's."""
    folders = dict.fromkeys(entry or "." for entry in sys.path)
    return tuple(folder for folder in folders if os.path.isdir(f"{folder}/nvidia"))


def _wheel_roots() -> tuple[Path, ...]:
    """Every ``nvidia`` folder on the import path (a namespace package: there can be several)."""
    return tuple(Path(folder) / "nvidia" for folder in _site_folders())


@cache
def folder_version(folder: Path) -> str:
    """What identifies the headers in a toolkit folder without reading them all.

    For a wheel the versions of NVIDIA's wheels beside it, as their metadata folders name them; for a toolkit the
    sizes and times of its version headers.
    """
    for root in _wheel_roots():
        if folder.is_relative_to(root):
            names = (entry.name for entry in os.scandir(root.parent) if entry.name.startswith("nvidia_"))
            return " ".join(sorted(name.removesuffix(".dist-info") for name in names if name.endswith(".dist-info")))
    marks = []
    for name in ("cuda_runtime_api.h", "cuda/std/__cccl/version.h", "cuda/__cccl_config", "curand.h"):
        path = folder / name
        if path.is_file():
            status = path.stat()
            marks.append(f"{name}:{status.st_size}:{status.st_mtime_ns}")
    return f"{folder} {' '.join(marks)}"


def wheel_for(header: str) -> str | None:
    """Name of the wheel that carries `header`, or None for a header that is not one of CUDA's."""
    for prefixes, wheel in _WHEELS:
        if header.startswith(prefixes):
            return wheel
    return None


@cache
def _include() -> re.Pattern[bytes]:
    return re.compile(
        rb"""^[ \t]*\#[ \t]*(?:include|include_next|if|elif)\b(?:.*?__has_include[ \t]*\()?[ \t]*
             (?: "(?P<quoted>[^"\n]+)" | <(?P<angled>[^>\n]+)> | (?P<computed>[A-Za-z_]\w*) )""",
        re.MULTILINE | re.VERBOSE,
    )


def included_names(text: bytes) -> Iterator[tuple[str, bool, int]]:
    """Every header that `text` may include: (name, whether quoted, line); a computed one has an empty name.

    Directives in branches that the compiler skips count too: a superset keeps a cache key right, a guess would not.
    """
    if b"include" not in text:
        return
    for match in _include().finditer(text):
        directive = match.group(0).lstrip()[1:].lstrip()
        line = text.count(b"\n", 0, match.start()) + 1
        if match["quoted"]:
            if directive.startswith(b"include") or b"__has_include" in directive:
                yield match["quoted"].decode(errors="replace"), True, line
        elif match["angled"]:
            if directive.startswith(b"include") or b"__has_include" in directive:
                yield match["angled"].decode(errors="replace"), False, line
        elif directive.startswith(b"include"):
            yield "", False, line


def compiler_wheels() -> str:
    """Versions of the NVRTC wheels on the import path, or an empty string where NVRTC comes from elsewhere."""
    names = {
        name.removesuffix(".dist-info")
        for folder in _site_folders()
        for name in os.listdir(folder)
        if name.startswith("nvidia_cuda_nvrtc") and name.endswith(".dist-info")
    }
    return " ".join(sorted(names))


def file_mark(path: str | None) -> str:
    """Name, size and time of a file: what identifies a library that has no package version."""
    if path is None:
        return "unknown"
    real = Path(path).resolve()
    status = real.stat()
    return f"{real.name}:{status.st_size}:{status.st_mtime_ns}"
