"""Stencils from expressions against NumPy's pads and slices, in both places, and what SciPy says of borders."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from importlib import import_module
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.places import to_host
from support.tiers import in_tiers

import cudakit as ck
from cudakit.generate.stencil import called_with_offsets, offsets_of

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
#: What numpy.pad calls SciPy's modes.
PADS: dict[str, Any] = {
    "reflect": "symmetric",
    "mirror": "reflect",
    "nearest": "edge",
    "wrap": "wrap",
    "constant": "constant",
    "grid-wrap": "wrap",
}
#: What scipy.ndimage.correlate (1.16) gives for the squares of 0 … 11 in rows of 4, weights
#: [[0, 1, 0], [0, 0, 2], [4, 0, 0]] and cval 0.5.
SCIPY = {
    "reflect": [[66.0, 73.0, 122.0, 171.0], [306.0, 329.0, 426.0, 507.0], [434.0, 481.0, 602.0, 691.0]],
    "mirror": [[118.0, 97.0, 154.0, 201.0], [374.0, 329.0, 426.0, 481.0], [278.0, 289.0, 378.0, 393.0]],
    "nearest": [[66.0, 73.0, 122.0, 171.0], [306.0, 329.0, 426.0, 507.0], [434.0, 481.0, 602.0, 691.0]],
    "wrap": [[262.0, 153.0, 218.0, 265.0], [534.0, 329.0, 426.0, 441.0], [214.0, 225.0, 282.0, 193.0]],
    "constant": [[4.5, 72.5, 118.5, 145.5], [52.0, 329.0, 426.0, 410.0], [180.0, 227.0, 280.0, 52.0]],
}
FIVE = "0.25f * (u(0,1) + u(0,-1) + u(1,0) + u(-1,0))"


def neighbours(x: np.ndarray, radius: int, mode: str, cval: float = 0) -> Callable[..., np.ndarray]:
    """``u(dz, dy, dx)`` of a whole array."""
    more = {"constant_values": cval} if mode == "constant" else {}
    padded = np.pad(x, radius, PADS[mode], **more)

    def at(*offsets: int) -> np.ndarray:
        cut = [slice(radius + d, radius + d + n) for d, n in zip(offsets, x.shape, strict=True)]
        return padded[tuple(cut)]

    return at


def five(x: np.ndarray, mode: str = "reflect", cval: float = 0) -> np.ndarray:
    u = neighbours(x, 1, mode, cval)
    found: np.ndarray = np.float32(0.25) * (u(0, 1) + u(0, -1) + u(1, 0) + u(-1, 0))
    return found


def random(*shape: int, dtype: Any = "f4") -> np.ndarray:
    return (np.random.default_rng(sum(shape)).random(shape) * 100).astype(dtype)


def close(got: Any, want: np.ndarray, rounds: int = 4) -> None:
    host = to_host(got)
    assert host.dtype == want.dtype
    assert host.shape == want.shape
    np.testing.assert_allclose(host, want, rtol=rounds * np.finfo("f4").eps)


@in_tiers("mode", list(PADS), quick=lambda mode: mode in ("reflect", "wrap", "constant"), strength=None)
def test_five_points_at_each_border(stream: Any, xp: Any, mode: str) -> None:
    average = ck.stencil("float out", FIVE, mode=mode, cval=7.5)
    for shape in ((2, 2), (3, 5), (33, 127), (40, 256), (32, 132), (70, 3)):
        x = random(*shape)
        close(average(xp.asarray(x), stream=stream), five(x, mode, 7.5))


MODES = ["reflect", "mirror", "nearest", "wrap", "constant"]


@in_tiers(
    "dtype, mode",
    ["i4", "f8", "i8"],
    MODES,
    quick=lambda dtype, mode: (
        (dtype, mode) in {("i4", "reflect"), ("i4", "wrap"), ("f8", "mirror"), ("i8", "constant")}
    ),
    # Beside its size it is the constant alone that depends on the dtype.
    whole=lambda dtype, mode: dtype == "i4" or mode == "constant" or mode == {"f8": "mirror", "i8": "wrap"}[dtype],
    strength=None,
)
def test_one_dimension_and_far_neighbours(stream: Any, xp: Any, dtype: str, mode: str) -> None:
    spread = ck.stencil("T out", "out = u(-5) - 2 * u(0) + u(3)", "T u", mode=mode, cval=-3)
    for size in (*[5] * (mode != "mirror"), 6, 7, 127, 128, 129, 1000, 1001):  # from the fewest on
        x = random(size, dtype=dtype)
        u = neighbours(x, 5, mode, -3)
        got = to_host(spread(xp.asarray(x), stream=stream))
        np.testing.assert_array_equal(got, u(-5) - 2 * u(0) + u(3))


def test_a_constant_that_the_dtype_does_not_hold_is_refused(stream: Any, xp: Any) -> None:
    for cval in (300, -1, 0.5, float("nan")):
        for mode in ("constant", ("reflect", "constant")):
            left = ck.stencil("T out", "u(1)" if mode == "constant" else "u(1, 1)", "T u", mode=mode, cval=cval)
            x = xp.ones(4 if mode == "constant" else (4, 4), np.uint8)
            with pytest.raises(ck.ArgumentError, match="cval takes uint8, got "):
                left(x, stream=stream)
    # Nothing constant is read, and a number of any dtype fits floats.
    ck.stencil("T out", "u(1)", "T u", mode="wrap", cval=300)(xp.ones(4, np.uint8), stream=stream)
    assert (
        to_host(ck.stencil("T out", "u(1)", "T u", mode="constant", cval=-300)(xp.ones(2, "f4"), stream=stream))[1]
        == -300
    )


@in_tiers("mode", MODES, quick=lambda mode: mode == "mirror", strength=None)
def test_27_points(stream: Any, xp: Any, mode: str) -> None:
    terms = " + ".join(f"u({dz}, {dy}, {dx})" for dz, dy, dx in product((-1, 0, 1), repeat=3))
    mean = ck.stencil("float out", f"({terms}) / 27", mode=mode)
    for shape in ((2, 3, 4), (9, 17, 132), (5, 33, 31)):
        x = random(*shape)
        u = neighbours(x.astype("f8"), 1, mode)
        want = sum(u(*each) for each in product((-1, 0, 1), repeat=3)) / 27
        close(mean(xp.asarray(x), stream=stream), want.astype("f4"), 30)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_27_points_of_planes_in_shared_memory(stream: Any, xp: Any, dtype: str) -> None:
    terms = " + ".join(f"u({dz}, {dy}, {dx})" for dz, dy, dx in product((-1, 0, 1), repeat=3))
    mean = ck.stencil("T out", f"({terms}) / 27", "T u", mode=("wrap", "constant", "mirror"), cval=2)
    for shape in ((2, 3, 8), (11, 5, 40), (12, 3, 5), (26, 2, 16)):  # turns of three planes, threads of more
        x = random(*shape).astype(dtype)
        found = np.pad(x.astype("f8"), ((1, 1), (0, 0), (0, 0)), "wrap")
        found = np.pad(found, ((0, 0), (1, 1), (0, 0)), constant_values=2)
        found = np.pad(found, ((0, 0), (0, 0), (1, 1)), "reflect")
        want = np.lib.stride_tricks.sliding_window_view(found, (3, 3, 3)).mean((3, 4, 5))
        close(mean(xp.asarray(x), stream=stream), want.astype(dtype), 30)


#: Each neighbour has a weight of its own.
WEIGHED = " + ".join(f"{k + 1} * u({dz}, {dy}, {dx})" for k, (dz, dy, dx) in enumerate(product((-1, 0, 1), repeat=3)))


#: Declarations of stencils whose planes come through shared memory, and the dtypes of their arrays.
PLANES = [
    ("T out", WEIGHED, "T u", ("f4", "f8", "f2", "i4")),
    ("float out", WEIGHED, "float u", ("f2", "i2")),
    (
        "float out, double twice",
        f"out = c * ({WEIGHED}), twice = 2 * u(1, 1, 1) + u(0, 0, 0)",
        "float u, int c",
        ("f4",),
    ),
    ("T out", WEIGHED.replace("u(-1, -1, -1)", "float(u(-1, -1, -1).value)"), "T u", ("f2",)),
    ("T out", WEIGHED.replace("-1)", "0)") + " + u(1, 0, 0)", "T u", ("f8",)),
]


@in_tiers(
    "which, mode, shape",
    [(at, dtype) for at, (*_, dtypes) in enumerate(PLANES) for dtype in dtypes],
    ["wrap", ("constant", "mirror", "nearest"), ("reflect", "constant", "constant")],
    # Ends of words, of a block's columns and rows, of a thread's planes.
    [(2, 2, 2), (3, 15, 64), (25, 17, 66), (24, 16, 132), (5, 33, 520)],
    quick=lambda which, mode, shape: False,
)
def test_planes_in_shared_memory_give_what_registers_give(
    stream: Any, xp: Any, monkeypatch: pytest.MonkeyPatch, which: tuple[int, str], mode: Any, shape: tuple[int, ...]
) -> None:
    module = import_module("cudakit.generate.stencil")
    outputs, body, inputs, _ = PLANES[which[0]]
    staged = ck.stencil(outputs, body, inputs, mode=mode, cval=3)
    plain = ck.stencil(outputs, body, inputs, mode=mode, cval=3)
    assert "planes_" in staged.source
    x = xp.asarray((random(*shape) * 8).astype(which[1]))
    numbers = (3,) if "int c" in inputs else ()
    with monkeypatch.context() as without:
        without.setattr(module, "_STAGED", {})
        want = plain(x, *numbers, stream=stream)
    result = staged(x, *numbers, stream=stream)
    for one, other in zip(*((r if isinstance(r, tuple) else (r,)) for r in (result, want)), strict=True):
        np.testing.assert_array_equal(to_host(one), to_host(other))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inputs", "dtype", "cval"),
    [("T u", "f2", -0.3), ("T u", "f4", float("nan")), ("T u", "f8", 0.1), ("T u", "i2", -7), ("double u", "f4", 0.1)],
)
def test_constants_around_planes_in_shared_memory(
    stream: Any, xp: Any, monkeypatch: pytest.MonkeyPatch, inputs: str, dtype: str, cval: float
) -> None:
    """They are written where elements are copied to, unless the array is less precise than what is computed."""
    out = f"{inputs.split()[0]} out"
    for mode in ("constant", ("nearest", "wrap", "constant")):
        staged, plain = (ck.stencil(out, WEIGHED, inputs, mode=mode, cval=cval) for _ in range(2))
        # A cell alone, words that end beside a border, unaligned rows, blocks that have borders on no side and on all.
        for shape in ((1, 1, 1), (2, 3, 8), (26, 19, 66), (4, 33, 257), (3, 17, 520)):
            x = xp.asarray((random(*shape) - 50).astype(dtype))
            with monkeypatch.context() as without:
                without.setattr(import_module("cudakit.generate.stencil"), "_STAGED", {})
                want = to_host(plain(x, stream=stream))
            np.testing.assert_array_equal(to_host(staged(x, stream=stream)), want)


def test_modes_of_each_axis(stream: Any, xp: Any) -> None:
    x = random(12, 20)
    both = ck.stencil("float out", "u(-2, 0) + 10 * u(0, 3)", mode=("constant", "wrap"), cval=2)
    down, across = neighbours(x, 3, "constant", 2), neighbours(x, 3, "wrap")
    close(both(xp.asarray(x), stream=stream), down(-2, 0) + np.float32(10) * across(0, 3))


@in_tiers("mode", list(SCIPY), quick=lambda mode: mode in ("nearest", "wrap"), strength=None)
def test_offsets_are_as_scipys_correlate_has_its_weights(stream: Any, xp: Any, mode: str) -> None:
    x = np.arange(12, dtype=np.float64).reshape(3, 4) ** 2
    weighted = ck.stencil("double out", "u(-1, 0) + 2 * u(0, 1) + 4 * u(1, -1)", mode=mode, cval=0.5)
    assert to_host(weighted(xp.asarray(x), stream=stream)).tolist() == SCIPY[mode]


def test_several_inputs_coefficients_and_outputs(stream: Any, xp: Any) -> None:
    heat = ck.stencil(
        "T next, T change",
        """
        T flow = 0;
        for (int d = -1; d <= 1; d += 2) flow += u(d, 0) + u(0, d);
        change = rate * conduct(0, 0) * (flow - 4 * u(0, 0));
        next = u(0, 0) + change;
        """,
        "T u, float conduct, T rate",
        name="heat",
        radius=1,
        mode="nearest",
    )
    x, c = random(31, 50, dtype="f8"), random(31, 50)
    exact = c.astype("f8")
    u = neighbours(x, 1, "nearest")
    change = 0.1 * exact * (u(-1, 0) + u(0, -1) + u(1, 0) + u(0, 1) - 4 * x)
    following, changed = heat(xp.asarray(x), xp.asarray(c), 0.1, stream=stream)
    np.testing.assert_allclose(to_host(changed), change, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(to_host(following), x + change, rtol=1e-9, atol=1e-9)


@in_tiers(
    "dtype",
    [np.dtype("f2"), BFLOAT16, np.dtype("u1"), np.dtype("i2"), np.dtype("f8")],
    quick=lambda dtype: dtype.name in ("float16", "uint8"),
    strength=None,
)
def test_dtypes(stream: Any, xp: Any, dtype: np.dtype) -> None:
    greatest = ck.stencil("T out", "T m = u(0, -1); if (u(0, 1) > m) m = u(0, 1); out = m;", "T u", mode="wrap")
    for width in (31, 64):
        x = random(9, width, dtype=dtype)
        u = neighbours(x, 1, "wrap")
        got = to_host(greatest(xp.asarray(x), stream=stream))
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.astype("f8"), np.maximum(u(0, -1).astype("f8"), u(0, 1).astype("f8")))


def test_inputs_of_other_dtypes_are_converted(stream: Any, xp: Any) -> None:
    difference = ck.stencil("float out", "u(0, 1) - v(0, -1)", "float u, float v", mode="nearest")
    x, y = random(8, 64, dtype="u1"), random(8, 64, dtype="f2")
    u, v = neighbours(x.astype("f4"), 1, "nearest"), neighbours(y.astype("f4"), 1, "nearest")
    close(difference(xp.asarray(x), xp.asarray(y), stream=stream), u(0, 1) - v(0, -1))
    with pytest.raises(ck.ArgumentError, match="u is of float64 and would lose"):
        difference(xp.asarray(x.astype("f8")), xp.asarray(y), stream=stream)


@in_tiers("steps", [1, 2, 3, 8], quick=lambda steps: steps in (1, 8), strength=None)
def test_steps_are_calls_one_after_the_other(stream: Any, xp: Any, steps: int) -> None:
    average = ck.stencil("float out", FIVE, mode="nearest")
    for shape in ((20, 35), (33, 128)):
        x = random(*shape)
        want = x
        for _ in range(steps):
            want = five(want, "nearest")
        given = xp.array(x)
        close(average(given, stream=stream, steps=steps), want, 4 * steps)
        np.testing.assert_array_equal(to_host(given), x)


@in_tiers(
    "mode, shape, steps",
    MODES,
    [(3, 4), (33, 65), (70, 200), (32, 64)],
    [2, 3, 4, 7],
    quick=lambda mode, shape, steps: mode in ("mirror", "constant"),
)
def test_fused_steps_at_each_border(stream: Any, xp: Any, mode: str, shape: tuple[int, int], steps: int) -> None:
    """What is not the same in both directions, so that what lies beyond a border is not what a step makes there."""
    skew = ck.stencil("T out", "(u(0, 2) + 2 * u(-1, 0) - u(1, -1)) % 1000 + by", "T u, T by", mode=mode, cval=5)
    x = want = random(*shape, dtype="i4")
    for _ in range(steps):
        u = neighbours(want, 2, mode, 5)
        want = np.fmod(u(0, 2) + 2 * u(-1, 0) - u(1, -1), 1000) + np.int32(3)
    np.testing.assert_array_equal(to_host(skew(xp.asarray(x), 3, stream=stream, steps=steps)), want)


@in_tiers("dtype", ["f2", "f8"], quick=lambda dtype: dtype == "f8", strength=None)
def test_fused_steps_of_a_line(stream: Any, xp: Any, dtype: str) -> None:
    shifted = ck.stencil("T out", "u(-1)", "T u", mode=("constant",), cval=1)
    for size in (5, 1024, 2100):
        x = random(size, dtype=dtype)
        want = np.concatenate([np.ones(6, dtype), x])[:size]
        np.testing.assert_array_equal(to_host(shifted(xp.asarray(x), stream=stream, steps=6)), want)


def test_out_and_views(stream: Any, xp: Any) -> None:
    average = ck.stencil("float out", FIVE)
    x = random(40, 64)
    out = xp.zeros((40, 64), np.float32)
    assert average(xp.asarray(x), out=out, stream=stream) is out
    close(out, five(x))
    wide = xp.zeros((40, 130), np.float32)
    average(xp.asarray(x), wide[:, 1:129:2], stream=stream)
    close(wide[:, 1:129:2], five(x))
    assert not to_host(wide[:, ::2]).any()
    close(average(xp.asarray(x).T, stream=stream), five(x.T))
    close(average(xp.asarray(x)[::-1, 1:], stream=stream), five(x[::-1, 1:]))
    flat = xp.zeros(40 * 64 + 1, np.float32)
    flat[1:] = xp.asarray(x).reshape(-1)
    close(average(flat[1:].reshape(40, 64), stream=stream), five(x))
    assert to_host(average(xp.zeros((0, 5), np.float32), stream=stream)).shape == (0, 5)
    with pytest.raises(ck.ArgumentError, match="overlaps u, which is read"):
        average(out, out=out, stream=stream)
    with pytest.raises(ck.ArgumentError, match="overlaps u, which is read"):
        average(flat[1 : 20 * 64 + 1].reshape(20, 64), out=flat[: 20 * 64].reshape(20, 64), stream=stream)


@pytest.mark.gpu
def test_past_32_bits_of_indices(stream: Any, xp: Any) -> None:
    shape = (3, (1 << 30) + 16)
    following = ck.stencil("T out", "u(-1, 1)", "T u", mode="wrap")
    x = xp.zeros(shape, np.uint8)
    x[1, :: 1 << 20] = 7
    x[2, -1], x[1, 0] = 9, 8
    got = following(x, stream=stream)
    assert int(got[0, -2]) == 9
    assert int(got[2, -1]) == 8
    assert int((got == 7).sum()) == int((x == 7).sum())


def test_it_can_be_pickled_and_captured(stream: Any, xp: Any) -> None:
    average = pickle.loads(pickle.dumps(ck.stencil("float out", FIVE, name="average")))
    x = random(20, 40)
    source, out = xp.asarray(x), xp.zeros((20, 40), np.float32)
    with ck.capture(stream) as graph:
        average(source, out=out, stream=stream)
    graph.launch(stream)
    close(out, five(x))
    several = ck.stencil("float out", FIVE, mode="nearest")
    with ck.capture(stream) as graph:
        several(source, out=out, stream=stream, steps=6)
    out[...] = 0
    for _ in range(2):
        graph.launch(stream)
    close(out, to_host(several(source, stream=stream, steps=6)))
    assert repr(average) == "<cudakit.stencil average: float u → float out>"
    assert "__global__ void" in average.source


def test_a_python_function_is_traced(stream: Any, xp: Any) -> None:
    @ck.stencil(mode="nearest")
    def heat(u: Any, conduct: Any, rate: float) -> Any:
        flow = u(0, 1) + u(0, -1) + u(1, 0) + u(-1, 0) - 4 * u(0, 0)
        return u(0, 0) + rate * np.maximum(conduct(0, 0), 0.5) * flow

    for dtype in ("f4", "f8"):
        x, c = random(20, 65, dtype=dtype), random(20, 65, dtype=dtype) / 100
        u = neighbours(x, 1, "nearest")
        want = x + 0.1 * np.maximum(c, 0.5) * (u(0, 1) + u(0, -1) + u(1, 0) + u(-1, 0) - 4 * x)
        got = to_host(heat(xp.asarray(x), xp.asarray(c), 0.1, stream=stream))
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)  # of rounded operations, as NumPy's
    both = ck.stencil(lambda u: (np.where(u(1) > u(-1), u(1), u(-1)), u(1).astype("i4")), name="both", mode="wrap")
    x = random(100)
    u = neighbours(x, 1, "wrap")
    greater, whole = both(xp.asarray(x), stream=stream)
    np.testing.assert_array_equal(to_host(greater), np.maximum(u(1), u(-1)))
    np.testing.assert_array_equal(to_host(whole), u(1).astype("i4"))
    close(ck.stencil(lambda u: (u(1) + u(-1)) / 2)(xp.asarray(x), steps=3, stream=stream), _thrice(x))


def _thrice(x: np.ndarray) -> np.ndarray:
    for _ in range(3):
        u = neighbours(x, 1, "reflect")
        x = (u(1) + u(-1)) / 2
    return x


def test_functions_that_are_no_stencils(stream: Any, xp: Any) -> None:
    x = xp.zeros((8, 8), np.float32)
    cases: list[tuple[Any, str]] = [
        (lambda u: u + 1, r"u is an array; the element itself is u\(0, 0\)"),
        (lambda u: u(0.5, 0), "not at constant integers"),
        (lambda u: u(0, 1).sum(), "element by element"),
        (lambda u: 3, "element by element"),
    ]
    for function, message in cases:
        with pytest.raises(ck.TemplateError, match=message):
            ck.stencil(function)(x, stream=stream)
    for named in (
        {"inputs": "float u"},
        {"body": "u(0)"},
        {"radius": 1},
        {"preamble": "// C++"},
        {"options": ck.CompileOptions()},
    ):
        with pytest.raises(ck.TemplateError, match="a function is traced, and takes name=, mode= and cval="):
            ck.stencil(lambda u: u(0), **named)
    with pytest.raises(ck.ArgumentError, match="takes 1 arguments: u; got 2"):
        ck.stencil(lambda u: u(0))(x, x, stream=stream)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ck.stencil("", FIVE), "it has no output"),
        (lambda: ck.stencil("float out", ""), "the expression must be C\\+\\+ text"),
        (lambda: ck.stencil("float out", "3.0f"), "the expression has no neighbours"),
        (lambda: ck.stencil("float out", "u(0) + u(0, 1)"), "offsets of 1 and 2 axes"),
        (lambda: ck.stencil("float out", "u(0, 0, 0, 1)"), "offsets of 4 axes"),
        (lambda: ck.stencil("float out", "u(k, 0)", "float u, int k"), r"u\(k, 0\) is not at constant integers"),
        (lambda: ck.stencil("float out", "u(0, 1) + u", "float u"), r"u is an array; the element itself is u\(0, 0\)"),
        (lambda: ck.stencil("float out", FIVE, mode="edge"), "mode 'edge' is none of constant, nearest"),
        (lambda: ck.stencil("float out", FIVE, mode=("wrap",) * 3), "mode has 3 entries, and the expression 2 axes"),
        (lambda: ck.stencil("float out", "u(0, 17)"), "u is looked at 17 away; 16 is the most"),
        (lambda: ck.stencil("float out", FIVE, name="a b"), "must be a C\\+\\+ identifier"),
        (lambda: ck.stencil("float out", FIVE, cval="x"), "cval takes float64, got 'x'"),  # type: ignore[arg-type]
        (lambda: ck.stencil("float u", FIVE, "float u"), "names of their own"),
        (lambda: ck.stencil("float out", "out = u[1]", "raw float u"), "none of them is raw"),
        (lambda: ck.stencil("float a, float b", "a = u(0, 1)", "float u"), "never sets b"),
        (lambda: ck.stencil("float out", FIVE, radius=(1, 1, 1)), "radius has 3 entries, and the expression 2 axes"),
        (
            lambda: ck.stencil("float out", "u(0, 2)", radius=1),
            r"u is looked at \[0, 2\] away, beyond radius=1; give a",
        ),
        (
            lambda: ck.stencil("float out", "u(-3, 0) + u(0, k)", "float u, int k", radius=(2, 9)),
            r"beyond radius=\(2, 9\)",
        ),
        (lambda: ck.stencil("float out", FIVE, radius=0), "beyond radius=0"),
        (lambda: ck.stencil("float out", FIVE, radius=17), "u is looked at 17 away; 16 is the most"),
        (lambda: ck.stencil("float out", 3), "the expression must be C\\+\\+ text, got 3"),  # type: ignore[call-overload]
        (lambda: ck.stencil("float out", FIVE, name="out_"), "must be a C\\+\\+ identifier"),
    ],
)
def test_declarations_that_cannot_be(make: Any, message: str) -> None:
    with pytest.raises(ck.TemplateError, match=message):
        make()


def test_neighbours_three_planes_away(stream: Any, xp: Any) -> None:
    far = ck.stencil("float out", "u(-3, 0, 0) - 2 * u(3, 0, 0) + u(0, 0, 1)", mode="wrap", name="far")
    host = np.random.default_rng(0).integers(0, 100, (9, 5, 8)).astype("f4")
    want = np.roll(host, 3, 0) - 2 * np.roll(host, -3, 0) + np.roll(host, -1, 2)
    np.testing.assert_array_equal(to_host(far(xp.asarray(host), stream=stream)), want)


@pytest.mark.emulator
def test_an_offset_that_only_the_kernel_knows_stays_within_the_radius(stream: Any) -> None:
    """Behind the radius lies other memory, whose values were taken."""
    far = ck.stencil("float out", "out = u(k) + u(0)", "float u, int k", name="far", radius=1, mode="nearest")
    x = np.arange(8, dtype=np.float32)
    assert far(x, 1, stream=stream).tolist() == [1, 3, 5, 7, 9, 11, 13, 14]
    with pytest.raises(ck.CudakitError, match="trap"):
        far(x, 2, stream=stream)


def test_offsets_in_an_expression() -> None:
    for body, is_open, want in (
        ("u(0, -1) + u( + 2 , 0)", False, [(0, -1), (2, 0)]),
        ("u(k, 0) + u(1, 1)", True, [(1, 1)]),
        ("u(k, 0) + u(j)", True, [(0, 0)]),
        ("v(0) + w.u(1)", False, []),
        ("f(u(g(1)))", True, []),
    ):
        assert offsets_of("f", "u", body, is_open) == want
    for body, message in (
        ("u(0) + u(k) + u(1)", r"f: u\(k\) is not at constant integers, as u\(0, -1\) is; give radius="),
        ("u(g(1))", r"f: u\(…\) is not at constant integers"),
        ("u(0, 1) + u", r"f: u is an array; the element itself is u\(0, 0\)"),
    ):
        with pytest.raises(ck.TemplateError, match=message):
            offsets_of("f", "u", body, False)
    assert called_with_offsets("a(0) + min(1, 2) + b.c(1) + d::e(1) + g(x) + a(1) + h(-1, 2)") == ("a", "h")


def test_misuse(stream: Any, xp: Any) -> None:
    average = ck.stencil("float out", "rate * (u(0, 2) + v(0, -1))", "float u, float v, float rate", mode="mirror")
    x, y = xp.zeros((4, 6), np.float32), xp.zeros((4, 7), np.float32)
    for call, message in (
        (lambda: average(x), "takes 3 inputs"),
        (lambda: average(x, y, 1.0), r"u has shape \(4, 6\) and v \(4, 7\)"),
        (lambda: average(x[0], x[0], 1.0), r"u has shape \(6,\); the expression has 2 axes"),
        (lambda: average(x[:, :2], x[:, :2], 1.0), "axis 1 of u has 2 elements, and mode 'mirror' needs 3"),
        (lambda: average(x, 1.0, 1.0), "v must be an array, got float"),
        (lambda: average(x, x, x), "rate must be a number"),
        (lambda: average(x, x, "1"), "rate"),
        (lambda: average(x, x, 1.0, steps=0), "steps is a number from 1 up"),
        (lambda: average(x, x, 1.0, out=y), "out has shape"),
        (lambda: average(x, x, 1.0, out=xp.zeros((4, 6), np.int32)), "out has dtype int32"),
        (lambda: ck.stencil("float out", "u(0, 1)", "int u")(x.astype("i4"), steps=2), "takes the place of u"),
    ):
        with pytest.raises(ck.ArgumentError, match=message):
            call()


def test_a_compile_error_is_placed_in_the_expression(stream: Any, xp: Any) -> None:
    wrong = ck.stencil("float out", "u(0, 1) +\n  unknown", name="wrong")
    with pytest.raises(ck.CompileError, match='<wrong expression>:2: error: identifier "unknown" is undefined'):
        wrong(xp.zeros((4, 4), np.float32), stream=stream)
