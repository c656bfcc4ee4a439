"""Linked kernels in bundles: with files, with texts, and kernels that launch kernels."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import cli
from cudakit.bundles.build import build
from cudakit.bundles.record import lacking, text_of
from cudakit.bundles.spec import instances_of
from cudakit.jit.bundle.file import BundleFile
from cudakit.jit.bundle.used import recording
from cudakit.jit.cache.bundling import line_of
from cudakit.jit.cache.cache import cache_at
from cudakit.jit.compile import linked, nvrtc
from cudakit.jit.compile.portable import base_of

NEGATE = "__device__ float shape(float v) { return -v; }"
FILES = {
    "helpers.cu": '#include "more.cuh"\nstatic __device__ float table[2] = {1, MORE};\n'
    "__device__ float shape(float v) { return v * v + table[1]; }\n",
    "more.cuh": "#define MORE 3\n",
    "s.cu": "__device__ float shape(float v);\n"
    "template <typename T> __global__ void apply(T* x) { x[threadIdx.x] = shape(x[threadIdx.x]); }\n",
    "parent.cu": "__global__ void child(float* x) { x[threadIdx.x] += 1; }\n"
    "__global__ void parent(float* x) { child<<<1, 4>>>(x); }\n",
}
SPEC = """
archs = ["{arch}"]
ptx = ["sm_80"]
kernels = [
  {{file = "s.cu", name = "apply", arguments = ["float"], options = {{link = ["helpers.cu"]}}}},
  {{file = "s.cu", name = "apply", arguments = ["float"], options = {{link = ["{negate}"], lto = true}}}},
  {{file = "parent.cu", name = "parent"}},
]
"""


def fill(folder: Path, arch: str = "sm_90") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "k.toml").write_text(SPEC.format(arch=arch, negate=NEGATE))
    return folder


def arch_of(stream: Any) -> str:
    return "sm_90" if isinstance(stream, ck.emulator.EmulatedStream) else f"sm_{stream.device.arch}"


def apply(folder: Path, link: Any, **more: Any) -> Any:
    return ck.Kernel.from_file(folder / "s.cu", "apply", options=ck.CompileOptions(link=[link], **more))


def test_linked_kernels_need_no_linker(
    tmp_path: Path, stream: Any, xp: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fill(tmp_path, arch_of(stream))
    assert build(folder / "k.toml", folder / "k.ckb") == 6
    assert cli.main(["bundle", "show", str(folder / "k.ckb")]) == 0
    shown = capsys.readouterr().out
    assert "apply<float>  <source>/helpers.cu <source>/more.cuh" in shown
    assert '"nvJitLink"' in shown

    def refuse(request: Any) -> None:
        raise AssertionError(f"{request.label} is compiled")

    monkeypatch.setattr(nvrtc.Request, "compile", refuse)
    monkeypatch.setattr(linked.Link, "run", refuse)
    with ck.use_bundle(folder / "k.ckb", compile="never"):
        for turn in range(2):
            x = xp.asarray([1, 2, 3, 4], "f4")
            apply(folder, folder / "helpers.cu")(stream, ck.config(1, 4), x)
            stream.sync()
            assert x.tolist() == [4, 7, 12, 19]
            apply(folder, NEGATE, lto=True)(stream, ck.config(1, 4), x)
            ck.Kernel.from_file(folder / "parent.cu", "parent")(stream, ck.config(1, 1), x)
            stream.sync()
            assert x.tolist() == [-3, -6, -11, -18]
            if not turn:  # what was linked is not needed
                (folder / "helpers.cu").unlink()
                (folder / "more.cuh").unlink()
        with pytest.raises(ck.CompileError, match="has no apply<float>"):
            apply(folder, NEGATE)(stream, ck.config(1, 4), x)
        with pytest.raises(ck.CompileError, match="has no apply<float>"):
            apply(folder, NEGATE.replace("-v", "v"), lto=True)(stream, ck.config(1, 4), x)
        (folder / "helpers.cu").write_text(FILES["helpers.cu"].replace("v * v", "v"))
        with pytest.raises(ck.CompileError, match=r"has apply<float> with another .*helpers\.cu"):
            apply(folder, folder / "helpers.cu")(stream, ck.config(1, 4), x)


@pytest.mark.emulator
def test_files_outside_of_the_folders_stay(tmp_path: Path) -> None:
    folder = fill(tmp_path / "a")
    shutil.copy(folder / "helpers.cu", tmp_path)
    shutil.copy(folder / "more.cuh", tmp_path)
    (folder / "k.toml").write_text(
        'ptx = ["sm_80"]\nkernels = [{file = "s.cu", arguments = ["float"], options = {link = ["../helpers.cu"]}}]\n'
    )
    with pytest.raises(ck.CudakitError, match=r"apply<float> depends on files that other machines may not have"):
        build(folder / "k.toml", folder / "k.ckb")


@pytest.mark.slow
@pytest.mark.emulator
def test_two_builds_of_linked_kernels_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a static variable, whose name the compiler makes of the process."""
    contents = []
    for number, name in enumerate(("a", "b/deeper")):
        monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(tmp_path / f"cache{number}"))
        folder = fill(tmp_path / name)
        build(folder / "k.toml", folder / "k.ckb")
        contents.append((folder / "k.ckb").read_bytes())
    assert contents[0] == contents[1]


