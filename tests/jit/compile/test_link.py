"""Code of several texts, linked; kernels that launch kernels; what can be given out and taken in to be linked."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.caches import use_cache
from support.programs import run

import cudakit as ck
from cudakit.jit.cache.cache import Cache
from cudakit.jit.compile import elf, linked
from cudakit.jit.load.image import DeviceVariables
from cudakit.jit.load.variables import move
from cudakit.jit.source import headers
from cudakit.jit.source.source import kind_of

ARCH = "sm_90"
MAIN = """
__device__ float scale(float);
extern __device__ float offset;
__global__ void k(float* x) { x[threadIdx.x] = scale(x[threadIdx.x]) + offset; }
"""
LIBRARY = """
static __device__ float hidden = 2;
__device__ float offset = 3;
__device__ float scale(float x) { return hidden * x; }
"""
LAUNCHING = """
__global__ void child(float* x, float by) { x[threadIdx.x] += by; }
__global__ void parent(float* x) { if (threadIdx.x == 0) child<<<1, 4>>>(x, 2); }
"""


def _linked(*parts: Any, **options: Any) -> ck.Kernel:
    return ck.Kernel(MAIN, options=ck.CompileOptions(link=parts, **options))


def _result(stream: Any, kernel: ck.Kernel) -> list[float]:
    x = np.arange(4, dtype=np.float32)
    run(stream, kernel, ck.config(1, 4), x)
    return list(x)


@pytest.mark.parametrize("options", [{}, {"lto": True}, {"fast_math": True}, {"fast_math": True, "lto": True}])
def test_a_function_and_a_variable_of_another_text(stream: Any, options: dict[str, bool]) -> None:
    assert _result(stream, _linked(LIBRARY, **options)) == [3, 5, 7, 9]


def test_what_can_be_linked(stream: Any, tmp_path: Path) -> None:
    """Texts, files, kernels whose source it is, and PTX, in both places."""
    library = LIBRARY + "__global__ void empty() {}"
    path = tmp_path / "library.cu"
    path.write_text(library)
    other = ck.Kernel(library, "empty")
    ptx = other.with_options(rdc=True).ptx(arch=ARCH)
    ptx_file = tmp_path / "library.ptx"
    ptx_file.write_text(ptx)
    for part in (library, path, str(path), other, ptx_file, ptx.encode()):
        assert _result(stream, _linked(part)) == [3, 5, 7, 9]


def test_compiled_code_is_linked(tmp_path: Path) -> None:
    kernel = ck.Kernel(LIBRARY + "__global__ void empty() {}", "empty")
    for target in ("object", "ltoir"):
        made = kernel.compile(arch=ARCH, target=target)
        assert made.target == target
        path = tmp_path / f"library.{target}"
        path.write_bytes(made.code)
        for part in (made, made.code, path):
            code = _linked(part).compile(arch=ARCH)
            assert elf.is_executable(code.code)
            assert {symbol.name for symbol in elf.symbols(code.code) if symbol.kernel} == {"_Z1kPf", "_Z5emptyv"}
        assert elf.is_executable(ck.Kernel(MAIN, options=ck.CompileOptions(link=made)).compile(arch=ARCH).code)
    with pytest.raises(ck.TemplateError, match=r"PTX and CUDA C\+\+ text only; got linked code \(ltoir\)"):
        _linked(made).ptx(arch=ARCH)


def test_fatbins() -> None:
    """Of a fatbin the linker takes what fits, and the driver when it is loaded."""
    nvfatbin = pytest.importorskip("cuda.bindings.nvfatbin")

    def fatbin(code: bytes, add: Any, *rest: Any) -> bytes:
        handle = nvfatbin.create([], 0)
        add(handle, code, len(code), "90", "part", *rest)
        made = bytearray(nvfatbin.size(handle))
        nvfatbin.get(handle, made)
        nvfatbin.destroy(handle)
        return bytes(made)

    kernel = ck.Kernel(LIBRARY + "__global__ void empty() {}", "empty")
    code = fatbin(kernel.compile(arch=ARCH, target="object").code, nvfatbin.add_cubin)
    assert elf.is_executable(_linked(code).compile(arch=ARCH).code)
    intermediate = fatbin(kernel.compile(arch=ARCH, target="ltoir").code, nvfatbin.add_ltoir, "")
    assert elf.is_executable(_linked(intermediate, lto=True).compile(arch=ARCH).code)
    with pytest.raises(ck.CompileError, match=r"hint: an input holds LTO IR: link with CompileOptions\(lto=True\)"):
        _linked(intermediate).compile(arch=ARCH)


def test_targets_are_what_their_label_says() -> None:
    kernel = ck.Kernel(MAIN)
    kinds = {target: kind_of(kernel.compile(arch=ARCH, target=target).code) for target in ("ptx", "ltoir", "object")}
    assert kinds == {"ptx": "ptx", "ltoir": "ltoir", "object": "cubin"}
    assert not elf.is_executable(kernel.compile(arch=ARCH, target="object").code)
    with pytest.raises(
        ck.TemplateError, match="a target is one of 'cubin', 'ptx', 'object', 'ltoir', 'tileir', got 'fatbin'"
    ):
        kernel.compile(arch=ARCH, target="fatbin")  # type: ignore[arg-type]
    with pytest.raises(ck.TemplateError, match="unknown arch 'compute_90'; expected a name such as 'sm_90'"):
        ck.Kernel("__global__ void f() {}").compile(arch="compute_90")


def test_lto_inlines_across_texts() -> None:
    calls = [ck.Kernel(MAIN, options=ck.CompileOptions(link=[LIBRARY], lto=lto)).compile(arch=ARCH) for lto in (0, 1)]
    names = [{symbol.name for symbol in elf.symbols(made.code)} for made in calls]
    assert "_Z5scalef" in names[0]
    assert "_Z5scalef" not in names[1]


def test_what_cannot_be_linked(tmp_path: Path) -> None:
    def compile(*parts: Any, **options: Any) -> Any:
        return _linked(*parts, **options).compile(arch=ARCH)

    with pytest.raises(ck.CompileError, match=r"hint: nothing that is linked defines scale\(float\), offset; add"):
        compile("__device__ int unrelated;")
    path = tmp_path / "library.cu"
    path.write_text(LIBRARY)
    with pytest.raises(ck.CompileError, match=r"library.cu and <linked text> both define (offset|scale\(float\))"):
        compile(path, LIBRARY)
    with pytest.raises(ck.CompileError, match="more than one input defines"):
        compile(LIBRARY, LIBRARY, lto=True)
    with pytest.raises(ck.TemplateError, match=r"is linked already, .* relocatable"):
        compile(ck.Kernel("__global__ void f() {}").compile(arch=ARCH))
    with pytest.raises(ck.TemplateError, match=r"missing\.ptx, which is to be linked: No such file"):
        compile("missing.ptx")
    with pytest.raises(ck.TemplateError, match="it is no cubin, PTX, LTO IR"):
        compile(b"#include <nothing>")
    with pytest.raises(ck.ArgumentError, match=r"link takes CUDA C\+\+ text, files"):
        compile(3)
    with pytest.raises(ck.CompileError, match=r"<linked text>:1: error: identifier .unknown. is undefined"):
        compile("__device__ int x() { return unknown; }")
    with pytest.raises(ck.TemplateError, match="the cubin is damaged"):
        compile(ck.Kernel(MAIN).compile(arch=ARCH, target="object").code[:500])


@pytest.mark.emulator
def test_what_the_emulator_does_not_find(stream: Any) -> None:
    with pytest.raises(ck.EmulationError, match="variable offset is declared extern, and nothing that is linked"):
        _result(stream, _linked("__device__ float scale(float x) { return x; }"))
    with pytest.raises(ck.EmulationError, match="function _Z5scalef is defined twice"):
        _result(stream, _linked(LIBRARY, "__device__ float scale(float x) { return x; }"))


def test_names_that_a_text_keeps_to_itself(stream: Any) -> None:
    """Statics, strings of printf and functions of one name in two texts are two things; inline functions are one."""
    common = "inline __device__ int shared_count() { static __device__ int count; return atomicAdd(&count, 1); }\n"
    main = f"""{common}
    static __device__ __noinline__ int own(int x) {{ return x + 1; }}
    static __device__ int kept = 10;
    __device__ int other(int);
    __global__ void k(int* x) {{ x[0] = own(1) + kept; x[1] = other(1); x[2] += shared_count(); kept += 1; }}"""
    library = f"""{common}
    static __device__ __noinline__ int own(int x) {{ return x + 100; }}
    static __device__ int kept = 1000;
    __device__ int other(int x) {{ shared_count(); kept += 5; return own(x) + kept; }}"""
    kernel = ck.Kernel(main, options=ck.CompileOptions(link=[library]))
    x = np.zeros(3, np.int32)
    run(stream, kernel, ck.config(1, 1), x)
    run(stream, kernel, ck.config(1, 1), x)
    assert list(x) == [13, 1111, 1 + 3]


def test_a_kernel_launches_a_kernel(stream: Any) -> None:
    x = np.zeros(4, np.float32)
    run(stream, ck.Kernel(LAUNCHING, "parent"), ck.config(1, 32), x)
    assert list(x) == [2, 2, 2, 2]


def test_kernels_launch_kernels_in_order(stream: Any) -> None:
    text = """
    __global__ void append(int* log, int what) { log[1 + atomicAdd(log, 1)] = what; }
    __global__ void inner(int* log, int what) {
        log[1 + atomicAdd(log, 1)] = what;
        append<<<1, 1, 0, cudaStreamTailLaunch>>>(log, what + 2);
        append<<<1, 1>>>(log, what + 1);
    }
    template <typename T> __global__ void outer(T* log) {
        log[1 + atomicAdd(log, 1)] = 1;
        inner<<<1, 1>>>(log, 10);
        inner<<<1, 1>>>(log, 20);
        append<<<dim3(1), dim3(2), 0, cudaStreamTailLaunch>>>(log, 30);
        if (cudaGetLastError() != cudaSuccess) log[0] = -100;
    }"""
    log = np.zeros(12, np.int32)
    run(stream, ck.Kernel(text, "outer"), ck.config(1, 1), log)
    assert list(log) == [9, 1, 10, 11, 12, 20, 21, 22, 30, 30, 0, 0]


def test_a_launch_in_a_header_needs_saying(stream: Any, tmp_path: Path) -> None:
    (tmp_path / "launching.cuh").write_text(LAUNCHING.replace("parent", "start"))
    text = '#include "launching.cuh"\n__global__ void f(float* x) { x[0] = 1; }'
    options = ck.CompileOptions(include_paths=[tmp_path])
    with pytest.raises(ck.CompileError, match=r"hint: .*options=CompileOptions\(rdc=True\)"):
        ck.Kernel(text, "f", options=options).compile(arch=ARCH)
    x = np.zeros(4, np.float32)
    run(stream, ck.Kernel(text, options=options.replace(rdc=True)), ck.config(1, 1), x)
    assert list(x) == [1, 0, 0, 0]


def test_launches_of_the_host_change_nothing() -> None:
    """A text that launches in comments, strings or code of the host alone is compiled as any other."""
    plain = "__global__ void f(float* x) { x[0] = 1; }"
    for rest in ("// f<<<1, 1>>>(x)", "#ifndef __CUDACC_RTC__\nvoid host() { f<<<1, 1>>>(0); }\n#endif"):
        assert ck.Kernel(f"{plain}\n{rest}").compile(arch=ARCH).code == ck.Kernel(f"{plain}\n").compile(arch=ARCH).code


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("child<<<1, 2048>>>(x)", r"blocks of \(2048, 1, 1\); a block has 1 to 1024 threads"),
        ("child<<<0, 1>>>(x)", r"a grid of \(0, 1, 1\)"),
        ("for (int i = 0; i < 3000; i++) child<<<1, 1>>>(x)", "more than 2048 launches wait"),
        ("parent<<<1, 1>>>(x)", "parent.* is launched more than 24 kernels deep"),
        (
            "child<<<1, 1>>>(x + 8)",
            "^child, launched by parent: st",
        ),
    ],
)
def test_launches_that_no_device_takes(stream: Any, body: str, message: str) -> None:
    text = f"__global__ void child(float* x) {{ x[0] = 1; }}\n__global__ void parent(float* x) {{ {body}; }}"
    with pytest.raises(ck.EmulationError, match=message):
        run(stream, ck.Kernel(text, "parent"), ck.config(1, 1), np.zeros(4, np.float32))


def test_without_the_device_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "toolkit_folders", lambda: ())
    text = LAUNCHING + "// without the library"
    with pytest.raises(
        ck.CompileError, match=r"hint: .* libcudadevrt.a, which is not installed: .* nvidia-cuda-runtime"
    ):
        ck.Kernel(text, "parent").compile(arch=ARCH)


def test_linked_code_is_kept_by_all_that_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Cache(tmp_path / "cache", 2**30)
    use_cache(monkeypatch, kept)
    library = tmp_path / "library.cu"

    def compile(text: str, **options: Any) -> tuple[bytes, int]:
        library.write_text(text)
        before = kept.info().misses
        kernel = pickle.loads(pickle.dumps(_linked(library, **options)))
        return kernel.compile(arch=ARCH).code, kept.info().misses - before

    first, misses = compile(LIBRARY)
    assert misses == 3  # two texts, and the link
    assert compile(LIBRARY) == (first, 0)
    changed, misses = compile(LIBRARY.replace("hidden = 2", "hidden = 4"))
    assert changed != first
    assert misses == 2
    assert compile(LIBRARY) == (first, 0)
    assert compile(LIBRARY, lto=True)[1] == 3
    assert compile(LIBRARY, max_registers=16)[1] > 0
    # A process that starts later finds it on the disk; what is damaged there is made again.
    later = Cache(tmp_path / "cache", 2**30)
    use_cache(monkeypatch, later)
    kept = later
    assert compile(LIBRARY) == (first, 0)
    for entry in later.entries():
        data = bytearray(entry.path.read_bytes())
        data[-20] ^= 1
        entry.path.write_bytes(data)
    kept = Cache(tmp_path / "cache", 2**30)
    use_cache(monkeypatch, kept)
    assert compile(LIBRARY) == (first, 3)
    monkeypatch.setattr(linked, "linker_identity", lambda: "another")
    assert compile(LIBRARY) == (first, 1)


@pytest.mark.slow
def test_prepare_links_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Cache(tmp_path / "cache", 2**30)
    use_cache(monkeypatch, kept)
    text = """__device__ float f(float);
    template <typename T> __global__ void k(T* x) { x[0] = f(x[0]); }"""
    kernel = ck.Kernel(text, options=ck.CompileOptions(link=["__device__ float f(float x) { return x; }"]))
    kernel.prepare(np.float32, np.float64, arch=ARCH)
    before = kept.info().misses
    kernel[np.float64].compile(arch=ARCH)
    assert kept.info().misses == before


def test_two_texts_whose_parameter_types_the_compiler_was_asked_for() -> None:
    """The probe for types is in both objects under one name."""
    head = "struct point { float x, y; };\n"
    one = ck.Kernel(head + "__global__ void a(point p, float* x) { x[0] = p.x; }").compile(arch=ARCH, target="object")
    two = ck.Kernel(
        head + "__global__ void b(point p, float* x) { x[0] = p.y; }", options=ck.CompileOptions(link=[one])
    ).compile(arch=ARCH)
    names = {symbol.name for symbol in elf.symbols(two.code) if symbol.kernel}
    assert {"_Z1a5pointPf", "_Z1b5pointPf"} <= names


def test_sizes_of_parameters_in_a_cubin() -> None:
    text = """struct five { int a[5]; };
    __global__ void k(float* x, int n, double d, five s, char c) { x[n] = d + s.a[0] + c; }"""
    made = ck.Kernel(text).compile(arch=ARCH)
    assert elf.parameter_sizes(made.code, "_Z1kPfid4fivec") == (8, 4, 8, 20, 1)


def test_instances_share_the_variables_of_what_is_linked(stream: Any) -> None:
    text = """__device__ int count(); __device__ int own;
    template <typename T> __global__ void k(T* x) { x[0] = count(); x[1] = ++own; }"""
    library = "static __device__ int counted = 10; __device__ int count() { return ++counted; }"
    module = ck.Module(text, options=ck.CompileOptions(link=[library]))
    for dtype, expected in ((np.int32, [11, 1]), (np.float32, [12, 2]), (np.int32, [13, 3])):
        x = np.zeros(2, dtype)
        run(stream, module["k"], ck.config(1, 1), x)
        assert list(x) == expected
    assert int(module.globals["own"]) == 3


def test_anonymous_namespaces_are_of_one_text(stream: Any) -> None:
    """The compiler's names of what is in them differ by a part that varies."""
    main = """namespace { __device__ int value = 1; __device__ __noinline__ int next() { return ++value; } }
    __device__ int other();
    __global__ void k(int* x) { x[0] = next(); x[1] = other(); }"""
    library = """namespace { __device__ int value = 100; __device__ __noinline__ int next() { return value += 10; } }
    __device__ int other() { return next(); }"""
    kernel = ck.Kernel(main, options=ck.CompileOptions(link=[library]))
    x = np.zeros(2, np.int32)
    for expected in ([2, 110], [3, 120]):
        run(stream, kernel, ck.config(1, 1), x)
        assert list(x) == expected


def test_variables_of_linked_code() -> None:
    """The device runtime's are not the user's; of statics of one name a device cannot tell which is meant."""
    code = ck.Kernel("__device__ int mine;" + LAUNCHING, "parent").compile(arch=ARCH).code
    assert elf.variables_of(code) == ("mine",)
    text = "static __device__ int kept; __device__ int* other(); __global__ void k() { kept = ++*other(); }"
    library = "static __device__ int kept; __device__ int* other() { return &kept; }"
    made = ck.Kernel(text, options=ck.CompileOptions(link=[library])).compile(arch=ARCH)
    names = elf.variables_of(made.code)
    assert names == ("kept", "kept")
    both = DeviceVariables(None, names)  # type: ignore[arg-type]
    with pytest.raises(ck.LaunchError, match="several linked texts have a variable kept: rename all but one"):
        both.address("kept")
    with pytest.raises(ck.LaunchError, match="several linked texts have variables of one name"):
        move(both, both)
