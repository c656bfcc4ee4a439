"""Programs for nvcc with their host code cut: what stays, where it stands, and that headers are read as they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.places import to_host

import cudakit as ck
from cudakit.jit.signature.host_code import device_part
from cudakit.jit.source import headers, host_headers, source

PROGRAM = r"""
#include <iostream>
#include <vector>
#include <no_such_library.h>
#include <cuda_runtime.h>
#define CHECK(call) do { if ((call) != cudaSuccess) exit(1); } while (0)
#define HD __host__ __device__
using namespace std;
using std::vector;
using namespace std::chrono;

const int N = 4, UNUSED = 5;
static const float SCALE = 2.0f;
__constant__ float table[4];
float *host_pointer = nullptr;
static vector<float> numbers(N);
typedef struct { int count; float step; } Params;
struct Unused { std::string name; void print() const { std::cout << name; } };
class Grid {
public:
    Grid(const std::string& name) : width(0) { open(name); }
    std::string describe() const;
    __host__ __device__ int size() const { return width * width; }
    int width;
};
enum Mode { FAST = 1, SLOW = 2 };

template <int n> __device__ int power(int x) { return x * power<n - 1>(x); }
template <> __device__ int power<0>(int) { return 1; }
constexpr int twice(int x) { return 2 * x; }
HD inline float step(float x) { return x + 1; }
float step_on_host(float x) { return x; }
void report(const vector<float>& all);

__global__ void k(float* x, Params params, int mode) {
    Grid grid = {3};
    uint32_t i = threadIdx.x;
    assert(i < N);
    x[i] = step(SCALE) + twice(params.count) + table[i] + (mode == SLOW) * power<3>(2) + grid.size()
         + pow(2.0f, 2) + min(1.0f * N, INFINITY) + FLT_EPSILON * 0;
    if (i > 100) printf("%u", i);
}

void report(const vector<float>& all) { for (float x : all) cout << x << "\n}"; }

