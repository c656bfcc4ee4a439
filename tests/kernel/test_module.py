"""Modules: all kernels of a source and all their instances share its variables, and are compiled together."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.caches import requests

import cudakit as ck
from cudakit.jit.cache.cache import Cache
from cudakit.kernel.kernel import of_source

ONE = ck.config(1, 1)

COUNTERS = """
static __device__ int counter;
__constant__ int factor;
__global__ void produce(int n) { if (threadIdx.x < n) atomicAdd(&counter, 1); }
__global__ void consume(int* out) { *out = counter * (factor ? factor : 1); }
template <int N> __global__ void produce_t() { atomicAdd(&counter, N); }
"""


def compiles() -> int:
    return requests()["miss"]


def value(kernel: ck.Kernel, stream: Any, xp: Any, *arguments: Any) -> int:
    """What a kernel writes to its first parameter."""
    out = xp.zeros(1, "i4")
    kernel(stream, ONE, out, *arguments)
    stream.sync()
    return int(out[0])


def arch_of(stream: Any) -> str | None:
    """The arch to prepare for: a GPU's own."""
    return stream.arch if isinstance(stream, ck.emulator.EmulatedStream) else None


def unique(text: str, request: pytest.FixtureRequest) -> str:
    """A source of this test's own, lest another's module be met."""
    return f"// {request.node.nodeid}\n{text}"


def test_kernels_and_instances_share_variables(stream: Any, xp: Any, request: pytest.FixtureRequest) -> None:
    module = ck.Module(unique(COUNTERS, request))
    module["produce"](stream, ck.config(1, 32), 10)
    assert value(module["consume"], stream, xp) == 10
    module["produce_t<1>"](stream, ONE)
    module["produce_t"][2](stream, ONE)
    assert value(module["consume"], stream, xp) == 13
    module.globals["factor"] = 3
    assert value(module["consume"], stream, xp) == 39
    assert module["produce"].globals["factor"] == 3 == module["produce_t"][7].globals["factor"]
    assert module["produce"].globals.read("counter", stream) == 13


def test_one_module_of_a_source_in_a_process(stream: Any) -> None:
    kernel, other = ck.Kernel(COUNTERS, "produce"), ck.Kernel(COUNTERS, "consume")
    assert kernel.module is other.module is ck.Module(COUNTERS) is kernel.module["produce_t"][1].module
    assert pickle.loads(pickle.dumps(kernel)).module is kernel.module
    assert pickle.loads(pickle.dumps(kernel.module)) is kernel.module
    assert kernel.with_options(fast_math=True).module is not kernel.module
    assert kernel.module.kernels == ("produce", "consume", "produce_t")
    assert ck.Module(f"{COUNTERS} ") is not kernel.module
    assert ck.Module(COUNTERS, arch="sm_90") is not kernel.module


def test_a_module_without_variables_dies_with_its_kernels_and_one_with_variables_does_not() -> None:
    plain = weakref.ref(ck.Module("__global__ void dies() {}")._unit)
    shared = weakref.ref(ck.Module("__device__ int n; __global__ void f() { n++; }")._unit)
    gc.collect()
    assert plain() is None
    assert shared() is not None


def test_kernels_that_are_no_templates_are_compiled_once(
    stream: Any, xp: Any, request: pytest.FixtureRequest, fresh_cache: Cache
) -> None:
    text = unique("\n".join(f"__global__ void k{i}(int* out) {{ *out = {i}; }}" for i in range(8)), request)
    before = compiles()
    assert [value(ck.Kernel(text, f"k{i}"), stream, xp) for i in range(8)] == list(range(8))
    assert compiles() == before + 1


def test_an_instance_brings_the_kernels_that_are_no_templates(
    stream: Any, xp: Any, request: pytest.FixtureRequest, fresh_cache: Cache
) -> None:
    text = unique(
        "__global__ void f(int* x) { *x = 1; } template <int N> __global__ void g(int* x) { *x = N; }", request
    )
    before = compiles()
    assert value(ck.Kernel(text, "g")[5], stream, xp) == 5
    assert value(ck.Kernel(text, "f"), stream, xp) == 1
    assert compiles() == before + 1


