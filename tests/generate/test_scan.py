"""Scans from expressions against NumPy, in both places."""

from __future__ import annotations

import itertools
import pickle
import re
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.caches import requests
from support.places import another, to_host
from support.tiers import in_tiers, slow
from support.tolerance import bound

import cudakit as ck
from cudakit.arrays.place import _statuses
from cudakit.arrays.plans import DIRECT, PACKED, RAW
from cudakit.generate.call import gather
from cudakit.generate.scan import Scan
from cudakit.streams.witnesses import Witness, Work, witnessing

running = ck.scan("T x", "T y", map="x", reduce="a + b", identity="0", output="y = item", name="running")
before = ck.scan("T x", "T y", "x", "a + b", "0", "y = prev_item", name="before")
by_flags = ck.scan("T x, int flag", "T y", "x", "a + b", "0", "y = item", "by_flags", segments="flag != 0")
#: y[i] = p[i] · y[i − 1] + q[i]: composition of functions, which does not commute.
recurrence = ck.scan(
    "float p, float q", "float y", "{p, q}", "{a.m * b.m, a.c * b.m + b.c}", "{1, 0}", "y = item.c", "recurrence",
    preamble="struct affine { float m, c; };", acc="affine",
)  # fmt: skip


def whole_numbers(shape: Any, dtype: Any = "f4", seed: int = 0) -> np.ndarray:
    """Numbers from −8 to 8, whose sums are exact in every type."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(dtype)


def check(got: Any, want: Any, dtype: Any = None) -> None:
    got = to_host(got)
    assert got.shape == np.shape(want)
    assert dtype is None or got.dtype == dtype
    np.testing.assert_array_equal(got.astype(np.complex128), np.asarray(want, np.complex128))


def restarted(x: np.ndarray, flags: np.ndarray) -> np.ndarray:
    """Sums that begin anew at each flag."""
    sums = np.cumsum(x, dtype="f8")
    starts = np.maximum.accumulate(np.where(flags != 0, np.arange(len(x)), 0))
    return sums - np.where(starts > 0, sums[starts - 1], 0)


class Kernels(Witness):
    """Keeps the kernels that are launched."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def begin(self, work: Work) -> None:
        if work.kind == "kernel":
            self.works.append(work)

    def end(self, work: Work, begun: Any) -> None:
        pass


# --- any length, shape and strides ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 31, 129, 8191, 8192, 8193, 30011])
def test_one_line(xp: Any, n: int) -> None:
    host = whole_numbers(n)
    x = xp.asarray(host)
    check(running(x), np.cumsum(host, dtype="f8"), "f4")
    check(before(x), np.cumsum(host, dtype="f8") - host, "f4")
    if n > 1:
        check(running(x[1:]), np.cumsum(host[1:], dtype="f8"))


@st.composite
def calls(draw: st.DrawFn) -> tuple[Any, ...]:
    """A shape, what is done to an array of it, and the axis."""
    shape = draw(st.sampled_from([(1,), (700,), (3, 50), (50, 3), (40, 70), (2, 2000), (5, 6, 7), (0, 3), (1, 1)]))
    steps = tuple(draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in shape)
    order = tuple(draw(st.permutations(range(len(shape)))))
    axis = draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    return shape, steps, order, axis


@pytest.mark.slow
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls())
def test_any_call(xp: Any, call: tuple[Any, ...]) -> None:
    shape, steps, order, axis = call
    base = whole_numbers(shape)
    index = (*(slice(None, None, step) for step in steps), ...)
    host = base[index].transpose(order)
    check(running(xp.asarray(base)[index].transpose(order), axis=axis), np.cumsum(host, axis, dtype="f8"), "f4")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["i1", "bfloat16", "c8"])
