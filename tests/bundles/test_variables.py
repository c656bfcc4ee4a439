"""Variables of modules, and structs as arguments, from a bundle where nothing may be compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.bundles.build import build
from cudakit.jit.bundle.file import CODE, BundleFile
from cudakit.jit.compile import nvrtc

ITEM = np.dtype([("by", "f4"), ("n", "i4"), ("more", "f8", (2,))], align=True)
OUTER = np.dtype([("item", ITEM), ("tag", "u1")], align=True)
TEXT = """
struct Item { float by; int n; double more[2]; };
struct Outer { Item item; unsigned char tag; };
__constant__ float factor = 2.0f;
__device__ Outer outer[2];
__device__ int calls;
__global__ void scale(float* x, Item item) {
    if (threadIdx.x < item.n) x[threadIdx.x] *= item.by * factor + outer[1].tag;
    if (threadIdx.x == 0) calls += 1;
}
template <typename T> __global__ void of(const Outer* p, T* x) { x[0] = p[0].item.by + calls; calls += 10; }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "v.cu").write_text(TEXT)
    return tmp_path


def built(folder: Path, stream: Any, rows: str) -> Path:
    path = folder / "kernels.ckb"
    archs = [] if isinstance(stream, ck.emulator.EmulatedStream) else [f"sm_{stream.device.arch}"]
    (folder / "kernels.toml").write_text(f'archs = {archs}\nptx = ["sm_80"]\nkernels = [\n{rows}\n]\n')
    build(folder / "kernels.toml", path)
    return path


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile(request: nvrtc.Request) -> None:
        raise AssertionError(f"{request.label} is compiled")

    monkeypatch.setattr(nvrtc.Request, "compile", compile)


def test_variables_and_structs(folder: Path, stream: Any, xp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of the misses are a SPEC that has no miss."""
    rows = ['{file = "v.cu", name = "scale"},']
    x, item = xp.ones(4, "f4"), np.zeros((), ITEM)
    item["by"], item["n"] = 3, 3
    p = np.zeros(1, OUTER)
    p["item"]["by"] = 7
    y = xp.zeros(1, "f8")
    for turn in range(3):
        folder = folder / f"{turn}"  # a module of its own
        folder.mkdir()
        (folder / "v.cu").write_text(TEXT)
        path = built(folder, stream, "\n".join(rows))
        with ck.use_bundle(path, compile="never"):
            module = ck.Module.from_file(folder / "v.cu")
            assert float(module.globals["factor"]) == 2  # before any kernel is called
            assert module.globals["outer"].nbytes == 2 * OUTER.itemsize
            if turn < 2:
                name, *arguments = (("of", ck.In(p), y), ("scale", x, item[()]))[turn]
                with pytest.raises(ck.CompileError, match=rf"has no {name}.*\n  \{{file") as raised:
                    module[name](stream, ck.config(1, 4), *arguments)
                rows.append(str(raised.value).splitlines()[-1])
                continue
            outer = np.zeros(2, OUTER)
            outer["tag"] = (9, 1)
            with pytest.raises(ck.CompileError, match=r"outer \(Outer\).*compile='never' forbids.*view\(np.uint8\)"):
                module.globals["outer"] = outer
            module.globals["outer"] = outer.view(np.uint8)
            module.globals["factor"] = 5
            module["scale"](stream, ck.config(1, 4), x, item[()])
            module["of"](stream, ck.config(1, 1), ck.In(p), y)
            stream.sync()
            assert x.tolist() == [16, 16, 16, 1]
            assert y.tolist() == [8]
            assert int(module.globals["calls"]) == 11
            assert module.globals["outer"].tobytes()[-8] == 1


@pytest.mark.emulator
def test_code_of_variables_alone_is_that_of_their_kernels(folder: Path) -> None:
    stream = ck.emulator.stream()
    path = built(folder, stream, '{file = "v.cu", name = "scale"},\n{file = "v.cu", name = "of", arguments = ["int"]},')
    codes = [entry for entry in BundleFile(path) if entry.category == CODE]
    assert len(codes) == 3
    assert len({entry.body for entry in codes}) == 1
    lowered = {name for name in codes[0].header["lowered"] if not name.startswith("&")}
    assert {"scale", "of<int>"} <= lowered


@pytest.mark.emulator
@pytest.mark.usefixtures("no_compiler")
def test_a_line_of_a_miss_has_the_layouts(folder: Path) -> None:
    (folder / "kernels.ckb").write_bytes(b"")
    from cudakit.jit.bundle.file import write
    from cudakit.jit.cache import bundling
    from cudakit.jit.signature.reader import parse
    from cudakit.jit.signature.signature import declarations_key

    kernel = ck.Kernel.from_file(folder / "v.cu", "scale")
    declarations = bundling.signature(declarations_key(kernel.source.digest), parse(TEXT).to_json().encode())
    write(folder / "kernels.ckb", [declarations], {"targets": []})
    with ck.use_bundle(folder / "kernels.ckb", compile="never"):
        kernel = ck.Kernel.from_file(folder / "v.cu", "scale")
        with pytest.raises(ck.CompileError) as raised:
            kernel(ck.emulator.stream(), ck.config(1, 1), np.ones(1, "f4"), np.zeros((), ITEM)[()])
    assert str(raised.value).endswith(
        '{file = "v.cu", name = "scale", types = ["", {names = ["by", "n", "more"], '
        'formats = ["<f4", "<i4", ["<f8", [2]]], offsets = [0, 4, 8], itemsize = 24, aligned = true}]},'
    )