int main(int argc, char** argv) {
    float* x; // a brace in a comment: {
    CHECK(cudaMalloc(&x, sizeof(float) * N));
    k<<<1, N>>>(x, {1, 2.f}, argc);
    report(numbers);
#ifdef WITH_MORE
    return 1;
#else
    return 0;
#endif
}
"""
PARAMS = np.dtype([("count", "i4"), ("step", "f4")])


def device_text(text: str, folder: Path | None = None) -> str:
    return device_part(source.Source(text, "a.cu", folder), ()).text


def test_a_program_runs_as_it_stands(tmp_path: Path, stream: Any, xp: Any) -> None:
    path = tmp_path / "program.cu"
    path.write_text(PROGRAM)
    x, params = xp.zeros(4, "f4"), np.array((3, 0.5), PARAMS)[()]
    for kernel in (
        ck.Kernel.from_file(path, "k", host_code="skip"),
        ck.Kernel(PROGRAM, "k", host_code="skip"),
    ):
        kernel(stream, ck.config(1, 4), x, params, 2)
        assert [float(value) for value in x] == [3 + 6 + 8 + 9 + 4 + 4] * 4
    with pytest.raises(ck.CompileError):
        ck.Kernel.from_file(path, "k").compile(arch="sm_90", target="ptx")


def test_a_module_of_a_program(tmp_path: Path, stream: Any, xp: Any) -> None:
    path = tmp_path / "program.cu"
    path.write_text(
        "__device__ int n;\nint main() {}\n__global__ void set() { n = 3; }\n__global__ void add() { ++n; }\n"
    )
    module = ck.Module.from_file(path, host_code="skip")
    module["set"](stream, ck.config(1, 1))
    module["add"](stream, ck.config(1, 1))
    assert int(module.globals.read("n", stream)) == 4


def test_what_stays_stands_where_it_stood() -> None:
    text = device_text(PROGRAM)
    kept = text.partition('#line 1 "a.cu"\n')[2].split("\n")
    wanted = PROGRAM.split("\n")
    assert len(kept) == len(wanted)
    for word in ("__constant__", "power<n - 1>", "typedef struct", "int size() const", "__global__"):
        (line,) = (i for i, written in enumerate(wanted) if word in written)
        assert kept[line].index(word) == wanted[line].index(word)
    for word in ("main", "UNUSED_", "host_pointer", "numbers", "Unused", "describe", "step_on_host", "report", "<<<"):
        assert word not in text
    assert all(f"#include <{header}>" in text for header in ("cassert", "cstdint", "cmath", "cfloat"))


def test_errors_are_placed_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "part.h").write_text("#pragma once\nvoid host() {}\n__device__ void f() { nothing(); }\n")
    path = tmp_path / "a.cu"
    path.write_text('#include <string>\n#include "part.h"\nint main() {\n}\n__global__ void k() { f(); nowhere(); }\n')
    with pytest.raises(ck.CompileError) as found:
        ck.Kernel.from_file(path, host_code="skip").compile(arch="sm_90", target="ptx")
    assert f'{tmp_path / "part.h"}:3: error: identifier "nothing"' in str(found.value)
    assert f'{path}:5: error: identifier "nowhere"' in str(found.value)


def test_headers_are_cut_too_and_read_anew(tmp_path: Path, stream: Any, xp: Any) -> None:
    folder = tmp_path / "include"
    folder.mkdir()
    path = tmp_path / "a.cu"
    path.write_text('#include "a.h"\n#include <b.h>\n#include "a.h"\nint main() { k<<<1, 1>>>(0); }\n')
    (tmp_path / "a.h").write_text(
        '#pragma once\n#include <b.h>\n#include <string>\nstd::string name() { return ""; }\n'
    )
    kernel = "__global__ void k(int* x) { x[0] = VALUE; }\n"
    x = xp.zeros(1, "i4")
    options = ck.CompileOptions(include_paths=[folder])
    for value in (1, 2):
        (folder / "b.h").write_text(f"#ifndef B_H\n#define B_H\n#define VALUE {value}\nvoid host();\n{kernel}#endif\n")
        ck.Kernel.from_file(path, options=options, host_code="skip")(stream, ck.config(1, 1), x)
        assert int(x[0]) == value


def test_a_header_that_another_shadows_is_not_used(tmp_path: Path, stream: Any, xp: Any) -> None:
    first, second, x = tmp_path / "first", tmp_path / "second", xp.zeros(1, "i4")
    for folder in (first, second):
        folder.mkdir()
    (second / "v.h").write_text("#define VALUE 2\n")
    text = "#include <v.h>\nint main() {}\n__global__ void k(int* x) { x[0] = VALUE; }\n"
    options = ck.CompileOptions(include_paths=[first, second])
    ck.Kernel(text, options=options, host_code="skip")(stream, ck.config(1, 1), x)
    (first / "v.h").write_text("#define VALUE 1\n")
    ck.Kernel(text, options=options, host_code="skip")(stream, ck.config(1, 1), x)
    assert int(x[0]) == 1


@pytest.mark.parametrize(
    ("text", "gone", "there"),
    [
        ("#ifdef _WIN32\nint f() {\n#else\nint g() {\n#endif\n return 0; }\n", "return", "#else"),
        ("int f(int x) { return x; } // {\n/* } */ struct A { int a; A(int b) : a{b} {} };", "A(int", "struct A"),
        ("struct A { virtual ~A(); std::string s(); int (*f)(int); int a = 1; };", "std::string", "int (*f)(int);"),
        ("namespace n { void host(); struct A { int v; }; }", "host", "namespace n"),
        ('extern "C" { void host(); struct A { int v; }; }', "host", 'extern "C"'),
        ("#if LINUX\n#else\n#error no system\n#endif\nstruct A { int v; };", "#error", "#else"),
        (
            "template <typename T> struct A;\ntemplate <> struct A<int> { T host() { return 1; } int v; };",
            "host",
            "A<int>",
        ),
        ("struct A { int v; }; A all[3]; A* make(int n) { return new A[n]; }", "make", "struct A"),
        ("static void f(); static int n; const char* names() { return 0; } struct A { int v; };", "names", "struct A"),
    ],
)
def test_what_is_cut(text: str, gone: str, there: str) -> None:
    found = device_text(f"{text}\n__global__ void k(struct A* a) {{}}")
    assert gone not in found
    assert there in found


@pytest.mark.parametrize(
    "declaration",
    [
        "typedef int (*callback)(void *, int);",
        "typedef count (*callback)(int);",
        "typedef int\n  (*callback) (enum missing, const struct sockaddr *);",
        "typedef int callback(struct socket_of *);",
        "typedef int (&callback)[sizeof(struct socket_of)];",
        "typedef enum missing (*callback)(int);",
    ],
)
def test_the_type_of_what_is_declared_is_no_name_of_it(declaration: str) -> None:
    """A kernel's ``int`` kept types of functions, and these a struct with a member of a type that nothing declares."""
    host = f"typedef long count;\nstruct socket_of {{ int family; struct sockaddr addr; }};\n{declaration}"
    kernel = "__global__ void k(int* x, int n) { for (int i = 0; i < n; ++i) x[i] = i; }"
    found = device_text(f"{host}\ntypedef void (*open)(callback, socket_of*);\n{kernel}")
    assert "sockaddr" not in found
    assert "callback" not in found
    assert "callback" in device_text(f"{host}\n{kernel.replace('int n', 'int n, callback f')}")