def test_every_kind_of_number(xp: Any, dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    host = (np.arange(40) % 5).astype(kind)
    check(running(xp.asarray(host)), np.cumsum(np.arange(40) % 5), kind)


@pytest.mark.slow
def test_a_result_wider_than_the_elements(xp: Any) -> None:
    host = np.full(5000, 100, "i1")
    check(ck.scan("int8 x", "int64 y", "x", "a + b", "0", name="widened")(xp.asarray(host)), 100 * np.arange(1, 5001))


def test_broadcasting_and_numbers(xp: Any) -> None:
    host, row = whole_numbers((5, 60)), whole_numbers(60, seed=1)
    weighted = ck.scan("T x, T y", "T z", "x * y", "a + b", "0", name="weighted")
    want = np.cumsum(host.astype("f8") * row, 1)
    check(weighted(xp.asarray(host), xp.asarray(row), axis=1), want)
    check(weighted(xp.asarray(host), 3, axis=1), 3 * np.cumsum(host, 1, dtype="f8"))
    check(weighted(xp.asarray(host), xp.asarray(row)), np.cumsum(host.astype("f8") * row))


# --- what expressions say ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_line_of_sight(xp: Any) -> None:
    """A point is seen where no angle before it is as great."""
    heights = np.random.default_rng(0).random(3000).astype("f4")
    seen = ck.scan(
        "float h", "bool y", "i ? (h - 0.5f) / i : -1e30f", "max(a, b)", "-1e30f",
        "y = i == 0 || (h - 0.5f) / i > prev_item", name="seen",
    )  # fmt: skip
    angles = np.concatenate([[-1e30], (heights[1:] - np.float32(0.5)) / np.arange(1, 3000, dtype="f4")]).astype("f4")
    highest = np.maximum.accumulate(angles)
    check(seen(xp.asarray(heights)), np.concatenate([[True], angles[1:] > highest[:-1]]), "?")


@pytest.mark.slow
def test_stream_compaction(xp: Any) -> None:
    host = np.random.default_rng(0).random(9000).astype("f4")
    compact = ck.scan(
        "float x", "raw float kept, raw int64 where, raw int64 count", "x > 0.5f", "a + b", "0",
        "if (prev_item != item) { kept[prev_item] = x; where[prev_item] = i; }\n"
        "if (i == n - 1) count[0] = item", "compact",
    )  # fmt: skip
    kept, where, count = xp.zeros(9000, "f4"), xp.full(9000, -1), xp.zeros(1, "i8")
    compact(xp.asarray(host), out=(kept, where, count))
    found = np.flatnonzero(host > 0.5)
    check(count, [len(found)])
    check(where[: len(found)], found)
    check(kept[: len(found)], host[found])
    check(where[len(found) :], np.full(9000 - len(found), -1))


@pytest.mark.slow
def test_the_last_item(xp: Any) -> None:
    share = ck.scan("T x", "T y, T z", "x", "a + b", "0", "y = last_item; z = last_item - item", name="share")
    host = whole_numbers(20001)
    last, rest = share(xp.asarray(host))
    check(last, np.full(20001, host.sum()))
    check(rest, host.sum() - np.cumsum(host, dtype="f8"))
    host = whole_numbers((4, 300))
    check(share(xp.asarray(host), axis=1)[1], host.sum(1, keepdims=True) - np.cumsum(host, 1, dtype="f8"))
    check(share(xp.asarray(host), axis=0)[1], host.sum(0) - np.cumsum(host, 0, dtype="f8"))


@pytest.mark.slow
def test_several_outputs_that_see_the_inputs(xp: Any) -> None:
    both = ck.scan("T x, T y", "T z, int64 w", "x * y", "a + b", "0", "z = item + x; w = i * n", name="both")
    x, y = whole_numbers(9001), whole_numbers(9001, seed=1)
    z, w = both(xp.asarray(x), xp.asarray(y))
    check(z, np.cumsum(x.astype("f8") * y) + x, "f4")
    check(w, np.arange(9001) * 9001, "i8")


@pytest.mark.emulator
@pytest.mark.parametrize("output", ["y = item", *slow("y = item - x")])
def test_the_lanes_of_a_warp_meet_before_one_arrives_for_all(output: str) -> None:
    """The emulator keeps lanes that stand at one place together, so that no result shows it: the PTX does."""
    function = running if output == "y = item" else ck.scan("T x", "T y", "x", "a + b", "0", output, "less")
    with witnessing(heard := Kernels()):
        function(whole_numbers(20_005))
    (launched,) = heard.works
    ptx = launched.detail.target.compiled.code.decode()
    events = re.findall(r"\b(?:ld|st)[.\w]*\.shared|\w+\.sync|mbarrier\.arrive", ptx)
    last_before = [last for last, event in itertools.pairwise(events) if event == "mbarrier.arrive"]
    assert len(last_before) == 4, "a tile is loaded, reduced, has what comes before it, and is scanned"
    assert all(event.endswith(".sync") for event in last_before)


@in_tiers(
    "shape, axis",
    [(20000,), (3, 900), (900, 3), (30, 100), (100, 30)],
    [0, 1],
    quick=lambda shape, axis: shape in ((20000,), (100, 30)),
    where=lambda shape, axis: axis == int(len(shape) > 1 and shape[1] > shape[0]),
    strength=None,
)
def test_a_combination_that_does_not_commute(xp: Any, shape: Any, axis: int) -> None:
    random = np.random.default_rng(2)
    p, q = (random.random(shape) * 0.9).astype("f4"), random.random(shape).astype("f4")
    want, value = np.empty(shape), 0
    for k in range(shape[axis]):
        at = (slice(None),) * axis + (k,)
        value = p[at].astype("f8") * value + q[at]
        want[at] = value
    got = to_host(recurrence(xp.asarray(p), xp.asarray(q), axis=axis))
    np.testing.assert_allclose(got, want, rtol=bound("f4", 32, 1.0))


@pytest.mark.slow
def test_neighbours_by_raw_inputs(xp: Any) -> None:
    host = np.sort(np.random.default_rng(0).integers(0, 300, 2000)).astype("i4")
    unique = ck.scan(
        "raw int x", "raw int y", "i == 0 || x[i] != x[i - 1]", "a + b", "0",
        "if (prev_item != item) y[prev_item] = x[i]", "unique",
    )  # fmt: skip
    out, want = xp.zeros(2000, "i4"), np.unique(host)
    unique(xp.asarray(host), size=2000, out=out)
    check(out[: len(want)], want)


def test_what_is_not_set_stays(xp: Any) -> None:
    odd = ck.scan("T x", "T y", "x", "a + b", "0", "if (i % 2) y = item", name="odd")
    host = whole_numbers(301)
    want = np.where(np.arange(301) % 2, np.cumsum(host), 0)
    check(odd(xp.asarray(host)), want)
    out = xp.full(301, 7, "f4")
    check(odd(xp.asarray(host), out=out), np.where(np.arange(301) % 2, want, 7))
    with pytest.raises(ck.ArgumentError, match="what it leaves out stays"):
        odd(xp.asarray(host), out=xp.zeros(301))


@pytest.mark.slow
def test_names_of_generated_code_are_the_users_too(xp: Any) -> None:
    taken = ck.scan(
        "float map, float layout", "float state", "map + layout", "plus(a, b)", "0", "state = twice(item)", "min",
        preamble="__device__ float plus(float a, float b) { return a + b; }\n"
        "__device__ float twice(float a) { return 2 * a; }",
    )  # fmt: skip
    host = whole_numbers(100)
    check(taken(xp.asarray(host), 1), 2 * np.cumsum(host + 1))


# --- segments ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_segments(xp: Any) -> None:
    n = 20003
    host, flags = whole_numbers(n), (np.random.default_rng(1).random(n) < 0.01).astype("i4")
    x, f = xp.asarray(host), xp.asarray(flags)
    want = restarted(host, flags)
    check(by_flags(x, f), want)
    exclusive = ck.scan("T x, int flag", "T y", "x", "a + b", "0", "y = prev_item", "exclusive", segments="flag")
    check(exclusive(x, f), want - host)
    rows = np.stack([host, host[::-1]])
    check(by_flags(xp.asarray(rows), f, axis=1), [restarted(row, flags) for row in rows])
    check(
        by_flags(xp.asarray(np.ascontiguousarray(rows.T)), f[:, None], axis=0),
        np.stack([restarted(r, flags) for r in rows], 1),
    )


@pytest.mark.slow
def test_segments_that_do_not_commute(xp: Any) -> None:
    """Text of one row of digits a segment: the number that they spell, modulo 97."""
    digits = np.random.default_rng(0).integers(0, 10, 20000).astype("i4")
    spelled = ck.scan(
        "int d", "int y", "{d, 10}", "{(a.v * b.p + b.v) % 97, a.p * b.p % 97}", "{0, 1}", "y = item.v", "spelled",
        preamble="struct number { int v, p; };", acc="number", segments="i % 1000 == 0",
    )  # fmt: skip
    want = np.empty(20000, int)
    for k, d in enumerate(digits):
        want[k] = d if k % 1000 == 0 else (want[k - 1] * 10 + d) % 97
    check(spelled(xp.asarray(digits)), want)


# --- outputs ----------------------------------------------------------------------------------------------------------


def test_out(xp: Any) -> None:
    host = whole_numbers(3000)
    want = np.cumsum(host, dtype="f8")
    x = xp.asarray(host)
    out = xp.zeros(3000, "f4")
    assert running(x, out=out) is out
    check(out, want)
    assert running(out, out=out) is out
    check(out, np.cumsum(want))
    wide = xp.zeros((3000, 2), "f8")
    running(x, out=wide[:, 1])
    check(wide, np.stack([np.zeros(3000), want], 1))
    apart = xp.zeros(6000, "f4")
    running(x[::-1], out=apart[::2])
    check(apart[::2], np.cumsum(host[::-1], dtype="f8"))
    check(apart[1::2], np.zeros(3000))


def test_bad_out(xp: Any) -> None:
    x = xp.zeros(300, "f4")
    for out, message in (
        (xp.zeros(300, "i4"), "running, output y: out has dtype int32, the result has float32"),
        (xp.zeros(3, "f4"), "out has shape"),
        ((xp.zeros(300, "f4"), None), "has 1 outputs"),
    ):
        with pytest.raises(ck.ArgumentError, match=message):
            running(x, out=out)


def test_one_array_for_two_outputs(xp: Any) -> None:
    two = ck.scan("T x", "T y, T z", "x", "a + b", "0", "y = item; z = item", "two")
    out = xp.zeros(300, "f4")
    with pytest.raises(ck.ArgumentError, match="for two outputs"):
        two(xp.zeros(300, "f4"), out=(out, out))


@pytest.mark.emulator
def test_how_outputs_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """By whole words only where all elements are set, and are words."""
    tasks: list[Any] = []

    def noted(name: str, task: Any, shape: tuple[int, ...], along: int) -> Any:
        tasks.append((task, shape, along))
        raise LookupError

    monkeypatch.setattr(import_module("cudakit.generate.scan"), "plan_scan", noted)
    struct = np.dtype([("x", "f4"), ("y", "f4")])
    preamble = "struct pair { float x, y; };"
    for outputs, output, out, want in (
        ("T y", "y = item", None, PACKED),
        ("T y", "if (i) y = item", None, DIRECT),
        ("pair y", "y.x = item", np.zeros((2, 3), struct), DIRECT),
        ("pair y", "y = {item, item}", np.zeros((2, 3), struct), DIRECT),
        ("raw T y", "y[i] = item", np.zeros(6, "f4"), RAW),
    ):
        function = ck.scan("T x", outputs, "x", "a + b", "0", output, "stored", preamble=preamble)
        monkeypatch.setattr(function, "_state_bytes", lambda *_: 8)
        with pytest.raises(LookupError):
            function(np.zeros((2, 3), "f4"), out=out, axis=1)
        task, shape, along = tasks[-1]
        assert [writer.writing for writer in task.writers] == [want]
        assert (shape, along, task.item_bytes, task.block) == ((2, 3), 1, 8, None)
    function = ck.scan("T x, T y", "T z", "x + y", "a + b", "0", name="stored")
    monkeypatch.setattr(function, "_state_bytes", lambda *_: 4)
    out = np.zeros((3, 2), "f4").T
    for axis, seen in ((0, (2, 3)), (None, (6,))):
        with pytest.raises(LookupError):
            function(np.zeros((2, 3), "f4"), 2.0, axis=axis, block_size=128)
        task, shape, along = tasks[-1]
        assert (shape, along, task.block, task.readers[1]) == (seen, 0, 128, None)
    with pytest.raises(LookupError):
        function(np.zeros((2, 3), "f4"), 2.0, axis=0, out=out)
    assert tasks[-1][0].writers[0].array.steps == (1, 2)
    with pytest.raises(LookupError):
        function(np.zeros((2, 3), "f4"), 2.0, axis=0, out=out.astype("f8"))
    assert tasks[-1][0].writers[0].array.steps == (3, 1)


def test_raw_outputs_are_written_where_the_statements_say(xp: Any) -> None:
    """The positions of the positive elements and their number, as NumPy has them; outputs of any length."""
    chosen = ck.scan(
        "float x", "raw int64 where, raw int64 count", "x > 0", "a + b", "0",
        "if (prev_item != item) where[prev_item] = i; if (i == n - 1) count[0] = item", "chosen",
    )  # fmt: skip
    host = whole_numbers(300)
    want = np.flatnonzero(host > 0)
    where, count = xp.full(299, -1, "i8"), xp.full(2, -1, "i8")
    results = chosen(xp.asarray(host), out=(where, count))
    assert results[0] is where
    assert results[1] is count
    check(where, np.pad(want, (0, 299 - len(want)), constant_values=-1))
    check(count, [len(want), -1])
    # The kernel writes elements side by side, and what lies apart gets them from there.
    apart, rows = xp.full(600, -1, "i8"), xp.full((2, 1), -1, "i8")
    chosen(xp.asarray(host), out=(apart[::2], rows))
    check(apart[::2][: len(want)], want)
    check(apart[1::2], np.full(300, -1))
    check(rows[0], [len(want)])
    for out, message in (
        ((where, xp.zeros(2, "f8")), "chosen, output count: out has dtype float64, the result has int64"),
        ((where, None), "chosen, output count: it is raw, so its size is not known; give out="),
        ((where, where[:1]), "chosen: two outputs overlap"),
    ):
        with pytest.raises(ck.ArgumentError, match=message):
            chosen(xp.asarray(host), out=out)


def test_which_inputs_are_copied_because_an_output_overlaps_them(xp: Any, stream: Any) -> None:
    """An element's own output comes after its inputs; other elements' outputs may come before them."""
    turned = ck.scan("int x", "raw int y", "x", "a + b", "0", "y[n - 1 - i] = item", name="turned")
    looks = ck.scan("int x, raw int z", "int y", "x + z[i]", "a + b", "0", name="looks")
    x, other = xp.asarray(whole_numbers(300, "i4")), xp.zeros(300, "i4")

    def is_copied(scan: Scan, args: tuple[Any, ...], out: Any) -> list[bool]:
        given = gather(scan.recipe, args, stream)
        apart = given.apart(scan.recipe, (out,), scan._may_be)
        for value, former in zip(apart.values, given.values, strict=True):
            np.testing.assert_array_equal(to_host(value), to_host(former))
        return [value is not former for value, former in zip(apart.values, given.values, strict=True)]

    assert is_copied(running, (x,), x) == [False]
    assert is_copied(running, (x[1:],), x[:-1]) == [True]
    assert is_copied(turned, (x,), x) == [True], "other threads' elements are written"
    assert is_copied(turned, (x,), other) == [False]
    assert is_copied(looks, (x, other), x) == [False, False]
    assert is_copied(looks, (other, x), x) == [False, True], "other threads' elements are read"
    host, heard = to_host(x).copy(), Kernels()
    with witnessing(heard):
        assert turned(x, out=x) is x
    check(x, np.cumsum(host)[::-1])
    (launched,) = heard.works
    given = launched.detail.arguments
    arrays = [value for value in given if isinstance(value, type(x)) and value.nbytes == x.nbytes]
    assert [xp.may_share_memory(array, x) for array in arrays] == [False, True], "a copy is read"


# --- every run the same -----------------------------------------------------------------------------------------------


def test_the_same_bits_on_every_run(xp: Any, stream: Any) -> None:
    host = np.random.default_rng(3).standard_normal(30001).astype("f4")
    x = xp.asarray(host)
    first = to_host(running(x))
    np.testing.assert_allclose(first, np.cumsum(host, dtype="f8"), atol=bound("f4", 64, 300.0))
    for place in (stream, another(stream)):
        stream.sync()
        again = running(x, stream=place)
        place.sync()
        assert to_host(again).tobytes() == first.tobytes()


def test_pickled(xp: Any) -> None:
    copy = pickle.loads(pickle.dumps(running))
    assert isinstance(copy, Scan)
    check(copy(xp.ones(129, "f4")), np.arange(1, 130))
    assert repr(copy) == "<cudakit.scan running: T x → T y>"


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "changes"),
    [("map", {"map": "x +\n  zz"}), ("reduce", {"reduce": "a + zz"}), ("output", {"output": "y = item;\ny += zz"}),
     ("segments", {"segments": "x > zz"})],
)  # fmt: skip
def test_compile_errors_point_into_the_expression(xp: Any, what: str, changes: dict[str, str]) -> None:
    parts = {"map": "x", "reduce": "a + b", "identity": "0", "output": "y = item"} | changes
    bad = ck.scan("T x", "T y", name="bad", **parts)
    line = 2 if "\n" in changes[what] else 1
    with pytest.raises(ck.CompileError, match=rf'<bad {what}>:{line}: error: identifier "zz" is undefined'):
        bad(xp.zeros((300, 3), "f4"), axis=0)


