"""Options of nvcc's and NVRTC's command lines as cudakit's compile options."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from cudakit.errors import ArgumentError, shortened
from cudakit.jit.specialise.options import CompileOptions
from cudakit.places import device_limits

#: Options with a value, in one word with ``=`` or in the next word: nvcc's short names, and their long ones.
_LONG = {
    "I": "include-path", "D": "define-macro", "U": "undefine-macro", "arch": "gpu-architecture", "std": "std",
    "code": "gpu-code", "gencode": "generate-code", "Xptxas": "ptxas-options", "Xcompiler": "compiler-options",
    "Xlinker": "linker-options", "ccbin": "compiler-bindir", "L": "library-path", "l": "library", "O": "optimize",
    "rdc": "relocatable-device-code", "maxrregcount": "maxrregcount", "ftz": "ftz", "prec-div": "prec-div",
    "prec-sqrt": "prec-sqrt", "fmad": "fmad", "diag-suppress": "diag-suppress", "x": "x", "cudart": "cudart",
    "m": "machine",
}  # fmt: skip
_VALUED = frozenset(_LONG.values())
#: Options without a value.
_FLAGS = frozenset(("use_fast_math", "use-fast-math", "lineinfo", "generate-line-info", "G", "device-debug"))
#: Options that change no result here: of the host's compiler and linker, and of tools.
_IDLE = frozenset((
    "compiler-options", "linker-options", "compiler-bindir", "library-path", "library", "optimize", "gpu-code",
    "diag-suppress", "x", "cudart", "machine", "w", "disable-warnings", "keep", "v", "verbose", "g", "debug",
    "extended-lambda", "expt-extended-lambda", "expt-relaxed-constexpr", "Wno-deprecated-gpu-targets", "restrict",
    "dlink", "dc", "shared", "resource-usage", "res-usage", "source-in-ptx",
))  # fmt: skip


def _pairs(flags: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each option's long name and its value, if any."""
    words = iter([word for flag in flags for word in str(flag).split()])
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if name in _FLAGS or (name in _IDLE and name not in _VALUED and name not in _LONG):
            yield name, ""
        elif (long := _LONG.get(name, name)) in _VALUED:
            yield long, value if equals else next(words, "")
        elif word.startswith("-") and not word.startswith("--") and word[1:2] in ("I", "D", "U", "L", "l", "O", "m"):
            yield _LONG[word[1]], word[2:]
        else:
            yield name, value


def compile_options(flags: Iterable[str], folders: Iterable[str] = ()) -> tuple[CompileOptions, str | None]:
    """Return options of a command line as compile options, and the arch that they name, or None.

    Raises
    ------
    ArgumentError
        For an option without a counterpart.
    """
    options: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    defines: list[str | tuple[str, str]] = []
    include_paths, arch = list(map(str, folders)), None
    for name, value in _pairs(flags):
        if name == "include-path":
            include_paths += value.split(",")
        elif name == "define-macro":
            macro, equals, text = value.partition("=")
            defines.append((macro, text) if equals else macro)
        elif name in ("use_fast_math", "use-fast-math"):
            options["fast_math"] = True
        elif name in ("lineinfo", "generate-line-info"):
            options["lineinfo"] = True
        elif name in ("G", "device-debug"):
            options["debug"] = True
        elif name == "std":
            # libcu++'s headers, which take the place of the host's, need C++17.
            options["std"] = value if value in ("c++17", "c++20", "c++23") else "c++17"
        elif name == "maxrregcount":
            options["max_registers"] = int(value)
        elif name == "relocatable-device-code":
            options["rdc"] = value == "true"
        elif name in ("gpu-architecture", "generate-code"):
            arch = next((part for part in value.replace("=", ",").split(",") if part.startswith("sm_")), arch)
        elif name in ("ftz", "prec-div", "prec-sqrt", "fmad"):
            extra[{"ftz": "ftz", "prec-div": "prec_div", "prec-sqrt": "prec_sqrt", "fmad": "fma"}[name]] = (
                value != "false"
            )
        elif name == "ptxas-options":
            if value.lstrip("-") not in ("v", "", "O0", "O1", "O2", "O3", "warn-spills"):
                extra["ptxas_options"] = [*extra.get("ptxas_options", ()), value]
        elif name not in _IDLE:
            raise ArgumentError(
                f"the compiler's option {shortened(name)} has no counterpart here: NVRTC compiles; leave it out, or "
                "use ck.CompileOptions"
            )
    return CompileOptions(defines=defines, include_paths=include_paths, extra=extra, **options), arch


def usable_arch(arch: str | None) -> str | None:
    """Return the arch that a program names, or None for the device's own, which is taken in place of an older one."""
    if arch is None or not arch.startswith("sm_"):
        return None
    digits = arch.removeprefix("sm_").rstrip("af")
    if not digits.isdigit():
        raise ArgumentError(f"arch is a name such as 'sm_90', got {shortened(arch)}")
    named, own = divmod(int(digits), 10), device_limits().compute_capability
    if named > own:
        raise ArgumentError(
            f"arch {arch} is newer than the device, of compute capability {own[0]}.{own[1]}; leave it out"
        )
    if named[0] != own[0]:
        warnings.warn(f"arch {arch} is older than the device: the code is compiled for the device", UserWarning, 3)
        return None
    return None if named == own else arch
