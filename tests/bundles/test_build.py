"""Bundles that a SPEC lists: built, and used where there is no compiler."""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cuda import pathfinder

import cudakit as ck
from cudakit import cli
from cudakit.bundles.build import build
from cudakit.jit.bundle.file import CODE, BundleFile
from cudakit.jit.compile import nvrtc
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.source import headers
from cudakit.jit.source.closure import Closure
from cudakit.jit.specialise.specialise import Specialization

SCALE = """template <typename T>
__global__ void scale(T* x, T by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}
"""
SPEC = """
archs = ["sm_90"]
kernels = [
  {file = "scale.cu", name = "scale", arguments = ["float"]},
]
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "scale.cu").write_text(SCALE)
    path = tmp_path / "kernels.toml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def bundle(spec: Path) -> Path:
    path = spec.with_suffix(".ckb")
    assert build(spec, path) == 2  # machine code and PTX
    return path


def test_a_bundle_runs_and_names_what_it_lacks(bundle: Path, stream: Any, xp: Any) -> None:
    x = xp.ones(10, "f4")
    with ck.use_bundle(bundle, compile="never"):
        scale = ck.Kernel.from_file(bundle.with_name("scale.cu"))
        scale(stream, ck.cover(x.size), x, 2.0, x.size)
        with pytest.raises(ck.CompileError, match=r"no scale<double>.*\n  \{file = \"scale.cu\".*T = \"double\""):
            scale(stream, ck.cover(x.size), xp.ones(10), 2.0, x.size)
        with pytest.raises(ck.CompileError, match="nothing of the source"):
            ck.Kernel("__global__ void nothing_of_this() {}")
    stream.sync()
    assert x.tolist() == [2.0] * 10


def test_the_line_of_a_miss_adds_the_kernel(bundle: Path, spec: Path, stream: Any, xp: Any) -> None:
    with ck.use_bundle(bundle, compile="never"), pytest.raises(ck.CompileError) as raised:
        ck.Kernel.from_file(bundle.with_name("scale.cu"))(stream, ck.cover(1), xp.ones(1, "i4"), 2, 1)
    line = str(raised.value).splitlines()[-1]
    spec.write_text(SPEC.replace("kernels = [\n", f"kernels = [\n{line}\n"))
    build(spec, bundle)
    x = xp.ones(1, "i4")
    with ck.use_bundle(bundle, compile="never"):
        ck.Kernel.from_file(bundle.with_name("scale.cu"))(stream, ck.cover(1), x, 2, 1)
    stream.sync()
    assert x.tolist() == [2]


PROGRAM = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tree_sitter", "tree_sitter_cuda", "cupy") or name == "cuda.bindings.nvrtc":
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Without())
import numpy as np, cudakit as ck
x = np.ones(4, "f4")
scale = ck.Kernel.from_file(sys.argv[1], bundle=sys.argv[2])
scale(ck.emulator.stream(), ck.cover(4), x, 2.0, 4)
print(x)
"""