def test_bad_arguments(xp: Any) -> None:
    x = xp.zeros((4, 5), "f4")
    compact = ck.scan("T x", "raw int64 y", "x", "a + b", "0", "y[i] = item", name="compact")
    for call, message in (
        (lambda: by_flags(x, xp.zeros(3, "i4")), "which cannot be broadcast"),
        (lambda: running(x, axis=2), "axis 2 of an array of 2 dimensions"),
        (lambda: running(x, axis=(0, 1)), "axis must be an int"),
        (lambda: running(x, x), "running takes 1 inputs: x; got 2"),
        (lambda: running(2), "none of its inputs is an array"),
        (lambda: compact(x), "it is raw, so its size is not known; give out="),
        (lambda: by_flags(x, x), "flag is of float32 and would lose as int"),
    ):
        with pytest.raises(ck.ArgumentError, match=message):
            call()


@pytest.mark.parametrize(
    ("arguments", "more", "message"),
    [
        (("T x", "T item", "x", "a + b", "0"), {}, "an argument cannot be called 'item'"),
        (("T prev_item", "T y", "1", "a + b", "0"), {}, "an input cannot be called prev_item"),
        (("T x", "T y, T z", "x", "a + b", "0"), {}, "say how they come of item, in output="),
        (("T x", "raw T y", "x", "a + b", "0"), {}, "say how they come of item"),
        (("T x", "T y", "x", "a + b", "0", "y = last_item"), {"segments": "x > 0"}, "no one last_item"),
        (("T x", "T y", "x", "a + b", 0), {}, "the identity must be C"),
        (("T x", "T y", "x", "a + b", None, "y = prev_item"), {}, "the first element has no prev_item, unless"),
    ],
)
def test_bad_declarations(arguments: tuple[Any, ...], more: dict[str, Any], message: str) -> None:
    with pytest.raises(ck.TemplateError, match=message):
        ck.scan(*arguments, **more)


