"""A module that has variables, loaded anew for a further instance on a GPU: with a stand-in for the driver."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator.launch import limits_of
from cudakit.jit.cache.cache import Cache
from cudakit.jit.compile.elf import variables_of
from cudakit.jit.compile.mangled import common_name, is_shared, variable_name
from cudakit.jit.launch import code_place
from cudakit.jit.load import image
from cudakit.jit.load.load import Loaded, parameter_size
from cudakit.jit.load.variables import move
from cudakit.streams import devices, streams
from cudakit.streams import order as order_module
from cudakit.streams.order import Order

pytestmark = pytest.mark.emulator

ONE = ck.config(1, 1)
TEXT = """
static __device__ long long counter = 7;
namespace { __constant__ long long hidden; }
template <typename T> __device__ T own;
__device__ long long next() { static long long calls; return ++calls; }
template <int N> __global__ void add() { counter += N + hidden; next(); own<long long> += 1; }
__global__ void plain() { counter += 1; }
"""


class Stream:
    """A GPU's stream that does nothing."""

    handle, is_closed = 1000, False

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class Library:
    """Variables of 8 bytes each, in an address space of the test's own."""

    made: list[Library]
    missing: set[str]

    def __init__(self, code: Any, known: tuple[str, ...]) -> None:
        self.code, self.known = code, known
        self.base = 1 << 20 << len(self.made)
        self.values = {name: np.zeros(1, np.int64) for name in known}
        self.made.append(self)

    def names(self) -> tuple[str, ...]:
        return self.known

    def address(self, name: str) -> tuple[int, int]:
        if variable_name(name) in self.missing:
            raise ck.LaunchError(f"the driver does not find the variable {name}")
        return self.base + 8 * self.known.index(name), 8

    def read(self, name: str, stream: Any) -> np.ndarray:
        return self.values[name].view(np.uint8).copy()

    def write(self, name: str, data: np.ndarray, stream: Any) -> None:
        self.values[name][:] = data.view(np.int64)

    def __getitem__(self, name: str) -> int:
        return int(next(value for known, value in self.values.items() if variable_name(known) == name)[0])

    def __setitem__(self, name: str, value: int) -> None:
        next(array for known, array in self.values.items() if variable_name(known) == name)[0] = value


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The library that each kernel was launched from."""
    found: list[Any] = []

    def load(specialization: Any, compiled: Any, code: Any, parameters: Any) -> Loaded:
        sizes = tuple(parameter_size(parameter) or 8 for parameter in parameters)
        loaded = Loaded(specialization, compiled, code, code, parameters, sizes)
        monkeypatch.setattr(loaded, "launch_config", lambda *given: "resolved")
        return loaded

    Library.made, Library.missing = [], set()
    monkeypatch.setattr(order_module, "_order", Order())
    monkeypatch.setattr(devices, "device_count", lambda: 1)
    monkeypatch.setattr(devices, "make_current", lambda device_id: None)
    monkeypatch.setattr(streams, "is_captured", lambda handle: False)
    monkeypatch.setattr(devices, "require_gpu", lambda: None)
    monkeypatch.setattr(devices, "limits", lambda device_id: limits_of("sm_90"))
    monkeypatch.setattr(image, "object_code", lambda compiled, name: len(Library.made))
    monkeypatch.setattr(image, "DeviceVariables", Library)
    monkeypatch.setattr(image, "load", load)
    monkeypatch.setattr(code_place, "make_run", lambda ready, _: lambda *given: found.append(ready.kernel))
    return found


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    made: Any = Stream()
    monkeypatch.setitem(streams._device_streams, id(made), streams.DeviceStream(made, made, made.handle, 0))
    return made


@pytest.fixture
def module(request: pytest.FixtureRequest) -> ck.Module:
    return ck.Module(f"// {request.node.nodeid}\n{TEXT}")


def test_values_move_and_nothing_launches_the_old(launched: list[Any], stream: Stream, module: ck.Module) -> None:
    first, plain = module["add<1>"], module["plain"]
    for _ in range(3):
        first(stream, ONE)
        plain(stream, ONE)
    assert launched == [0] * 6
    library = Library.made[0]
    library["counter"], library["hidden"], library["next()::calls"], library["own<long long>"] = 11, 12, 13, 14
    second = module["add"][2]
    second(stream, ONE)
    first(stream, ONE)
    plain(stream, ONE)
    module["add"][1](stream, ONE)
    assert launched[6:] == [1] * 4
    names = ("counter", "hidden", "next()::calls", "own<long long>")
    assert [Library.made[1][name] for name in names] == [11, 12, 13, 14]
    assert len(Library.made) == 2


def test_threads_that_grow_a_module_lose_no_launch(launched: list[Any], stream: Stream, module: ck.Module) -> None:
    barrier = threading.Barrier(6)

    def run(n: int) -> None:
        kernel = module["add"][n]
        barrier.wait()
        for _ in range(20):
            kernel(stream, ONE)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(launched) == 120
    assert launched == sorted(launched), "nothing launches code that is no more"
    assert launched[-1] == 5


def test_the_same_instances_have_the_same_key_in_any_order(
    launched: list[Any], stream: Stream, module: ck.Module, fresh_cache: Cache
) -> None:
    for n in (1, 2, 3):
        module["add"][n](stream, ONE)
    before = fresh_cache.info().misses
    module._unit._images.clear()
    for n in (2, 1, 3):
        module["add"][n](stream, ONE)
    assert fresh_cache.info().misses == before + 1, "add<2> alone is new; <1, 2> and <1, 2, 3> are not"


def test_instances_without_variables_stay_apart(launched: list[Any], stream: Stream) -> None:
    text = "template <int N> __global__ void f(int* x) { *x = N; }"
    first, second = ck.Kernel(text)[1], ck.Kernel(text)[2]
    first(stream, ONE, None)
    second(stream, ONE, None)
    first(stream, ONE, None)
    assert launched == [0, 1, 0]


def test_prepared_instances_are_loaded_together(
    launched: list[Any], stream: Stream, module: ck.Module, fresh_cache: Cache
) -> None:
    module.prepare("add<1>", "add<2>", "plain", arch="sm_90")
    before = fresh_cache.info().misses
    plan = module["add<1>"].plan(stream, ONE)
    module["add<2>"](stream, ONE)
    module["plain"](stream, ONE)
    plan()
    assert launched == [0, 0, 0]
    assert fresh_cache.info().misses == before
    other = ck.Module(f"{module.source.text} ")
    other["add"].prepare(4, 5, arch="sm_90")
    other["add<4>"](stream, ONE)
    other["add<5>"](stream, ONE)
    assert len(Library.made) == 2


def test_a_plan_keeps_its_code_and_refuses_growth(launched: list[Any], stream: Stream, module: ck.Module) -> None:
    plan = module["add<1>"].plan(stream, ONE)
    with pytest.raises(ck.LaunchError, match=r"add<2>: .*plan.* holds add<1> .*module\.prepare\(\"add<2>\""):
        module["add<2>"](stream, ONE)
    module["add<1>"](stream, ONE)
    module["plain"](stream, ONE)
    plan()
    assert launched == [0, 0, 0], "all goes on with what was loaded"
    del plan
    module["add<2>"](stream, ONE)
    module["add<1>"](stream, ONE)
    assert len(set(launched[3:])) == 1 != launched[3]


def test_a_stored_address_of_a_variable_refuses_growth(launched: list[Any], stream: Stream, module: ck.Module) -> None:
    module["add<1>"](stream, ONE)
    library = Library.made[0]
    name = next(known for known in library.known if variable_name(known) == "counter")
    library["hidden"] = library.address(name)[0] + 4
    with pytest.raises(ck.LaunchError, match="hidden holds the address of a variable"):
        module["add<2>"](stream, ONE)
    module["add<1>"](stream, ONE)
    assert launched == [0, 0]


def test_a_pointer_as_it_was_initialised_moves_along() -> None:
    Library.made, Library.missing = [], set()
    old, new = Library(0, ("x", "to_x", "other")), Library(1, ("more", "x", "to_x"))
    old["x"], new["x"] = 5, 4
    old["to_x"], new["to_x"] = old.address("x")[0], new.address("x")[0]
    move(old, new)
    assert (new["x"], new["to_x"], new["more"]) == (5, new.address("x")[0], 0)
    old["to_x"] = old.address("other")[0]
    move(old, new)
    assert new["to_x"] == old.address("other")[0], "not one that moved"
    old["to_x"] = old.address("to_x")[0]
    with pytest.raises(ck.LaunchError, match="to_x holds"):
        move(old, new)


def test_a_variable_that_is_not_found_refuses_growth_by_name(
    launched: list[Any], stream: Stream, module: ck.Module
) -> None:
    module["add<1>"](stream, ONE)
    Library.missing.add("next()::calls")
    with pytest.raises(ck.LaunchError, match=r"add<2>: .*does not find the variable .*calls"):
        module["add<2>"](stream, ONE)


@pytest.mark.parametrize(
    "text",
    [
        "__device__ int (*chosen)(int); template <int N> __global__ void f() { chosen(N); }",
        "using Op = int(int); __device__ Op* chosen; template <int N> __global__ void f() { chosen(N); }",
        "struct S { int (*op)(int); }; __device__ S s; template <int N> __global__ void f() { s.op(N); }",
    ],
)
def test_pointers_to_functions_refuse_growth(text: str, launched: list[Any], stream: Stream) -> None:
    kernel = ck.Kernel(text)
    kernel[1](stream, ONE)
    with pytest.raises(ck.LaunchError, match="pointer to a function"):
        kernel[2](stream, ONE)


def test_function_objects_and_structs_of_several_instances_go_together(launched: list[Any], stream: Stream) -> None:
    text = """
    __device__ int total;
    template <typename T, typename Op> __global__ void f(const T* x, Op op) { total += op(x[0].a, 1); }
    """
    kernel = ck.Kernel(text)
    records = [np.dtype([("a", "i4")]), np.dtype([("a", "i4"), ("b", [("c", "f4")])])]
    operators = ["[](auto a, auto b) { return a + b; }", "[](auto a, auto b) { return a - b; }"]
    for record in records:
        for operator in operators:
            kernel[record](stream, ONE, None, operator)
    assert launched == [0, 1, 2, 3]
    kernel[records[0]](stream, ONE, None, operators[1])
    assert launched[4] == 3


def test_the_variables_of_a_cubin() -> None:
    text = """
    #include <cuda/std/tuple>
    __device__ int a; __constant__ float b[4]; __managed__ int m;
    __global__ void f(int* x) {
        static int s;
        auto [u, v] = cuda::std::make_tuple(1, 2);
        printf("%d", u + v + ++s + m);
    }
    """
    cubin = ck.Kernel(text).compile(arch="sm_90").code
    assert sorted(variables_of(cubin)) == ["_ZZ1fPiE1s", "a", "b", "m"]
    assert variables_of(b"") == variables_of(b"\x7fELF\x01") == ()
    plain = ck.Kernel("__global__ void f(int* x) { *x = 1; }").compile(arch="sm_90").code
    assert variables_of(plain) == ()


def test_names_that_differ_by_compile_have_one_that_does_not() -> None:
    one = "_ZN44_INTERNAL_00000000_13__kernel_text__2adb829646_GLOBAL__N__00000000_13__kernel_text__2adb82966hiddenE"
    other = "_ZN42_INTERNAL_00000000_13__kernel_text___Z1aPi44_GLOBAL__N__00000000_13__kernel_text___Z1aPi6hiddenE"
    assert common_name(one) == common_name(other) == common_name(common_name(one))
    assert variable_name(one) == "hidden"
    assert variable_name("counter") == common_name("counter") == "counter"
    assert not is_shared("$str$1")
    assert not is_shared("_ZN4cuda3std3__45tupleE")
    assert not is_shared("_ZN26__nv_atomic_triv_cp_helperIyE5__valE")
    assert is_shared("_ZN5cudaX1aE")