def test_a_kernel_that_cannot_be_named_does_not_break_the_others(
    stream: Any, xp: Any, request: pytest.FixtureRequest
) -> None:
    text = unique(
        """
        __global__ void good(int* x) { *x = 1; }
        __global__ void twice(int* x) { *x = 2; }
        __global__ void twice(int* x, int y) { *x = y; }
        #ifdef NEVER
        __global__ void absent(int* x) { *x = 3; }
        #endif
        namespace n { static __global__ void hidden(int* x) { *x = 4; } }
        """,
        request,
    )
    assert value(ck.Kernel(text, "good"), stream, xp) == 1
    assert value(ck.Kernel(text, "hidden"), stream, xp) == 4
    with pytest.raises(ck.CompileError, match="absent"):
        value(ck.Kernel(text, "absent"), stream, xp)
    assert value(ck.Kernel(text, "twice"), stream, xp) == 2


def test_one_of_several_kernels_of_a_name(stream: Any, xp: Any, request: pytest.FixtureRequest) -> None:
    kernels = """__device__ int n;
    __global__ void f(int* x) { *x = ++n; }
    __global__ void f(int* x, int y) { *x = n += y; }"""
    module = ck.Module(unique(kernels, request))
    assert value(module["f(int*)"], stream, xp) == 1
    assert value(module["f(int*, int)"], stream, xp, 10) == 11
    assert value(module["f"], stream, xp) == 12


def test_a_refused_name_is_found_out_once(
    stream: Any, xp: Any, request: pytest.FixtureRequest, fresh_cache: Cache
) -> None:
    text = unique("#ifdef NEVER\n__global__ void absent() {}\n#endif\n__global__ void f(int* x) { *x = 1; }", request)
    value(ck.Kernel(text, "f"), stream, xp)
    before = compiles()
    again = ck.Kernel(text, "f")
    again.compile(arch="sm_90", target="cubin" if not isinstance(stream, ck.emulator.EmulatedStream) else "ptx")
    assert value(again, stream, xp) == 1
    assert compiles() <= before + 1, "the emulator's has source lines in it"


STRUCTS = """
struct P { int a, b; };
__constant__ int c;
__device__ int calls;
__global__ void by_value(P p, int* out) { *out = p.a + c; calls++; }
__global__ void by_pointer(const P* p, int* out) { *out = p->a + c; calls++; }
template <typename T> __global__ void any(T p, int* out) { *out = p.a + c; calls++; }
"""


def test_checks_of_structs_make_no_module_of_their_own(stream: Any, xp: Any, request: pytest.FixtureRequest) -> None:
    module = ck.Module(unique(STRUCTS, request))
    p = np.array([(1, 2)], [("a", "i4"), ("b", "i4")])
    out = xp.zeros(1, "i4")
    module.globals.write("c", 10, stream)
    module["by_value"](stream, ONE, p[0], out)
    assert int(out[0]) == 11
    there = ck.to_device(p, stream)
    module["by_pointer"](stream, ONE, there, out)
    module["any"](stream, ONE, p[0], out)
    assert int(out[0]) == 11
    assert module.globals.read("calls", stream) == 3
    swapped = np.array([(1, 2)], [("b", "i4"), ("a", "i4")])
    with pytest.raises(ck.CompileError, match="struct P"):
        module["by_value"](stream, ONE, swapped[0], out)
    assert module.globals.read("calls", stream) == 3


# ── ways in which it could be false that all kernels of a source share its variables ────────────────────────────────

