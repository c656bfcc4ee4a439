"""Report on the installation: versions, GPU or emulator, compiler, extras, cache, and what is missing."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, overload

from cudakit.errors import ArgumentError, shortened
from cudakit.jit.cache import settings
from cudakit.jit.cache.cache import default_cache
from cudakit.jit.compile import assemble, nvrtc, pins
from cudakit.jit.load.load import driver_version
from cudakit.jit.source import headers
from cudakit.streams import devices
from cudakit.types.shown import byte_size

#: A part of the configuration: names, and values that JSON can hold.
Section: TypeAlias = dict[str, Any]

_PACKAGES: Final = (
    "numpy", "cuda-core", "cuda-bindings", "cuda-pathfinder", "cupy-cuda13x", "cupy-cuda12x", "cupy", "llvmlite",
    "z3-solver", "sympy", "torch", "jax",
)  # fmt: skip
_CUPY: Final = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
#: What each extra is for.
_PURPOSES: Final = {
    "run": "launch compiled kernels: bundles, cubins and PTX",
    "compile": "read CUDA C++, for NVRTC of an installed CUDA toolkit",
    "cu12": "compiler, headers and CuPy for CUDA 12",
    "cu13": "compiler, headers and CuPy for CUDA 13",
    "tile": "compile tile kernels",
    "cpu": "compile kernels of the emulator for the CPU",
    "prove": "ck.prove and cudakit prove",
    "grad": "derivatives of expressions for torch and JAX",
    "dask": "ck.scale on Dask",
    "ray": "ck.scale on Ray",
    "optuna": "ck.tune by a study of Optuna",
    "sign": "sign bundles, and require a signature",
    "examples": "run the example programs",
}
_HEADERS: Final = {
    "CUDA runtime": "cuda_runtime.h",
    "CCCL": "cuda/std/version",
    "cuRAND": "curand_kernel.h",
}
_REQUIREMENT: Final = re.compile(r"(?P<name>[\w.-]+)(?:\[[^\]]*\])?(?P<bounds>[^;]*);.*extra == ['\"](?P<extra>[\w-]+)")


@overload
def show_config(mode: Literal["stdout"] = "stdout") -> None: ...


@overload
def show_config(mode: Literal["dicts"]) -> dict[str, Any]: ...


def show_config(mode: Literal["stdout", "dicts"] = "stdout") -> dict[str, Any] | None:
    """Print what cudakit uses on this machine, and what is missing; the command ``cudakit info`` prints the same.

    Nothing that is missing or broken raises: its section has the reason under ``problem``.

    Parameters
    ----------
    mode : {"stdout", "dicts"}
        ``"dicts"`` returns the configuration instead of printing it, as ``cudakit info --json`` writes it.

    Returns
    -------
    dict or None
        With ``mode="dicts"`` the sections ``cudakit``, ``python``, ``packages``, ``gpu``, ``nvrtc``, ``nvjitlink``,
        ``tile_assembler``, ``headers``, ``extras``, ``cache``, ``emulator`` and ``missing``.

    Raises
    ------
    ArgumentError
        If `mode` is another value.
    """
    if mode not in ("stdout", "dicts"):
        raise ArgumentError(f"show_config: mode is 'stdout' or 'dicts', got {shortened(mode)}")
    config = configuration()
    if mode == "dicts":
        return config
    print(as_text(config))
    return None


def configuration() -> dict[str, Any]:
    """Return the sections of `show_config`."""
    config: dict[str, Any] = {
        "cudakit": _section(_package, version=None, folder=None),
        "python": _section(_python, version=None, implementation=None, system=None, executable=None),
        "packages": {name: _version(name) for name in _PACKAGES},
        "gpu": _section(_gpu, driver=None, driver_cuda=None, devices=[]),
        "nvrtc": _section(_nvrtc, version=None, path=None, tile_kernels=None),
        "nvjitlink": _section(_nvjitlink, version=None, path=None),
        "tile_assembler": _section(_tile_assembler, version=None, path=None),
        "headers": _section(_headers, folders=[], missing=[]),
        "extras": _extras(),
        "cache": _section(_cache, folder=None, kernels=0, bytes=0, max_bytes=0),
        "emulator": _section(_emulator, arch=None, machine=None, llvmlite=None, cpu=None),
    }
    return {**config, "missing": list(_missing(config))}


def _section(fill: Callable[[Section], None], **empty: Any) -> Section:
    """Return a part of the installation report as a dict that `fill` fills, beginning with the values of `empty`.

    If `fill` raises, its error is under "problem", which is None otherwise, and the values set before stay.
    """
    section = {**empty, "problem": None}
    try:
        fill(section)
    except Exception as error:  # a broken driver or library may raise anything, and the report must not
        section["problem"] = " ".join(str(error).split()) or type(error).__name__
    return section


def _package(section: Section) -> None:
    section["folder"] = str(Path(__file__).parent)
    section["version"] = _version("cudakit")
    if section["version"] is None:
        section["problem"] = "cudakit is imported from a folder and not installed"


def _python(section: Section) -> None:
    section.update(
        version=platform.python_version(),
        implementation=platform.python_implementation(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        executable=sys.executable,
    )


def _gpu(section: Section) -> None:
    from cuda import pathfinder
    from cuda.bindings import driver

    try:
        (status,) = driver.cuInit(0)
    except pathfinder.DynamicLibNotFoundError:
        section["problem"] = "no CUDA driver is installed"
        return
    version = driver_version()
    section["driver_cuda"] = None if version == (0, 0) else ".".join(map(str, version))
    if int(status) == int(driver.CUresult.CUDA_ERROR_NO_DEVICE):
        section["problem"] = "the CUDA driver shows no GPU (CUDA_VISIBLE_DEVICES can hide GPUs)"
        return
    if int(status) != 0:
        section["problem"] = f"the CUDA driver does not start: {status.name}"
        return
    for number in range(devices.device_count()):
        limits = devices.limits(number)
        section["devices"].append({"name": limits.name, "arch": limits.arch, "multiprocessors": limits.multiprocessors})
    from cuda.core import system

    section["driver"] = ".".join(map(str, system.get_kernel_mode_driver_version()))


def _nvrtc(section: Section) -> None:
    section["path"] = nvrtc.load_library("nvrtc")
    from cuda.bindings import nvrtc as library

    status, major, minor = library.nvrtcVersion()
    if int(status) != 0:
        raise RuntimeError(f"NVRTC does not say its version: {status.name}")
    section["version"] = f"{major}.{minor}"
    if (major, minor) < pins.TILE_NVRTC:
        section["tile_kernels"] = f"need NVRTC {'.'.join(map(str, pins.TILE_NVRTC))}: {pins.tile_nvrtc_advice()}"


def _nvjitlink(section: Section) -> None:
    section["path"] = nvrtc.load_library("nvJitLink")
    from cuda.bindings import nvjitlink

    section["version"] = ".".join(map(str, nvjitlink.version()))


def _tile_assembler(section: Section) -> None:
    assembler = assemble.assembler()
    section.update(version=_version("nvidia-cuda-tileiras"), path=str(assembler.program))


def _headers(section: Section) -> None:
    folders = headers.toolkit_folders()
    section["folders"] = list(map(str, folders))
    for name, header in _HEADERS.items():
        if not any((folder / header).is_file() for folder in folders):
            section["missing"].append(name)
    if section["missing"]:
        section["problem"] = f"no headers of {', '.join(section['missing'])}"


def _extras() -> Section:
    """Return the package's extras by name: for each, whether it is installed, and the missing requirements."""
    try:
        requirements = importlib.metadata.requires("cudakit") or []
    except Exception:  # the section of the package says so
        return {}
    extras: Section = {}
    for match in filter(None, map(_REQUIREMENT.match, requirements)):
        if match["extra"] not in _PURPOSES:
            continue
        extra = extras.setdefault(match["extra"], {"installed": True, "missing": []})
        version = _version(match["name"])
        if version is None or not _is_within(version, match["bounds"]):
            installed = "" if version is None else f" ({version} is installed)"
            extra["installed"] = False
            extra["missing"].append(f"{match['name']}{match['bounds'].strip()}{installed}")
    return extras