def test_words_of_gcc(stream: Any, xp: Any) -> None:
    text = """
    #define larger(a, b) ({ __typeof__(a) _a = (a); \\
                            __typeof__(b) _b = (b); \\
                            _a > _b ? _a : _b; })
    __device__ float2 pair(float a) { return (float2){a, 2 * a}; }
    int main() { return 0; }
    __global__ void k(float* x) { register int n = larger(2, 3); x[0] = pair(n).y; }
    """
    x = xp.zeros(1, "f4")
    ck.Kernel(text, host_code="skip")(stream, ck.config(1, 1), x)
    assert float(x[0]) == 6


def test_instantiations_that_a_macro_writes_go_with_their_functions() -> None:
    text = """
    template <int N> void host(int* x) { x[0] = N; }
    template <int N> struct Add { __device__ int get(int x) { return x + N; } };
    template <int N> __global__ void k(int* x) { x[0] = Add<N>().get(x[0]); }
    #define EXPORT(N) \\
        template void host<N>(int*); \\
        template void host<N + 1>(int*);
    #define KEPT(N) template struct Add<N>; template __global__ void k<N>(int*);
    EXPORT(1)
    EXPORT(3)
    KEPT(2)
    """
    found = device_text(text)
    assert "host<N" not in found
    assert "template struct Add<N>; template __global__ void k<N>(int*);" in found
    ck.Kernel(text, host_code="skip")[2].compile(arch="sm_90", target="ptx")


def test_casts_of_braces_in_macros(stream: Any, xp: Any) -> None:
    text = """
    #define pair float2
    #define ONE_TWO (pair){1, 2}
    #define SCALED(a) (pair){a, 2 * a}
    int main() { return 0; }
    __global__ void k(float* x) { x[0] = ONE_TWO.y * (SCALED(3)).y; }
    """
    x = xp.zeros(1, "f4")
    ck.Kernel(text, host_code="skip")(stream, ck.config(1, 1), x)
    assert float(x[0]) == 12


def test_functions_of_math_h_take_every_integer(stream: Any, xp: Any) -> None:
    """In double, alone and beside a number of another type."""
    types = [
        "bool",
        "char",
        *(f"{sign} {size}" for sign in ("signed", "unsigned") for size in ("char", "short", "int")),
    ]
    types += [f"{sign} {size}" for sign in ("signed", "unsigned") for size in ("long", "long long")]
    named = "".join(f"using t{k} = {each};\n" for k, each in enumerate(types))
    lines = " ".join(f"out[{k}] = sqrt(t{k}(1)) + pow(t{k}(1), 2.0f);" for k in range(len(types)))
    out = xp.zeros(len(types))
    ck.Kernel(f"#include <math.h>\n{named}__global__ void roots(double* out) {{ {lines} }}")(
        stream, ck.config(1, 1), out
    )
    stream.sync()
    assert to_host(out).tolist() == [2.0] * len(types)


@pytest.mark.parametrize("header", ["math.h", "algorithm", "complex"])
def test_headers_of_the_host_bear_a_programs_macros(header: str) -> None:
    # libcu++'s own do not bear a T.
    macros = "#define A 2\n#define B 3\n#define Z 4\n" + ("#define T float\n" if header == "math.h" else "")
    text = f"{macros}#include <{header}>\n__global__ void k(float* x) {{ x[0] = A; }}"
    ck.Kernel(text).compile(arch="sm_90", target="ptx")


def test_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.cu"
    path.write_bytes(b"\xef\xbb\xbf// caf\xe9\n__global__ void k() {}\n")
    ck.Kernel.from_file(path, host_code="skip").compile(arch="sm_90", target="ptx")
    with pytest.raises(ck.TemplateError, match="not UTF-8"):
        ck.Kernel.from_file(path)


def test_many_comments_are_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.cu"
    path.write_text("/* one */ /** two **/ // three\n" * 2000 + "__global__ void k() {}\n")
    assert [ck.Kernel.from_file(path, host_code=how).name for how in ("keep", "skip")] == ["k", "k"]  # type: ignore[arg-type]


def test_what_macros_write() -> None:
    text = """
    template <int N> struct At { static __device__ int get(const int (&x)[N], int i); };
    #define AT(N) template <> __device__ int At<N>::get(const int (&x)[N], int i) { return x[i]; }
    AT(1);
    AT(2)
    __device__ int twice(int x) { return 2 * x; }
    #define KERNEL(name) __global__ void name(int* x)
    KERNEL(k) { int y[2] = {1, 2}; x[0] = At<2>::get(y, twice(0)); }
    """
    found = device_text(text)
    assert all(part in found for part in ("AT(1);", "AT(2)", "twice", "KERNEL(k)"))