def test_a_state_that_is_too_large(xp: Any) -> None:
    large = ck.scan(
        "float x", "float y", "{x}", "{a.v[0] + b.v[0]}", "{0}", "y = item.v[0]", "large", acc="many",
        preamble="struct many { float v[40]; };",
    )  # fmt: skip
    with pytest.raises(ck.ArgumentError, match="an item of the scan has 160 bytes; the limit is 128"):
        large(xp.zeros(5, "f4"))


@pytest.mark.gpu
@pytest.mark.large
def test_more_than_two_to_the_31_elements(xp: Any) -> None:
    x = xp.zeros(2**31 + 11, "i1")
    x[-1] = x[2**31] = 3
    got = ck.scan("int8 x", "int8 y", "x", "a + b", "0", name="bytes_sum")(x)
    check(got[-12:], [0] * 1 + [3] * 10 + [6])


@pytest.mark.gpu
def test_repeated_calls_on_other_arrays(xp: Any) -> None:
    """Calls of a known kind take a short way, which must still see another array, and an overlap."""
    large, last = xp.zeros((4, 1 << 18), "f4"), xp.zeros((4, 1 << 18), "f4")
    for k in range(12):
        large += 1
        check(running(large, axis=0, out=last)[:, -1], (k + 1) * np.arange(1, 5))
        check(running(large)[-2:], [((k + 1) << 20) - k - 1, (k + 1) << 20])
        if k == 8:
            _statuses._by_stream.clear()  # as where a launch needs more
        x = xp.full(1000, k, "f4")
        out = xp.zeros(1000, "f4")
        assert running(x, out=out) is out
        check(out, k * np.arange(1, 1001))
        check(running(x), k * np.arange(1, 1001))
        assert running(x, out=x) is x
        check(x, k * np.arange(1, 1001))
    long = xp.ones(1500, "f4")
    running(long[:1000], out=long[500:])
    check(long, np.concatenate([np.ones(500), np.arange(1, 1001)]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "acc"),
    [
        ("i1", None),
        ("f2", None),
        ("f4", "float64"),
    ],
)
def test_sums_are_as_other_combinations_are(xp: Any, dtype: str, acc: str | None) -> None:
    """What a tile has beside the line is 0 there, and asked for elsewhere."""
    out = acc or ("int64" if dtype == "i1" else "T")
    known, other = (ck.scan("T x", f"{out} y", "x", of, "0", acc=acc) for of in ("b+ a", "(a + b)"))
    host = xp.asarray(np.arange(10_007) % 7 == 0).astype(dtype)
    for size, first in ((1, 1), (100, 3), (10_000, 0), (10_000, 7)):
        x = host[first : first + size]
        np.testing.assert_array_equal(to_host(known(x)), to_host(other(x)))


