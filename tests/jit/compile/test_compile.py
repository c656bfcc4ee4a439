"""Compiling for a named arch without a GPU: options, headers, diagnostics, keys, workers."""

from __future__ import annotations

import dataclasses
import os
import pickle
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.caches import requests, use_cache
from support.tiers import thinned

import cudakit as ck
from cudakit import emulator
from cudakit.jit.cache import cache
from cudakit.jit.compile import compiled, diagnostics, elf, mangled, nvrtc
from cudakit.jit.compile import nvrtc as compile
from cudakit.jit.compile.elf import LaunchBounds
from cudakit.jit.compile.nvrtc import reads_files
from cudakit.jit.source import headers

ARCH = "sm_90"
SCALE = "template <typename T> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by; }"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a", "sm_120"])
def test_named_archs_compile_without_a_driver(arch: str) -> None:
    made = ck.Kernel(SCALE)[np.float32].compile(arch=arch)
    assert made.code[:4] == b"\x7fELF"
    assert made.lowered["scale<float>"].startswith("_Z5scale")


def test_lambdas_are_the_devices_own() -> None:
    text = "template <typename T, typename Op> __global__ void f(T* x, Op op) { x[0] = op(x[0], 1); }"
    for operator in ("[](float a, float b) { return a + b; }", "[](auto a, auto b) { return a + b; }"):
        assert ck.Kernel(text)["float", operator].compile(arch=ARCH).code


def test_ptx_leaves_pythons_own_bytes_alone() -> None:
    """An empty log is one byte long, and NVRTC writes it into the object that it is given."""
    ck.Kernel(SCALE)["unsigned short"].ptx(arch=ARCH)
    assert [bytes([value])[0] for value in range(256)] == list(range(256))


def test_ptx() -> None:
    assert f".target {ARCH}" in ck.Kernel(SCALE)[np.float32].ptx(arch=ARCH)


def test_options_change_the_code_and_the_key() -> None:
    text = "__global__ void f(float* x) { x[0] = __fdividef(1, x[1]) + sinf(x[2]) / x[3] + N; }"
    kernel = ck.Kernel(text, options=ck.CompileOptions(defines={"N": 1}))
    variants = [
        kernel,
        kernel.with_options(fast_math=True),
        kernel.with_options(lineinfo=True),
        kernel.with_options(debug=True),
        kernel.with_options(max_registers=32),
        kernel.with_options(defines={"N": 2}),
        kernel.with_options(std="c++20"),
        kernel.with_options(extra={"ftz": True}),
    ]
    codes = [variant.compile(arch=ARCH).code for variant in variants]
    keys = {compile.Request(variant.specialization(arch=ARCH)).key for variant in variants}
    assert len(keys) == len(variants)
    assert len(set(codes[:6])) == 6
    with pytest.raises(ck.TemplateError, match="unknown compile option warp"):
        kernel.with_options(warp=1)
    with pytest.raises(ck.TemplateError, match="not known"):
        kernel.with_options(extra={"warp": 1}).compile(arch=ARCH)


def test_a_file_that_an_option_names_is_read_again(tmp_path: Path) -> None:
    """The file is not part of the key."""
    file = tmp_path / "options"
    text = "__global__ void f(float* x) { for (int i = 0; i < 9; ++i) x[i] += sinf(x[i]); }"
    codes, anew = [], []
    for number, content in enumerate(("-O3", "-O0", "-O3")):
        file.write_text(content)
        for folder, made in (("cache", codes), (f"own {number}", anew)):
            options = ck.CompileOptions(cache=tmp_path / folder, extra={"ptxas_options": [f"--options-file={file}"]})
            made.append(ck.Kernel(text, options=options).compile(arch=ARCH).code)
    assert codes == anew  # of which the second differs where the compiler lets the file say how it optimises


@pytest.mark.parametrize(
    "options",
    ["-O0", ["-O0", "-v"], ["--opt-level=1"], ["-O 1"], ["--opt-level", "1"], ["--maxrregcount=32", "-dlcm=ca"], None],
)
def test_options_of_ptxas_that_read_nothing(options: Any) -> None:
    assert reads_files([("ptxas_options", options), ("ftz", True)]) is None


