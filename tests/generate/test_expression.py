"""What is read off an expression's text, and the functions that reductions and scans share, without a kernel."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.generate.declarations import (
    Declared,
    check_set,
    complex_header,
    explained,
    is_set_first,
    names_in,
    statement,
)
from cudakit.generate.fold import (
    FoldRecipe,
    declared,
    expression,
    initial_types,
    output_dtypes,
    shape_of,
)

pytestmark = pytest.mark.emulator
F2, F4, F8, I4, I8 = (np.dtype(name) for name in ("f2", "f4", "f8", "i4", "i8"))


def with_acc(of: Declared, acc: str | None) -> FoldRecipe:
    """A fold of these declarations, which combines values as `acc`."""
    return FoldRecipe(of.name, of.inputs, of.outputs, of.preamble, "x", "a + b", None, acc)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("z = x", True),
        ("z = x;", True),
        ("float t = x; z = t", True),
        ("{ float t = x; } z = x", False),
        ("float t = f(x, [] { g(); h(); }); z = t", True),
        ("z = z + 1", False),
        ("z == 1; z = 2", False),
        ("z += 1", False),
        ("if (x) z = 1", False),
        ("for (;;) z = 1", False),
        ("z = f(z)", False),
        ("z.x = 1", False),
        ("w = z; z = 1", False),
        ("return; z = 1", False),
        ("float t[2] = {x, x}; z = t[0]", True),
        ("", False),
        ("zz = 1; z = 1", True),
        ("// z = z\nz = 1", True),
        ("switch (x) { case 1: z = 1; } z = 2", False),
    ],
)
def test_what_is_surely_set(body: str, want: bool) -> None:
    assert is_set_first(body, "z") == want


def test_statements() -> None:
    assert statement("f", "body", "z = x;") == "z = x;"
    assert statement("f", "body", "z = x") == "z = x\n;"
    assert statement("f", "body", "z = x; // done") == "z = x; // done"
    assert expression("f", "map", " x + 1; ") == "x + 1"
    for text in ("", "  ", 3, None):
        with pytest.raises(ck.TemplateError, match=r"f: the body must be C\+\+ text, got "):
            statement("f", "body", text)  # type: ignore[arg-type]
        with pytest.raises(ck.TemplateError, match=r"f: the map must be C\+\+ text, got "):
            expression("f", "map", text)


def test_outputs_that_are_never_set() -> None:
    check_set("f", "body", "z = x; w = 1", ["z", "w"])
    check_set("f", "body", "SET(1)", ["z"], "#define SET(a) z = a")
    for preamble in ("", "struct z {};"):
        with pytest.raises(ck.TemplateError, match="f: the body 'z = x' never sets w; write 'w = …'"):
            check_set("f", "body", "z = x", ["z", "w"], preamble)


def test_complex_numbers_by_a_short_name() -> None:
    header = "#include <cuda/std/complex>\nusing cuda::std::complex;\n"
    assert complex_header(["complex<float>(1, 2)", None], "") == header
    assert complex_header(["x"], "using t = complex <double>;") == header
    for texts, preamble in (
        (["cuda::std::complex<float>(1, 2)"], ""),
        (["x.complex"], ""),
        (["my_complex<float>()"], ""),
        (["// complex<float>"], ""),
        (["complex<float>()"], "template <typename T> struct complex {};"),
        (["complex<float>()"], "using thrust::complex;"),
    ):
        assert complex_header(texts, preamble) == ""
    assert {"x", "y"} <= names_in("x + y")


def test_errors_are_explained() -> None:
    of = declared("f", "T x", "T y", "", (), ())
    log = (
        '<f map>:1: error: identifier "zz" is undefined\n          instantiation of "void cudakit::run()"\n'
        "          detected during:\n            instantiation of own"
    )
    names = {"map": ("x", "i")}
    told = str(explained(of, ck.CompileError(log), names))
    assert told.endswith("\nthe expression has the names x, i, T")
    assert "cudakit" not in told
    assert str(explained(of, ck.CompileError(log.replace("map", "identity")), names)).endswith("names T")
    assert "names" not in str(explained(declared("f", "int x", "int y", "", (), ()), ck.CompileError(log), {}))
    for other in ("<f map>:1: error: expected an expression", log.replace("<f map>", "<g map>")):
        assert "names" not in str(explained(of, ck.CompileError(other), names))


def test_names_that_an_expression_may_mean() -> None:
    plain, macro = (declared("f", "T x", "T y", text, (), ()) for text in ("int n;", "#define N n + 1"))
    assert plain.may_use("x + i", "i")
    assert not plain.may_use("x", "n")
    assert macro.may_use("x", "n")
    assert not macro.may_use("x", "i")
    structs = declared("f", "pair x, T y, float32 z", "S w", "struct pair { int a; };", (), ())
    assert structs.structs == ("pair",)
    assert structs.variables == ("T", "S")


def test_what_is_combined() -> None:
    of = declared("f", "T x, half h, raw T r, int8 b, T c", "T y, float64 z", "struct pair { int a; };", (), ())
    function: Any = ck.reduction(
        "T x, half h, raw T r, int8 b, pair p",
        "T y",
        "x",
        "a + b",
        "0",
        "y = a",
        "f",
        preamble="struct pair { int a; };",
    )
    for text, acc, types, want in (
        ("x", None, {"T": F4}, F4),
        ("x", None, {"T": F2}, F4),
        ("x", None, {"T": np.dtype("u1")}, I8),
        ("x", None, {"T": np.dtype([("a", "f4")])}, None),
        ("h", None, {}, F4),
        ("b", None, {}, I8),
        ("r", None, {"T": F4}, None),
        ("x + 1", None, {"T": F4}, None),
        ("x + 1", "float64", {"T": F4}, F8),
        ("x", "pair", {"T": F4}, None),
    ):
        assert replace(function.recipe, map=text, acc=acc).accumulator_dtype(types) == want
    assert function._state_bytes({"T": F4}, 0) == 4
    assert function._state_bytes({"T": F4}, 2) == 12
    assert ck.reduction("T x", "T y", "x + 1", "a + b", acc="float64")._state_bytes({"T": F4}, 1) == 16
    assert [with_acc(of, text).acc_type for text in ("float16", "int", "pair", "decltype(1)")] == [
        "__half",
        "int",
        "pair",
        "decltype(1)",
    ]
    assert output_dtypes(of, {"T": F4}) == (F4, F8)


def test_initial_values() -> None:
    of = declared("f", "T x", "T y", "struct pair { int a; };", (), ())
    assert [with_acc(of, acc).initial_type for acc in ("pair", "float", None)] == ["pair", "Initial_", "Initial_"]
    assert initial_types(with_acc(of, None), None, F4) == {}
    assert initial_types(with_acc(of, "pair"), np.zeros((), [("a", "i4")]), None) == {}
    assert initial_types(with_acc(of, None), 3, F4) == {"Initial_": I8}
    assert initial_types(with_acc(of, None), 2.5, F4) == {"Initial_": F8}
    assert initial_types(with_acc(of, None), np.float32(1), None) == {"Initial_": F4}
    assert initial_types(with_acc(of, None), True, I8) == {"Initial_": np.dtype("?")}
    for value, kept in ((1.5, I8), (1j, F4), (3, np.dtype("?"))):
        with pytest.raises(ck.ArgumentError, match=rf"f: initial .* would lose as {kept}, which elements are combined"):
            initial_types(with_acc(of, None), value, kept)
    for wrong in (np.zeros(3), np.zeros((), [("a", "i4")])):
        with pytest.raises(ck.ArgumentError, match="f: initial must be a number, got "):
            initial_types(with_acc(of, None), wrong, None)


def test_shapes_of_inputs() -> None:
    of = declared("f", "T x, raw T r", "T y", "", (), ())
    assert shape_of(of, [(F4, (2, 3), (12, 4)), float], None) == (2, 3)
    assert shape_of(of, [float, (F4, (7,), (4,))], None) == (7,)
    assert shape_of(of, [float, float], 5) == (5,)
    with pytest.raises(ck.ArgumentError, match="f: none of its inputs is an array; say how many elements there are"):
        shape_of(of, [float, float], None)


def test_how_a_reduction_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: list[Any] = []

    def noted(task: Any, *rest: Any) -> Any:
        tasks.append((task, *rest))
        raise LookupError

    module = import_module("cudakit.generate.reduction")
    for name in ("plan_reduction", "plan_segments"):
        monkeypatch.setattr(module, name, noted)
    function = ck.reduction("T x, T y", "T z", "x * y + i", "a + b", None, name="planned", acc="float")
    whole = ck.reduction("T x", "T z", "x", "a + b", "0", name="whole")
    x = np.zeros((2, 3), "f4")
    for call, want in (
        (lambda: function(x, 2.0, axis=0), ((2, 3), (0,), True, 8)),
        (lambda: function(x, x), ((2, 3), (0, 1), True, 8)),
        (lambda: whole(x, axis=(1,), block_size=64), ((2, 3), (1,), False, 4)),
    ):
        with pytest.raises(LookupError):
            call()
        task, *rest = tasks[-1]
        assert (*rest, task.state_bytes) == want
    assert tasks[-1][0].block == 64
    with pytest.raises(LookupError):
        whole(x[0], segments=np.array([0, 1, 3]))
    assert tasks[-1][1:] == (2, 3)


def test_functions_are_traced_for_each_type() -> None:
    fused: Any = ck.fuse(lambda x, n: x * n, static="n")
    for x, n, dtype in (
        (np.ones(2, F4), 2, F4),
        (np.ones(2, F8), 2, F8),
        (np.ones(2, I4), 2, I4),
        (np.ones(2, F4), 2.0, F4),
    ):
        got = fused(x, n)
        assert got.dtype == dtype
        assert got.tolist() == [2, 2]
    assert len(fused._traced_calls) >= 4
    signs: Any = ck.fuse(lambda x, n: np.copysign(x, n), static="n")
    assert [float(signs(np.ones(1), n)[0]) for n in (0.0, -0.0)] == [1, -1]
