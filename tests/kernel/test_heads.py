"""Kernels whose heads C++ allows and plain kernels lack: overloads, default arguments, prototypes, conditionals."""

import enum
import pickle
from typing import Any

import numpy as np
import pytest

import cudakit as ck

ONE = ck.config(1, 1)
TWINS = """
template <typename T> __global__ void set(T* x, T value, int n) { x[0] = value + n; }
__global__ void set(float* x, float* y) { x[0] = y[0] + 10; }
__global__ void set(int* x) { x[0] = -5; }
"""


def test_overloads_by_their_arguments(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel(TWINS, "set")
    floats, ints = xp.zeros(1, "f4"), xp.zeros(1, "i4")
    for _ in range(2):
        kernel(stream, ONE, floats, xp.ones(1, "f4"))
        kernel(stream, ONE, ints)
        assert (float(floats[0]), int(ints[0])) == (11, -5)
        kernel(stream, ONE, floats, 3.0, 1)
        assert float(floats[0]) == 4
    assert len(kernel.dispatcher.shapes) == 3


def test_overloads_by_their_names(stream: Any, xp: Any) -> None:
    x = xp.zeros(1, "i4")
    pickle.loads(pickle.dumps(ck.Kernel(TWINS, "set(int *)")))(stream, ONE, x)
    assert int(x[0]) == -5


DEFAULTS = """
template <typename T> __global__ void set(T* x, T* y, T* z, int n = 1 << 4, T o = 2) { x[0] = y[0] + z[0] + n + o; }
__global__ void set(int* x, bool twice = true, const int* p = nullptr) { x[0] = 7 * (1 + twice) + (p ? 100 : 0); }
__global__ void set(float* x, const float* y, int n = 5) { x[0] = y[0] * n; }
"""


def test_default_arguments_of_overloads(stream: Any, xp: Any) -> None:
    """They are filled as for a kernel alone, and such calls are known again."""
    kernel = ck.Kernel(DEFAULTS, "set")
    floats, ints, one = xp.zeros(1, "f4"), xp.zeros(1, "i4"), xp.ones(1, "f4")
    for _ in range(4):
        for arguments, wanted in (
            ((floats, one, one), 20),
            ((floats, one, one, 1), 5),
            ((floats, one, one, 1, 4.5), 7.5),
            ((floats, xp.full(1, 3, "f4")), 15),
            ((floats, xp.full(1, 3, "f4"), 2), 6),
            ((ints,), 14),
            ((ints, False), 7),
            ((ints, False, ints), 107),
        ):
            kernel(stream, ONE, *arguments)
            stream.sync()
            assert float(arguments[0][0]) == wanted
        assert len(kernel.dispatcher.shapes) == 8
    plan = kernel.plan(stream, ONE, ints)
    ints[0] = 0
    plan()
    stream.sync()
    assert int(ints[0]) == 14
    host = np.zeros(1, "i4")
    kernel(stream, ONE, ck.Out(host))
    stream.sync()
    assert int(host[0]) == 14
    with pytest.raises(ck.ArgumentError, match=r"no kernel set takes these 1 arguments:(.|\n)*y, z are missing\n"):
        kernel(stream, ONE, floats)


def test_default_arguments_of_overloads_that_do_not_tell_them_apart(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("__global__ void f(int* x) {}\n__global__ void f(int* x, int n = 3) { x[0] = n; }", "f")
    x = xp.zeros(1, "i4")
    kernel(stream, ONE, x, 4)
    with pytest.raises(
        ck.ArgumentError, match=r"f has several kernels that these arguments fit: f\(int\*\) .*f\(int\*"
    ):
        kernel(stream, ONE, x)
    kernel(stream, ONE, x, 4)
    assert int(x[0]) == 4
    with pytest.raises(ck.ArgumentError, match=r"the default a = \{\} cannot be read here"):
        ck.Kernel("struct A { int v; };\n__global__ void g(int* x, A a = {}) {}\n__global__ void g(float* x) {}", "g")(
            stream, ONE, x
        )


def test_overloads_that_do_not_fit_are_listed() -> None:
    kernel, x = ck.Kernel(TWINS, "set"), np.zeros(1, "f4")
    with pytest.raises(ck.ArgumentError, match=r"no kernel set takes these 3.*\n.*\n.*takes 2.*\nset\(int\*\): "):
        kernel(ck.emulator.stream("sm_90"), ONE, x, x, x)
    with pytest.raises(ck.ArgumentError, match=r"several kernels.*set\(float\*, float\*\) on line 3"):
        kernel.compile(arch="sm_90", target="ptx")


def test_default_arguments(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel(
        """
        __global__ void f(int* x, int n = 1 << 4, float f = 1.5f, const float* p = nullptr, bool b = true, int o = 010);
        __global__ void f(int* x, int n, float f, const float* p, bool b, int o) {
            x[0] = n + f * 10 + (p ? 1000 : 0) + b * 100 + o * 10000;
        }
        """
    )
    x = xp.zeros(1, "i4")
    for _ in range(2):
        kernel(stream, ONE, x)
        assert int(x[0]) == 80131
    assert len(kernel.dispatcher.shapes) == 1
    kernel(stream, ONE, x, f=2.0, b=False)
    assert int(x[0]) == 80036
    kernel.plan(stream, ONE, x, 0)()
    assert int(x[0]) == 80115


def test_a_default_argument_that_cannot_be_read() -> None:
    kernel = ck.Kernel("struct A { int v; };\n__global__ void f(int* x, A a = {}) {}")
    with pytest.raises(ck.ArgumentError, match=r"a is missing; the default a = \{\} cannot be read here"):
        kernel(ck.emulator.stream("sm_90"), ONE, np.zeros(1, "i4"))


def test_a_stale_prototype(stream: Any, xp: Any) -> None:
    x = xp.zeros(1, "i4")
    text = "__global__ void k(int* x, int n);\n__global__ void k(int* x, int offset, int n) { x[0] = n; }"
    ck.Kernel(text, "k")(stream, ONE, x, 1, 2)
    assert int(x[0]) == 2
    with pytest.raises(ck.CompileError, match=r"p is declared in .* and nowhere defined"):
        ck.Kernel("__global__ void p(int* x);").compile(arch="sm_90")


@pytest.mark.parametrize(
    "head",
    [
        "__device__ int* f(int* p)",
        "__device__ inline const int* f(int *p)",
        "__device__ S g(S s);\n__device__ int& f(int* p)",
    ],
)
def test_device_prototypes(stream: Any, xp: Any, head: str) -> None:
    body = "__global__ void k(int* x) { auto&& y = f(x); }"
    text = f"struct S {{ int v; }};\n{head};\n{body}\n{head.splitlines()[-1]} {{ return {'*' * ('&' in head)}p; }}"
    ck.Kernel(text, "k")(stream, ONE, xp.zeros(1, "i4"))


def test_a_kernel_under_conditions(stream: Any, xp: Any) -> None:
    x = xp.zeros(1, "i4")
    branches = "__global__ void k(int* x, int n) { x[0] = 1; }\n#else\n__global__ void k(int* x) { x[0] = 2; }"
    kernel = ck.Kernel(f"#ifdef A\n{branches}\n#endif")
    kernel(stream, ONE, x)
    assert int(x[0]) == 2
    kernel.with_options(defines=["A"])(stream, ONE, x, 3)
    assert int(x[0]) == 1
    with pytest.raises(
        ck.CompileError, match="hint: k stands under #if B > 2 on line 1 and #else of #ifdef C on line 3"
    ):
        ck.Kernel("#if B > 2\n#ifdef C\n#else\n__global__ void k() {}\n#endif\n#endif").compile(arch="sm_90")


def test_a_kernel_under_conditions_beside_another(stream: Any, xp: Any) -> None:
    head = "#ifndef A_H\n#define A_H\n#endif\n__global__ void a(int* x) { x[0] = 1; }\n"
    text = f"{head}#ifdef B\n__global__ void k(int* x) {{ x[0] = 2; }}\n#endif"
    with pytest.raises(ck.CompileError, match="hint: k stands under #ifdef B on line"):
        ck.Kernel(text, "k").compile(arch="sm_90")
    x = xp.zeros(1, "i4")
    ck.Kernel(text, "a")(stream, ONE, x)
    assert int(x[0]) == 1
    with pytest.raises(ck.CompileError, match="hint: k stands under #ifdef B on line"):
        ck.Kernel(text, "k")(stream, ONE, x)


def test_code_made_for_another_kernel_hides_no_absence() -> None:
    text = "__global__ void a(int* x) { *x = 1; }\n#ifdef NEVER\n__global__ void k(int* x) { *x = 2; }\n#endif"
    assert "a" in ck.Kernel(text, "a").compile(arch="sm_90", target="ptx").lowered
    with pytest.raises(ck.CompileError, match="hint: k stands under #ifdef NEVER on line 2"):
        ck.Kernel(text, "k").compile(arch="sm_90", target="ptx")


def test_a_missing_brace_is_told_where_it_was_opened() -> None:
    text = "\n__global__ void k(float* x) {\n    int unused;\n    x[threadIdx.x] = 1;\n"
    with pytest.raises(
        ck.CompileError, match=r'1 error .*\n.*: error: expected a "}", which is missing at the end'
    ) as found:
        ck.Kernel(text, "k").compile(arch="sm_90", target="ptx")
    assert "unused" not in str(found.value)


def test_hints_for_what_needs_a_header() -> None:
    with pytest.raises(ck.CompileError, match="needs #include <cuda_bf16"):
        ck.Kernel("__global__ void k(__nv_bfloat16* x) {}").compile(arch="sm_90")
    with pytest.raises(ck.CompileError, match=r"hint: CUDA's device runtime .* is the host's alone"):
        ck.Kernel("__global__ void k() { cudaDeviceSynchronize(); }").compile(arch="sm_90")


@pytest.mark.parametrize(
    ("head", "arguments"),
    [("k(auto* x, auto n)", (3,)), ("(k)(int* x)", ()), ("k(int* x) requires true", ())],
)
def test_heads_of_new_dialects(stream: Any, xp: Any, head: str, arguments: tuple[int, ...]) -> None:
    template = "template <int N = 1> " if "requires" in head else ""
    x = xp.zeros(1, "i4")
    kernel = ck.Kernel(f"{template}__global__ void {head} {{ x[0] = 7; }}", options=ck.CompileOptions(std="c++20"))
    kernel(stream, ONE, x, *arguments)
    assert int(x[0]) == 7


@pytest.mark.parametrize("key", ["enum class", "enum"])
def test_enumerations_whose_type_is_said_take_integers_that_fit_it(stream: Any, xp: Any, key: str) -> None:
    kernel = ck.Kernel(
        f"namespace n {{ {key} color : unsigned short {{ red, blue = 5 }}; }}\n"
        "__global__ void k(int* x, n::color c) { *x = (int)c; }"
    )
    x = xp.zeros(1, "i4")
    for value in (enum.IntEnum("Color", {"blue": 5}).blue, 5, np.uint8(5), np.int64(5)):  # type: ignore[attr-defined]
        x[0] = 0
        kernel(stream, ck.config(1, 1), x, value)
        stream.sync()
        assert int(x[0]) == 5
    for value in (-1, 65536, np.int16(-1), 2.5, None):
        with pytest.raises(ck.ArgumentError, match=r"parameter c|argument c"):
            kernel(stream, ck.config(1, 1), x, value)
