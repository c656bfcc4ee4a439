"""Kernels of files that are compiled already: PTX, cubins, LTO IR."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import emulated
from support.programs import run

import cudakit as ck
from cudakit.jit.compile import binary, elf
from cudakit.jit.source.source import Source

ARCH = "sm_90"
TEXT = """
struct pair { int a; float b; };
template <typename T, int N> __global__ void scale(T* x, T by, int n) { if (threadIdx.x < n) x[threadIdx.x] *= by + N; }
template __global__ void scale<float, 3>(float*, float, int);
template __global__ void scale<double, 3>(double*, double, int);
namespace ns {
__global__ void add(const float* x, float* y) { y[threadIdx.x] += x[threadIdx.x]; }
__global__ void add(int* y, int by) { y[threadIdx.x] += by; }
}
extern "C" __global__ void plain(float* x, float by, int n, pair p) {
    if (threadIdx.x < n) x[threadIdx.x] += by + p.a + p.b;
}"""
HEAD = "void plain(float* x, float by, int n, pair p)"
PAIR = np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f4")])[0]
CONFIG = ck.config(1, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same text as PTX, a cubin, relocatable code and LTO IR, for `ARCH`."""
    folder = tmp_path_factory.mktemp("binaries")
    kernel = ck.Kernel(TEXT, "plain")
    (folder / "f.ptx").write_text(kernel.ptx(arch=ARCH))
    for name, target in (("f.cubin", "cubin"), ("object.cubin", "object"), ("f.ltoir", "ltoir")):
        (folder / name).write_bytes(kernel.compile(arch=ARCH, target=target).code)  # type: ignore[arg-type]
    return folder


def _ones(dtype: Any = np.float32) -> np.ndarray:
    return np.ones(4, dtype)


def test_mangled_names_tell_the_types(stream: Any, folder: Path) -> None:
    path = folder / "f.ptx"
    for name in ("scale<float, 3>", "_Z5scaleIfLi3EEvPT_S0_i"):
        x = _ones()
        run(stream, ck.Kernel.from_file(path, name), CONFIG, x, 2, 3)
        assert list(x) == [5, 5, 5, 1]
    x = _ones(np.float64)
    run(stream, pickle.loads(pickle.dumps(ck.Kernel.from_file(path, "scale<double,3>"))), CONFIG, x, 2.5, 4)
    assert list(x) == [5.5] * 4
    with pytest.raises(ck.ArgumentError, match=r"\(double\*\) takes elements of float64, got .*float32"):
        run(stream, ck.Kernel.from_file(path, "scale<double,3>"), CONFIG, _ones(), 2.5, 4)


def test_overloads(stream: Any, folder: Path) -> None:
    path = folder / "f.ptx"
    x, y, n = _ones(), _ones(), _ones(np.int32)
    run(stream, ck.Kernel.from_file(path, "ns::add"), CONFIG, x, y)
    run(stream, ck.Kernel.from_file(path, "add"), CONFIG, n, 5)
    run(stream, ck.Kernel.from_file(path, "_ZN2ns3addEPii"), CONFIG, n, 5)
    assert (list(x), list(y), list(n)) == ([1] * 4, [2] * 4, [11] * 4)


def test_names_of_c_tell_sizes(stream: Any, folder: Path) -> None:
    kernel = ck.Kernel.from_file(folder / "f.ptx", "plain")
    x = _ones()
    run(stream, kernel, CONFIG, x, np.float32(2), np.int32(3), PAIR)
    assert list(x) == [6.5, 6.5, 6.5, 1]
    for by in (2.0, 2, x):
        with pytest.raises(ck.ArgumentError, match=r"\[1\] \(4 bytes\) .* exactly 4 bytes, or tell .* signature"):
            run(stream, kernel, CONFIG, x, by, np.int32(3), PAIR)
    for by in (np.float64(2), np.int16(2)):
        with pytest.raises(ck.ArgumentError, match=r"parameter\[1\] \(4 bytes\) takes 4 bytes, got"):
            run(stream, kernel, CONFIG, x, by, np.int32(3), PAIR)


