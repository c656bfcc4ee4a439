"""Tile kernels that are wrong, wrongly called, or where they cannot run: each error says what it is and what to do."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.places import to_host
from support.tiers import slow, thinned
from support.tiles import HEAD, kernel, needs_compiler, needs_tiles, why_no_assembler

import cudakit as ck
from cudakit.jit.cache.cache import cache_at
from cudakit.jit.compile import assemble, nvrtc, worker
from cudakit.jit.load import load
from cudakit.jit.load.image import DeviceImage
from cudakit.jit.source import headers
from cudakit.streams import devices


def tileir(made: Any) -> Any:
    return made.compile(arch="sm_90", target="tileir")


# ── what the compiler refuses ──

ZEROS = "auto a = ct::zeros<ct::tile<{}, ct::shape<16, 16>>>(); auto b = ct::zeros<ct::tile<{}, ct::shape<16, 16>>>();"


@pytest.mark.parametrize(
    ("body", "hint"),
    thinned(
        [
            ("tiles_of<192>(x, n).load_masked(0);", "powers of two, .* here they are 192"),
            ("ct::zeros<ct::tile<float, ct::shape<8192, 4096>>>();", "powers of two, and have at most 2.24"),
            (f"{ZEROS.format('float', 'double')} ct::mma(a, b, a);", "a product takes two tiles of one type"),
            (f"{ZEROS.format('__nv_bfloat16', 'float')} ct::mma(a, a, a);", "float .bfloat16, tf32, float."),
            ("auto v = tiles_of<4>(x, n); v.store(v.load(0) * 2.0, 0);", "element types are not mixed"),
            (f"{ZEROS.format('double', 'float')} tiles_of<16>(x, n).store(ct::sum(a, 0_ic), 0);", "not mixed"),
            ("for (auto i : ct::irange(ct::bid().x, n, 1)) x[i] = 1;", "irange takes numbers of one type"),
            ("n = ct::assume_divisible(2.5f, 8_ic);", "assume_divisible and assume_bounded take integers"),
            ("x[threadIdx.x] = 1;", "bid.. says which block it is"),
            ("x[0] = 1; __syncthreads();", "tile code has no threads"),
            ("__shared__ float s[4]; x[0] = s[0];", "shared memory is the compiler's choice"),
            ("x[0] = of_threads(n);", "put __tile__ before it"),
            ("x[0] = of_device;", "put __tile__ before|have __tile__ before them"),
            ("x[0] = calls_itself(n);", "none may call itself"),
            ('asm("mov.b32 r, r;"); x[0] = 1;', "asm statement is unsupported in tile code"),
            ("again: x[0] = 1; goto again;", "goto statement is unsupported in tile code"),
            ("x[0] = expf(x[1]);", "non-tile function 'expf' .* use cuda::tiles' own"),
            ("x[0] = max(n, 3);", "non-tile function 'max'"),
        ],
        3,
        several=True,
    ),
)
def test_what_the_compiler_refuses(body: str, hint: str) -> None:
    needs_compiler()
    others = (
        "__device__ int of_threads(int n) { return n; }\n__device__ int of_device = 1;\n"
        "__tile__ int calls_itself(int n) { return n < 2 ? n : calls_itself(n - 1); }"
    )
    with pytest.raises(ck.CompileError, match=hint) as caught:
        tileir(kernel(body, template=others))
    assert "/<kernel text>" not in str(caught.value)


@pytest.mark.parametrize(
    "parameter", ["S s", *slow("cuda::std::array<int, 2> s", "ct::tensor_span<float, ct::extents<int, 4>> s")]
)
def test_parameters_are_numbers_and_pointers(parameter: str) -> None:
    needs_compiler()
    more = "#include <cuda/std/array>\n" * ("array" in parameter) + "struct S { int a; };"
    with pytest.raises(ck.CompileError, match="hint: a tile kernel takes numbers, pointers and cudakit::tensor"):
        tileir(kernel("", f"float* x, {parameter}", more))


@pytest.mark.parametrize("attribute", ["__launch_bounds__(128)", "__cluster_dims__(2)"])
def test_attributes_of_threads(attribute: str) -> None:
    needs_compiler()
    with pytest.raises(ck.CompileError, match="tile kernels have hints in its place"):
        tileir(ck.Kernel(f"{HEAD}__tile_global__ void {attribute} k(float* x) {{ x[0] = 1; }}"))


def test_what_a_text_must_begin_with() -> None:
    needs_compiler()
    text = "__tile_global__ void k(float* x) { x[cuda::tiles::bid().x] = 1; }"
    with pytest.raises(ck.CompileError, match=r'tile code begins with #include "cuda_tile\.h"'):
        tileir(ck.Kernel(text))
    with pytest.raises(ck.CompileError, match=r"tile kernels are C\+\+20"):
        tileir(ck.Kernel(HEAD + text, options=ck.CompileOptions(std="c++14")))


def test_lines_are_those_of_this_file() -> None:
    needs_compiler()
    with pytest.raises(ck.CompileError) as caught:
        tileir(
            ck.Kernel("""
            #include "cuda_tile.h"
            __tile_global__ void k(float* x) {
                x[0] = expf(x[1]);  // this line
            }""")
        )
    line = 1 + next(n for n, text in enumerate(Path(__file__).read_text().splitlines()) if "// this line" in text)
    assert f"{__file__}:{line}: error: Cannot invoke non-tile function 'expf'" in str(caught.value)


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        ("num_cta_per_cga=2", "unrecognized tile optimization hint .num_cta_per_cga. will be ignored"),
        ("num_worker_warps_per_cta=3", "Value must be a power of two between 1 and 32"),
        ("occupancy=99", "Value must be an integer between 1 and 32"),
    ],
)
def test_hints_that_are_left_out_of_account_are_told(hint: str, message: str, tmp_path: Path) -> None:
    needs_compiler()
    options = ck.CompileOptions(cache=tmp_path)
    text = f"{HEAD}[[cutile::hint(0, {hint})]]\n__tile_global__ void k(float* x) {{ x[0] = 1; }}"
    with pytest.warns(ck.CompileWarning, match=message):
        tileir(ck.Kernel(text, options=options))


# ── calls ──


def test_grids(stream: Any, xp: Any) -> None:
    needs_tiles()
    x, one = xp.zeros(100, "f4"), kernel("x[0] = 1;")
    for config, message in (
        (lambda: ck.config((1, 70_000)), r"grid\.y is 70000, over the limit 65535"),
        (lambda: ck.config((1, 1, 1, 1)), "one to three numbers"),
        (lambda: ck.config(-1), "0 or more"),
        (lambda: ck.config(1.5), "whole numbers"),  # type: ignore[arg-type]
        (lambda: ck.config(4, cluster=2), "num_cta_in_cga"),
        (lambda: ck.config(4, cooperative=True), "the compiler's choice"),
        (lambda: ck.config(4, shared_bytes=1024), "the compiler's choice"),
        (lambda: ck.config(4, 128), "a tile kernel has no block of threads"),
        (lambda: ck.cover(100, block=32), "covers a shape with tiles"),
        (lambda: ck.cover((4, 4, 4, 4), tile=(2, 2, 2, 2)), "one to three extents"),
        (lambda: ck.cover((4, 4), tile=4), "an extent for each"),
    ):
        with pytest.raises(ck.LaunchError, match=message):
            one(stream, config(), x, 100)


def test_a_grid_that_is_too_small_leaves_elements_and_cover_none(stream: Any, xp: Any) -> None:
    """Nothing says how many tiles a kernel needs: one may loop over them, or be for a part of an array."""
    needs_tiles()
    mark = kernel("auto v = tiles_of<16>(x, n); int i = ct::bid().x; v.store_masked(v.load_masked(i) + 1.f, i);")
    x = xp.zeros(100, "f4")
    mark(stream, ck.config(3), x, 100)
    assert to_host(x).sum() == 48
    x[...] = 0
    mark(stream, ck.cover(100, tile=16), x, 100)
    assert (to_host(x) == 1).all()


def test_promises_of_raw_addresses(stream: Any, xp: Any) -> None:
    needs_tiles()
    aligned, x = kernel("x = ct::assume_aligned(x, 16_ic); x[0] = n;"), xp.zeros(64, "f4")
    first = x.data.ptr if hasattr(x.data, "ptr") else x.ctypes.data
    for _ in range(2):
        if xp is not np:  # the emulator knows no memory but arrays
            aligned(stream, ck.config(1), ctypes.c_void_p(first), 3)
        with pytest.raises(ck.ArgumentError, match="address must be a multiple of 16 bytes"):
            aligned(stream, ck.config(1), ctypes.c_void_p(first + 4), 3)
    stream.sync()
    assert to_host(x)[0] == (0 if xp is np else 3)


@pytest.mark.parametrize("kind", [int, np.int32, np.int64, np.uint8])
def test_promises_of_numbers_hold_for_each_kind_of_them(stream: Any, xp: Any, kind: Any) -> None:
    needs_tiles()
    even, x = kernel("n = ct::assume_bounded(ct::assume_divisible(n, 2_ic), 2_ic, 8_ic); x[0] = n;"), xp.zeros(64, "f4")
    for _ in range(2):
        even(stream, ck.config(1), x, kind(4))
        for wrong, told in ((5, "a multiple of 2"), (0, "at least 2"), (10, "at most 8")):
            with pytest.raises(ck.ArgumentError, match=told):
                even(stream, ck.config(1), x, kind(wrong))
    stream.sync()


# ── toolchains ──

FAKE = """#!{python}
import sys, time
{body}
"""


@pytest.fixture
def toolchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes a folder of a compiler's programs the only one there is."""
    root = tmp_path / "site"
    monkeypatch.setattr(headers, "wheel_roots", lambda: (root,))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path / "none"))

    def make(*files: str, body: str = "sys.exit(5)") -> None:
        for name in files:
            path = root / "cu13" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(FAKE.format(python=sys.executable, body=body))
            path.chmod(0o755)

    assemble.assembler.cache_clear()
    yield make
    assemble.assembler.cache_clear()


