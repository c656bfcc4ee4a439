"""CUDA's own headers: their folders on this machine, their version, their names.

Wheels come first, then an installed toolkit. A table maps names of the standard libraries to their headers.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from cudakit import system

_PACKAGE = Path(__file__).resolve().parents[2]

#: The wheel with a header, for the error about a missing one: path prefix → wheel (without its CUDA major).
_WHEELS = (
    (("cub/", "cuda/", "thrust/", "nv/"), "nvidia-cuda-cccl"),
    (("curand",), "nvidia-curand"),
    (("crt/", "mma.h"), "nvidia-cuda-crt"),
    (("cuda_", "cooperative_groups", "vector_", "cuComplex", "sm_", "device_", "math_"), "nvidia-cuda-runtime"),
)


#: Headers that change with the version of a toolkit.
_VERSIONED = ("cuda.h", "cuda_runtime_api.h", "cuda/std/__cccl/version.h", "cuda/__cccl_config", "curand.h")
#: Names that CUDA's headers test with ``__has_include`` and do not contain.
_ASKED_BY_CUDAS = """
__config __memory __utility bits ciso646 dlpack dlpack.h endian.h experimental ext memory_resource nvtx3 pthread.h
random version yvals.h
"""
#: A header by which a library's headers are found.
_LIBRARIES = {"cudart": "cuda_runtime_api.h", "cccl": "cuda/std/version", "curand": "curand_kernel.h"}


def templates_folder() -> Path:
    """Return the folder of the packaged templates: inside the package in a wheel, beside it in an editable install."""
    inside = _PACKAGE / "templates"
    return inside if inside.is_dir() else _PACKAGE.parent / "templates"


def own_folders() -> tuple[Path, ...]:
    """Return the folders of cudakit's own headers, for `#include <cudakit/…>`."""
    return (templates_folder() / "include",)


def fallback_folder() -> Path:
    """Return the folder of replacements for host headers that NVRTC lacks (``<cstdint>``, ``<cmath>`` …); searched
    last.
    """
    return templates_folder() / "include" / "host"


@cache
def toolkit_folders() -> tuple[Path, ...]:
    """Return the folders of CUDA's headers that exist here, in search order."""
    wheels = [folder for folder in _wheel_folders() if folder.is_dir()]
    # The finder takes 80 ms to load: it searches only for libraries without a wheel.
    missing = [name for name, header in _LIBRARIES.items() if not any((folder / header).is_file() for folder in wheels)]
    others = (folder for folder in _installed_folders(missing) if folder.is_dir())
    return tuple(dict.fromkeys((*wheels, *others)))


@cache
def search_folders() -> tuple[str, ...]:
    """Return all folders that are searched for headers after the user's folders, in order."""
    return tuple(map(str, (*own_folders(), *toolkit_folders(), fallback_folder())))


def _wheel_folders() -> Iterator[Path]:
    for root in wheel_roots():
        for major in sorted(root.glob("cu[0-9]*"), reverse=True):
            yield major / "include"
            yield major / "include" / "cccl"
        for component in ("cuda_runtime", "cuda_cccl", "curand", "cuda_nvcc", "cuda_nvrtc"):
            yield root / component / "include"
            yield root / component / "include" / "cccl"


def _installed_folders(libraries: Iterable[str]) -> Iterator[Path]:
    with contextlib.suppress(ModuleNotFoundError):  # macOS has no pathfinder
        for library in libraries:
            from cuda import pathfinder

            located = pathfinder.find_nvidia_header_directory(library)
            if located:
                yield Path(located)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield from _toolkit(Path(os.environ[variable]).absolute())
    yield from _toolkit(Path("/usr/local/cuda"))


def _toolkit(root: Path) -> Iterator[Path]:
    yield root / "include"
    yield root / "include" / "cccl"


@cache
def _site_folders() -> tuple[str, ...]:
    """Return the folders on the import path that hold NVIDIA's wheels.

    Relative paths are left out, so that the working directory is never searched.
    """
    return tuple(
        folder for folder in dict.fromkeys(sys.path) if os.path.isabs(folder) and os.path.isdir(f"{folder}/nvidia")
    )


def wheel_roots() -> tuple[Path, ...]:
    """Return every ``nvidia`` folder on the import path (a namespace package: there can be several)."""
    return tuple(Path(folder) / "nvidia" for folder in _site_folders())