def test_the_head_may_be_given(stream: Any, folder: Path) -> None:
    kernel = ck.Kernel.from_file(folder / "f.ptx", signature=HEAD)
    x = _ones()
    run(stream, kernel, CONFIG, x, 2, 3, PAIR)
    assert list(x) == [6.5, 6.5, 6.5, 1]
    with pytest.raises(ck.ArgumentError, match=r"parameter x \(float\*\) takes elements of float32, got"):
        run(stream, kernel, CONFIG, _ones(np.int32), 2, 3, PAIR)
    wrong = ck.Kernel.from_file(folder / "f.ptx", signature=HEAD.replace("float by", "double by"))
    with pytest.raises(ck.ArgumentError, match=r"by \(double\) takes 4 bytes in the compiled kernel, but 8 by its"):
        run(stream, wrong, CONFIG, x, 2, 3, PAIR)
    wrong = ck.Kernel.from_file(folder / "f.ptx", signature="void plain(float* x, float by)")
    with pytest.raises(ck.ArgumentError, match="the compiled kernel has 4 parameters, its signature 2"):
        run(stream, wrong, CONFIG, x, 2)


RIGHT_HEADS = [
    "void _Z3one3twoPKfPPfhx(two s, const float* __restrict__ x, float** y, unsigned char c, long long l)",
    "_Z3onem3twoii(size_t n, two t, int i, int const j)",
    "void _Z3onePK6float2P7double2y(const cuComplex* x, cuDoubleComplex* y, cudaTextureObject_t t)",
    "_Z3oneP6__halfPa(half* x, int8_t* y)",
    "_Z3onePfi(real* x, count n)",  # names that may be other names of float and int
    "_Z3onev()",
]


@pytest.mark.parametrize("head", RIGHT_HEADS)
def test_heads_that_a_mangled_name_has(head: str) -> None:
    assert binary.signature(Source("", "f.ltoir", code=b"", head=head)).parameters is not None