def test_what_is_for_the_host_must_be_a_word() -> None:
    with pytest.raises(ck.ArgumentError, match="host_code is 'keep' or 'skip', got True"):
        ck.Kernel("__global__ void k() {}", host_code=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kept",
    [
        "struct Add { int n; Add(int n) : n(n) {} __device__ int operator()(int x) { return x + n; } };",
        "template <int N> struct Traits { static constexpr int size = 2 * N; };",
    ],
)
@pytest.mark.parametrize("cut", ["struct Names { std::vector<int> v; };", "struct Log { int level; };"])
def test_what_template_arguments_name_stays(kept: str, cut: str) -> None:
    text = """
    template <typename A> __global__ void k(int* x) {}
    template <typename A> void run() { using T = Traits<3>; Names n; k<A><<<1, 1>>>(nullptr); }
    int main() { run<Add>(); }
    """
    found = device_text(kept + cut + text)
    assert kept.partition(" {")[0] in found
    assert cut.partition(" {")[0] not in found


def test_specializations_of_what_the_host_has_go() -> None:
    text = """
    template <typename T> struct hash { __device__ int get(T x) { return int(x); } };
    template <typename T> struct hash<std::vector<T>> { int get(std::vector<T> x) { return x.size(); } };
    template <> struct hash<std::string> { std::string last; };
    struct Shown { std::string text; __device__ int get() { return 1; } };
    __global__ void k(int* x) { x[0] = hash<float>().get(2.5f); }
    """
    found = device_text(text)
    assert "std::" not in found
    ck.Kernel(text, host_code="skip").compile(arch="sm_90", target="ptx")


@pytest.mark.parametrize("name", ["aligned_storage<8, 8>", "bool_constant<true>", "alignment_of<int>", "rank<int[2]>"])
def test_type_traits_need_no_include(name: str) -> None:
    text = f"int main() {{ return 0; }}\n__global__ void k(std::{name}* x) {{}}"
    ck.Kernel(text, host_code="skip").compile(arch="sm_90", target="ptx")


LIBRARIES = """
#include <cublas_v2.h>
#include <cusparse.h>
#include <new_library.h>
#include "helper_cuda.h"
#include <cufftXt.h>
cublasHandle_t handle;
struct Plan { cufftHandle plan; cublasStatus_t run(); };
__device__ cufftComplex load(void* x, size_t i, void*, void*) {
    return cuCmulf(((cufftComplex*)x)[i], make_cuComplex(2, 0));
}
__device__ cufftCallbackLoadC pointer = load;
__global__ void k(cufftComplex* x) { x[0] = pointer(x, 0, nullptr, nullptr); }
int main() { return cublasCreate(&handle) + make_plan(stdout); }
"""


@pytest.mark.parametrize("place", ["nowhere", "toolkit", "project"])
def test_headers_of_the_hosts_libraries(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: Any, xp: Any
) -> None:
    """The program is the same one whether CUDA's libraries are installed, and wherever."""
    if place != "nowhere":
        bad = "#include <cuComplex.h>\ntypedef void* cufftHandle;\nvoid bad(FILE*);\n#define EMULATION cudaEmulation\n"
        names = ("cublas_v2.h", "cusparse.h", "cufft.h", "cufftXt.h", "helper_cuda.h", "cuda_runtime_api.h")
        for name in names:
            (tmp_path / name).write_text(bad)
        (tmp_path / "new_library.h").write_text(f"{bad}inline int make_plan(FILE* f) {{ return fclose(f); }}\n")
    if place == "toolkit":
        folders = (*headers.toolkit_folders(), tmp_path)
        monkeypatch.setattr(headers, "toolkit_folders", lambda: folders)
        for module, function in ((headers, headers.search_folders), (host_headers, host_headers.is_for_device)):
            monkeypatch.setattr(module, function.__name__, function.__wrapped__)
    options = ck.CompileOptions(include_paths=[tmp_path] if place == "project" else [])
    x = xp.ones(1, "c8")
    ck.Kernel(LIBRARIES, options=options, host_code="skip")(stream, ck.config(1, 1), x)
    assert complex(x[0]) == 2


