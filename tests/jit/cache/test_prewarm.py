"""Prewarming: workers compile, and run nothing of the folder that they happen to be started in."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.caches import requests
from support.tiers import thinned

import cudakit as ck

PROGRAM = """
import cudakit as ck, numpy as np
from cudakit.jit.cache.cache import default_cache
text = '#include "v.h"\\ntemplate <class T> __global__ void k(T* x) { *x = V; }'
kernel = ck.Kernel(text, options=ck.CompileOptions(include_paths=[INCLUDE]))
kernel.prepare(np.float32, np.float64, arch="sm_90")
info = default_cache().info()
kernel[np.float32].compile(arch="sm_90")
print(info.entries, default_cache().info().misses)
"""


def test_nothing_of_the_working_directory_runs_and_what_was_read_is_known(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "app" / "v.h").write_text("#define V 1\n")
    (tmp_path / "app" / "app.py").write_text(PROGRAM.replace("INCLUDE", repr(str(tmp_path / "app"))))
    planted = "import os\nopen(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'ran'), 'a').write(__name__)\n"
    for name in ("pickle", "os", "json", "sitecustomize", "usercustomize", "numpy", "cudakit", "keys", "cuda"):
        (here / f"{name}.py").write_text(planted)
    (here / "v.h").write_text("#define V 2\n")
    environment = {**os.environ, "CUDAKIT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "app" / "app.py")], cwd=here, env=environment, capture_output=True, text=True
    )
    assert (done.stdout.split(), done.stderr) == (["2", "0"], "")
    assert not (here / "ran").exists()


def test_a_package_that_is_imported_from_the_working_directory_works(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    # What the package needs may be on the path too; the package itself is found in the working directory alone.
    others = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and Path(entry) != root]
    environment = {
        **os.environ,
        "CUDAKIT_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(others),
    }
    (tmp_path / "v.h").write_text("#define V 1\n")
    program = PROGRAM.replace("INCLUDE", repr(str(tmp_path)))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout.split(), done.stderr) == (["2", "0"], "")


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_cache")
def test_what_workers_compile_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    kernel = ck.Kernel("template <class T> __global__ void prewarmed_and_logged(T* x) { *x = 1; }")
    with caplog.at_level("INFO", logger="cudakit"):
        kernel.prepare(np.float32, np.float64, arch="sm_90")
    told = sorted(message.rpartition("<")[2] for message in caplog.messages)
    assert [message.partition(" bytes")[0].rstrip("0123456789") for message in told] == [
        "double>: compiled in another process: cubin, ",
        "float>: compiled in another process: cubin, ",
    ]


def compiles() -> int:
    return requests()["miss"]


@pytest.mark.usefixtures("fresh_cache")
def test_one_kernel_is_compiled_ahead_without_another_process() -> None:
    ck.prewarm([ck.Kernel("__global__ void alone(int* x) { *x = 1; }")], arch="sm_90")
    assert compiles() == 1
    with pytest.raises(ck.CompileError):
        ck.prewarm([ck.Kernel("__global__ void alone(int* x) { *x = nothing; }")], arch="sm_90")


KINDS = {
    "template": "template <class T> __global__ void k(T* x) { *x = T(NUMBER); }",
    "variables": "__device__ int n; template <class T> __global__ void k(T* x) { *x = T(NUMBER + n); }",
    "header": "#include <cuda/std/limits>\ntemplate <class T> __global__ void k(T* x) { *x = T(NUMBER); }",
    "launches": "__global__ void c() {} template <class T> __global__ void k(T* x) { *x = NUMBER; c<<<1, 1>>>(); }",
}


@pytest.mark.parametrize("kind", thinned(list(KINDS), 2))
@pytest.mark.parametrize(
    "ahead",
    [
        lambda kernel: kernel.prepare(np.float32),
        lambda kernel: ck.prewarm([kernel[np.float32]]),
        lambda kernel: kernel.module.prepare("k<float>"),
        lambda kernel: kernel[np.float32].ptx() if not ck.has_gpu() else kernel[np.float32].compile(),
        lambda kernel: kernel[np.float32].compile(),
    ],
)
def test_what_is_compiled_ahead_is_what_runs(ahead: Any, kind: str, request: pytest.FixtureRequest) -> None:
    text = KINDS[kind].replace("NUMBER", str(zlib.crc32(request.node.nodeid.encode()) % 1_000_000))
    kernel, stream = ck.Kernel(text, "k"), ck.stream() if ck.has_gpu() else ck.emulator.stream()
    ahead(kernel)
    before = compiles()
    with ck.using(stream) as xp:
        x = xp.zeros(1, "f4")
        kernel(stream, ck.config(1, 1), x)
        stream.sync()
        assert x[0] > 0
    assert compiles() == before


@pytest.mark.emulator
def test_an_own_arch_is_prepared_for_the_emulator_of_it() -> None:
    kernel = ck.Kernel("__global__ void own_arch(int* x) { *x = __CUDA_ARCH__; }", arch="sm_100a")
    kernel.prepare()
    before, x = compiles(), np.zeros(1, "i4")
    kernel(ck.emulator.stream("sm_100"), ck.config(1, 1), x)
    assert (x[0], compiles()) == (1000, before)


@pytest.mark.emulator
def test_ptx_is_that_of_the_emulator_where_no_arch_is_named() -> None:
    kernel = ck.Kernel("__global__ void shown_ptx(int* x) { *x = 3; }")
    assert ".target sm_90" in kernel.ptx()
    assert ".target sm_80" in kernel.ptx(arch="sm_80")
    assert ".loc" in kernel.ptx(), "the emulator names lines"
    assert ".loc" not in kernel.ptx(arch="sm_90")
    x = np.zeros(1, "i4")
    before = compiles()
    kernel(ck.emulator.stream(), ck.config(1, 1), x)
    assert kernel.ptx() == kernel.ptx()
    assert compiles() == before


def test_several_archs() -> None:
    kernel = ck.Kernel("__global__ void several_archs(int* x) { *x = 3; }")
    with pytest.raises(ck.ArgumentError, match=r"archs are several, .*'sm_80'"):
        ck.prewarm([kernel], archs="sm_80")
    with pytest.raises(ck.TemplateError, match="'x'"):
        ck.prewarm([kernel], archs=["sm_80", "x"])
    before = compiles()
    ck.prewarm([kernel], archs=iter(["sm_80", "sm_90"]), arch="sm_75", workers=1)
    after = compiles()
    assert after <= before + 3
    for arch in ("sm_75", "sm_80", "sm_90"):
        kernel.compile(arch=arch)
    assert compiles() == after