def test_how_many_elements_there_are(xp: Any, stream: Any) -> None:
    numbers = ck.scan("int64 s", "int64 z", map="s + i", reduce="a + b", identity="0", name="numbers")
    np.testing.assert_array_equal(to_host(numbers(3, size=5, stream=stream)), np.cumsum(np.arange(3, 8)))
    indexed = ck.scan("raw T x", "T z", "x[i]", "a + b", "0", "z = T{item}", name="indexed")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(to_host(indexed(xp.asarray(x))), x.cumsum())
    np.testing.assert_array_equal(to_host(indexed(xp.asarray(x), size=4)), [0, 1, 3, 6])


_WITHOUT = {
    "total": ck.scan("T x", "T y", map="x", reduce="a + b", name="total"),
    "last": ck.scan("T x", "T y", map="x", reduce="a + b", output="y = last_item - item", name="last"),
    "pieces": ck.scan("T x", "T y", map="x", reduce="a + b", segments="i % 7 == 0", name="pieces"),
    "latest": ck.scan("T x", "T y", map="x", reduce="b", name="latest"),
}


@in_tiers(
    "dtype, name, shape, axis",
    ["f4", "i2", "f2", "c16"],
    list(_WITHOUT),
    [(0,), (1,), (5000,), (3, 700), (40, 9), (90, 50)],
    [0, 1],
    where=lambda dtype, name, shape, axis: (
        axis == int(shape in ((3, 700), (40, 9)))
        and (name != "pieces" or len(shape) == 1)
        and (name != "last" or shape != (0,))
    ),
    quick=lambda dtype, name, shape, axis: dtype == "f4" and (shape == (5000,) or (name, shape) == ("total", (40, 9))),
)
def test_without_an_identity(xp: Any, dtype: str, name: str, shape: tuple[int, ...], axis: int) -> None:
    """As PyCUDA's InclusiveScanKernel has it: along lines of every kind, by segments, with the last item."""
    x = (np.arange(np.prod(shape)) % 5 - 2).astype(dtype).reshape(shape)
    want = np.cumsum(x, axis=axis, dtype=dtype)
    if name == "latest":
        want = x
    elif name == "last":
        want = np.take(want, [-1], axis) - want
    elif name == "pieces":
        parts = [np.cumsum(x[k : k + 7], dtype=dtype) for k in range(0, x.size, 7)]
        want = np.concatenate([np.zeros(0, dtype), *parts])
    np.testing.assert_array_equal(to_host(_WITHOUT[name](xp.asarray(x), axis=axis)), want)