@cache
def _wheels() -> Mapping[str, tuple[str, ...]]:
    """Return NVIDIA's wheels and cuda.core with their versions, by folder on the import path."""
    return {
        folder: tuple(
            name.removesuffix(".dist-info")
            for name in sorted(os.listdir(folder))
            if name.startswith(("nvidia_", "cuda_core-")) and name.endswith(".dist-info")
        )
        for folder in _site_folders()
    }


@cache
def wheel_versions(prefix: str) -> str:
    """Return names and versions of NVIDIA's wheels on the import path, separated by spaces; empty if there are none.

    Only wheels whose name begins with `prefix` are listed.
    """
    return " ".join(sorted({name for names in _wheels().values() for name in names if name.startswith(prefix)}))


@cache
def toolkit_version() -> str:
    """Return the version of the CUDA headers: wheels' versions, and the status of versioned headers in an installed
    toolkit.
    """
    paths = (f"{folder}/{name}" for folder in toolkit_folders() if not in_wheel(f"{folder}/") for name in _VERSIONED)
    return " ".join((wheel_versions("nvidia_"), *(file_mark(path) for path in paths if os.path.isfile(path))))


@cache
def is_cuda_header(path: str) -> bool:
    """Return whether a header is one of CUDA's own, whose content follows from its version."""
    if in_wheel(path):
        return True
    within = (path[len(str(folder)) + 1 :] for folder in toolkit_folders() if system.is_within(path, folder))
    return any(wheel_for(name.replace(os.sep, "/").removeprefix("cccl/")) is not None for name in within)


def is_toolkit_folder(folder: str) -> bool:
    """Return whether a folder holds CUDA's own headers; it need not be a searched folder."""
    places = (folder, os.path.dirname(folder)) if os.path.basename(folder) == "cccl" else (folder,)
    is_one = any(os.path.isfile(os.path.join(place, _LIBRARIES["cudart"])) for place in places)
    return is_one or in_wheel(f"{folder}/") or Path(folder) in toolkit_folders()


@cache
def cuda_header_names() -> frozenset[str]:
    """Return the names of the files and folders at the top of CUDA's header folders, and names that its headers test.

    The path of each header that CUDA's headers include, or test with ``__has_include``, begins with one of them.
    """
    names = {entry for folder in toolkit_folders() for entry in os.listdir(folder)}
    return frozenset(names).union(_ASKED_BY_CUDAS.split())


def core_version() -> str:
    """Return the version of cuda.core, which translates options to the compiler's flags."""
    wheel = wheel_versions("cuda_core-")
    if wheel:
        return wheel
    from importlib import metadata  # with the modules that it loads, this takes longer than cudakit's

    return metadata.version("cuda-core")


def compiler_wheels() -> str:
    """Return the versions of the NVRTC wheels on the import path; empty if NVRTC comes from elsewhere."""
    return wheel_versions("nvidia_cuda_nvrtc")


@cache
def in_wheel(path: str) -> bool:
    """Return whether a file or folder belongs to one of NVIDIA's wheels."""
    return any(names and system.is_within(path, os.path.join(folder, "nvidia")) for folder, names in _wheels().items())


@cache
def in_toolkit(path: str) -> bool:
    """Return whether a file belongs to an installed toolkit that is no wheel."""
    return any(system.is_within(path, folder) for folder in toolkit_folders())


def wheel_for(header: str) -> str | None:
    """Return the name of the wheel that carries `header`, or None for a header that is not CUDA's."""
    return next((wheel for prefixes, wheel in _WHEELS if header.startswith(prefixes)), None)


def file_mark(path: str | None) -> str:
    """Return name, size and time of a file as a text, which identify a library; ``"unknown"`` for None."""
    if path is None:
        return "unknown"
    real = Path(path).resolve()
    status = real.stat()
    return f"{real.name}:{status.st_size}:{status.st_mtime_ns}"


