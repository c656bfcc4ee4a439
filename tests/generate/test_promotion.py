"""Types that a call decides: of its arguments, of type variables, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cudakit as ck
from cudakit.arrays.output import can_cast
from cudakit.generate.call import check_dtype, common_shape, deduce_types, dtype_of, is_array, promoted, split
from cudakit.generate.declarations import GIVEN_NAMES, parse

pytestmark = pytest.mark.emulator
F4, F8, I4, BF16 = np.dtype("f4"), np.dtype("f8"), np.dtype("i4"), np.dtype(ml_dtypes.bfloat16)


class Whole(int):
    """A Python number of a class of its own."""


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (True, bool),
        (3, int),
        (1.5, float),
        (2j, complex),
        (Whole(3), int),
        (np.float32(1), F4),
        (np.zeros(3, "i4"), I4),
        (ml_dtypes.bfloat16(1), BF16),
        (np.bool_(True), np.dtype("?")),
    ],
)
def test_types_of_arguments(value: Any, want: Any) -> None:
    assert dtype_of("f", "x", value) == want


def test_no_type() -> None:
    with pytest.raises(ck.ArgumentError, match="f: x is str, neither an array nor a number nor a struct"):
        dtype_of("f", "x", "text")


def test_dtypes_without_a_cpp_type() -> None:
    for dtype in (F4, BF16, np.dtype("c8"), np.dtype([("a", "f4"), ("b", "M8[s]")])):
        check_dtype("f", "x", dtype)
    with pytest.raises(ck.ArgumentError, match=r"f: x is of >f4, which has no C\+\+ equivalent; it is not in native"):
        check_dtype("f", "x", np.dtype(">f4"))
    with pytest.raises(ck.ArgumentError, match=r"f: x is of datetime64\[s\], which has no C\+\+ equivalent$"):
        check_dtype("f", "x", np.dtype("M8[s]"))


@pytest.mark.parametrize(
    ("kinds", "want"),
    [
        ([F4, F8], "f8"),
        ([F4, int], "f4"),
        ([F4, float], "f4"),
        ([F4, complex], "c8"),
        ([I4, float], "f8"),
        ([np.dtype("u1"), bool], "u1"),
        ([int], "i8"),
        ([bool], "?"),
        ([float, complex], "c16"),
        ([bool, int], "i8"),
        ([BF16, float], BF16),
        ([BF16, int], BF16),
        ([BF16, complex], "c8"),
        ([BF16, F4], "f4"),
    ],
)
def test_promotion(kinds: list[Any], want: Any) -> None:
    assert promoted("f", "T", [(f"x{k}", kind) for k, kind in enumerate(kinds)]) == np.dtype(want)


def test_no_common_type() -> None:
    with pytest.raises(
        ck.ArgumentError, match=r"f: T has no common type: x is of datetime64\[s\], y is of float; conv"
    ):
        promoted("f", "T", [("x", np.dtype("M8[s]")), ("y", float)])


def types_of(inputs: str, kinds: list[Any], outputs: str = "", outs: tuple[Any, ...] = ()) -> dict[str, np.dtype]:
    return deduce_types("f", parse("f", inputs), kinds, parse("f", outputs), outs)


def test_type_variables() -> None:
    assert types_of("T x, T y, S z, float32 w", [F4, F8, I4, F4]) == {"T": F8, "S": I4}
    assert types_of("T x", [F4], "T y, S z", (F8, I4)) == {"T": F4, "S": I4}
    assert types_of("T x", [F4], "S y, S z", (None, I4)) == {"T": F4, "S": I4}
    assert types_of("T x", [F4], "float64 y", (None,)) == {"T": F4}
    assert types_of("raw T x, T y", [F4, int]) == {"T": F4}
    for given, message in (
        (("T x", [F4], "S y", (None,)), "the type S of y cannot be deduced: no input has it; give out="),
        (("T x", [np.dtype("M8[s]")]), r"T \(of x\) is of datetime64\[s\], which has no"),
        (("T x", [F4], "S y", (np.dtype("M8[s]"),)), r"f: y is of datetime64\[s\], which has no C"),
        (("float32 x", [F8]), r"x is of float64 and would lose as float32 \(float x\); convert it with x.astype"),
        (("float32 x", [np.dtype(">f8")]), "x is of >f8, which has no"),
        (("raw float64 x", [F4]), "x is of float32 and double is float64: a raw argument is not converted"),
        (("raw T x, T y", [F4, F8]), "x is of float32 and T is float64: a raw argument is not converted"),
    ):
        with pytest.raises(ck.ArgumentError, match=message):
            types_of(*given)


def test_conversions_that_lose_nothing() -> None:
    assert can_cast(F4, F8)
    assert not can_cast(F8, F4)
    assert can_cast(F8, F4, "same_kind")
    assert not can_cast(F8, I4, "same_kind")
    assert can_cast(BF16, F4)
    assert not can_cast(np.dtype([("a", "f4"), ("b", "f4")]), F4)


# ── declarations ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("T x", ("x", "T", None, False)),
        ("raw float32 x", ("x", "float", F4, True)),
        ("const double* __restrict__ x", ("x", "double", F8, True)),
        ("bfloat16 x", ("x", "__nv_bfloat16", BF16, False)),
        ("volatile int8 x", ("x", "signed char", np.dtype("i1"), False)),
        ("complex<float> x", ("x", "cuda::std::complex<float>", np.dtype("c8"), False)),
        ("cuda :: std :: complex < double > x", ("x", "cuda::std::complex<double>", np.dtype("c16"), False)),
        ("bool x", ("x", "bool", np.dtype("?"), False)),
        ("Type1 x", ("x", "Type1", None, False)),
        ("t x", ("x", "t", None, False)),
        ("point x", ("x", "point", None, False)),
    ],
)
def test_a_declaration(text: str, want: tuple[Any, ...]) -> None:
    assert parse("f", text, preamble="struct point { float x; };") == (want,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (3, "f: arguments are declared by a str such as 'T x, float32 y', got 3"),
        ("T x, T x", "two arguments are called 'x' in 'T x, T x'"),
        ("T", "cannot read the argument 'T'; it is a type and a name"),
        ("z = x", "cannot read the argument 'z = x': a declaration has no ="),
        ("z[i] = 2", r"cannot read the argument 'z\[i\] = 2': a declaration has no ="),
        ("T class", "an argument cannot be called 'class', a word of C"),
        ("T lambda", "an argument cannot be called 'lambda', a word of C"),
        ("T __x", "the argument name '__x' is for generated code"),
        ("T_ x", "no type is called 'T_'"),
        ("ptr_s x", r"no type is called 'ptr_s'; did you mean ptr_t\? A type variable"),
        ("flota x", "no type is called 'flota'; did you mean float"),
        ("zzzz x", "no type is called 'zzzz'. A type variable has one letter"),
        ("T i", "an argument cannot be called 'i', which the expression defines already; rename it"),
        ("T _ind", "an argument cannot be called '_ind', which the expression defines already; rename it"),
    ],
)
def test_a_wrong_declaration(text: Any, message: str) -> None:
    with pytest.raises(ck.TemplateError, match=message):
        parse("f", text, preamble="struct ptr_t {};")
    assert set(GIVEN_NAMES) == {"i", "n", "_ind", "_shape"}


def test_a_wrong_preamble() -> None:
    with pytest.raises(ck.TemplateError, match=r"f: the preamble must be C\+\+ text, got 3"):
        parse("f", "T x", preamble=3)  # type: ignore[arg-type]


def test_element_types_of_raw_arrays() -> None:
    x, flag, plain = parse("f", "raw T x, raw bool flag, raw float32 plain")
    assert [p.stored for p in (x, flag, plain)] == ["cudakit::stored_t<T>", "cudakit::stored_t<bool>", "float"]
    assert [str(p) for p in (x, plain._replace(raw=False))] == ["raw T x", "float plain"]


# ── arguments ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_arguments_are_told_from_outputs() -> None:
    recipe = ck.elementwise("T x, T y", "T z, T w", "z = x; w = y", name="pair").recipe
    assert split(recipe, (1, 2), None) == ((1, 2), (None, None))
    assert split(recipe, (1, 2, 3, 4), None) == ((1, 2), (3, 4))
    assert split(recipe, (1, 2), (3, None)) == ((1, 2), (3, None))
    for args, out, message in (
        ((1,), None, r"pair takes 2 inputs \(or 4, with the outputs\): x, y; got 1"),
        ((1, 2, 3, 4), (3, 4), "pair takes 2 inputs: x, y; got 4"),
        ((1, 2, 3), None, r"pair takes 2 inputs \(or 4, with the outputs\): x, y; got 3"),
        ((1, 2), 3, r"pair has 2 outputs \(z, w\); out has 1"),
        ((1, 2), (1, 2, 3), r"pair has 2 outputs \(z, w\); out has 3"),
    ):
        with pytest.raises(ck.ArgumentError, match=message):
            split(recipe, args, out)


def test_values_and_arrays() -> None:
    x, raw = parse("f", "T x, raw T r")
    record = np.zeros((), [("a", "f4")])
    for value in (True, 1, 1.5, 2j, np.float32(1), ml_dtypes.bfloat16(1), record, record[()]):
        assert not is_array("f", x, value)
        with pytest.raises(ck.ArgumentError, match=f"f: r is raw and takes an array, got {type(value).__name__}"):
            is_array("f", raw, value)
    for value in (np.zeros(()), np.zeros(3), np.zeros(1, record.dtype)):
        assert is_array("f", x, value)
        assert is_array("f", raw, value)


def test_shapes_of_a_call() -> None:
    x, y, raw, other = parse("f", "T x, T y, raw T r, raw T s")
    assert common_shape("f", [(x, (3, 1)), (y, (4,)), (raw, (7,))], None) == (3, 4)
    assert common_shape("f", [(raw, (7,)), (other, (7,))], None) == (7,)
    assert common_shape("f", [(raw, (7,))], 3) == (3,)
    assert common_shape("f", [(raw, (7,))], (3, 0)) == (3, 0)
    assert common_shape("f", [(raw, (7,))], ()) == ()
    assert common_shape("f", [], None) == ()
    for arrays, size, message in (
        ([(x, (3,)), (y, (4,))], None, r"f: x has shape \(3,\), y has shape \(4,\), which cannot be broadcast"),
        ([(raw, (7,)), (x, (3,))], 3, "f: size= is for calls whose arrays are all raw; x is not"),
        (
            [(raw, (7,)), (other, (8,))],
            None,
            r"all its arrays are raw, and r has shape \(7,\), s has shape \(8,\); say",
        ),
        ([(raw, (7,))], (3, -1), r"f: size \(3, -1\) is negative"),
        ([(raw, (7,))], -1, "f: size -1 is negative"),
    ):
        with pytest.raises(ck.ArgumentError, match=message):
            common_shape("f", arrays, size)