@pytest.mark.parametrize(
    "options",
    [
        "-optf=a",
        ["-O0", "-optf", "a"],
        ["-optf a"],
        ["--apply-controls=a"],
        ["-apply-controls", "a"],
        ["--new-option=a"],
        ["-v=a"],
        ["a.ptx"],
        ["-O0", "a.ptx"],
        ["-v", "a.ptx"],
        ["--opt-level", "1", "a.ptx"],
        ["--opt-level=1", "a.ptx"],
    ],
)
def test_options_of_ptxas_that_may_read_a_file(options: Any) -> None:
    assert "ptxas may read a file" in (reads_files([("ptxas_options", options)]) or "")


@pytest.mark.parametrize("field", ["create_pch", "use_pch", "pch_dir", "extra_sources", "time", "a_new_one"])
def test_fields_that_read_or_write_files(field: str) -> None:
    assert reads_files([("ftz", True), (field, "a")]) == f"the option {field} reads or writes other files"


def test_all_options_of_the_tools_are_judged() -> None:
    from cuda.core import ProgramOptions

    elsewhere = {
        "arch",
        "name",
        "use_libdevice",
        "create_pch",
        "use_pch",
        "pch_dir",
        "extra_sources",
        "fdevice_time_trace",
        "time",
    }
    assert {field.name for field in dataclasses.fields(ProgramOptions)} <= nvrtc.FIELDS | elsewhere
    ptxas = next((path for root in headers.wheel_roots() for path in root.glob("cu*/bin/ptxas")), None)
    if ptxas is None:
        pytest.skip("ptxas is not here")
    usage = subprocess.run([ptxas, "--help"], capture_output=True, text=True, check=True).stdout
    names = {
        name
        for line in re.findall(r"^--.*", usage, re.MULTILINE)
        for name in re.findall(r"(?<=\()-[\w-]+|^--[\w-]+", line)
    }
    others = "--apply-controls --gpu-name -arch --help -h --input-as-string -ias --jobserver --list-arch -arch-ls"
    others += (
        " --list-version -version-ls --options-file -optf --output-file -o --version -V -apply-controls -jobserver"
    )
    assert len(names) > 90
    assert names - nvrtc.PTXAS_FLAGS - nvrtc.PTXAS_VALUES == set(others.split())


def test_a_text_is_searched_for_the_runtimes_names_only_where_it_may_have_some() -> None:
    rng = random.Random(0)
    parts = [
        "cuda",
        "kit",
        "_fp16",
        "_bf16",
        "cud",
        "tex",
        "surf",
        "_",
        "__",
        "<<",
        "<",
        "a",
        " ",
        "(",
        "\n",
        "TEX",
        "te",
        "x",
    ]
    texts = ["".join(rng.choices(parts, k=rng.randrange(8))) for _ in range(2000)]
    expected = [re.search(nvrtc._RUNTIME, text) is not None for text in texts]
    assert [nvrtc._names_runtime(text) for text in texts] == expected
    assert 200 < sum(expected) < 1800


@pytest.mark.parametrize(
    ("text", "is_minimal"),
    [
        ('__global__ void f(float* x) { printf("%f", *x); }', True),
        ("#include <cudakit/strided.cuh>\n#include <cuda_fp16.h>\n__global__ void f(half* x) {}", True),
        ("__global__ void f(cudaTextureObject_t t, float* x) { *x = tex1D<float>(t, 0); }", False),
        ("__global__ void f() { f<<<1, 1>>>(); }", False),
        ("#define T(x) cuda ## x\n__global__ void f(T(Stream_t)* x) {}", False),
        ("__global__ void f(T* x) {}", False),
        ("#include <cstdint>\n__global__ void f(float* x) {}", False),
        ('#include "cudakit/strided.cuh"\n#define H "mine.h"\n#include H\n__global__ void f(float* x) {}', False),
    ],
)
def test_declarations_of_the_runtime_are_there_where_they_may_be_used(text: str, is_minimal: bool) -> None:
    options = ck.CompileOptions(defines={"T": "cudaStream_t"} if "T*" in text else {})
    request = compile.Request(ck.Kernel(text, options=options).specialization(arch=ARCH))
    assert request.fields.get("minimal", False) == is_minimal


def test_a_type_of_the_runtime_as_an_argument_is_declared() -> None:
    kernel = ck.Kernel("template <typename T> __global__ void f(T x, int* y) { *y = sizeof(x); }")
    assert kernel["cudaStream_t"].compile(arch=ARCH).code