#: Names, and the header to include for NVRTC, which includes nothing by itself.
_DECLARED_IN: Final = (
    (r"INFINITY|NAN|HUGE_VALF?|M_[A-Z0-9_]+", "cmath"),
    (r"(?:FLT|DBL)_[A-Z0-9_]+", "cfloat"),
    (r"U?(?:CHAR|SHRT|INT|LONG|LLONG)_(?:MAX|MIN)|CHAR_BIT", "climits"),
    (r"u?int(?:_fast|_least)?(?:8|16|32|64)_t|u?int(?:ptr|max)_t|U?INT(?:8|16|32|64)_(?:MAX|MIN|C)", "cstdint"),
    (r"uint|ushort|ulong", "cstdlib"),
    (r"(?:__)?half[24]?|__half_raw", "cuda_fp16.h"),
    (r"(?:__)?nv_bfloat162?", "cuda_bf16.h"),
    (r"__nv_fp8\w+", "cuda_fp8.h"),
    (r"cooperative_groups|this_thread_block|this_grid|this_cluster|coalesced_threads", "cooperative_groups.h"),
    (r"curand\w+", "curand_kernel.h"),
    (r"cudaGridDependencySynchronize|cudaTriggerProgrammaticLaunchCompletion", "cuda_device_runtime_api.h"),
    (r"nvcuda", "mma.h"),
    (r"cu(?:Float|Double)?Complex|make_cu(?:Float|Double)?Complex|cuC(?:abs|add|div|fma|imag|mul|onj|real|sub)f?"
     r"|cuComplex(?:Double|Float)To(?:Float|Double)", "cuComplex.h"),
    (r"cufft(?:Double)?(?:Real|Complex)|CUFFT_(?:FORWARD|INVERSE)", "cufft.h"),
    (r"cufftCallback(?:Load|Store)[RDCZ]", "cufftXt.h"),
    (r"cudaDataType(?:_t)?|CUDA_[RC]_\w+", "library_types.h"),
    (r"std::(?:min|max|clamp|swap)", "algorithm"),
    (r"std::numeric_limits", "limits"),
    (r"std::(?:is_\w+|enable_if\w*|conditional\w*|(?:add|remove)_\w+|decay\w*|(?:true|false)_type|void_t|common_type\w*"
     r"|underlying_type\w*|make_(?:un)?signed\w*|(?:integral|bool)_constant|alig\w+_(?:of|storage)\w*|invoke_result\w*"
     r"|rank|extent|conjunction\w*|disjunction\w*|negation\w*)", "type_traits"),
    (r"std::(?:pair|move|forward|index_sequence|make_pair|declval)", "utility"),
    (r"std::u?int(?:8|16|32|64)_t", "cstdint"),
    (r"std::(?:a?(?:sin|cos|tan)h?|sqrt|pow|exp2?|log(?:2|10|1p)?|abs|fabs|floor|ceil|round|fma|fmod|is(?:nan|inf))",
     "cmath"),
)  # fmt: skip
#: Names that NVRTC declares less completely than nvcc.
_ENLARGED_IN: Final = (
    (r"(?:a?(?:sin|cos|tan)h?|atan2|sqrt|cbrt|pow|exp2?|log(?:2|10|1p)?|fabs|floor|ceil|l?l?round|l?l?rint|trunc|fmod"
     r"|hypot|fmax|fmin|copysign|isnan|isinf|isfinite|signbit|erfc?|[lt]gamma)", "cmath"),
    (r"mem(?:cmp|move|chr)|str(?:len|n?cmp|n?cpy|chr)", "cstring"),
    (r"offsetof|max_align_t", "cstddef"),
    (r"assert", "cassert"),
)  # fmt: skip


def header_of(name: str) -> str | None:
    """Return the header that declares the C++ name or macro `name`, from a table, or None."""
    return next((header for pattern, header in _DECLARED_IN if re.fullmatch(pattern, name)), None)


def headers_of(names: Iterable[str]) -> list[str]:
    """Return the headers that declare `names`, or that complete NVRTC's own declarations of them."""
    names = list(names)
    if not names:
        return []  # the pattern takes 2 ms to compile, most of a first call from a bundle
    pattern, headers = _together()
    return sorted(
        {headers[match.lastgroup] for name in names if (match := pattern.fullmatch(name)) and match.lastgroup}
    )


@cache
def _together() -> tuple[re.Pattern[str], dict[str, str]]:
    """Return one pattern for all names, and the header for each of its groups."""
    both = (*_DECLARED_IN, *_ENLARGED_IN)
    pattern = "|".join(f"(?P<g{number}>{names})" for number, (names, _) in enumerate(both))
    return re.compile(pattern), {f"g{number}": header for number, (_, header) in enumerate(both)}
