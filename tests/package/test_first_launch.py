"""The modules that the first launch of a program loads, in a fresh process with stand-ins of cuda.core and driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import cold_launch

import cudakit as ck
from cudakit.bundles.build import build

pytestmark = pytest.mark.emulator
ROOT = Path(__file__).parents[2]
#: The modules from the text of a kernel to its launch; no other is needed where a bundle has the code.
FROM_A_BUNDLE = {
    "", "collector", "errors", "jit", "kernel", "places", "records", "streams", "system", "types",
    "jit.bundle", "jit.bundle.file", "jit.bundle.used",
    "jit.source", "jit.source.source",
    "jit.signature", "jit.signature.signature",
    "jit.specialise", "jit.specialise.deduce", "jit.specialise.options", "jit.specialise.specialise",
    "jit.specialise.spellings",
    "jit.compile", "jit.compile.compiled", "jit.compile.elf", "jit.compile.portable",
    "jit.cache", "jit.cache.bundled", "jit.cache.stages",
    "jit.load", "jit.load.config", "jit.load.image", "jit.load.limits", "jit.load.load",
    "jit.launch", "jit.launch.bind", "jit.launch.code_place", "jit.launch.dispatch", "jit.launch.launch",
    "jit.launch.tracebacks",
    "kernel.calls", "kernel.kernel", "kernel.unit",
    "streams.devices", "streams.order", "streams.process", "streams.segments", "streams.streams", "streams.witnesses",
    "types.arguments", "types.checked", "types.cpp", "types.scalars", "types.shown_signature", "types.structs",
}  # fmt: skip
#: What the cache on disk needs beside them, which has its code by compiler and headers.
FROM_DISK = FROM_A_BUNDLE - {"jit.compile.portable"} | {
    "jit.cache.cache", "jit.cache.compiling", "jit.cache.settings", "jit.cache.store", "jit.compile.nvrtc",
    "jit.source.closure", "jit.source.headers",
}  # fmt: skip
#: Bytes of the modules' sources: Python's versions have other bytecode.
MOST_BYTES = {"bundle": 530_000, "disk": 640_000}


def first_launch(bundle: Path | None) -> dict[str, Any]:
    """What a fresh process loads and launches."""
    program = Path(cold_launch.__file__)
    command = [sys.executable, program, "" if bundle is None else bundle]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize(("origin", "modules"), [("bundle", FROM_A_BUNDLE), ("disk", FROM_DISK)])
def test_a_first_launch_loads_only_what_it_needs(origin: str, modules: set[str], tmp_path: Path) -> None:
    bundle = None
    if origin == "bundle":
        text = json.dumps(cold_launch.TEXT)
        spec = f'archs = ["sm_90"]\nptx = []\nkernels = [{{text = {text}, name = "scale", arguments = ["float"]}}]\n'
        (tmp_path / "kernels.toml").write_text(spec)
        build(tmp_path / "kernels.toml", bundle := tmp_path / "kernels.ckb")
    else:
        ck.Kernel(cold_launch.TEXT)["float"].compile(arch="sm_90")
    document = first_launch(bundle)
    (launch,) = document["launches"]
    assert launch == [[4, 1, 1], [256, 1, 1], "_Z5scaleIfEvPT_S0_m", 0x7F0000000000, 0x40000000, 1024]
    loaded = {name.removeprefix("cudakit").removeprefix(".") for name in document["cudakit"]}
    assert loaded == modules
    assert sum(document["cudakit"].values()) < MOST_BYTES[origin]
    heavy = {"ast", "concurrent", "cupy", "importlib.metadata", "logging", "subprocess", "tempfile", "tree_sitter"}
    assert heavy.isdisjoint(document["others"])