TILEIRAS, NVVM, PTXAS = "bin/tileiras", "nvvm/lib64/libnvvm.so", "bin/ptxas"


@pytest.mark.skipif(os.name == "nt", reason="programs are scripts here")
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), r"tile assembler \(tileiras\) is not installed: pip install 'cudakit\[cu13,tile\]'"),
        ((TILEIRAS, PTXAS), "needs libnvvm beside it: pip install"),
        ((TILEIRAS, NVVM), "needs ptxas beside it, or on the PATH: pip install"),
    ],
)
def test_parts_that_are_missing(files: tuple[str, ...], message: str, toolchain: Callable[..., None]) -> None:
    toolchain(*files)
    with pytest.raises(ck.CompileError, match=message):
        assemble.assembler()


def test_parts_of_several_versions(toolchain: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain(TILEIRAS, NVVM, PTXAS)
    monkeypatch.setattr(headers, "in_wheel", lambda path: True)
    versions = {"nvidia_cuda_tileiras": "13.5.37", "nvidia_nvvm": "13.4.1", "nvidia_cuda_nvcc": "13.5.2"}
    monkeypatch.setattr(
        headers, "wheel_versions", lambda prefix: f"{prefix}-{versions[prefix]}" if prefix in versions else ""
    )
    with pytest.raises(ck.CompileError, match=r"different versions, .*nvidia_nvvm-13\.4\.1.* --upgrade"):
        assemble.assembler()


def assembled(tmp_path: Path, body: str = "x[0] = 1;") -> None:
    made = kernel(body).with_options(cache=tmp_path / "cache")
    tileir(made)
    made.compile(arch="sm_90", target="cubin")


@pytest.mark.skipif(os.name == "nt", reason="programs are scripts here")
@pytest.mark.parametrize("body", ["sys.exit(5)", "print('error: failed to compile Tile IR program'); sys.exit(5)", ""])
def test_an_assembler_that_fails_and_says_nothing(body: str, toolchain: Callable[..., None], tmp_path: Path) -> None:
    needs_compiler()
    toolchain(TILEIRAS, NVVM, PTXAS, body=body)
    with pytest.raises(ck.CompileError, match=r"cannot make k for sm_90[\s\S]*hint: it says no more; mostly the tiles"):
        assembled(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="programs are scripts here")
def test_an_assembler_that_does_not_end(
    toolchain: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_compiler()
    child = tmp_path / "child"
    starts_another = f"import os\nif os.fork() == 0: time.sleep(1.5); open({str(child)!r}, 'w')\ntime.sleep(60)"
    toolchain(TILEIRAS, NVVM, PTXAS, body=starts_another)
    monkeypatch.setattr(assemble, "PATIENCE", 0.5)
    large = (
        "using S = ct::shape<512, 256>; ct::store(x + ct::iota<ct::tile<int, S>>(), ct::zeros<ct::tile<float, S>>());"
    )
    with pytest.raises(ck.CompileError, match=r"did not end in 0\.5 s; its largest tile, 512 × 256, is too large"):
        assembled(tmp_path, large)
    time.sleep(1.5)
    assert not child.exists()


def test_without_an_assembler_the_emulator_runs_them(toolchain: Callable[..., None]) -> None:
    needs_compiler()
    toolchain()
    x = np.zeros(4, "f4")
    kernel("x[0] = n;")(ck.emulator.stream(), ck.config(1), x, 4)
    assert x[0] == 4
    with pytest.raises(ck.CompileError, match=r"tileiras\) is not installed"):
        kernel("x[0] = n;").compile(arch="sm_90", target="cubin")


@pytest.mark.parametrize("refused", ["by the compiler", "by the library"])
def test_a_compiler_that_knows_no_tiles(refused: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = "nvrtc: error: unrecognized option --enable-tile found" if refused == "by the compiler" else ""
    answer = worker.Answer(None, {}, told, "" if told else worker.NO_TILE_IR)
    monkeypatch.setattr(nvrtc, "_apart", lambda program: (answer, ""))
    one = kernel("x[0] = 1;").with_options(cache=tmp_path)
    with pytest.raises(ck.CompileError, match=r"need NVRTC 13.5 or newer, not .*: .*cache import FILE"):
        tileir(one)


def test_a_compiler_that_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needs_compiler()
    script = tmp_path / "worker.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)")
    one = kernel("x[0] = 1;").with_options(cache=tmp_path / "cache")
    with monkeypatch.context() as patch:
        patch.setattr(worker, "__file__", str(script))
        with pytest.raises(ck.CompileError, match=r"NVRTC: the compiler died of this text \(status -15\)"):
            tileir(one)
    assert tileir(one).code  # nothing was kept, and no lock


def test_a_library_that_knows_no_tiles() -> None:
    assert worker.compiled("libc.so.6", "", "k", [], [], "TileIR").failure == worker.NO_TILE_IR


# ── drivers ──


class Refusing:
    """Code that the driver does not load."""

    def get_kernel(self, name: str) -> None:
        raise RuntimeError("CUDA_ERROR_INVALID_IMAGE")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Lets there be a card, with a driver for that CUDA."""
    limits = devices.Limits("a card", "sm_90", (9, 0), 1024, (1024,) * 3, (1024,) * 3, 1, 1, True)  # type: ignore[arg-type]
    monkeypatch.setattr(devices, "limits", lambda device_id: limits)
    monkeypatch.setattr(devices, "current_device", lambda: type("Device", (), {"device_id": 0}))

    def of(major: int, minor: int) -> None:
        for module in (load, load):
            monkeypatch.setattr(module, "driver_version", lambda: (major, minor))

    return of


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ((12, 8), r"tile kernels need driver r580 or newer \(CUDA 13\.0\), and a card has one for CUDA 12\.8"),
        ((13, 0), "cannot load k, compiled for sm_90, on a card"),
    ],
)
def test_a_driver_that_is_too_old(version: Any, message: str, card: Any) -> None:
    if why := why_no_assembler():
        pytest.skip(why)
    one = kernel("x[0] = 1;")
    card(*version)
    with pytest.raises(ck.LaunchError, match=message):
        load.load(one.specialization(arch="sm_90"), one.compile(arch="sm_90"), Refusing(), ())  # type: ignore[arg-type]


def test_a_driver_is_given_tile_ir_where_there_is_no_assembler(
    card: Any, toolchain: Callable[..., None], tmp_path: Path
) -> None:
    needs_compiler()
    toolchain()
    wanted = kernel("x[0] = 1;").with_options(cache=tmp_path / "cache").specialization(arch="sm_90")
    card(13, 4)
    with pytest.raises(ck.CompileError, match=r"tileiras\) is not installed"):
        DeviceImage().add(wanted)
    card(13, 5)
    code = DeviceImage().add(wanted)
    assert (code.compiled.target, code.compiled.code[:7]) == ("tileir", b"\x7fTileIR")
    assert code.has(wanted)
    refused = r"the driver, for CUDA 13\.5, does not make machine code of k: .*INVALID_IMAGE\. .*pip install 'cudakit"
    with pytest.raises(ck.LaunchError, match=refused):
        load.load(wanted, code.compiled, Refusing(), ())  # type: ignore[arg-type]


def test_machine_code_goes_before_tile_ir(card: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if why := why_no_assembler():
        pytest.skip(why)
    card(13, 9)
    made, used = (kernel("x[0] = 1;").with_options(cache=tmp_path / name) for name in ("made", "used"))
    wanted = made.specialization(arch="sm_90")
    assert DeviceImage().add(wanted).compiled.target == "cubin"
    cache_at(str(tmp_path / "made")).export_to(tmp_path / "kernels.bin")
    cache_at(str(tmp_path / "used")).import_from(tmp_path / "kernels.bin")
    monkeypatch.setattr(assemble, "is_here", lambda: False)
    assert DeviceImage().add(used.specialization(arch="sm_90")).compiled.target == "cubin"