FILL = "__global__ void k(int* x) { x[0] = ROUNDS; }\n"
DEFAULT = "#ifndef ROUNDS\n#define ROUNDS 1\n#endif\n"
SLOW = "#ifndef FAST\n#define FAST 0\n#endif\n"
PLAIN = "__global__ void k(int* x) { x[0] = 1; }\nint main() { return 0; }\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'#include "tuning.h"\n{DEFAULT}{FILL}', "it may define ROUNDS (line 2), on which device code depends"),
        (f"#include <tuning.h>\n{DEFAULT}{FILL}int main() {{ Clock c; }}", "it may define ROUNDS (line 2)"),
        (f"#include <tuning.h>\n#if FAST\n#define ROUNDS 2\n#else\n{DEFAULT}#endif\n{FILL}", "define FAST (line 2)"),
        ("#include <tuning.h>\n__global__ void k(int* x) {\n#ifdef FAST\nx[0] = 1;\n#endif\n}", "FAST (line 3)"),
        (f"#include <tuning.h>\n{SLOW}#if FAST\nstruct K {{}};\n#endif\n{PLAIN}", None),
        (f"#include <tuning.h>\n{SLOW}#if FAST\n__device__ int n;\n#endif\n{PLAIN}", "FAST (line"),
        (f"{DEFAULT}#include <tuning.h>\n{FILL}", None),
        ("__global__ void k(int* x) {\n#include <body.inc>\n}", "it stands in device code"),
        ("struct P {\n#include <members.inc>\n};\n__global__ void k(P p) {}", "it stands in device code"),
        ("enum {\n#include <names.inc>\nN = 3 };\n__global__ void k(int* x) { x[0] = N; }", "it stands in device code"),
        (f"void host() {{\n#include <body.inc>\n}}\n{PLAIN}", None),
        ("struct P { int v; void host() {\n#include <body.inc>\n} };\n__global__ void k(P p) {}", None),
        (f"#include <a/b.hpp>\n#ifdef FAST\n__device__ int n;\n#endif\n{PLAIN}", "it may define FAST"),
        (f"#include <a/b.hpp>\n#ifdef FAST\n__device__ int n;\n#endif\n{PLAIN}void f() {{ b::C c; }}", None),
        (f'#include "b.hpp"\n#ifdef FAST\nextern "C" {{\nvoid g();\n}}\n#endif\n{PLAIN}void f() {{ b::C c; }}', None),
        (f'#include "traits.h"\n{PLAIN}', "no host code uses it"),
        (f'#include "timer.h"\n{PLAIN}void time() {{ Timer t; t.start(); }}', None),
        (f'#include "timer.h"\n{PLAIN}void time() {{ return start_timer(3); }}', None),
        (f'#include "timer.h"\n{PLAIN}void f() {{ std::string s = "T"; printf("%d", s.size()); }}', "no host"),
        (f'#include "helper_cuda.h"\n#include "stdio.h"\n#include <unistd.h>\n#include <vector>\n{PLAIN}', None),
        (f"#include <a/b.hpp>\n#ifdef _WIN32\n__device__ int n;\n#endif\n{PLAIN}", None),
        (f"#include <a/b.hpp>\n#ifndef M_PI\n#define M_PI 3\n#endif\n{FILL}{DEFAULT.replace('ROUNDS', 'M_PI')}", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("nested", [False, True])
def test_headers_that_are_missing(text: str, reason: str | None, nested: bool, tmp_path: Path) -> None:
    """One that device code may need is refused by name, with what shows that; others are host code."""
    if nested:
        (tmp_path / "a.h").write_text(f"{text}\n#pragma once\n")
        text = '#include "a.h"\n'
    found = device_text(text, tmp_path)
    assert ("#error" in found) == (reason is not None)
    assert "cudakit_missing" not in found
    assert (reason or "") in found


def test_a_missing_header_is_named(tmp_path: Path, stream: Any, xp: Any) -> None:
    text = f'#ifdef TUNED\n#include "tuning.h"\n#endif\n{DEFAULT}{FILL}int main() {{ Clock c; }}'
    x = xp.zeros(1, "i4")
    kernel = ck.Kernel(text, host_code="skip")
    kernel(stream, ck.config(1, 1), x)  # the condition is the compiler's to decide
    assert int(x[0]) == 1
    with pytest.raises(ck.CompileError) as error:
        kernel.with_options(defines=["TUNED"]).compile(arch="sm_90", target="ptx")
    assert str(error.value).splitlines()[1].partition(":2: ")[2] == (
        'catastrophic error: "tuning.h" is not found, and it may define ROUNDS (line 4), on which '
        "device code depends: give its folder with CompileOptions(include_paths=[...]), or an empty file of that name "
        "if only the host needs it"
    )
    assert "hint" not in str(error.value)
    (tmp_path / "tuning.h").write_text("#define ROUNDS 5\n")
    kernel.with_options(defines=["TUNED"], include_paths=[tmp_path])(stream, ck.config(1, 1), x)
    assert int(x[0]) == 5
    kernel.with_options(defines={"TUNED": 1, "ROUNDS": 6})(stream, ck.config(1, 1), x)
    assert int(x[0]) == 6
    with pytest.raises(
        ck.CompileError, match=r"hint: <bounds\.h> was left out as host code; if device code needs it, give"
    ):
        ck.Kernel("#include <bounds.h>\n#include <vector>\n" + FILL, host_code="skip").compile(
            arch="sm_90", target="ptx"
        )


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("#if TILE == 8\n#define V 8\n#elif TILE == 4\n#define V 4\n#else\n#error no such TILE\n#endif\n", True),
        ("#ifndef TILE\n#error no TILE\n#endif\n#if TILE == 8\n#define V 8\n#else\n#define V 4\n#endif\n", True),
        ("#if __CUDA_ARCH__ < 700\n#error old\n#endif\n#define V 3\n", True),
        ("#if V < 2\n#error small\n#endif\n#define V 3\n", True),
        ("#error not for use\n#define V 3\n", True),
        ("#ifndef LIMIT\n#error no LIMIT\n#endif\nint host[LIMIT];\n#define V 3\n", False),
        ("#ifndef _WIN32\n#error for Windows\n#endif\n#define V 3\n", False),
        ("#ifdef __CUDACC_RTC__\n#error for nvcc\n#endif\n#define V 3\n", False),
        ("#ifndef __CUDACC__\n#error for nvcc\n#endif\n#define V 3\n", False),
        ("void host() {\n#ifdef DEBUG\n#error in host code\n#endif\n}\n#define V 3\n", False),
        ("__device__ int f() {\n#ifdef DEBUG\n#error in device code\n#endif\nreturn 3; }\n#define V f()\n", True),
        ('static_assert(sizeof(int) == V, "of V");\n#define V 3\n', True),
        ('const int N = 4, M = 2;\nstatic_assert(N % M == 0, "of N");\n#define V N\n', True),
        ('struct S { int v; static_assert(sizeof(int) == 4, "of S"); void host(); };\n#define V sizeof(S)\n', True),
        ('const int N = 4;\nint size();\nstatic_assert(N == 4 && size() == 3, "of the host");\n#define V N\n', False),
        (
            'const int N = 4;\nstruct S { std::string s; };\nstatic_assert(N < sizeof(S), "of host");\n#define V N\n',
            False,
        ),
        ('const int N = 4;\nstatic_assert(sizeof(long) == N, "of the host");\n#define V 3\n', False),
    ],
)
def test_what_refuses_a_text_stays_where_device_code_depends_on_it(text: str, stays: bool) -> None:
    found = device_text(f"{text}__global__ void k(int* x) {{ x[0] = V; }}\n")
    assert ("#error" in found or "static_assert" in found) == stays