def test_fewer_declarations_give_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    codes, kernel = [], ck.Kernel.from_template("histogram/even")["float"]
    for is_minimal in (True, False):
        request = compile.Request(kernel.specialization(arch=ARCH, target="ptx"))
        assert request.is_minimal
        monkeypatch.setattr(request, "is_minimal", is_minimal)
        codes.append(request.compile().code)
    assert codes[0] == codes[1]


def test_a_users_own_define_wins_over_the_default() -> None:
    """Of a limit that texts with includes are given otherwise: NVRTC takes a macro once."""
    limit, text = "_CCCL_META_UNROLL_LIMIT", "__global__ void f(int* x) { *x = 1; }"
    includes = f"#include <cstdint>\n{text}"

    def defined(text: str, **defines: int) -> list[tuple[str, str]]:
        kernel = ck.Kernel(text, options=ck.CompileOptions(defines=defines))
        return list(compile.Request(kernel.specialization(arch=ARCH)).fields.get("define_macro", ()))

    assert defined(includes, **{limit: 16}) == [(limit, "16")]
    assert defined(includes, N=3) == [("N", "3"), (limit, "10")]
    assert defined(text, N=3) == [("N", "3")], "libcu++ is not included"


@pytest.mark.slow
def test_cuda_and_host_headers_are_found_by_themselves() -> None:
    text = """
    #include <cstdint>
    #include <cuda_fp16.h>
    #include <cub/block/block_reduce.cuh>
    #include <cudakit/strided.cuh>
    template <typename T> __global__ void total(const T* x, T* y, int64_t n) {
        using Reduce = cub::BlockReduce<T, 128>;
        __shared__ typename Reduce::TempStorage storage;
        T sum = Reduce(storage).Sum(threadIdx.x < n ? x[threadIdx.x] : T(0));
        if (threadIdx.x == 0) *y = sum;
    }"""
    assert ck.Kernel(text)[np.float32].compile(arch=ARCH).code


def test_errors_are_placed_in_the_python_file(tmp_path: Path) -> None:
    script = tmp_path / "user.py"
    script.write_text('''import cudakit as ck
kernel = ck.Kernel("""
template <typename T>
__global__ void wrong(T* x) {
    x[0] = undefined_name;
}
""")
try:
    kernel["float"].compile(arch="sm_90")
except ck.CompileError as error:
    print(error)
''')
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "NVRTC found 1 error compiling wrong<float>"
    assert lines[1] == f'{script}:5: error: identifier "undefined_name" is undefined'
    assert lines[2].strip() == "x[0] = undefined_name;"
    assert lines[3].index("^") == lines[2].index("undefined_name")


def test_errors_in_files_and_their_headers(tmp_path: Path) -> None:
    (tmp_path / "inner.cuh").write_text("\n\nint broken = ;\n")
    main = tmp_path / "main.cu"
    main.write_text('#include "inner.cuh"\n__global__ void f(int* x) {}\n')
    with pytest.raises(ck.CompileError) as caught:
        ck.Kernel.from_file(main).compile(arch=ARCH)
    assert f"{tmp_path}/inner.cuh:3: error" in str(caught.value)
    assert "error" in caught.value.log
    assert f"-arch={ARCH}" in caught.value.options
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.log) == (str(caught.value), caught.value.log)


def test_errors_in_a_snippet_and_a_missing_header() -> None:
    kernel = ck.Kernel("template <typename Op> __global__ void f(float* x) { x[0] = Op()(x[0]); }")
    with pytest.raises(ck.CompileError, match=r"<template argument Op>:1: error: identifier \"y\""):
        kernel["[](float x) { return y; }"].compile(arch=ARCH)
    with pytest.raises(ck.CompileError, match="include_paths"):
        ck.Kernel('#include "nowhere.cuh"\n__global__ void f() {}').compile(arch=ARCH)
    with pytest.raises(ck.CompileError, match="nvidia-cuda-cccl"):
        ck.Kernel("#include <cub/no_such_thing.cuh>\n__global__ void f() {}").compile(arch=ARCH)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("__global__ void f(float* x) { *x = INFINITY; }", "INFINITY needs #include <cmath>"),
        ("__global__ void f(uint32_t* x) {}", "uint32_t needs #include <cstdint>"),
        ("__global__ void f(half* x) {}", "half needs #include <cuda_fp16.h>"),
        ("__global__ void f(int* x) { *x = std::max(x[0], x[1]); }", "std::max needs #include <algorithm>"),
        ("int half_of(int a) { return a / 2; } __global__ void f() {}", "device_as_default_execution_space"),
        ("#include <vector>\n__global__ void f() {}", "<vector> is the host's"),
        ("texture<float, 2> image; __global__ void f() {}", "take a cudaTextureObject_t"),
        (
            "const float a = 3, b = 2 * a; __global__ void f(float* x) { *x = b; }",
            "make each constant of its initialiser",
        ),
        ("struct P { int r; }; __global__ void f(P* p) { P a = {.r = 1}; *p = a; }", 'std="c++20"'),
    ],
)
def test_what_nvcc_does_by_itself_is_hinted_at(text: str, hint: str) -> None:
    with pytest.raises(ck.CompileError) as caught:
        ck.Kernel(text, "f").compile(arch=ARCH)
    hints = [line for line in str(caught.value).splitlines() if line.startswith("hint: ")]
    assert len(hints) == 1
    assert hint in hints[0]


