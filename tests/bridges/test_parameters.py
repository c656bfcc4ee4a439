"""What an op reads from a kernel's head, and how it calls the kernel: no other library is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.bridges import SOURCE

import cudakit as ck
from cudakit.bridges import work
from cudakit.bridges.work import Role, arrangement_of, of_function, of_kernel, roles

MANY = """
#include <cudakit/strided.cuh>
struct options { int a; };
template <typename T, typename Op>
__global__ void many(const T* x, T* const __restrict__ y, cudakit::strided<T, 2> z, cudakit::strided<const T, 1> w,
                     T by, int k, double d, bool flag, options o, Op op, float* const* table, unsigned long long n) {}
__global__ void over(int* x) {}
__global__ void over(float* x) {}
template <typename... A> __global__ void packed(A... a) {}
"""


def test_roles_of_all_kinds_of_parameters() -> None:
    found = roles("op", ck.Kernel(MANY, "many"))
    kinds = {role.name: role.category for role in found}
    arrays = {"x": "array", "y": "written", "z": "written", "w": "array", "table": "array"}
    numbers = dict.fromkeys(("by", "k", "d", "flag", "op", "n"), "number")
    assert kinds == arrays | numbers | {"o": "other"}
    told = {role.name: role.number for role in found}
    assert (told["by"], told["k"], told["d"], told["flag"], told["n"]) == ("any", "int", "float", "bool", "int")


def test_heads_that_are_not_known_are_refused() -> None:
    for name in ("over", "packed"):
        with pytest.raises(ck.ArgumentError, match=f"op: the parameters of {name} are not known"):
            roles("op", ck.Kernel(MANY, name))
    for changes in ({"overloads": ("f",)}, {"parameters": None}):
        head = {"name": "f", "overloads": (), "parameters": (), "template_parameters": ()} | changes
        unknown: Any = SimpleNamespace(signature=SimpleNamespace(**head))
        with pytest.raises(ck.ArgumentError, match="op: the parameters of f are not known"):
            roles("op", unknown)


def test_what_a_call_gives_and_what_is_worked_out() -> None:
    kernel = ck.Kernel(SOURCE, "axpy")
    found = arrangement_of("op", kernel, ["z"], {})
    assert found.takes == (Role("a", "number"), Role("x", "array"), Role("y", "array"))
    assert found.names == ("a", "x", "y", "z")
    taken: list[Any] = []
    launch = found.launcher(lambda *given: taken.extend(given), "the configuration")  # type: ignore[arg-type]
    x = np.zeros((2, 3))
    launch("a stream", 2.0, x, x, x)
    assert taken == ["a stream", "the configuration", 2.0, x, x, x, 6]
    assert [role.name for role in arrangement_of("op", kernel, ["z"], {}, named_arguments=["n"]).takes] == [
        "a",
        "x",
        "y",
        "n",
    ]
    changed = arrangement_of("op", ck.Kernel(SOURCE, "scale"), [], {"by": 3, "n": lambda x: x.size})
    assert changed.takes == (Role("x", "written"),)
    taken.clear()
    changed.launcher(lambda *given: taken.extend(given), None)("a stream", x)  # type: ignore[arg-type]
    assert taken[3:] == [3, 6]


def test_what_no_call_can_give_is_refused() -> None:
    kernel = ck.Kernel(MANY, "many")
    with pytest.raises(ck.ArgumentError, match=r"op: o is neither an array nor a number; give it in values=\{'o': …\}"):
        arrangement_of("op", kernel, ["y"], {})
    with pytest.raises(ck.ArgumentError, match=r"values\['k'\] takes q; there are"):
        arrangement_of("op", kernel, ["y"], {"o": 1, "k": lambda q: 1})
    with pytest.raises(ck.ArgumentError, match=r"config takes arguments by their names, and has \*x"):
        of_kernel("op", ck.Kernel(SOURCE, "axpy"), ["z"], lambda *x: None)
    with pytest.raises(ck.ArgumentError, match="no argument is an array; give config="):
        of_kernel("op", ck.Kernel("__global__ void f(int k) {}"), [])


def test_a_kernel_runs_with_the_configuration_that_is_asked_for() -> None:
    stream, (x, y, z) = ck.emulator.stream(), np.ones((3, 40), np.float32)
    for config in (None, ck.config(2, 32), ck.cover(40), lambda x, z: ck.cover(z.size)):
        z[:] = 0
        of_kernel("op", ck.Kernel(SOURCE, "axpy"), ["z"], config).run(stream, 2.0, x, y, z)
        stream.sync()
        assert (z == 3).all()


def test_a_function_is_given_what_has_no_default() -> None:
    given: list[Any] = []

    def function(x: Any, /, y: Any, *, by: int = 2, unused: int = 5, out: Any = None, stream: Any = None) -> None:
        given.append((x, y, by, unused, stream))
        out[...] = x

    stream, one = ck.emulator.stream(), np.ones(3)
    result = np.zeros(3)
    work = of_function("op", function, ["out"], ["by"], [], lambda value: value)
    assert [(role.name, role.category) for role in work.takes] == [("x", "array"), ("y", "array"), ("by", "number")]
    work.run(stream, one, 2 * one, 7, result)
    assert given[0][0] is one
    assert given[0][2:] == (7, 5, stream)
    assert (result == 1).all()
    with pytest.raises(ck.ArgumentError, match=r"numbers= names some of x, y, as in numbers=\['x'\]; got 'by'"):
        of_function("op", lambda x, y: None, [], "by", [], lambda value: value)


def test_a_library_that_is_missing_is_named_with_its_command() -> None:
    with pytest.raises(ck.CudakitError, match="it needs no_such_library, which is not installed: pip install it"):
        work.library("no_such_library", "it", "pip install it")