def _cache(section: Section) -> None:
    cache = default_cache()
    section["problem"] = cache.obstacle()
    section["folder"] = None if cache.folder is None else str(cache.folder)
    if section["problem"] is None:
        info = cache.info()
        section.update(kernels=info.entries, bytes=info.bytes, max_bytes=info.max_bytes)


def _emulator(section: Section) -> None:
    section["machine"] = settings.machine()
    section["llvmlite"] = _version("llvmlite")
    from cudakit.emulator import stream  # heavy

    section["arch"] = stream().arch  # refuses a machine that cannot be had
    if section["llvmlite"] is not None:
        import llvmlite.binding

        section["cpu"] = llvmlite.binding.get_host_cpu_name()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except Exception:  # not installed, or its metadata is damaged
        return None


def _is_within(version: str, bounds: str) -> bool:
    """Return whether a version meets bounds such as ``<14,>=13``."""
    for bound in filter(None, map(str.strip, bounds.strip(" ()").split(","))):
        match = re.fullmatch(r"(>=|<)\s*([\d.]+)", bound)
        if match is None:
            continue
        is_least = match[1] == ">="
        if (_numbers(version) >= _numbers(match[2])) is not is_least:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()


def _missing(config: Mapping[str, Any]) -> Iterator[Section]:
    """Yield what is missing to compile and run kernels here, each with the command that brings it."""
    gpu = config["gpu"]
    toolkit = f"pip install 'cudakit[{'cu12' if str(gpu['driver_cuda']).startswith('12.') else 'cu13'}]'"
    for name, shown in (("nvrtc", "NVRTC"), ("nvjitlink", "nvJitLink"), ("headers", "headers")):
        if config[name]["problem"] is not None:
            yield {"what": f"{shown}: {config[name]['problem']}", "command": toolkit}
    if not config["extras"].get("compile", {"installed": True})["installed"]:
        command = toolkit if config["nvrtc"]["problem"] else "pip install 'cudakit[compile]'"
        yield {"what": "parser of CUDA C++: tree-sitter or its grammar is not installed", "command": command}
    if gpu["driver_cuda"] is not None and not gpu["devices"] and "does not start" in str(gpu["problem"]):
        yield {"what": f"GPU: {gpu['problem']}", "command": "nvidia-smi"}
    if gpu["devices"] and not any(config["packages"][name] for name in _CUPY):
        yield {"what": "CuPy: the arrays of a GPU are CuPy's", "command": toolkit}
    if (problem := config["cache"]["problem"]) is not None:
        is_size = "CUDAKIT_CACHE_BYTES" in problem
        command = "unset CUDAKIT_CACHE_BYTES" if is_size else "export CUDAKIT_CACHE_DIR=FOLDER"
        yield {"what": f"cache: {problem}", "command": command}
    if (problem := config["emulator"]["problem"]) is not None:
        is_set = config["emulator"]["machine"] != "auto"
        command = "unset CUDAKIT_MACHINE" if is_set else "pip install --force-reinstall 'cudakit[cpu]'"
        yield {"what": f"emulator: {problem}", "command": command}