CUB = "#include <cub/block/block_reduce.cuh>\n__global__ void f(float* x) { x[0] = cub::%s(); }"
ATOMIC = "__global__ void f(%s* x) { %s(x, 1); }"


@pytest.mark.parametrize(
    ("text", "hint"),
    thinned([
        ("texture<float, 1> t;\n__global__ void f(float* x) { x[0] = tex1Dfetch(t, 3); }", "a cudaTextureObject_t"),
        ("surface<void, 2> s;\n__global__ void f() { surf2Dwrite(1.f, s, 0, 0); }", "a cudaTextureObject_t"),
        ("__global__ void f(int* x) { x[0] = __shfl_xor(x[0], 1); }", "write __shfl_xor_sync(mask, …) with the mask"),
        ("__global__ void f(int* x) { x[0] = __shfl(x[0], 1, 8); }", "write __shfl_sync(mask, …)"),
        (CUB % "Sum", "cub::Sum is gone since CCCL 3: take cuda::std::plus<> of <cuda/std/functional>"),
        (CUB % "Max", "take cuda::maximum<> of <cuda/functional>"),
        ("#include <thrust/sort.h>\n__global__ void f(int* x) { thrust::sort(x, x + 3); }", "CUB's block and warp"),
        ("#include <thrust/pair.h>\n__global__ void f(int* x) { thrust::device_vector<int> v; }", "block and warp"),
        (ATOMIC % ("long long", "atomicAdd"), "(unsigned long long*)p, (unsigned long long)v), which adds signed"),
        (ATOMIC % ("size_t", "atomicAdd"), "as in atomicAdd((unsigned long long*)p, (unsigned long long)v)"),
        (ATOMIC % ("long", "atomicMin"), "as in atomicMin((long long*)p, (long long)v)"),
        (ATOMIC % ("unsigned long", "atomicMax"), "as in atomicMax((unsigned long long*)p, (unsigned long long)v)"),
        ("#if MORE\nnamespace q { __global__ void f() {} }\n#endif\n", "f stands under #if MORE on line 1"),
        ("#if MORE\nnamespace q { template <int N> __global__ void f() {} }\n#endif\n", "under #if MORE on line 1"),
    ], 2, several=True),
)  # fmt: skip
def test_what_is_gone_from_cuda_is_hinted_at(text: str, hint: str) -> None:
    kernel = ck.Kernel(text, "q::f" if "q {" in text else "f", host_code="skip")
    with pytest.raises(ck.CompileError) as caught:
        (kernel[3] if "int N" in text else kernel).compile(arch=ARCH)
    hints = [line for line in str(caught.value).splitlines() if line.startswith("hint: ")]
    assert len(hints) == 1
    assert hint in hints[0]


def test_errors_are_not_buried() -> None:
    wrong = "".join(f"wrong_{i}();\n" for i in range(30))
    with pytest.raises(ck.CompileError) as caught:
        ck.Kernel(f"__global__ void f() {{ int never_used;\n{wrong} }}").compile(arch=ARCH)
    message = str(caught.value)
    assert "wrong_19" in message
    assert "wrong_20" not in message
    assert "never_used" not in message
    assert "… and 10 more, in .log" in message
    assert "wrong_29" in caught.value.log
    assert "never_used" in caught.value.log