EVERYWHERE = """
static __device__ int of_file;
namespace { __device__ int anonymous; namespace inner { __device__ int deeper; } }
namespace n { static __device__ int of_file; __device__ int named; inline namespace v1 { __device__ int v; } }
template <typename T> __device__ T variable_template;
extern "C" { __device__ int plain_c; }
__managed__ int managed_one;
__device__ int next() { static int calls; return ++calls; }
static __device__ int next_static() { static int calls; return ++calls; }
struct S { __device__ static int& member() { static int m; return m; } };
__device__ int* pointed = &plain_c;
#define EACH of_file += 1; anonymous += 1; inner::deeper += 1; n::of_file += 1; n::named += 1; n::v += 1; \\
    variable_template<int> += 1; *pointed += 1; managed_one += 1; next(); next_static(); S::member() += 1; \\
    header_one += 1;
#define SUM of_file, anonymous, inner::deeper, n::of_file, n::named, n::v, variable_template<int>, plain_c, \\
    managed_one, next() - 1, next_static() - 1, S::member(), header_one
#include "variables.h"
__global__ void plain() { EACH }
template <typename T> __global__ void instance() { EACH }
__global__ void look(int* out) { int all[] = {SUM}; for (int i = 0; i < 13; i++) out[i] = all[i]; }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "variables.h").write_text("#pragma once\n__device__ int header_one;\n")
    (tmp_path / "all.cu").write_text(EVERYWHERE)
    return tmp_path


def test_variables_of_every_kind(stream: Any, xp: Any, folder: Path) -> None:
    module = ck.Module.from_file(folder / "all.cu")
    module["plain"](stream, ONE)
    module["instance"][np.float32](stream, ONE)
    module["instance<double>"](stream, ONE)
    out = xp.zeros(13, "i4")
    module["look"](stream, ONE, out)
    assert out.tolist() == [3] * 13
    names = ("of_file", "anonymous", "inner::deeper", "n::of_file", "n::named", "n::v", "plain_c", "managed_one")
    for name in (each for each in names if each in module.globals):
        assert module.globals.read(name, stream) == 3, name
    module.globals.write("n::named", 40, stream)
    module["look"](stream, ONE, out)
    assert int(out[4]) == 40


def test_what_has_internal_linkage_is_one_whatever_the_compiler_calls_it(
    stream: Any, xp: Any, request: pytest.FixtureRequest
) -> None:
    text = """
    namespace { __device__ int hidden; }
    template <int N> __global__ void add(int* out) { *out = hidden += N; }
    template <typename T, typename U> __global__ void look(int* out, T, U) { *out = hidden; }
    """
    module = ck.Module(unique(text, request))
    assert value(module["add<1>"], stream, xp) == 1
    assert value(module["add<22>"], stream, xp) == 23
    assert value(module["look"], stream, xp, np.float64(1), np.int8(2)) == 23
    assert module.globals.read("hidden", stream) == 23


def test_statics_of_one_function_template_are_its_instances_own(
    stream: Any, xp: Any, request: pytest.FixtureRequest
) -> None:
    text = """
    template <typename T> __device__ int count() { static int n; return ++n; }
    template <typename T> __global__ void a(int* out) { *out = count<T>(); }
    template <typename T> __global__ void b(int* out) { *out = 10 * count<T>(); }
    """
    module = ck.Module(unique(text, request))
    assert value(module["a<int>"], stream, xp) == 1
    assert value(module["b<int>"], stream, xp) == 20
    assert value(module["a<float>"], stream, xp) == 1
    assert value(module["a<int>"], stream, xp) == 3


def test_static_members(stream: Any, xp: Any, request: pytest.FixtureRequest) -> None:
    text = """
    struct S { static int member; };
    int S::member = 5;
    template <typename T> struct H { static T member; };
    template <typename T> T H<T>::member = 50;
    template <int N> __global__ void add(int* out) { *out = (S::member += N) + (H<int>::member += N); }
    __global__ void look(int* out) { *out = S::member * H<int>::member; }
    """
    options = ck.CompileOptions(extra={"device_as_default_execution_space": True})
    module = ck.Module(unique(text, request), options=options)
    assert value(module["add<1>"], stream, xp) == 57
    assert value(module["add<2>"], stream, xp) == 61
    assert value(module["look"], stream, xp) == 8 * 53


def test_initial_values_are_set_once(stream: Any, xp: Any, request: pytest.FixtureRequest) -> None:
    text = "__device__ int n = 5; template <int N> __global__ void add(int* out) { *out = n += N; }"
    module = ck.Module(unique(text, request))
    assert value(module["add<1>"], stream, xp) == 6
    assert value(module["add<2>"], stream, xp) == 8
    assert value(module["add<1>"], stream, xp) == 9


def test_variables_outlive_their_kernels(stream: Any, request: pytest.FixtureRequest) -> None:
    text = unique(COUNTERS, request)
    ck.Kernel(text, "produce")(stream, ck.config(1, 32), 7)
    gc.collect()
    assert ck.Kernel(text, "consume").globals.read("counter", stream) == 7
    hidden = unique("__global__ void f(int* out) { static int n; *out = ++n; }", request)
    out = ck.to_device(np.zeros(1, "i4"), stream)
    for _ in range(2):
        ck.Kernel(hidden)(stream, ONE, out)
        gc.collect()
    assert ck.to_host(out, stream).tolist() == [2]


def test_a_changed_header_makes_a_new_module(stream: Any, xp: Any, folder: Path) -> None:
    old = ck.Module.from_file(folder / "all.cu")
    old["plain"](stream, ONE)
    assert ck.Module.from_file(folder / "all.cu") is old
    (folder / "variables.h").write_text("#pragma once\n__device__ int header_one = 100;\n")
    new, out = ck.Module.from_file(folder / "all.cu"), xp.zeros(13, "i4")
    for module, first, last in ((new, 0, 100), (old, 1, 1)):
        module["look"](stream, ONE, out)
        assert (int(out[0]), int(out[12])) == (first, last)
    assert ck.Kernel.from_file(folder / "all.cu", "plain").module is new
    assert old["instance"][np.int32].module is old["plain"].module is old


def test_where_it_is_not_known_what_is_included_each_module_is_new(stream: Any, xp: Any, folder: Path) -> None:
    text = "#include HEADER\n__global__ void f(int* x) { *x = header_one++; }"
    options = ck.CompileOptions(include_paths=[str(folder)], defines={"HEADER": '"variables.h"'})
    module = ck.Module(text, options=options)
    assert [value(module["f"], stream, xp) for _ in range(2)] == [0, 1]
    (folder / "variables.h").write_text("__device__ int header_one = 100;\n")
    assert value(ck.Kernel(text, options=options), stream, xp) == 100


def test_other_options_are_another_module(stream: Any, request: pytest.FixtureRequest) -> None:
    module = ck.Module(unique(COUNTERS, request))
    module["produce"](stream, ck.config(1, 32), 4)
    other = module["produce"].with_options(fast_math=True)
    assert other.globals.read("counter", stream) == 0
    other(stream, ck.config(1, 32), 1)
    assert (int(other.globals["counter"]), int(module.globals.read("counter", stream))) == (1, 4)


@pytest.mark.emulator
def test_devices_have_variables_of_their_own(request: pytest.FixtureRequest) -> None:
    module = ck.Module(unique(COUNTERS, request))
    streams = [ck.emulator.stream(arch) for arch in ("sm_80", "sm_90")]
    for n, stream in enumerate(streams, 3):
        module["produce"](stream, ck.config(1, 32), n)
    assert [int(module.globals.read("counter", stream)) for stream in streams] == [3, 4]
    assert module.globals["counter"] == 4, "of the last launch"


def test_threads_that_launch_two_instances_first(stream: Any, request: pytest.FixtureRequest) -> None:
    for turn in range(3):
        module = ck.Module(unique(f"{COUNTERS}// {turn}", request))
        barrier = threading.Barrier(4)

        def run(n: int, module: ck.Module = module, barrier: threading.Barrier = barrier) -> None:
            kernel = of_source(module.source, "produce_t")[n]
            barrier.wait()
            kernel(stream, ONE)

        threads = [threading.Thread(target=run, args=(n,)) for n in (1, 2, 4, 8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert module.globals.read("counter", stream) == 15


@pytest.mark.emulator
def test_a_forked_child_goes_on(request: pytest.FixtureRequest) -> None:
    module, stream = ck.Module(unique(COUNTERS, request)), ck.emulator.stream()
    module["produce_t<1>"](stream, ONE)
    module._unit.lock.acquire()  # as another thread may hold it
    child = os.fork()
    if not child:
        status = 1
        try:
            module["produce_t<2>"](stream, ONE)
            status = 0 if module.globals["counter"] == 3 else 2
        finally:
            os._exit(status)
    module._unit.lock.release()
    assert os.waitpid(child, 0)[1] == 0
    assert module.globals["counter"] == 1, "the child has memory of its own"


@pytest.mark.emulator
def test_a_pickled_kernel_meets_the_module_of_the_process_it_comes_to(tmp_path: Path) -> None:
    program = """