RAY = "struct Ray { real o; };\n__global__ void k(int* x) { Ray r; r.o = 7; x[0] = r.o; }"
PAIR = "struct Pair { int v; };\n__global__ void k(int* x) { Pair p; p.v = 7; x[0] = p.v; }"
GREEN = "__global__ void k(int* x) { x[0] = GREEN; }"


@pytest.mark.parametrize(
    "text",
    [
        f"#define ALIAS(n, T) using n = T;\nALIAS(real, float)\n{RAY}",
        f"#define ALIAS(n, T) using n = T\nALIAS(real, float);\n{RAY}",
        f"#define ALIAS(n, T) using n = T;\nALIAS(no, std::vector<int>)\nALIAS(real, float)\nALIAS(b, int)\n{RAY}",
        f"#define NONE(x)\n#define ALIAS(n, T) typedef T n;\nNONE(a)\nALIAS(real, float)\nNONE(c)\n{RAY}",
        f"#define HOST(n) void n##_go() {{ std::string s; }}\nHOST(real)\n{PAIR.replace('};', '}; HOST(Pair)', 1)}",
        f"UNKNOWN(a)\n{PAIR}",
        f"#define TWO(n) n; n\nTWO(typedef float real);\n{RAY}",
        "#define LIST(X) X(RED, 1) X(GREEN, 7)\n#define E(n, v) n = v,\nenum Color { LIST(E) };\n#undef E\n" + GREEN,
        "#define LIST(X) X(RED, 1) X(GREEN, 7)\n#define C(n, v) const int n = v;\nLIST(C)\n#undef C\n" + GREEN,
        "#define REST RED, GREEN = 7\nenum Color { FIRST, REST };\n" + GREEN,
        "#define DEF(n) struct n { int v; };\nDEF(Other)\nDEF(Pair)\n" + PAIR.partition(";\n")[2],
        f"#define BEGIN(n) namespace n {{\n#define END(n) }}\nBEGIN(a)\nEND(a)\n{PAIR}",
        f"#define BEGIN namespace a {{\n#define END }}\nBEGIN\nvoid host();\nEND\nvoid other();\n{PAIR}",
        "#define BOUNDS(n) __launch_bounds__(n)\nBOUNDS(64) __global__ void k(int* x) { x[0] = 7; }",
    ],
)
def test_declarations_beside_macros(text: str) -> None:
    lines = "\n".join(line for line in device_text(text).splitlines() if not line.startswith("#"))
    assert not any(name in lines for name in ("HOST(", "ALIAS(no", "UNKNOWN", "host"))
    wanted = (
        "ALIAS(real, float)",
        "typedef float real",
        "struct Ray",
        "struct Pair",
        "DEF(Pair)",
        "enum Color",
        "LIST(C)",
    )
    assert all(name in lines for name in (*wanted, "BOUNDS(64)", "BEGIN", "END") if f"\n{name}" in text)