def test_a_template_argument_that_does_not_fit_is_shown() -> None:
    with pytest.raises(ck.CompileError, match="scale<NoSuchType>"):
        ck.Kernel(SCALE)["NoSuchType"].compile(arch=ARCH)


def test_an_unknown_arch_is_shown() -> None:
    with pytest.raises(
        ck.CompileError, match=r"scale<float>: unknown arch 'sm_999'; expected one that NVRTC .*: .*sm_90"
    ) as caught:
        ck.Kernel(SCALE)[np.float32].compile(arch="sm_999")
    assert "--gpu-architecture" in caught.value.log


def test_warnings_are_kept_in_the_log() -> None:
    made = ck.Kernel("__global__ void f() { int unused = 0; }").compile(arch=ARCH)
    assert "unused" in made.log


# ── the key ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def key_of(path: Path, **options: Any) -> str:
    specialization = ck.Kernel.from_file(path, options=ck.CompileOptions(**options)).specialization(arch=ARCH)
    request = compile.Request(specialization)
    cache.default_cache().get(request, request.compile)
    return request.key


def test_a_changed_header_changes_the_key(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    inner, outer, main = tmp_path / "deep" / "inner.cuh", tmp_path / "outer.cuh", tmp_path / "main.cu"
    inner.write_text("#define VALUE 1\n")
    outer.write_text('#include "deep/inner.cuh"\n')
    main.write_text('#include "outer.cuh"\n__global__ void f(int* x) { *x = VALUE; }\n')
    first, code = key_of(main), ck.Kernel.from_file(main).compile(arch=ARCH).code
    assert key_of(main) == first
    inner.write_text("#define VALUE 2\n")
    assert key_of(main) != first
    assert ck.Kernel.from_file(main).compile(arch=ARCH).code != code
    inner.write_text("#define VALUE 1\n")
    assert key_of(main) == first


def test_a_header_that_appears_earlier_on_the_path_changes_the_key(tmp_path: Path) -> None:
    near, far, main = tmp_path / "near", tmp_path / "far", tmp_path / "main.cu"
    near.mkdir()
    far.mkdir()
    (far / "value.cuh").write_text("#define VALUE 1\n")
    main.write_text("#include <value.cuh>\n__global__ void f(int* x) { *x = VALUE; }\n")
    first = key_of(main, include_paths=[near, far])
    (near / "value.cuh").write_text("#define VALUE 2\n")
    assert key_of(main, include_paths=[near, far]) != first


def test_has_include_counts(tmp_path: Path) -> None:
    main = tmp_path / "main.cu"
    main.write_text('#if __has_include("maybe.cuh")\n#define N 1\n#endif\n__global__ void f() {}\n')
    first = key_of(main)
    (tmp_path / "maybe.cuh").write_text("")
    assert key_of(main) != first


def test_explain_names_the_part_that_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_cache(monkeypatch, cache.Cache(tmp_path, 1 << 30))
    kernel = ck.Kernel(SCALE)[np.float64]
    for stored in (kernel, ck.Kernel(SCALE)[np.float32]):
        stored.compile(arch="sm_80")
    found = cache.default_cache().explain(compile.Request(kernel.specialization(arch="sm_86")))
    assert found.where == "miss"
    nearest = found.neighbours[0].differences
    assert [(d.part, d.requested, d.stored) for d in nearest] == [("arch", "sm_86", "sm_80")]


# ── workers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_nvrtc_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda import pathfinder

    def absent(name: str) -> None:
        raise pathfinder.DynamicLibNotFoundError(name)

    monkeypatch.setattr(compile.headers, "compiler_wheels", lambda: None)
    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", absent)
    with pytest.raises(ck.CompileError, match=r"NVRTC, .* is not installed: pip install 'cudakit\[cu13\]'"):
        compile.compiler_identity.__wrapped__()


def test_a_files_name_is_no_source() -> None:
    with pytest.raises(ck.TemplateError, match=r"got a name: 'a\.cu'; a file is Kernel\.from_file"):
        ck.Kernel("a.cu")


def test_prewarm_takes_a_list() -> None:
    with pytest.raises(ck.ArgumentError, match=r"put it into a list: ck.prewarm\(\[kernel\]\)"):
        ck.prewarm(ck.Kernel("__global__ void f(int* x) { *x = 1; }"))  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match=r"takes kernels, such as kernel.np.float32., got 'saxpy'"):
        ck.prewarm(["saxpy"])  # type: ignore[list-item]