def as_text(config: Mapping[str, Any]) -> str:
    """Return the configuration as lines for a terminal."""
    gpu, emulator, cache = config["gpu"], config["emulator"], config["cache"]
    size = f"{byte_size(cache['bytes'])} of at most {byte_size(cache['max_bytes'])}"
    parts: dict[str, list[tuple[str, str]]] = {
        "Versions": [
            ("cudakit", _joined(config["cudakit"], "version", "folder")),
            ("Python", _joined(config["python"], "version", "system", "executable")),
            *((name, version) for name, version in config["packages"].items() if version is not None),
        ],
        "Kernels run on": [
            *(("GPU", f"{device['name']}, {device['arch']}") for device in gpu["devices"]),
            *([("GPU", f"none: {gpu['problem']}")] if gpu["problem"] else []),
            *([("driver", _driver(gpu))] if gpu["driver_cuda"] else []),
            ("emulator", emulator["problem"] or f"as {emulator['arch']}; {_machine(emulator)}"),
        ],
        "Compiler": [
            ("NVRTC", _joined(config["nvrtc"], "version", "path")),
            *([("tile kernels", reason)] if (reason := config["nvrtc"]["tile_kernels"]) else []),
            ("nvJitLink", _joined(config["nvjitlink"], "version", "path")),
            *(("headers", folder) for folder in config["headers"]["folders"]),
            *([("headers", config["headers"]["problem"])] if config["headers"]["problem"] else []),
            ("tile assembler", _joined(config["tile_assembler"], "version", "path")),
        ],
        "Extras": [(name, _extra(name, extra, config["extras"])) for name, extra in config["extras"].items()],
        "Cache": [
            ("folder", cache["problem"] or cache["folder"] or "none: CUDAKIT_CACHE_DIR is empty"),
            *([("kernels", f"{cache['kernels']}, {size}")] if cache["folder"] and not cache["problem"] else []),
        ],
    }
    width = max(len(name) for rows in parts.values() for name, _ in rows)
    lines = []
    for title, rows in parts.items():
        lines += [title, *(f"  {name:<{width}}  {value}" for name, value in rows), ""]
    missing = [f"  {entry['what']}\n    {entry['command']}" for entry in config["missing"]]
    return "\n".join([*lines, "Missing", *(missing or ["  nothing"])])


def _joined(section: Section, *names: str) -> str:
    return ", ".join(str(section[name]) for name in (*names, "problem") if section[name] is not None)


def _driver(gpu: Section) -> str:
    return f"{gpu['driver'] or 'version unknown'}, for CUDA {gpu['driver_cuda']}"


def _machine(emulator: Section) -> str:
    """Describe in words how the emulator runs kernels: by NumPy or compiled. `emulator` is that section."""
    if emulator["llvmlite"] is None or emulator["machine"] == "numpy":
        return "all kernels run on NumPy"
    compiled = f"compiled for this CPU ({emulator['cpu']}) by llvmlite {emulator['llvmlite']}"
    if emulator["machine"] == "compiled":
        return f"all kernels are {compiled}"
    return f"short kernels run on NumPy, long ones are {compiled}"


def _extra(name: str, extra: Section, extras: Section) -> str:
    if extra["installed"]:
        return f"installed: {_PURPOSES[name]}"
    of_other_cuda = {"cu12": "cu13", "cu13": "cu12"}.get(name)
    if of_other_cuda in extras and extras[of_other_cuda]["installed"]:
        return f"not installed: {_PURPOSES[name]}; {of_other_cuda} takes its place"
    outside = ", ".join(requirement for requirement in extra["missing"] if "(" in requirement)
    needs = f"; it needs {outside}" if outside else ""
    return f"not installed: {_PURPOSES[name]}{needs}: pip install 'cudakit[{name}]'"