def test_a_program_with_macros_between(stream: Any, xp: Any) -> None:
    text = "#define ALIAS(n, T) using n = T;\n#define LIST(X) X(RED, 1) X(GREEN, 7)\n#define E(n, v) n = v,\n"
    x = xp.zeros(1, "i4")
    text += f"ALIAS(no, std::vector<int>)\nALIAS(real, float)\n{RAY.replace('7', 'GREEN')}"
    ck.Kernel(text.replace("struct", "enum Color { LIST(E) };\nstruct"), host_code="skip")(stream, ck.config(1, 1), x)
    assert int(x[0]) == 7


def test_a_struct_behind_a_macros_call_is_read() -> None:
    text = "#define ALIAS(n, T) using n = T;\nALIAS(real, float)\nstruct Ray { float o; };\n__global__ void k(Ray r) {}"
    assert ck.Kernel(text).module.declarations.structs == ("Ray",)


ACT = """
template <typename T, T (*ACT)(const T&)> __global__ void k(T* x) { x[0] = ACT(x[0]); }
template <typename T> __device__ T twice(const T& v) { return 2 * v; }
"""
POINTED = """
typedef int (*Act)(int);
__device__ int twice(int v) { return 2 * v; }
__host__ __device__ int thrice(int v) { std::string s; return 3 * v; }
__device__ int bad(int v) { return go(v); }
int go(int v);
template <Act ACT> __global__ void k(int* x) { x[0] = ACT(x[0]); }
"""
VALUES = """
enum Mode { FAST = 6 };
const int B = 2, C = B + 1;
const float PI = acos(-1.f);
static constexpr int D = C * 2;
template <int N> __global__ void k(int* x) { x[0] = N; }
"""
LAUNCHED = """
constexpr int square(int x) { return x * x; }
struct Pair { int v; };
using P = Pair;
template <int N, typename T> __global__ void k(int* x) { T t{-3}; x[0] = N + t.v; }
void go() { k<square(3), P><<<1, 1>>>(0); }
"""
LAUNCHER = """
template <int (*A)(int)> __global__ void k(int* x) { x[0] = A(x[0]); }
__host__ __device__ int twice(int x) { return 2 * x; }
template <int (*A)(int)> void go(int* x) { k<A><<<1, 1>>>(x); }
int main() { go<twice>(0); }
"""


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (ACT, ["T twice("]),
        (ACT + "void go(int* x) { k<int, twice<int>><<<1, 32>>>(x); }", ["T twice("]),
        (POINTED, ["int twice("]),
        (VALUES, ["B = 2", "C = B", "D = C * 2"]),
        (VALUES + "void go() { k<FAST><<<1, 1>>>(0); }", ["FAST = 6"]),
        (LAUNCHED, ["int square(", "struct Pair", "using P"]),
        (LAUNCHER, ["int twice("]),
    ],
)
def test_what_only_template_arguments_name_stays(text: str, kept: list[str]) -> None:
    left = device_text(text)
    assert all(part in left for part in kept)
    assert not any(part in left for part in ("std::string", "acos", "bad", "<<<"))


@pytest.mark.parametrize(("text", "arguments"), [(ACT, ("int", "twice<int>")), (LAUNCHED, ("square(3)", "P"))])
def test_brackets_name_what_stays(text: str, arguments: tuple[str, str], stream: Any, xp: Any) -> None:
    x = xp.full(1, 3, "i4")
    ck.Kernel(text, host_code="skip")[arguments](stream, ck.config(1, 1), x)
    assert int(x[0]) == 6


def test_functions_that_no_kernel_can_take_are_cut() -> None:
    text = device_text(
        "__device__ int unused() { return 3; }\nconst int N = 3;\n__global__ void k(int* x) { x[0] = 1; }"
    )
    assert "unused" not in text
    assert "N" not in text.rpartition("#line")[2]