@pytest.mark.emulator
def test_a_recorded_spec_has_what_is_linked(tmp_path: Path) -> None:
    folder, stream = fill(tmp_path), ck.emulator.stream()
    x = np.arange(4, dtype="f4")
    with recording() as uses:
        apply(folder, folder / "helpers.cu")(stream, ck.config(1, 4), x)
        apply(folder, NEGATE)(stream, ck.config(1, 4), x)
    text, left = text_of(uses, folder, ["sm_90"])
    assert left == []
    assert 'options = {link = ["helpers.cu"]}' in text
    assert NEGATE in text
    (folder / "recorded.toml").write_text(text)
    assert lacking(uses, folder / "recorded.toml") == []


@pytest.mark.emulator
def test_a_cache_exports_linked_code(tmp_path: Path) -> None:
    folder = fill(tmp_path)
    kernel = apply(folder, folder / "helpers.cu", cache=folder / "cache")
    kernel["float"].compile(arch="sm_90", target="cubin")
    path = folder / "cache.ckb"
    _, alone = cache_at(str(folder / "cache")).export_to(path)
    assert [name for name in alone if "apply<float>" in name] == []
    headers = [entry.header for entry in BundleFile(path) if entry.header.get("label") == "apply<float>"]
    # A part of it is no code that runs.
    linked_files = {header["target"]: [name for name, _ in header["headers"][0]] for header in headers}
    assert linked_files == {"object": [], "cubin": ["<source>/helpers.cu", "<source>/more.cuh"]}


@pytest.mark.emulator
def test_a_line_of_a_miss_has_the_options(tmp_path: Path) -> None:
    folder = fill(tmp_path)
    options = ck.CompileOptions(fast_math=True, defines={"N": 3}, max_registers=32)
    kernel = ck.Kernel.from_file(folder / "parent.cu", "child", options=options)
    line = line_of(kernel.specialization(arch="sm_90"))
    expected = 'options = {fast_math = true, max_registers = 32, defines = {N = "3"}}'
    assert line.startswith('{file = "parent.cu", name = "child", options = {')
    assert sorted(line.partition("options = {")[2].rstrip("},").split(", ")) == sorted(
        expected.partition("options = {")[2].rstrip("}").split(", ")
    )
    (row,) = tomllib.loads(f"kernels = [{line}]")["kernels"]
    (instance,) = instances_of("", row, {"ptx": "sm_90"}, folder)
    assert base_of(instance.kernel.specialization(arch="sm_90")) == base_of(kernel.specialization(arch="sm_90"))