@pytest.mark.parametrize("options", [{"fast_math": True}, ["-use_fast_math"], []])
def test_options_of_another_form_are_refused(options: Any) -> None:
    with pytest.raises(ck.ArgumentError, match=r"f: options are a ck.CompileOptions, .*got"):
        ck.Kernel("__global__ void f(int* x) { *x = 1; }", options=options)


@pytest.mark.slow
def test_prewarm_compiles_in_workers_and_reports_failures() -> None:
    tag = f"prewarm_{os.getpid()}"
    kernel = ck.Kernel(f"template <typename T> __global__ void {tag}(T* x) {{ x->value(); x[0] *= T(1); }}")
    good = ck.Kernel(f"template <typename T> __global__ void {tag}_good(T* x) {{ x[0] *= T(3); }}")
    good.prepare(np.float32, np.float64, np.int32, arch=ARCH)
    before = requests()["miss"]
    for dtype in (np.float32, np.float64, np.int32):
        good[dtype].compile(arch=ARCH)
    assert requests()["miss"] == before
    with pytest.raises(ck.CompileError, match=tag):
        ck.prewarm([kernel[np.float32], good[np.int64], good[np.int16]], arch=ARCH, workers=2)
    assert cache.default_cache().peek(compile.Request(good[np.int64].specialization(arch=ARCH)))


def test_another_process_finds_what_this_one_compiled(tmp_path: Path) -> None:
    program = f"""
import cudakit as ck
from cudakit.jit.cache.cache import default_cache
ck.Kernel({SCALE!r})["short"].compile(arch="sm_90")
print(default_cache().info().disk_hits, default_cache().info().misses)
"""
    environment = {**os.environ, "CUDAKIT_CACHE_DIR": str(tmp_path)}
    run = lambda: subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)  # noqa: E731
    assert run().stdout.split() == ["0", "1"]
    assert run().stdout.split() == ["1", "0"]


@pytest.mark.slow
def test_racing_processes_compile_once(tmp_path: Path) -> None:
    program = f"""
import cudakit as ck
from cudakit.jit.cache.cache import default_cache
ck.Kernel({SCALE!r})["char"].compile(arch="sm_90")
print(default_cache().info().misses)
"""
    environment = {**os.environ, "CUDAKIT_CACHE_DIR": str(tmp_path)}
    started = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE) for _ in range(4)
    ]
    assert sum(int(process.communicate()[0]) for process in started) == 1


def test_a_cached_kernel_needs_neither_parser_nor_compiler(tmp_path: Path) -> None:
    program = f"""
import sys, cudakit as ck
ck.Kernel({SCALE!r})["float"].compile(arch="sm_90")
print("tree_sitter" in sys.modules, any("libnvrtc" in line for line in open("/proc/self/maps")))
"""
    environment = {**os.environ, "CUDAKIT_CACHE_DIR": str(tmp_path)}
    run = lambda: subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)  # noqa: E731
    assert run().stdout.split() == ["True", "True"]
    assert run().stdout.split() == ["False", "False"]


