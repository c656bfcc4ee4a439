"""Tile kernels in bundles: machine code for GPUs, and Tile IR, which the emulator runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tiles import HEAD, VIEW, needs_tiles, why_no_assembler

import cudakit as ck
from cudakit.bundles.build import build
from cudakit.jit.bundle.file import CODE, BundleFile
from cudakit.jit.compile import nvrtc

TRIPLE = f"""{HEAD}{VIEW}
template <typename T> __tile_global__ void triple(T* __restrict__ x, int n) {{
    auto i = ct::bid().x;
    tiles_of<16>(x, n).store_masked(tiles_of<16>(x, n).load_masked(i) * T(3), i);
}}
"""


def built(folder: Path, archs: str) -> Path:
    (folder / "triple.cu").write_text(TRIPLE)
    (folder / "k.toml").write_text(
        f'{archs}\nptx = ["sm_80"]\nkernels = [{{file = "triple.cu", name = "triple", arguments = ["float"]}}]\n'
    )
    build(folder / "k.toml", folder / "k.ckb")
    return folder / "k.ckb"


@pytest.mark.emulator
def test_tile_ir_runs_on_the_emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_tiles()
    path = built(tmp_path, "")
    assert [entry.header["target"] for entry in BundleFile(path) if entry.category == CODE] == ["tileir"]

    def refuse(request: Any) -> None:
        raise AssertionError(f"{request.label} is compiled")

    monkeypatch.setattr(nvrtc.Request, "compile", refuse)
    with ck.use_bundle(path, compile="never"):
        for arch in ("sm_80", "sm_100"):  # Tile IR is for later devices too
            x = np.arange(50, dtype="f4")
            ck.Kernel.from_file(tmp_path / "triple.cu")(ck.emulator.stream(arch=arch), ck.config(4), x, 50)
            assert np.array_equal(x, 3 * np.arange(50))
        kernel = ck.Kernel.from_file(tmp_path / "triple.cu")
        with pytest.raises(ck.CompileError, match=r"no triple<int> for sm_80 \(tileir\)"):
            kernel(ck.emulator.stream(arch="sm_80"), ck.config(4), np.arange(50, dtype="i4"), 50)


@pytest.mark.slow
def test_tiles_for_both_places(tmp_path: Path, stream: Any, xp: Any) -> None:
    if why := why_no_assembler():
        pytest.skip(why)
    is_emulated = isinstance(stream, ck.emulator.EmulatedStream)
    path = built(tmp_path, f'archs = ["{"sm_90" if is_emulated else f"sm_{stream.device.arch}"}"]')
    targets = sorted(entry.header["target"] for entry in BundleFile(path) if entry.category == CODE)
    assert targets == ["cubin", "tileir"]
    x = xp.arange(50, dtype="f4")
    with ck.use_bundle(path, compile="never"):
        ck.Kernel.from_file(tmp_path / "triple.cu")(stream, ck.config(4), x, 50)
        stream.sync()
    assert x.tolist() == [3 * n for n in range(50)]