@pytest.mark.emulator
def test_a_process_without_compiler_and_parser(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", "")
    command = [sys.executable, "-c", PROGRAM, str(bundle.with_name("scale.cu")), str(bundle)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (ran.stdout, ran.stderr) == ("[2. 2. 2. 2.]\n", "")


@pytest.fixture
def bundle_alone(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a bundle where NVRTC is absent, as on a machine with ``cudakit[run]``."""

    def load(name: str) -> None:
        raise pathfinder.DynamicLibNotFoundError(name)

    monkeypatch.setattr(headers, "compiler_wheels", lambda: "")
    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", load)
    nvrtc.compiler_identity.cache_clear()
    yield bundle
    nvrtc.compiler_identity.cache_clear()


@pytest.mark.parametrize("is_own", [True, False], ids=["the kernel's own bundle", "a bundle of the process"])
def test_a_miss_without_a_compiler_names_the_line_and_the_compiler(
    bundle_alone: Path, monkeypatch: pytest.MonkeyPatch, stream: Any, xp: Any, is_own: bool
) -> None:
    bundle = bundle_alone
    with contextlib.nullcontext() if is_own else ck.use_bundle(bundle):
        own = bundle if is_own else None
        scale = ck.Kernel.from_file(bundle.with_name("scale.cu"), bundle=own)
        x = xp.ones(10, "f4")
        scale(stream, ck.cover(10), x, 2.0, 10)
        stream.sync()
        assert x.tolist() == [2.0] * 10
        with pytest.raises(ck.CompileError) as raised:
            scale(stream, ck.cover(10), xp.ones(10, "i4"), 2, 10)
        first, line = str(raised.value).splitlines()
        assert first.startswith(f"{bundle.with_name('scale.cu')}: kernels.ckb has no scale<int> for sm_")
        assert "there is no compiler here (NVRTC, CUDA's compiler, is not installed: pip install 'cudakit[" in first
        assert line == '  {file = "scale.cu", name = "scale", arguments = [{T = "int"}]},'
        with pytest.raises(ck.CompileError, match=r"kernels\.ckb has no .*there is no compiler here"):
            scale.prepare("double")
        monkeypatch.setitem(sys.modules, "tree_sitter", None)
        with pytest.raises(ck.CompileError, match=r"nothing of the source .*tree_sitter is not installed.*build the b"):
            ck.Kernel("__global__ void nothing_of_this_either() {}", bundle=own)
    # Without a bundle the message is of the compiler alone.
    with pytest.raises(ck.CompileError, match=r"^CUDA C\+\+ cannot be read here: the package tree_sitter is not"):
        ck.Kernel("__global__ void nothing_of_this_either() {}")
    alone = ck.Kernel.from_file(bundle.with_name("scale.cu"))
    with pytest.raises(ck.CompileError, match=r"^NVRTC, CUDA's compiler, is not installed"):
        alone(stream, ck.cover(10), xp.ones(10, "i4"), 2, 10)


AWKWARD = """#include <cassert>
#include <mine/by.cuh>
namespace { __device__ int hidden; }
static __device__ int more[4];
template <typename T> __global__ void k(T* x) {
    assert(x != nullptr);
    hidden = more[threadIdx.x & 3] += 1;
    x[0] = BY + hidden;
}
"""


@pytest.mark.slow
def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    """In other folders, with other times, hash seeds and caches: also of names that the compiler makes."""
    for number, folder in enumerate((tmp_path / "a", tmp_path / "b" / "deeper")):
        (folder / "include" / "mine").mkdir(parents=True)
        (folder / "include" / "mine" / "by.cuh").write_text("#define BY 3\n")
        (folder / "k.cu").write_text(AWKWARD)
        (folder / "kernels.toml").write_text(
            'archs = ["sm_80", "sm_90"]\noptions = {include_paths = ["include"]}\n'
            'kernels = [{file = "k.cu", product = {T = ["float", "double"]}}]\n'
        )
        os.utime(folder / "k.cu", (number * 1e9, number * 1e9))
        environment = {"CUDAKIT_CACHE_DIR": str(folder / "cache"), "PYTHONHASHSEED": str(number)}
        subprocess.run(
            [sys.executable, "-m", "cudakit", "bundle", "build", "kernels.toml" if number else "a/kernels.toml"],
            env={**os.environ, **environment},
            cwd=folder if number else tmp_path,
            check=True,
        )
    first = (tmp_path / "a" / "kernels.ckb").read_bytes()
    assert first == (tmp_path / "b" / "deeper" / "kernels.ckb").read_bytes()
    assert str(tmp_path).encode() not in first


def test_names_of_the_compiler_get_a_seed(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed is the same for the same source, and the user's own goes before it."""
    seeds: list[dict[str, Any]] = []

    def compiled(specialization: Specialization) -> tuple[Compiled, frozenset[Closure]]:
        seeds.append(dict(specialization.options.extra))
        code = b"f_INTERNAL_1" if len(seeds) % 2 else b"f"
        return Compiled(code, {"scale<float>": "f"}, target=specialization.target), frozenset()

    module = importlib.import_module("cudakit.bundles.build")
    monkeypatch.setattr(module, "compile_all", lambda specializations: None)
    monkeypatch.setattr(module, "compiled_here", compiled)
    for own in ({}, {}, {"frandom_seed": "mine"}):
        options = f'options = {{extra = {{frandom_seed = "{own["frandom_seed"]}"}}}}\n' if own else ""
        spec.write_text(options + SPEC)
        assert build(spec, spec.with_suffix(".ckb")) == 2
        bodies = {entry.body for entry in BundleFile(spec.with_suffix(".ckb")) if entry.category == CODE}
        assert bodies == {b"f"}
    before, after = seeds[::2], seeds[1::2]
    assert before == [{}] * 4 + [{"frandom_seed": "mine"}] * 2
    assert after[:4] == [after[0]] * 4
    assert after[0]["frandom_seed"]
    assert after[4:] == before[4:]


def test_the_command(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bundle", "build", str(spec)]) == 0
    assert f"Wrote 2 kernels to {spec.with_suffix('.ckb')}" in capsys.readouterr().out
    assert len(BundleFile(spec.with_suffix(".ckb"))) == 3
    spec.write_text("archs = []\n" + SPEC.partition("]")[2])
    assert cli.main(["bundle", "build", str(spec)]) != 0
    assert "is for no arch" in capsys.readouterr().err


HEADERS_PROGRAM = """
import sys
sys.modules.update(dict.fromkeys(("tree_sitter", "tree_sitter_cuda", "cuda", "nvidia")))
import numpy as np, cudakit as ck
P = np.dtype([("by", "f4"), ("n", "i4")])
x = np.ones(4, "f4")
stream = ck.emulator.stream()
ck.use_bundle("kernels.ckb", compile="never")
options = ck.CompileOptions(include_paths=["include"])
scale = ck.Kernel.from_file("scale.cu", options=options)
scale(stream, ck.cover(4), np.array((2, 4), P)[()], x)
print(x)
"""


@pytest.mark.emulator
def test_headers_are_not_needed_and_if_there_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a struct of a header decides how an argument is passed."""
    (tmp_path / "include" / "own").mkdir(parents=True)
    header = tmp_path / "include" / "own" / "p.cuh"
    header.write_text("struct P { float by; int n; };\n")
    (tmp_path / "scale.cu").write_text(
        "#include <own/p.cuh>\n__global__ void scale(P p, float* x) { if (threadIdx.x < p.n) x[threadIdx.x] *= p.by; }"
    )
    (tmp_path / "kernels.toml").write_text(
        'ptx = ["sm_90"]\noptions = {include_paths = ["include"]}\n'
        'kernels = [{file = "scale.cu", types = [[["by", "f4"], ["n", "i4"]], "f4"]}]\n'
    )
    build(tmp_path / "kernels.toml", tmp_path / "kernels.ckb")
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", "")

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "ignore", "-c", HEADERS_PROGRAM]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    for change in (lambda: None, header.unlink, header.parent.rmdir):
        change()
        assert run().stdout == "[2. 2. 2. 2.]\n", run().stderr
    header.parent.mkdir()
    header.write_text("struct P { float by; int n; int more; };\n")
    assert f"{header} is another header than that of the bundle" in run().stderr


SHARED = """
__device__ int calls;
template <typename T> __global__ void add(T* x) { x[0] += T(atomicAdd(&calls, 1)); }
"""


def test_instances_that_share_variables_are_in_one_code(tmp_path: Path, stream: Any, xp: Any) -> None:
    (tmp_path / "add.cu").write_text(SHARED)
    (tmp_path / "kernels.toml").write_text(
        f'archs = {[] if stream_is_emulated(stream) else [f"sm_{stream.device.arch}"]}\nptx = ["sm_80"]\n'
        'kernels = [{file = "add.cu", arguments = ["float", "int"]}]\n'
    )
    build(tmp_path / "kernels.toml", tmp_path / "kernels.ckb")
    x, y = xp.zeros(1, "f4"), xp.zeros(1, "i4")
    with ck.use_bundle(tmp_path / "kernels.ckb", compile="never"):
        module = ck.Module.from_file(tmp_path / "add.cu")
        module.prepare("add<float>", "add<int>")  # which has nothing to do
        for array in (x, y, x, y):
            module["add"](stream, ck.config(1, 1), array)
        stream.sync()
        assert (x.tolist(), y.tolist(), int(module.globals["calls"])) == ([2.0], [4], 4)


def stream_is_emulated(stream: Any) -> bool:
    return isinstance(stream, ck.emulator.EmulatedStream)


@pytest.mark.slow
def test_a_program_for_nvcc_runs_in_another_folder(tmp_path: Path, stream: Any, xp: Any) -> None:
    """Its device code names its file and headers in ``#line``."""
    for name in ("a", "b/deeper"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "by.h").write_text("#define BY 3\n")
        (folder / "program.cu").write_text(
            '#include <vector>\n#include "by.h"\n__global__ void twice(float* x) { x[0] *= BY; }\nint main() {}\n'
        )
    arch = "sm_80" if stream_is_emulated(stream) else f"sm_{stream.device.arch}"
    spec = tmp_path / "a" / "kernels.toml"
    spec.write_text(f'archs = "{arch}"\nkernels = [{{file = "program.cu", host_code = "skip"}}]\n')
    build(spec, tmp_path / "kernels.ckb")
    x = xp.ones(1, "f4")
    with ck.use_bundle(tmp_path / "kernels.ckb", compile="never"):
        twice = ck.Kernel.from_file(tmp_path / "b" / "deeper" / "program.cu", host_code="skip")
        twice(stream, ck.config(1, 1), x)
        stream.sync()
        assert x.tolist() == [3]
        (tmp_path / "b" / "deeper" / "by.h").write_text("#define BY 4\n")
        with pytest.raises(ck.CompileError):
            ck.Kernel.from_file(tmp_path / "b" / "deeper" / "program.cu", host_code="skip")(stream, ck.config(1, 1), x)
