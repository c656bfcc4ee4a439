"""A moment of a launch as text and as HTML."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cudakit.emulator.debug.stops import Line
from cudakit.emulator.debug.view import (
    Lane,
    View,
    Where,
    as_html,
    as_text,
    head_of,
    lane_value,
    ranges,
    same,
    value_of,
)
from cudakit.jit.compile.mangled import bare_name

WHERE = Where("f.cu", 7, "x < y;", "f", 1, 2, (0, 1, 2, 5), "step")


def over_lanes(data: Any, known: Any = True) -> np.ma.MaskedArray:
    full = np.asarray(data)
    return np.ma.MaskedArray(full, mask=np.broadcast_to(~np.asarray(known, bool), full.shape))


def view(error: str = "") -> View:
    listing = [Line("f.cu", 6, "{"), Line("f.cu", 7, "x < y;"), Line("f.cu", 8, "}")]
    variables = {"x": over_lanes([1, 2, 3], [True, False, True]), "y": over_lanes([4, 4, 4])}
    lanes = [Lane(0, (0, 0, 0), "active", 7), Lane(1, (1, 0, 0), "exited", 0), Lane(2, (2, 0, 0), "barrier", 9)]
    return View(WHERE, error, listing, variables, {"x"}, lanes)


def test_the_head_names_what_there_is() -> None:
    assert head_of(WHERE) == "block 1, warp 2, lanes 0-2, 5 in f at f.cu:7 (step)"
    assert head_of(Where("", 0, "", "", 0, 0, (), "exit")) == "block 0, warp 0 (exit)"


@pytest.mark.parametrize(
    ("numbers", "words"), [((), ""), ((3,), "3"), ((0, 1, 2, 3, 8), "0-3, 8"), ((1, 3, 4), "1, 3-4")]
)
def test_ranges(numbers: tuple[int, ...], words: str) -> None:
    assert ranges(numbers) == words


def test_as_text() -> None:
    head = "block 1, warp 2, lanes 0-2, 5 in f at f.cu:7 (step)"
    lines = ["      6 {", "->    7 x < y;", "      8 }", "  * x = [1 - 3]", "    y = 4"]
    assert as_text(view()).splitlines() == [head, *lines]
    assert as_text(view("it is wrong")).splitlines() == [head, "error: it is wrong", *lines]


def test_a_value_over_the_lanes() -> None:
    assert value_of(over_lanes([1, 2], False)) == "not set"
    assert value_of(over_lanes([5, 5, 6], [True, True, False])) == "5"
    assert value_of(over_lanes([1, 2, 3], [True, False, True])) == "[1 - 3]"
    assert value_of(over_lanes(np.arange(10)), 7) == "[0 1 2 3 …]"
    assert value_of(over_lanes(np.arange(10)), 19) == "[0 1 2 3 4 5 6 7 8 9]"
    assert value_of(over_lanes(np.arange(10)), 18) == "[0 1 2 3 4 5 6 7 8 …]"
    assert value_of(over_lanes(np.arange(1000))).endswith("999]")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.float32(1.5), "1.5"),
        (np.float64(1 / 3), "0.3333333"),
        (np.uint64(1 << 32), "4294967296"),
        (np.uint64((1 << 32) + 1), "0x100000001"),
        (np.int64(1 << 40), "1099511627776"),
        (np.arange(8), "{0, 1, 2, 3, 4, 5, 6, 7}"),
        (np.arange(9), "{0, 1, 2, 3, 4, 5, 6, 7, …}"),
        (np.array(3), "3"),
        (np.array([(1, 2.5)], "i4, f4")[0], "{f0: 1, f1: 2.5}"),
    ],
)
def test_the_value_of_a_lane(value: object, words: str) -> None:
    assert lane_value(value) == words


def test_as_html() -> None:
    html = as_html(view("a < b"))
    assert html.startswith("<div class='cudakit-debug'><style>")
    assert html.endswith("</table></div></div>")
    assert "<b>block 1, warp 2, lanes 0-2, 5 in f at f.cu:7 (step)</b><p class='wrong'>a &lt; b</p>" in html
    assert "<pre><span class=''>   6 {</span>\n<span class='here'>   7 x &lt; y;</span>\n<span class=''>   8 }" in html
    assert "<th>lane</th><th>0</th><th class='off'>1</th><th class='off'>2</th>" in html
    cells = ("<td title='active'>7</td>", "<td class='off' title='exited'>·</td>", "<td class='off' title='barrier'>9")
    assert f"<th>line</th>{''.join(cells)}" in html
    assert "<tr class='new'><th>x</th><td>1</td><td class='off'>·</td><td>3</td></tr>" in html
    assert "<tr class=''><th>y</th><td>4</td><td>4</td><td>4</td></tr>" in html
    assert "wrong'>" not in as_html(view())
    assert "<table>" not in as_html(view()._replace(lanes=[]))


def test_what_counts_as_the_same_value() -> None:
    x = over_lanes([1, 2], [True, False])
    assert same(x, over_lanes([1, 2], [True, False]))
    assert not same(x, None)
    assert not same(x, over_lanes([1, 2, 3]))
    assert not same(x, over_lanes([1, 2]))
    assert not same(x, over_lanes([1, 3], [True, False]))
    assert not same(x, over_lanes(np.array([1, 2], "u8"), [True, False]))


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("f", "f"),
        ("f(int)", "f"),
        ("void f(int, float)", "f"),
        ("void space::f<int, (Kind)2>(int)", "space::f<int, (Kind)2>"),
        ("std::pair<int, int> f<A<B>>(A<B>)", "f<A<B>>"),
    ],
)
def test_functions_are_called_by_their_names_without_types(name: str, short: str) -> None:
    assert bare_name(name) == short