# ── small parts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_importing_is_cheap_and_touches_neither_cupy_nor_the_driver() -> None:
    program = """
import sys, cudakit
maps = open("/proc/self/maps").read()
print("cupy" in sys.modules, "tree_sitter" in sys.modules, "libcuda.so" in maps)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "False"]


def test_log_is_read_into_diagnostics() -> None:
    log = 'a.cu(3): error: bad\n    x = y;\n        ^\n\nb.h(7): warning #177-D: odd\n\n1 error detected in "a.cu".\n\0'
    found = diagnostics.read_log(log)
    assert [(d.file, d.line, d.severity, d.message) for d in found] == [
        ("a.cu", 3, "error", "bad"),
        ("b.h", 7, "warning", "odd"),
    ]
    assert found[0].context == ("  x = y;", "      ^")


def test_types_are_read_from_a_mangled_name() -> None:
    made = ck.Kernel("""
        template <typename T> struct Wide { using type = double; };
        template <typename T> __global__ void f(typename Wide<T>::type* x, decltype(1ull) n, T (*table)[4]) {}
        """)[np.float32].compile(arch=ARCH)
    types = mangled.parameter_types(made.lowered[compiled.type_of("f<float>")])
    assert [str(cpp) for cpp in types][:2] == ["double*", "unsigned long long"]


@pytest.mark.parametrize("version", ["16_V_300500_SM_900", "23THRUST_200802_SM_900_NS"])
def test_a_library_s_inline_namespaces_are_left_out_of_types(version: str) -> None:
    probe = f"_Z12{compiled.TYPES_PROBE}IPFvPN6thrust{version}7complexIfEEEEvv"
    assert [str(cpp) for cpp in mangled.parameter_types(probe)] == ["thrust::complex<float>*"]


def test_kernels_pickle_with_their_template_arguments() -> None:
    kernel = ck.Kernel(SCALE, options=ck.CompileOptions(fast_math=True))[np.float32]
    again = pickle.loads(pickle.dumps(kernel))
    assert again.specialization(arch=ARCH) == kernel.specialization(arch=ARCH)


def test_without_a_gpu_or_driver_the_error_is_clear() -> None:
    if ck.has_gpu():
        pytest.skip("there is a GPU here")
    with pytest.raises(ck.LaunchError, match="no CUDA driver or no GPU"):
        ck.Kernel(SCALE)[np.float32].attributes()
    assert ck.Kernel(SCALE)[np.float32].compile().target == "ptx", "what the emulator runs"


def test_cold_compile_is_not_hidden_by_memory() -> None:
    text = SCALE.replace("scale", f"scale_{time.time_ns()}")
    before = requests()["miss"]
    ck.Kernel(text)[np.float32].compile(arch=ARCH)
    assert requests()["miss"] == before + 1


@pytest.mark.slow
def test_precompiled_headers_pay_and_keep_lines_right() -> None:
    text = """#include <cub/block/block_reduce.cuh>
template <typename T> __global__ void total(const T* x, T* y) {
    using Reduce = cub::BlockReduce<T, 128>;
    __shared__ typename Reduce::TempStorage storage;
    T sum = Reduce(storage).Sum(x[threadIdx.x]);
    if (threadIdx.x == 0) *y = sum WRONG;
}"""
    options = ck.CompileOptions(pch=True, defines={"WRONG": ""})
    kernel = ck.Kernel(text, options=options)
    times = []
    for name in ("float", "double", "int", "short"):
        start = time.perf_counter()
        kernel[name].compile(arch=ARCH)
        times.append(time.perf_counter() - start)
    assert min(times[1:]) < times[0]
    with pytest.raises(ck.CompileError, match=r"test_compile.py:\d+: error") as caught:
        kernel.with_options(defines={})[np.float16].compile(arch=ARCH)
    line = int(str(caught.value).split("test_compile.py:")[1].split(":")[0])
    assert "sum WRONG" in Path(__file__).read_text().splitlines()[line - 1]


def test_managed_variables_do_not_stop_a_compile() -> None:
    text = "__managed__ int both = 3; __device__ int own = 1; __global__ void f(int* x) { *x = both + own; }"
    assert "&own" in ck.Kernel(text).compile(arch=ARCH).lowered


BOUNDS = {
    "plain": ("", LaunchBounds()),
    "pair": ("__cluster_dims__(2, 4)", LaunchBounds(cluster=(2, 4, 1))),
    "open": ("__cluster_dims__()", LaunchBounds(needs_cluster=True)),
    "few": ("__launch_bounds__(128, 1, 4)", LaunchBounds(threads=128, most_blocks=4)),
    "block": ("__block_size__((64, 2, 1))", LaunchBounds(block=(64, 2, 1), cluster=(1, 1, 1))),
    "whole": ("__block_size__((32, 1, 1), (2, 1, 1))", LaunchBounds(None, (32, 1, 1), (2, 1, 1), False, None, True)),
}


def test_machine_code_and_ptx_have_the_bounds_of_the_source() -> None:
    texts = [f'extern "C" __global__ void {head} {name}(int* x) {{ *x = 1; }}' for name, (head, _) in BOUNDS.items()]
    kernel = ck.Module("\n".join(texts))["plain"]
    functions = emulator.parse(kernel.ptx(arch=ARCH)).functions
    code = kernel.compile(arch=ARCH, target="cubin").code
    for name, (_, bounds) in BOUNDS.items():
        assert LaunchBounds.of(functions[name].directives) == bounds
        assert elf.launch_bounds(code, name) == bounds
    assert elf.launch_bounds(code, "absent") == elf.launch_bounds(b"no ELF file", "pair") == LaunchBounds()
