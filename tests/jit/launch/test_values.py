"""What goes into a kernel by value: exactly what was given, or an error that names kernel, parameter and field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.places import to_host

import cudakit as ck

PAIR = "struct P { float a; int b; }; __global__ void pk(P p, float* y) { y[0] = p.a; y[1] = p.b; }"


def run(kernel: ck.Kernel, stream: Any, *arguments: Any) -> None:
    kernel(stream, ck.config(1, 1), *arguments)


# ── vectors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("head", ["double2 v", "const double2 v"])
@pytest.mark.parametrize("value", [np.array([1.0, 2.0]), np.array([1, 2], "i4"), np.array([1, 2], ">f8"), (1.0, 2)])
def test_an_array_is_a_vector_s_components(head: str, value: Any, stream: Any, xp: Any) -> None:
    kernel = ck.Kernel(f"__global__ void k(double* y, {head}) {{ y[0] = v.x; y[1] = v.y; }}")
    for _ in range(3):
        y = xp.zeros(2)
        run(kernel, stream, y, value)
        assert to_host(y).tolist() == [1, 2]


def test_a_vector_s_components_by_template(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("template <typename T> __global__ void k(float* y, T v) { y[0] = v.x; y[1] = v.y; }")["float2"]
    y = xp.zeros(2, "f4")
    run(kernel, stream, y, xp.asarray([1, 2], "f4"))
    assert to_host(y).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.array([1.0, 2.0]), "not an integer"),
        (np.array([1, 2, 3]), "takes 2 numbers, got 3"),
        (np.array([[1, 2]]), "takes 2 numbers"),
        (np.array(1), "takes 2 numbers"),
        (np.array([1, 3_000_000_000]), "outside"),
        (np.array([None, "x"]), "not an integer"),
        (("1", 2), "not an integer"),
    ],
)
def test_an_array_that_is_no_such_vector(value: Any, why: str, stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("__global__ void k(int* y, int2 v) { y[0] = v.x; y[1] = v.y; }")
    with pytest.raises(ck.ArgumentError, match=rf"k: parameter v \(int2\).*{why}"):
        run(kernel, stream, xp.zeros(2, "i4"), value)


@pytest.mark.parametrize("value", ["2.5", b"2.5", None])
def test_text_is_no_number(value: Any, stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("__global__ void k(float* y, float2 v) {}")
    with pytest.raises(ck.ArgumentError, match=r"k: parameter v \(float2\).*not a number"):
        run(kernel, stream, xp.zeros(2, "f4"), (value, 1.0))


# ── objects, byte order, bytes ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "array", [np.array(["text", {}], dtype=object), np.array([(1, None)], [("a", "i4"), ("b", "O")]), np.array(None)]
)
@pytest.mark.parametrize("head", ["void* p", "unsigned long long* p", "S* p", "S p"])
def test_arrays_of_python_objects_are_refused(array: Any, head: str) -> None:
    kernel = ck.Kernel(f"struct S {{ int a; void* b; }}; __global__ void k({head}) {{}}")
    for value in (array, array[0] if array.ndim else array):
        if isinstance(value, np.ndarray | np.void):
            with pytest.raises(ck.ArgumentError, match=r"k: argument p: .*Python objects"):
                run(kernel, ck.emulator.stream(), value)


def test_bytes_are_taken_for_any_struct_of_their_size(stream: Any, xp: Any) -> None:
    data = np.array((1.5, 3), [("a", "f4"), ("b", "i4")])[()].tobytes()
    for text in (PAIR, f"namespace q {{ {PAIR} }}", PAIR.replace("float a", "float a[1]").replace("p.a", "p.a[0]")):
        kernel = ck.Kernel(text)
        for _ in range(3):
            y = xp.zeros(2, "f4")
            run(kernel, stream, np.void(data), y)
            assert to_host(y).tolist() == [1.5, 3]
        with pytest.raises(ck.ArgumentError, match=r"pk: parameter p \(.*P\).* 8 bytes.*12"):
            run(kernel, stream, np.void(data + b"1234"), y)