def test_constants_computed_from_floats(stream: Any, xp: Any) -> None:
    text = """
    const int count = 4;
    static const float rate = 4.0;
    float const step = 0.5;
    const double third = rate / 3, twice = 2 * third;
    const float dt = step / (2 * rate * (step + step));
    const int percent = dt * 100;
    __constant__ float table[2] = {rate, 2 * dt};
    const float of_host = percent;
    int main() { return of_host; }
    __global__ void k(float* x) {
        x[0] = dt; x[1] = percent * count; x[2] = twice; x[3] = table[1];
        const float rate = x[3];
        x[4] = rate + 1;
        x[5] = __LINE__;
    }
    """
    x = xp.zeros(6, "f4")
    ck.Kernel(text, host_code="skip")(stream, ck.config(1, 1), x)
    assert ck.to_host(x, stream).tolist() == [0.0625, 24, np.float32(8 / 3), 0.125, 1.125, 15]
    assert "const int count" in device_text(text)  # no other constant's value names it


def test_words_of_nvccs(stream: Any, xp: Any) -> None:
    text = """
    __extension__ typedef long long wide;
    struct Both { __extension__ union { int a; float b; }; };
    __device__ int next(int x) { return __extension__ ({ int y = x; y + 1; }); }
    __global__ void k(int* x) {
        cudaGridDependencySynchronize();
        Both both;
        both.a = next(2);
        x[0] = wide(both.a) + 3;
        cudaTriggerProgrammaticLaunchCompletion();
    }
    int main() { return 0; }
    """
    x = xp.zeros(1, "i4")
    ck.Kernel(text, host_code="skip")(stream, ck.config(1, 1), x)
    assert int(x[0]) == 6


WRITTEN = r"""
#define OP(T, n, e) extern "C" __global__ void n(T* x) { \
  for (unsigned i = threadIdx.x; i < 1; i += blockDim.x) { T v = x[i]; x[i] = e; } \
}
#define BOTH(n, e) OP(float, n##_f32, e) OP(int, n##_i32, e)
OP(float, square, v * v)
BOTH(less,
     -v)
#define TEMPLATED(n, operation) template <typename T> __global__ void n##_kernel(T* x) { operation; } \
  template <> void go_##n<float>(float* x) { std::string s = #n; n##_kernel<float><<<1, 1>>>(x); }
template <typename T> void go_cube(T* x);
TEMPLATED(cube, x[0] = x[0] * x[0] * (x[0] < T(0) ? T(-1) : T(1)));
#define KERNEL(name) __global__ void name(int* x)
KERNEL(two) { x[0] = 2; }
#define LIST(X) X(int) X(float)
#define ONE(T) __global__ void one_##T(T* x) { *x = 1; }
LIST(ONE)
#undef ONE
#define ONE(T) void go_##T(T* x) { one_##T<<<1, 1>>>(x); }
LIST(ONE)
#define PRINT(n, ...) __global__ void n(int* x) { printf(#n " %d", ##__VA_ARGS__); x[0] = 3; }
PRINT(three, 3)
PRINT(four)
#ifdef FAST
#define EITHER(n) __global__ void n(int* x) { x[0] = 5; }
#else
#define EITHER(n) __global__ void n(int* x) { x[0] = 6; }
#endif
EITHER(six)
__global__ void other(int* x) { *x = __LINE__; }
"""


def test_kernels_that_macros_write(stream: Any, xp: Any) -> None:
    module = ck.Module(WRITTEN, host_code="skip")
    names = "square less_f32 less_i32 cube_kernel two one_int one_float three four other"
    assert module.kernels == tuple(names.split())
    x = xp.full(1, 3, "i4")
    module["less_i32"](stream, ck.config(1, 1), x)
    module["cube_kernel"](stream, ck.config(1, 1), x)
    assert int(x[0]) == -9
    module["other"](stream, ck.config(1, 1), x)
    assert int(x[0]) == WRITTEN.partition("__LINE__")[0].count("\n") + 1
    assert "EITHER(six)" in device_text(WRITTEN)
    assert 'printf("four" " %d")' in device_text(WRITTEN)


def test_overloads_for_the_hosts_types_go() -> None:
    text = """
    #include <torch/torch.h>
    __device__ inline at::Half atomicAdd(at::Half* address, at::Half val) { return val; }
    template <typename T> __global__ void add(T* x) { atomicAdd(x, T(1)); }
    """
    assert "at::Half" not in device_text(text)
    ck.Kernel(text, host_code="skip")["float"].compile(arch="sm_90", target="ptx")


def test_a_name_of_the_programs_own_includes_no_header() -> None:
    assert "cuda_fp16" not in device_text("__global__ void half(float* x) { *x *= 0.5f; }")
    assert "cuda_fp16" in device_text("__global__ void f(half* x) { *x = 0; }")
