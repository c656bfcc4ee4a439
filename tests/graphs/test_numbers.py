"""NamedArguments bools: a graph's numbers of which Python and NumPy have two objects each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.places import to_host

import cudakit as ck

FLIP = ck.Kernel("__global__ void flip(bool first, bool second, int* y) { *y += first + 10 * second; }")
KIND = ck.Kernel("""
template <typename T> struct kind { static constexpr int value = 0; };
template <> struct kind<bool> { static constexpr int value = 100; };
template <typename T>
__global__ void deduced(T flag, int* y) { *y += kind<T>::value + int(flag); }
""")
TOGETHER = ck.Kernel("""
template <typename T>
__global__ void together(T flag, T number, int* y) { *y += int(sizeof(T)) * 10 + int(flag); }
""")
SIGNED = ck.elementwise("T x, bool negative", "T y", "y = negative ? -x : x", name="signed_of")
BOOLS = [bool, np.bool_]


@pytest.fixture
def y(xp: Any) -> Any:
    return xp.zeros(1, dtype=xp.int32)


@pytest.mark.parametrize("kind", BOOLS)
def test_a_named_bool_is_changed_and_others_that_are_equal_are_not(stream: Any, y: Any, kind: Any) -> None:
    with ck.capture(stream, first=kind(True)) as graph:
        FLIP(stream, ck.config(1, 1), graph["first"], kind(True), y)
        FLIP(stream, ck.config(1, 1), True, graph["first"], y)
    seen = []
    for given in ({}, {"first": False}, {}, {"first": np.bool_(True)}, {"first": 0}):
        y[...] = 0
        graph(stream, **given)
        seen.append(int(to_host(y)[0]))
    assert seen == [22, 11, 11, 22, 11]


@pytest.mark.parametrize("kind", BOOLS)
def test_two_named_bools_of_one_value_are_told_apart(stream: Any, y: Any, kind: Any) -> None:
    with ck.capture(stream, first=kind(False), second=kind(False)) as graph:
        FLIP(stream, ck.config(1, 1), graph["first"], graph["second"], y)
    graph(stream, second=True)
    assert int(to_host(y)[0]) == 10


@pytest.mark.parametrize("kind", BOOLS)
def test_a_named_bool_is_a_bool_to_deduction(stream: Any, y: Any, kind: Any) -> None:
    with ck.capture(stream, flag=kind(True)) as graph:
        KIND(stream, ck.config(1, 1), graph["flag"], y)
    graph.launch(stream)
    assert int(to_host(y)[0]) == 101
    y[...] = 0
    graph(stream, flag=False)
    assert int(to_host(y)[0]) == 100


def test_a_named_bool_follows_the_other_arguments_as_python_bools_do(stream: Any, y: Any) -> None:
    TOGETHER(stream, ck.config(1, 1), True, np.int16(3), y)
    plain = int(to_host(y)[0])
    y[...] = 0
    with ck.capture(stream, flag=True) as graph:
        TOGETHER(stream, ck.config(1, 1), graph["flag"], np.int16(3), y)
    graph.launch(stream)
    assert int(to_host(y)[0]) == plain == 21


def test_a_named_bool_goes_to_an_expression(stream: Any, xp: Any) -> None:
    x = xp.arange(1, 9, dtype=xp.float32)
    out = xp.zeros_like(x)
    with ck.capture(stream, negative=True) as graph:
        SIGNED(x, graph["negative"], out=out, stream=stream)
    graph.launch(stream)
    np.testing.assert_array_equal(to_host(out), -to_host(x))
    graph(stream, negative=False)
    np.testing.assert_array_equal(to_host(out), to_host(x))


def test_what_a_bool_cannot_hold_is_refused_and_changes_nothing(stream: Any, y: Any) -> None:
    with ck.capture(stream, first=True) as graph:
        FLIP(stream, ck.config(1, 1), graph["first"], False, y)
    for wrong, words in [(2, r"first, flip's parameter first \(bool\), takes bool, got 2"), ("yes", "is a number")]:
        with pytest.raises(ck.ArgumentError, match=words):
            graph(stream, first=wrong)
    graph.launch(stream)
    assert int(to_host(y)[0]) == 1


def test_a_named_bool_that_no_call_is_given_is_refused(stream: Any, y: Any) -> None:
    message = r"nothing in the graph uses first; give it to a call as graph\['first'\]"
    with pytest.raises(ck.ArgumentError, match=message), ck.capture(stream, first=True):
        FLIP(stream, ck.config(1, 1), True, True, y)


def test_a_named_bool_reads_as_what_it_stands_for(stream: Any, y: Any) -> None:
    with ck.capture(stream, first=True, second=np.bool_(False)) as graph:
        first, second = graph["first"], graph["second"]
        assert (first == True, bool(second), repr(first), str(second)) == (True, False, "True", "False")  # noqa: E712
        assert isinstance(first, bool)
        assert isinstance(second, np.bool_)
        FLIP(stream, ck.config(1, 1), first, second, y)
    assert "first, second" in str(graph)


def test_a_graph_with_a_branch_is_refused_as_a_part_with_the_drivers_reason(stream: Any, xp: Any, y: Any) -> None:
    flag = xp.ones(1, dtype=xp.int32)
    with ck.capture(stream) as inner, inner.branch(flag) as body:
        FLIP(body, ck.config(1, 1), True, True, y)
    reason = r"the driver takes no child graph with conditional nodes \(cuGraphAddChildGraphNode\)"
    with pytest.raises(ck.LaunchError, match=reason), ck.capture(stream):
        inner.launch(stream)
    inner.launch(stream)
    assert int(to_host(y)[0]) == 11
