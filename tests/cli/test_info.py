"""`ck.show_config` and ``cudakit info``: what they list, and that nothing missing or broken stops them."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cudakit as ck
from cudakit import cli, installation
from cudakit.errors import CompileError
from cudakit.jit.cache import cache as cache_module
from cudakit.jit.compile import nvrtc
from cudakit.jit.source import headers
from cudakit.streams import devices

#: The keys of each section: docs/command-line.md documents them.
KEYS = {
    "cudakit": "version folder problem",
    "python": "version implementation system executable problem",
    "gpu": "driver driver_cuda devices problem",
    "nvrtc": "version path tile_kernels problem",
    "nvjitlink": "version path problem",
    "tile_assembler": "version path problem",
    "headers": "folders missing problem",
    "cache": "folder kernels bytes max_bytes problem",
    "emulator": "arch machine llvmlite cpu problem",
}
PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"


@functools.cache
def version_of(package: str, look_up: Callable[[str], str] = importlib.metadata.version) -> str | None:
    """Version of an installed package; None where there is none. Each look-up reads all folders of the path."""
    try:
        return look_up(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@pytest.fixture(autouse=True)
def _versions_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if (found := version_of(package)) is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CUDAKIT_CACHE_BYTES", raising=False)
    monkeypatch.delenv("CUDAKIT_MACHINE", raising=False)
    monkeypatch.setattr(cache_module, "_caches", {})
    return tmp_path / "cache"


def raising(error: Exception) -> Callable[..., Any]:
    def raise_it(*arguments: object, **options: object) -> Any:
        raise error

    return raise_it


def shown() -> tuple[dict[str, Any], str]:
    """The configuration, with all of its keys, and its text."""
    config = ck.show_config("dicts")
    assert set(config) == {*KEYS, "packages", "extras", "missing"}
    assert all(set(config[section]) == set(keys.split()) for section, keys in KEYS.items())
    assert json.loads(json.dumps(config)) == config
    return config, installation.as_text(config)


def commands(config: dict[str, Any]) -> dict[str, str]:
    """The command for each missing thing, by the word before the colon."""
    return {entry["what"].partition(":")[0]: entry["command"] for entry in config["missing"]}


def test_an_nvrtc_that_compiles_no_tile_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import nvrtc as library

    monkeypatch.setattr(library, "nvrtcVersion", lambda: (0, 13, 0))
    config, text = shown()
    assert config["nvrtc"]["tile_kernels"].startswith("need NVRTC 13.5: ")
    assert re.search(r"tile kernels +need NVRTC 13\.5: .*cudakit cache import FILE", text)
    monkeypatch.setattr(library, "nvrtcVersion", lambda: (0, 13, 5))
    config, text = shown()
    assert config["nvrtc"]["tile_kernels"] is None
    assert "tile kernels " not in text


def test_here(own_cache: Path) -> None:
    config, text = shown()
    assert config["missing"] == []
    assert text.endswith("Missing\n  nothing")
    assert config["packages"]["numpy"] == importlib.metadata.version("numpy")
    assert config["cache"] == {
        "folder": str(own_cache), "kernels": 0, "bytes": 0, "max_bytes": 1 << 30, "problem": None
    }  # fmt: skip
    assert Path(config["nvrtc"]["path"]).is_file()
    assert config["nvrtc"]["version"].startswith(("12.", "13."))
    assert config["nvrtc"]["path"] in text
    assert all(folder in text for folder in config["headers"]["folders"])
    assert bool(config["gpu"]["devices"]) is ck.has_gpu()


def test_the_page_documents_every_key() -> None:
    rows = [line.split("|")[1:4] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    documented = {section.strip(" `"): keys for section, keys, _ in rows}
    assert set(KEYS) | {"packages", "extras", "missing"} <= set(documented)
    for section, keys in KEYS.items():
        assert {*keys.split()} - {"problem"} == {key.strip(" `") for key in documented[section].split(",")}, section


def test_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert ck.show_config() is None
    text = capsys.readouterr().out
    assert cli.main(["info"]) == 0
    assert capsys.readouterr().out == text
    assert cli.main(["info", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {name: document[name] for name in KEYS} == {name: ck.show_config("dicts")[name] for name in KEYS}
    assert document["status"] == 0
    with pytest.raises(ck.ArgumentError, match="mode is 'stdout' or 'dicts', got 'json'"):
        ck.show_config("json")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("owner", "name", "stand_in", "section", "problem"),
    [
        (nvrtc, "load_library", raising(CompileError("NVRTC is not here")), "nvrtc", "NVRTC is not here"),
        ("cuda.bindings.nvrtc", "nvrtcVersion", raising(OSError("damaged\n file")), "nvrtc", "damaged file"),
        ("cuda.bindings.nvjitlink", "version", raising(RuntimeError("symbol missing")), "nvjitlink", "symbol missing"),
        (headers, "toolkit_folders", lambda: (), "headers", "no headers of CUDA runtime, CCCL, cuRAND"),
        ("llvmlite.binding", "get_host_cpu_name", raising(OSError()), "emulator", "OSError"),
    ],
)
def test_what_is_missing_or_broken_is_named(
    owner: Any, name: str, stand_in: Any, section: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{owner}.{name}" if isinstance(owner, str) else f"{owner.__name__}.{name}", stand_in)
    config, text = shown()
    assert config[section]["problem"] == problem
    assert problem in text
    assert len(config["missing"]) in (1, 2)
    assert all(command.startswith("pip install") for command in commands(config).values())
    assert cli.main(["info"]) == 1


@pytest.mark.parametrize("error", ["CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "CUDA_ERROR_NO_DEVICE"])
def test_a_driver_that_refuses(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    monkeypatch.setattr(driver, "cuInit", lambda flags: (getattr(driver.CUresult, error),))
    monkeypatch.setattr(installation, "driver_version", lambda: (12, 9))
    config, text = shown()
    is_broken = error != "CUDA_ERROR_NO_DEVICE"
    assert ("the CUDA driver does not start: " + error in text) is is_broken
    assert commands(config) == ({"GPU": "nvidia-smi"} if is_broken else {})
    assert "for CUDA 12.9" in text


@pytest.mark.parametrize("error", [OSError("libcuda.so.1: invalid ELF header"), SystemError()])
def test_a_driver_that_is_damaged(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuda.bindings.driver.cuInit", raising(error))
    config, text = shown()
    assert config["gpu"]["problem"] in text
    assert config["gpu"]["problem"] == (str(error) or "SystemError")


def test_a_gpu_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    version = importlib.metadata.version
    limits = devices.Limits("H200", "sm_90", (9, 0), 1024, (1, 1, 1), (1, 1, 1), 1, 132, True)
    monkeypatch.setattr(driver, "cuInit", lambda flags: (driver.CUresult(0),))
    monkeypatch.setattr(devices, "device_count", lambda: 1)
    monkeypatch.setattr(devices, "limits", lambda number: limits)
    monkeypatch.setattr(installation, "driver_version", lambda: (12, 9))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version(name) if "cupy" not in name else 1 / 0)
    monkeypatch.setattr("cuda.core.system.get_kernel_mode_driver_version", lambda: (575, 51, 3))
    config, text = shown()
    assert config["gpu"]["devices"] == [{"name": "H200", "arch": "sm_90", "multiprocessors": 132}]
    assert commands(config) == {"CuPy": "pip install 'cudakit[cu12]'"}
    assert "H200, sm_90" in text
    assert "575.51.3, for CUDA 12.9" in text


@pytest.mark.parametrize(
    ("damage", "problem", "command"),
    [
        (lambda folder, patch: folder.touch(), "Not a directory", "export CUDAKIT_CACHE_DIR=FOLDER"),
        (lambda folder, patch: patch.setenv("CUDAKIT_CACHE_DIR", "~nobody-here/x"),
         "CUDAKIT_CACHE_DIR=", "export CUDAKIT_CACHE_DIR=FOLDER"),
        (lambda folder, patch: patch.setenv("CUDAKIT_CACHE_BYTES", "lots"), "'lots'", "unset CUDAKIT_CACHE_BYTES"),
        (lambda folder, patch: (folder / "v1").mkdir(parents=True, mode=0o777) or (folder / "v1").chmod(0o777),
         "can be written by others", "export CUDAKIT_CACHE_DIR=FOLDER"),
        (lambda folder, patch: patch.setattr(os, "scandir", raising(PermissionError(13, "Permission denied"))),
         "Permission denied", "export CUDAKIT_CACHE_DIR=FOLDER"),
        (lambda folder, patch: patch.setattr(os, "access", lambda path, mode: False),
         "is not writable", "export CUDAKIT_CACHE_DIR=FOLDER"),
    ],
    ids=["file", "no home", "size", "others", "unreadable", "unwritable"],
)  # fmt: skip
def test_a_cache_that_cannot_be_used(
    damage: Callable[[Path, pytest.MonkeyPatch], object],
    problem: str,
    command: str,
    own_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        damage(own_cache, patch)
        config, text = shown()
    assert problem in config["cache"]["problem"]
    assert config["cache"]["problem"] in text
    assert commands(config) == {"cache": command}


def test_no_cache_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", "")
    config, text = shown()
    assert config["cache"]["folder"] is None
    assert "none: CUDAKIT_CACHE_DIR is empty" in text
    assert config["missing"] == []


@pytest.mark.parametrize(
    ("machine", "words"),
    [("auto", "short kernels run on NumPy, long ones are compiled"), ("compiled", "all kernels are compiled"),
     ("numpy", "all kernels run on NumPy")],
)  # fmt: skip
def test_the_machine_of_the_emulator(machine: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDAKIT_MACHINE", machine)
    config, text = shown()
    assert config["emulator"]["machine"] == machine
    assert words in text


def test_a_machine_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDAKIT_MACHINE", "quick")
    config, text = shown()
    assert "got 'quick'" in text
    assert commands(config) == {"emulator": "unset CUDAKIT_MACHINE"}


def test_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"nvidia-cuda-nvrtc": "13.0.88", "cuda-bindings": "13.5.0", "cupy-cuda13x": "13.6.0"}
    requirements = [
        "numpy>=2",
        "tree-sitter>=0.23; extra == 'compile'",
        "cuda-core[cu12]; extra == 'cu12'",
        "cupy-cuda13x<14,>=13.6; extra == 'cu13'",
        "nvidia-cuda-nvrtc>=13.5; extra == 'tile'",
        "cuda-bindings>=13.5; extra == 'tile'",
        "z3-solver>=4.13; extra == 'prove'",
        "pytest>=8; extra == 'dev'",
    ]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: requirements)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: versions[name])
    config, text = shown()
    assert config["extras"] == {
        "compile": {"installed": False, "missing": ["tree-sitter>=0.23"]},
        "cu12": {"installed": False, "missing": ["cuda-core"]},
        "cu13": {"installed": True, "missing": []},
        "tile": {"installed": False, "missing": ["nvidia-cuda-nvrtc>=13.5 (13.0.88 is installed)"]},
        "prove": {"installed": False, "missing": ["z3-solver>=4.13"]},
    }
    assert "it needs nvidia-cuda-nvrtc>=13.5 (13.0.88 is installed): pip install 'cudakit[tile]'" in text
    assert "cu13 takes its place" in text
    assert commands(config)["parser of CUDA C++"] == "pip install 'cudakit[compile]'"


def test_the_extras_are_those_of_the_project() -> None:
    import tomllib

    project = tomllib.loads((PAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(installation._PURPOSES) == set(project["optional-dependencies"])


def test_a_checkout_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", raising(importlib.metadata.PackageNotFoundError("cudakit")))
    monkeypatch.setattr(importlib.metadata, "version", raising(importlib.metadata.PackageNotFoundError("cudakit")))
    config, text = shown()
    assert config["extras"] == {}
    assert "not installed" in text
    assert config["emulator"]["llvmlite"] is None


def test_a_driver_from_another_major_is_read_from_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    config, text = shown()
    assert "cuda.bindings" in config["gpu"]["problem"]
    assert config["gpu"]["problem"] in text