def test_no_identity_is_no_item_before() -> None:
    with pytest.raises(ck.TemplateError, match="has no prev_item, unless there is an identity"):
        ck.scan("T x", "T y", "x", "a + b", output="y = prev_item", name="f")


# --- block_size -------------------------------------------------------------------------------------------------------

blocks = ck.scan("T x", "int32 c, T y, T z", "x", "a + b", "0", "c = blockDim.x; y = item; z = prev_item", "blocks")
LINES = [((20000,), 0), ((1,), 0), ((3, 7), 1), ((40, 9), 1), ((3, 700), 1), ((90, 50), 0), ((0, 4), 1), ((2, 3, 4), 1)]


@in_tiers(
    "size, at",
    [128, 480, 1024],
    list(range(len(LINES))),
    quick=lambda size, at: size == 480 and at in (3, 5),
    # The kernels of a block size are those of another with another constant: all of one, of each other each second.
    whole=lambda size, at: size == 480 or at % 2 == [128, 1024].index(size),
    strength=None,
)
def test_a_block_size(xp: Any, size: int, at: int) -> None:
    shape, axis = LINES[at]
    x = whole_numbers(shape)
    counts, up_to, before = blocks(xp.asarray(x), axis=axis, block_size=size)
    check(counts, np.full(shape, size), "i4")
    check(up_to, np.cumsum(x, axis, dtype="f8"), "f4")
    check(before, np.cumsum(x, axis, dtype="f8") - x, "f4")