@pytest.mark.parametrize(
    "head",
    [
        "void one(int* x, float by, int n)",
        "void _Z3onePffi(double* x, float by, int n)",
        "void one(const float* x, float by, int n)",
        "void one(float* x, float by)",
        "void one(float* x, float by, int n, int m)",
        "void one(float* x, int by, float n)",
        "void one(float x, float by, int n)",
        "void one(float** x, float by, int n)",
        "void one(void* x, float by, int n)",
        "void one(float2* x, float by, int n)",
        "void one(float* x, float by, unsigned n)",
        "void one(float* x, float by, int* n)",
        "void one()",
    ],
)
def test_a_head_that_contradicts_the_mangled_name(head: str, tmp_path: Path) -> None:
    """The types would be checked against the head, and other bytes be passed."""
    text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry _Z3onePffi(.param .u64 a, .param .f32 b, "
    (tmp_path / "f.ptx").write_text(text + ".param .u32 c) { ret; }")
    with pytest.raises(ck.TemplateError, match=r"f\.ptx: its name _Z3onePffi says \(float\*, float, int\); leave sig"):
        ck.Kernel.from_file(tmp_path / "f.ptx", signature=head)
    with pytest.raises(ck.TemplateError, match="says"):
        binary.signature(Source("", "f.ltoir", code=b"", head=re.sub(r"\b(one|_Z3onePffi)\(", "_Z3onePffi(", head)))


def test_what_is_machine_code_there(stream: Any, folder: Path, tmp_path: Path) -> None:
    """On a GPU all kinds run; the emulator says what it does not run."""
    arch = ck.device_limits(stream).arch
    kernel = ck.Kernel(TEXT, "plain")
    for target in ("cubin", "object", "ltoir"):
        path = tmp_path / target
        path.write_bytes(kernel.compile(arch=arch, target=target).code)  # type: ignore[arg-type]
        x = _ones()
        if emulated.place.is_gpu:
            run(stream, ck.Kernel.from_file(path, signature=HEAD), CONFIG, x, 2, 3, PAIR)
            assert list(x) == [6.5, 6.5, 6.5, 1]
        else:
            with pytest.raises(ck.TemplateError, match="of which no ptx can be made; the emulator runs"):
                run(stream, ck.Kernel.from_file(path, signature=HEAD), CONFIG, x, 2, 3, PAIR)


def test_a_fatbin(stream: Any, tmp_path: Path) -> None:
    nvfatbin = pytest.importorskip("cuda.bindings.nvfatbin")
    arch = ck.device_limits(stream).arch
    code = ck.Kernel(TEXT, "plain").compile(arch=arch).code
    handle = nvfatbin.create([], 0)
    nvfatbin.add_cubin(handle, code, len(code), arch.removeprefix("sm_"), "part")
    made = bytearray(nvfatbin.size(handle))
    nvfatbin.get(handle, made)
    nvfatbin.destroy(handle)
    path = tmp_path / "f.fatbin"
    path.write_bytes(made)
    with pytest.raises(ck.TemplateError, match="is fatbin, which does not tell its kernels"):
        ck.Kernel.from_file(path, "plain")
    kernel = ck.Kernel.from_file(path, signature=HEAD)
    assert kernel.compile(arch=arch).code == bytes(made)
    if emulated.place.is_gpu:
        x = _ones()
        run(stream, kernel, CONFIG, x, 2, 3, PAIR)
        assert list(x) == [6.5, 6.5, 6.5, 1]


def test_code_for_a_device(folder: Path) -> None:
    """What is no machine code is linked to it; machine code of one device is refused on another."""
    for name in ("f.ptx", "f.cubin", "object.cubin", "f.ltoir"):
        made = ck.Kernel.from_file(folder / name, signature=HEAD).compile(arch=ARCH)
        assert made.lowered["plain"] == "plain"
        assert "plain" in {symbol.name for symbol in elf.symbols(made.code) if symbol.kernel}
        assert elf.is_executable(made.code)
        assert elf.arch(made.code) == 90
    assert ck.Kernel.from_file(folder / "f.ptx", "plain").compile(arch="sm_100").code
    for name, arch in (("f.cubin", "sm_100"), ("f.cubin", "sm_80"), ("f.ptx", "sm_80")):
        with pytest.raises(ck.LaunchError, match=f"made for sm_90, and does not run on {arch}"):
            ck.Kernel.from_file(folder / name, "plain").compile(arch=arch)


def test_compiled_code_is_linked_with_more(stream: Any, tmp_path: Path) -> None:
    text = "__device__ float f(float); __global__ void k(float* x) { x[threadIdx.x] = f(x[threadIdx.x]); }"
    path = tmp_path / "k.ptx"
    path.write_text(ck.Kernel(text, options=ck.CompileOptions(rdc=True)).ptx(arch=ARCH))
    options = ck.CompileOptions(link=["__device__ float f(float x) { return x + 1; }"])
    x = _ones()
    run(stream, ck.Kernel.from_file(path, "k", options=options), CONFIG, x)
    assert list(x) == [2] * 4


def test_what_is_told_of_files(folder: Path, tmp_path: Path) -> None:
    load = ck.Kernel.from_file
    with pytest.raises(ck.TemplateError, match=r"4 kernels; name one of them: .*plain"):
        load(folder / "f.ptx")
    with pytest.raises(ck.TemplateError, match=r"no kernel 'scale'; .*scale<float,3>"):
        load(folder / "f.cubin", "scale")
    with pytest.raises(ck.TemplateError, match="is ltoir, which does not tell its kernels: give the head"):
        load(folder / "f.ltoir", "plain")
    with pytest.raises(ck.TemplateError, match=r"has no kernels nope; it has .*plain \(plain\)"):
        load(folder / "f.ptx", signature="void nope(int)")
    with pytest.raises(ck.TemplateError, match="'what' is not the signature of a kernel"):
        load(folder / "f.ptx", signature="what")
    with pytest.raises(ck.TemplateError, match="of the options only link, lto and max_registers count"):
        load(folder / "f.ptx", "plain", options=ck.CompileOptions(fast_math=True)).compile(arch=ARCH)
    (tmp_path / "f.cu").write_text(TEXT)
    with pytest.raises(ck.TemplateError, match="a signature is for compiled code"):
        load(tmp_path / "f.cu", signature=HEAD)
    with pytest.raises(ck.ArgumentError, match="signature is a str, got int"):
        load(folder / "f.ptx", signature=3)  # type: ignore[arg-type]
    (tmp_path / "lib.a").write_bytes(b"!<arch>\nrest")
    with pytest.raises(ck.TemplateError, match="is a host's library: link it"):
        load(tmp_path / "lib.a")
    (tmp_path / "none.ptx").write_text(".version 8.0\n.target sm_90\n.address_size 64\n.visible .func f() { ret; }")
    with pytest.raises(ck.TemplateError, match="has no kernel; what it has can be linked"):
        load(tmp_path / "none.ptx")
    (tmp_path / "cut.cubin").write_bytes((folder / "f.cubin").read_bytes()[:700])
    with pytest.raises(ck.TemplateError, match="the cubin is damaged"):
        load(tmp_path / "cut.cubin", "plain")
    with pytest.raises(ck.TemplateError, match="holds machine code, of which no ltoir can be made"):
        load(folder / "f.cubin", "plain").compile(arch=ARCH, target="ltoir")


def test_a_file_that_changes(stream: Any, tmp_path: Path) -> None:
    """What is read is read once, when the kernel is made."""
    path = tmp_path / "f.ptx"
    kernels = []
    for value in (1, 2):
        path.write_text(ck.Kernel(f"__global__ void f(float* x) {{ x[threadIdx.x] = {value}; }}").ptx(arch=ARCH))
        kernels.append(ck.Kernel.from_file(path))
    for kernel, value in zip(kernels, (1, 2), strict=True):
        x = _ones()
        run(stream, kernel, CONFIG, x)
        assert list(x) == [value] * 4


def test_kernels_of_one_file_share_its_variables(stream: Any, tmp_path: Path) -> None:
    """Whether their heads are given or not; on the emulator PTX, on a GPU each kind."""
    text = """__device__ int counter;
    extern "C" __global__ void up(int by) { counter += by; }
    extern "C" __global__ void look(int* x) { *x = counter; }"""
    arch = ck.device_limits(stream).arch
    for target in ("ptx", "cubin", "ltoir") if emulated.place.is_gpu else ("ptx",):
        path = tmp_path / target
        path.write_bytes(ck.Kernel(text, "up").compile(arch=arch, target=target).code)
        one = ck.config(1, 1)
        ck.Kernel.from_file(path, signature="void up(int by)")(stream, one, 3)
        if target != "ltoir":
            ck.Kernel.from_file(path, "up")(stream, one, np.int32(4))
        x = np.zeros(1, np.int32)
        run(stream, ck.Kernel.from_file(path, signature="void look(int* x)"), one, x)
        assert list(x) == [7 if target != "ltoir" else 3]


def test_ptx_as_a_text(stream: Any, folder: Path) -> None:
    text = (folder / "f.ptx").read_text()
    x = _ones()
    run(stream, ck.Kernel.from_ptx(text, "scale<float, 3>"), CONFIG, x, 2, 3)
    assert list(x) == [5, 5, 5, 1]
    kernel = pickle.loads(pickle.dumps(ck.Kernel.from_ptx(text, "plain")))
    run(stream, kernel, CONFIG, x, np.float32(2), np.int32(4), PAIR)
    assert list(x) == [10.5, 10.5, 10.5, 6.5]
    run(stream, ck.Kernel.from_ptx(text, signature=HEAD), CONFIG, x, 2, 4, PAIR)
    assert list(x) == [16, 16, 16, 12]
    assert kernel.compile(arch=ARCH).code
    assert kernel.module is ck.Kernel.from_ptx(text, "plain").module


def test_parameters_of_ptx_are_checked_by_count_kind_and_size(stream: Any, folder: Path) -> None:
    text = (folder / "f.ptx").read_text()
    kernel = ck.Kernel.from_ptx(text, "plain")
    with pytest.raises(ck.ArgumentError, match="takes 4 arguments"):
        run(stream, kernel, CONFIG, _ones(), np.float32(2), np.int32(3))
    with pytest.raises(ck.ArgumentError, match=r"parameter\[1\] \(4 bytes\) takes 4 bytes, got float64"):
        run(stream, kernel, CONFIG, _ones(), np.float64(2), np.int32(3), PAIR)
    marked = ck.Kernel.from_ptx(text.replace(".param .u64 plain", ".param .u64 .ptr .global .align 4 plain"), "plain")
    with pytest.raises(ck.ArgumentError, match="takes an array, got int64 7"):
        run(stream, marked, CONFIG, np.int64(7), np.float32(2), np.int32(3), PAIR)


def test_what_is_no_ptx_and_names_of_none(folder: Path) -> None:
    text = (folder / "f.ptx").read_text()
    with pytest.raises(ck.TemplateError, match="no kernel 'plane'; did you mean plain"):
        ck.Kernel.from_ptx(text, "plane")
    with pytest.raises(ck.TemplateError, match=r"no kernel 'missing'.*scale<float,3>"):
        ck.Kernel.from_ptx(text, "missing")
    with pytest.raises(ck.TemplateError, match=r"begins with .version, got '__global__"):
        ck.Kernel.from_ptx("__global__ void f() {}")
    with pytest.raises(ck.ArgumentError, match="text is a str, got bytes"):
        ck.Kernel.from_ptx(text.encode())  # type: ignore[arg-type]


def test_ptx_of_a_version_that_is_not_known(folder: Path) -> None:
    text = re.sub(r"\.version \S+", ".version 99.0", (folder / "f.ptx").read_text())
    kernel = ck.Kernel.from_ptx(text, "plain")
    with pytest.raises(ck.CompileError, match=r"Unsupported \.version 99\.0"):
        kernel.compile(arch=ARCH)
    with pytest.raises(ck.EmulationError, match=r"PTX version 99\.0 is not emulated"):
        kernel(ck.emulator.stream(), CONFIG, _ones(), np.float32(2), np.int32(3), PAIR)


def test_damaged_machine_code_is_refused_by_name() -> None:
    code = ck.Kernel("__constant__ int c; __global__ void k(int* p) { *p = c; }").compile(arch=ARCH).code
    damaged = [
        code[:place] + bytes([code[place] ^ mask]) + code[place + 1 :]
        for place in range(0, len(code), 3)
        for mask in (0x80, 0xFF)
    ]
    damaged += [bytes([*code[:place], code[place] ^ 0x80, *code[place + 1 :]]) for place in range(64)]
    damaged += [code[:size] for size in range(0, len(code), 23)]
    refused = 0
    for data in damaged:
        for read in (
            elf.symbols,
            elf.arch,
            elf.variables_of,
            lambda data: elf.resources(data, "_Z1kPi"),
            lambda data: elf.parameter_sizes(data, "_Z1kPi"),
        ):
            try:
                read(data)
            except ck.TemplateError as error:
                refused += "the cubin is damaged" in str(error)
    assert refused > 300


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    code = bytearray(ck.Kernel("__constant__ int c; __global__ void k(int* p) { *p = c; }").compile(arch=ARCH).code)
    code[47] ^= 0x80  # where the table of sections is
    (tmp_path / "damaged.cubin").write_bytes(code)
    with pytest.raises(ck.TemplateError, match="the cubin is damaged"):
        ck.Kernel.from_file(tmp_path / "damaged.cubin")


def test_variables_of_ptx(stream: Any) -> None:
    text = """
        __device__ int number; __constant__ float table[3]; namespace a { __device__ short small[2]; }
        __global__ void f(int* x) { x[threadIdx.x] = number + (int)table[threadIdx.x] + a::small[1]; }
    """
    kernel = ck.Kernel.from_ptx(ck.Kernel(text).ptx(arch="sm_90"))
    variables = kernel.globals
    assert set(variables) == {"number", "table", "a::small"}
    variables["number"] = 100
    variables["table"] = np.array([1, 2, 3], "f4").view("u1")  # PTX has bytes
    variables["a::small"] = np.array([7, 10], "i2").view("u1")
    x = ck.to_device(np.zeros(3, "i4"), stream)
    kernel(stream, ck.config(1, 3), x)
    assert ck.to_host(x, stream).tolist() == [111, 112, 113]
    assert (variables["number"].item(), variables["table"].view("f4").tolist()) == (100, [1, 2, 3])