import pickle, sys
import cudakit as ck
kernel = pickle.load(open(sys.argv[1], "rb"))
stream = ck.emulator.stream()
kernel(stream, ck.config(1, 32), 3)
print(int(kernel.module.globals["counter"]), pickle.loads(pickle.dumps(kernel)).module is kernel.module)
"""
    (tmp_path / "kernel").write_bytes(pickle.dumps(ck.Kernel(COUNTERS, "produce")))
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "kernel")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["3", "True"]


def test_pointers_to_functions_mean_the_same_in_all_instances(
    stream: Any, xp: Any, request: pytest.FixtureRequest
) -> None:
    text = """
    __device__ int once(int x) { return x + 1; }
    template <int N> __device__ int more(int x) { return x + N; }
    __device__ int twice(int x) { return 2 * x; }
    __device__ int (*chosen)(int) = once;
    template <int N> __global__ void choose() { chosen = N == 0 ? once : twice; if (N > 5) more<N>(1); }
    __global__ void call(int* out) { *out = chosen(20); }
    """
    module = ck.Module(unique(text, request))
    module.prepare("choose<0>", "choose<7>", "call", arch=arch_of(stream))
    assert value(module["call"], stream, xp) == 21
    module["choose<7>"](stream, ONE)
    assert value(module["call"], stream, xp) == 40
    module["choose<0>"](stream, ONE)
    assert value(module["call"], stream, xp) == 21
    if isinstance(stream, ck.emulator.EmulatedStream):
        apart = ck.Module(unique(f"{text}//", request))
        assert value(apart["call"], stream, xp) == 21
        apart["choose<7>"](stream, ONE)
        with pytest.raises(ck.EmulationError, match=r"twice.* compiled together: module\.prepare"):
            value(apart["call"], stream, xp)


def test_graphs_and_plans_see_the_module_s_variables(stream: Any, xp: Any, request: pytest.FixtureRequest) -> None:
    module = ck.Module(unique(COUNTERS, request))
    module["consume"](stream, ONE, xp.zeros(1, "i4"))
    add, out = module["produce"], xp.zeros(1, "i4")
    plan = add.plan(stream, ck.config(1, 32), 2)
    plan()
    with ck.capture(stream) as graph:
        add(stream, ck.config(1, 32), 3)
        module["consume"](stream, ONE, out)
    graph(stream)
    graph(stream)
    stream.sync()
    assert int(out[0]) == 8


def test_prepared_instances_share_too(stream: Any, xp: Any, request: pytest.FixtureRequest) -> None:
    module = ck.Module(unique(COUNTERS, request))
    arch = arch_of(stream)
    module.prepare("produce_t<1>", "produce_t<2>", arch=arch)
    ck.prewarm([module["produce_t"][3], module["consume"]], arch=arch)
    module["produce_t"].prepare(4, arch=arch)
    for n in (1, 2, 3, 4, 5):
        module["produce_t"][n](stream, ONE)
    assert value(module["consume"], stream, xp) == 15


# ── variables as NumPy arrays ───────────────────────────────────────────────────────────────────────────────────────

VARIABLES = """
#define R 3
#ifdef DOUBLE
typedef double real;
#else
typedef float real;
#endif
constexpr int C = R + 2;
struct Inner { short s[2]; };
struct P { int a; float b; Inner inner; };
enum E { red, green };
__constant__ unsigned table[R][C];
__device__ real reals[R];
__device__ float4 four;
__device__ P p;
__device__ P many[2];
__device__ const int fixed[2] = {4, 5};
__device__ int open[] = {1, 2, 3};
__managed__ short managed[2];
namespace m { __managed__ int one = 6; }
__global__ void look(float* out) {
    out[0] = table[2][4]; out[1] = reals[1]; out[2] = four.z;
    out[3] = p.b; out[4] = many[1].inner.s[1]; out[5] = m::one;
}
"""


@dataclass
class Inner:
    s: Any


Inner.__annotations__["s"] = __import__("typing").Annotated[np.int16, 2]


@dataclass
class P:
    a: np.int32
    b: np.float32
    inner: Inner


def test_variables_have_the_type_that_the_compiler_gives_them(stream: Any, xp: Any) -> None:
    variables = ck.Module(VARIABLES + "// as they are declared").globals
    found = {name: variables.read(name, stream) for name in variables}
    assert {name: (each.dtype.str, each.shape) for name, each in found.items()} == {
        "table": ("<u4", (3, 5)),
        "reals": ("<f4", (3,)),
        "four": ("<f4", (4,)),
        "p": ("|u1", (12,)),
        "many": ("|u1", (24,)),
        "fixed": ("<i4", (2,)),
        "open": ("<i4", (3,)),
        "managed": ("<i2", (2,)),
        "m::one": ("<i4", ()),
    }
    assert found["fixed"].tolist() == [4, 5]
    assert found["m::one"] == 6
    doubled = ck.Module(VARIABLES, options=ck.CompileOptions(defines={"DOUBLE": "1"})).globals
    assert doubled.read("reals", stream).dtype == np.float64


CONSTANTS = """
struct S { int a; };
typedef const float fixed_number;
__constant__ const float table[2] = {1, 2};
__device__ constexpr int counted = 3;
__device__ float* const at = nullptr;
__constant__ fixed_number named = 4;
__constant__ const S record = {5};
__constant__ float plain[2] = {1, 2};
__device__ const float* pointer;
__device__ volatile int seen;
__global__ void k(float* y) {
    *y = table[1] + counted + named + record.a + plain[0] + seen + (at != nullptr) + (pointer != nullptr);
}
"""


@pytest.mark.parametrize("name", ["table", "counted", "at", "named", "record"])
def test_a_const_variable_is_read_and_not_written(stream: Any, name: str) -> None:
    variables = ck.Module(CONSTANTS).globals
    value = variables.read(name, stream)
    with pytest.raises(ck.ArgumentError, match=f"variable {name} is const: .*declare it without const to write it"):
        variables.write(name, value, stream)


def test_what_is_not_const_is_written(stream: Any) -> None:
    variables = ck.Module(CONSTANTS).globals
    for name in ("plain", "pointer", "seen"):
        variables.write(name, np.zeros_like(variables.read(name, stream)), stream)


def test_what_variables_take(stream: Any, xp: Any) -> None:
    module, out = ck.Module(VARIABLES), xp.zeros(6, "f4")
    variables = module.globals
    variables.write("table", np.arange(15).reshape(3, 5), stream)
    variables.write("reals", [1, 2, 3], stream)
    variables.write("four", [1, 2, 3, 4], stream)
    variables.write("p", P(1, 2.5, Inner([3, 4])), stream)
    record = np.dtype([("a", "i4"), ("b", "f4"), ("inner", [("s", "i2", 2)])])
    variables.write("many", np.array([(1, 2, ((3, 4),)), (5, 6, ((7, 8),))], record), stream)
    variables.write("m::one", 7, stream)
    module["look"](stream, ONE, out)
    assert out.tolist() == [14, 2, 3, 2.5, 8, 7]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("table", np.zeros((5, 3), "u4"), r"table has shape \(3, 5\), got \(5, 3\)"),
        ("table", -1, "table"),
        ("reals", [1, 2], r"reals has shape \(3,\)"),
        ("four", [1, 2, 3], "four has shape"),
        ("p", P(2**31, 2.5, Inner([3, 4])), "p, field a,"),
        ("p", P(1, 2.5, Inner([3, 40_000])), "p, field inner.s"),
        ("p", 3, r"p \(P\) takes an array of 12 bytes"),
        ("p", np.zeros(1, [("b", "f4"), ("a", "i4"), ("s", "i2", 2)]), "p .*layout"),
        ("p", np.zeros(13, "u1"), "p has 12 bytes, got 13"),
        ("reals", np.zeros(3, [("x", "f4")]), "reals .*takes float32"),
        ("managed", 70_000, "managed"),
    ],
)
def test_what_variables_refuse(name: str, value: Any, message: str, stream: Any) -> None:
    with pytest.raises(ck.ArgumentError, match=message) as caught:
        ck.Module(VARIABLES).globals.write(name, value, stream)
    assert "operand" not in str(caught.value), "not NumPy's words"


def test_an_unknown_variable_is_told_with_near_names() -> None:
    with pytest.raises(ck.TemplateError, match=r"no .*variable 'tabel'; did you mean table\?"):
        ck.Module(VARIABLES).globals["tabel"]


# ── headers that change in the process ───────────────────────────────────────────────────────────────────────────────


def test_a_kernel_that_is_made_anew_has_the_headers_of_now(tmp_path: Path, stream: Any, xp: Any) -> None:
    text = '#include "v.h"\n__device__ int kept; __global__ void set(int* y, int n) { kept = n; *y = V; }'
    text += "__global__ void get(int* y) { *y = kept; } template <typename T> __global__ void k(T* y) { *y = V; }"
    (tmp_path / "k.cu").write_text(text)
    made = []
    for now in (1, 2, 2, 1):
        (tmp_path / "v.h").write_text(f"#define V {now}\n")
        path = tmp_path / "k.cu"
        kernels = {name: ck.Kernel.from_file(path, name) for name in ("set", "get", "k")}
        assert value(kernels["set"], stream, xp, 7) == now
        assert value(ck.Kernel.from_file(path, "get"), stream, xp) == 7  # of one module still
        assert value(ck.Kernel.from_file(path, "k"), stream, xp) == now
        assert value(kernels["k"], stream, xp) == now
        made.append(kernels["set"])
    assert made[1].module is made[2].module
    assert made[0].module is not made[1].module
    assert value(made[0], stream, xp, 3) == 1


def test_a_module_stays_what_it_was_when_a_header_changes(tmp_path: Path, stream: Any, xp: Any) -> None:
    (tmp_path / "v.h").write_text("#define V 1\n")
    (tmp_path / "k.cu").write_text(
        '#include "v.h"\n__device__ int n; __global__ void a() { n = V; } __global__ void b(int* y) { *y = n; }'
    )
    module = ck.Module.from_file(tmp_path / "k.cu")
    module["a"](stream, ONE)
    (tmp_path / "v.h").write_text("#define V 2\n")
    assert value(module["b"], stream, xp) == 1
    (tmp_path / "v.h").write_text("no C++")
    assert value(module["b"], stream, xp) == 1
    with pytest.raises(ck.CompileError):
        ck.Kernel.from_file(tmp_path / "k.cu", "a")(stream, ONE)