@pytest.mark.slow
def test_each_call_has_its_own_block_size(xp: Any) -> None:
    """What is kept of a kind of calls is not for another block size; NumPy's ints are ints; out= and strides too."""
    x = xp.asarray(whole_numbers((6, 40)))
    for size in (64, 96, np.int64(64), None, 96, None) * 3:
        check(blocks(x[:, ::2], axis=1, block_size=size)[0], np.full((6, 20), size or 256))
    out = xp.zeros((40, 6), "i4").T, xp.zeros((6, 40), "f8"), None
    assert blocks(x, axis=1, out=out, block_size=32)[0] is out[0]
    check(out[0], np.full((6, 40), 32))
    check(out[1], np.cumsum(to_host(x), 1))


@pytest.mark.slow
def test_a_block_size_of_segments_and_several_inputs(xp: Any) -> None:
    host, flags = whole_numbers(20003), (np.arange(20003) % 71 == 3).astype("i4")
    for size in (160, 768):
        check(by_flags(xp.asarray(host), xp.asarray(flags), block_size=size), restarted(host, flags))
        last = ck.scan("T x", "T y", "x", "a + b", output="y = last_item - item", name="last")
        check(last(xp.asarray(host), block_size=size), host.sum() - np.cumsum(host, dtype="f8"))


@pytest.mark.parametrize("size", [0, -32, 1, 33, 100, 1056, 2**40, 64.0, "64", True, (64,), np.float32(64)])
def test_a_wrong_block_size(xp: Any, size: Any) -> None:
    for function in (running, ck.reduction("T x", "T y", "x", "a + b", "0", name="total")):
        with pytest.raises(
            ck.ArgumentError, match="block_size must be whole warps, a multiple of 32 up to 1024 threads"
        ):
            function(xp.zeros((3, 4), "f4"), axis=1, block_size=size)


def test_a_block_size_that_does_not_fit_the_shape(xp: Any) -> None:
    for words, shape, size, message in (
        (16, (9000,), 96, "wide: block_size 96: one line takes 128 threads at least; give another, or leave it out"),
        (30, (9000,), 1024, r"block_size 1024: parts of a line take \d+ bytes of shared memory"),
        (16, (30, 90), 1024, "block_size 1024: parts of columns take 131072 bytes of shared memory"),
    ):
        wide = ck.scan(
            "float x", "float y", "{x}", "{a.v[0] + b.v[0]}", "{0}", "y = item.v[0]", "wide", acc="many",
            preamble=f"struct many {{ float v[{words}]; }};",
        )  # fmt: skip
        with pytest.raises(ck.ArgumentError, match=message):
            wide(xp.zeros(shape, "f4"), axis=0, block_size=size)


# --- initial ----------------------------------------------------------------------------------------------------------


@in_tiers("at", list(range(len(LINES))), quick=lambda at: at in (3, 5), strength=None)
def test_an_initial_value(xp: Any, at: int) -> None:
    """Of every kind of line: in each item and in what comes before it."""
    shape, axis = LINES[at]
    x = whole_numbers(shape)
    for initial in (42,) if len(shape) > 1 else (42, -2.5, np.float32(1.5), np.int8(3), True):
        _, up_to, before = blocks(xp.asarray(x), axis=axis, initial=initial)
        check(up_to, np.cumsum(x, axis, dtype="f8") + initial, "f4")
        check(before, np.cumsum(x, axis, dtype="f8") - x + initial, "f4")


@pytest.mark.slow
def test_an_initial_value_and_a_block_size(xp: Any) -> None:
    check(blocks(xp.asarray(whole_numbers((90, 50)).T), axis=1, initial=7, block_size=512)[0], np.full((50, 90), 512))


def asked() -> int:
    """How often the cache was asked for code, whether it had it or not."""
    return sum(requests().values())


