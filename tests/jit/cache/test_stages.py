"""Parameters in full: the compiler's names say what the signature leaves open, and what tile code promises."""

from __future__ import annotations

import numpy as np
import pytest

import cudakit as ck
from cudakit.jit.cache.stages import complete_parameters, declarations_of, promised
from cudakit.jit.compile.compiled import Compiled, Promise, type_of
from cudakit.jit.specialise.specialise import BoundParameter, PartPromise
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.types.arguments import Evidence
from cudakit.types.tensors import TensorLayout

pytestmark = pytest.mark.emulator

POINT = np.dtype([("x", "f4"), ("y", "f4")])
OPEN = """
struct Point { float x, y; };
template <typename T> struct of { using pointer = const T*; using number = short; using point = Point; };
template <typename T> __global__ void f(
    typename of<T>::pointer x, double* y, typename of<T>::number n, typename of<T>::point p) {}
"""
#: As the Itanium C++ ABI mangles ``cudakit_type<void (*)(const float*, double*, short, Point)>``.
ITS_TYPES = "_Z12cudakit_typeIPFvPKfPds5PointEEvv"


def completed(
    types: str, evidence: tuple[Evidence, ...] = (), known: tuple[BoundParameter, ...] | None = None
) -> tuple[BoundParameter, ...]:
    """Parameters of OPEN's kernel by the compiler's types, in place of the signature's `known`."""
    specialization = ck.Kernel(OPEN)["float"].specialization(arch="sm_90")
    assert specialization.needs_types
    if known is not None:
        specialization = specialization._replace(parameters=known)
    name = specialization.name_expression
    declarations = declarations_of(specialization.source)
    made = Compiled(b"", {name: "_Z1f", type_of(name): types})
    return complete_parameters(specialization, made, declarations, evidence, TypeBook(declarations))


def test_what_the_signature_leaves_open_is_what_the_compiler_says() -> None:
    point = Evidence("scalar", "point", POINT)
    others = (Evidence("address", "None"),) * 3
    found = completed(ITS_TYPES, (*others, point))
    assert [(p.name, p.category, p.dtype, p.const) for p in found] == [
        ("x", "pointer", np.dtype("f4"), True),
        ("y", "pointer", np.dtype("f8"), False),
        ("n", "scalar", np.dtype("i2"), False),
        ("p", "struct", POINT, False),
    ]


def test_without_a_struct_the_compiler_alone_does_not_tell_a_layout() -> None:
    found = completed(ITS_TYPES)
    assert [p.category for p in found] == ["pointer", "pointer", "scalar", "unknown"]
    assert found[3].cpp == "Point"


def test_an_array_that_is_taken_whole_has_the_types_of_all_its_parts() -> None:
    """Address, two extents and two strides; the next parameter's type is the sixth."""
    whole = BoundParameter("t", "cudakit::tensor<float, 2>", "tensor", np.dtype("f4"), count=2, layout=TensorLayout())
    types = "_Z12cudakit_typeIPFvPfiiiijEEvv"
    found = completed(types, known=(whole, BoundParameter("n", "?", "unknown")))
    assert found[0] == whole
    assert [(p.name, p.category, p.dtype) for p in found[1:]] == [("n", "scalar", np.dtype("u4"))]


def test_where_the_signature_says_nothing_parameters_have_numbers() -> None:
    found = completed(ITS_TYPES)
    specialization = ck.Kernel(OPEN)["float"].specialization(arch="sm_90")._replace(parameters=None)
    name, declarations = specialization.name_expression, declarations_of(specialization.source)
    made = Compiled(b"", {name: "_Z1f", type_of(name): ITS_TYPES})
    unnamed = complete_parameters(specialization, made, declarations, (), TypeBook(declarations))
    assert [p.name for p in unnamed] == [f"parameter[{k}]" for k in range(4)]
    assert [p._replace(name="") for p in unnamed] == [p._replace(name="") for p in found]


def test_what_tile_code_promises_is_each_parameters_own() -> None:
    whole = BoundParameter("t", "cudakit::tensor<float, 1>", "tensor", np.dtype("f4"), count=1, layout=TensorLayout())
    pointer = BoundParameter("x", "float*", "pointer", np.dtype("f4"), alignment=12)
    number = BoundParameter("n", "int", "scalar", np.dtype("i4"))
    promises = (
        Promise("_Z1f", 0, 16),  # the address of x
        Promise("_Z1f", 2, 4, 8, 100),  # the extent of t
        Promise("_Z1f", 4, 32, 0, 640),  # n
        Promise("_Z1g", 4, 3),  # of another kernel
    )
    found = tuple(promised((pointer, whole, number), Compiled(b"", {}, promises=promises), "_Z1f"))
    assert found[0] == pointer._replace(alignment=48)  # multiples of 12 and of 16
    assert found[1].promises == (PartPromise(1, 4, 8, 100),)
    assert found[2] == number._replace(divisor=32, low=0, high=640)
    assert tuple(promised((pointer, whole, number), Compiled(b"", {}), "_Z1f")) == (pointer, whole, number)