def test_initial_values_are_given_at_run_time(xp: Any) -> None:
    """Another value is no other kernel; no value is no value of the call before."""
    x = xp.asarray(whole_numbers(200))
    want = np.cumsum(to_host(x), dtype="f8")
    check(running(x, initial=0.5), want + 0.5)
    before = asked()
    for initial in (1.5, -7.25, 0.0, 1e20, *[2.5] * 6):
        check(running(x, initial=initial), (want + initial).astype("f4"))
    assert asked() == before
    for _ in range(5):
        check(running(x), want)
        check(running(x, initial=3), want + 3)
    out = xp.zeros((200, 2), "f8")
    running(x, initial=9, out=out[:, 1])
    check(out[:, 1], want + 9)
    assert running(x, initial=4, out=x) is x
    check(x, want + 4)
    assert np.isnan(to_host(running(x, initial=float("nan")))).all()
    check(running(x[:0], initial=4), np.zeros(0), "f4")


@pytest.mark.slow
def test_an_initial_value_of_segments(xp: Any) -> None:
    """It comes before the elements of each, as CUB's scans by key have it."""
    both = ck.scan("T x, int flag", "T y, T z", "x", "a + b", "0", "y = item; z = prev_item", "both", segments="flag")
    for shape, axis in (((20003,), 0), ((4, 300), 1), ((300, 40), 0)):
        x, flags = whole_numbers(shape), (np.arange(shape[axis]) % 13 == 5).astype("i4")
        along = xp.asarray(flags if axis == len(shape) - 1 else flags[:, None])
        y, z = both(xp.asarray(x), along, axis=axis, initial=5)
        lines = np.moveaxis(x, axis, -1).reshape(-1, shape[axis])
        want = np.stack([restarted(line, flags) for line in lines]).reshape(np.moveaxis(x, axis, -1).shape)
        check(y, np.moveaxis(want, -1, axis) + 5)
        check(z, np.moveaxis(want, -1, axis) - x + 5)


@pytest.mark.slow
def test_an_initial_value_of_other_scans(xp: Any) -> None:
    """With the last item, without an identity, of a struct whose combination does not commute."""
    share = ck.scan("T x", "T y, T z", "x", "a + b", "0", "y = last_item; z = last_item - item", name="share")
    x = whole_numbers((4, 300))
    last, rest = share(xp.asarray(x), axis=1, initial=5)
    check(last, np.broadcast_to(x.sum(1, keepdims=True) + 5, x.shape))
    check(rest, x.sum(1, keepdims=True) - np.cumsum(x, 1))
    most = ck.scan("T x", "T y", "x", "max(a, b)", name="most")
    check(most(xp.asarray(x), axis=1, initial=3), np.maximum(np.maximum.accumulate(x, 1), 3))
    pieces = ck.scan("T x", "T y", "x", "max(a, b)", segments="i % 7 == 0", name="pieces")
    want = [np.maximum.accumulate(np.maximum(x[:, k : k + 7], 3), 1) for k in range(0, 300, 7)]
    check(pieces(xp.asarray(x), axis=1, initial=3), np.concatenate(want, 1))
    p, q, value, series = np.full(50, 0.5, "f4"), np.arange(50, dtype="f4"), 8.0, []
    for each in q:
        value = 0.5 * value + each
        series.append(value)
    affine = np.dtype([("m", "f4"), ("c", "f4")])
    got = recurrence(xp.asarray(p), xp.asarray(q), initial=np.array((1, 8), affine)[()])
    np.testing.assert_allclose(to_host(got), series, rtol=1e-5)


_INITIAL = {
    "int": 3,
    "uint8": np.uint8(2),
    "float": 1.5,
    "float16": np.float16(1.5),
    "bfloat16": ml_dtypes.bfloat16(1.5),
    "complex": 2j,
}


@in_tiers(
    "dtype, number",
    ["i1", "f2", "c8", "?", "bfloat16"],
    list(_INITIAL),
    quick=lambda dtype, number: (dtype, number) in (("i1", "int"), ("f2", "bfloat16")),
    # What is converted is the number, to what is combined: complex numbers combine once what are no complex ones.
    whole=lambda dtype, number: dtype != "c8" or number in ("float", "bfloat16", "complex"),
    strength=None,
)
def test_an_initial_value_of_another_dtype(xp: Any, dtype: str, number: str) -> None:
    kind, initial = np.dtype(getattr(ml_dtypes, dtype, dtype)), _INITIAL[number]
    x = np.ones(40, kind)
    lossy = kind.kind in "bi" and number not in ("int", "uint8")
    if lossy or (number == "complex" and dtype != "c8"):
        with pytest.raises(ck.ArgumentError, match=r"running: initial .* would lose as"):
            running(xp.asarray(x), initial=initial)
        return
    want = np.arange(1, 41) + np.asarray(initial).astype("c16")
    check(running(xp.asarray(x), initial=initial), want.astype(bool) if dtype == "?" else want, kind)


def test_a_wrong_initial_value(xp: Any) -> None:
    x = xp.asarray(whole_numbers(20))
    for wrong in ("3", [1], (1,), xp.ones(3), xp.ones(20), np.float32, {}, lambda: 1):
        with pytest.raises(ck.ArgumentError, match="running: initial"):
            running(x, initial=wrong)
    with pytest.raises(ck.ArgumentError, match="initial_"):
        recurrence(x, x, initial=3)
