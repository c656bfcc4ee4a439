"""What objects show of themselves: tables in a notebook, and signatures to `inspect`."""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from cudakit.types.shown import Drawing, Reported, Table, escaped, html, table_html, text, words
from cudakit.types.shown_signature import ShownSignature, apart, keywords

pytestmark = pytest.mark.emulator


def cells(text: str) -> list[list[str]]:
    """The texts of a table's cells, as a browser reads them."""
    return [["".join(cell.itertext()) for cell in row] for row in ElementTree.fromstring(text)]


def test_texts_are_escaped_and_long_ones_cut() -> None:
    assert escaped("a < b & 'c'") == "a &lt; b &amp; &#x27;c&#x27;"
    assert escaped("x" * 200) == "x" * 200
    assert escaped("x" * 201) == "x" * 199 + "…"
    assert escaped("<" * 4, most=3) == "&lt;&lt;…"
    assert escaped(12) == "12"


def test_tables_in_html() -> None:
    table = table_html(Table(("name", "size"), [("<x>", 1), ("y", 22)]))
    assert cells(table) == [["name", "size"], ["<x>", "1"], ["y", "22"]]
    assert table_html(Table(("name",), [])) == ""
    rows = [(k, k) for k in range(60)]
    assert len(cells(table_html(Table(("n", "m"), rows[:50])))) == 51
    many = cells(table_html(Table(("n", "m"), rows)))
    assert many[50] == ["49", "49"]
    assert many[51:] == [["and 10 more"]]
    assert 'colspan="2"' in table_html(Table(("n", "m"), rows))
    assert len(cells(table_html(Table(("n", "m"), rows), most=60))) == 61
    right = ElementTree.fromstring(table_html(Table(("n", "m"), [("a", 1)], (1,))))
    assert [cell.attrib["style"] for cell in right[1]] == ["text-align: left", "text-align: right"]
    page = ElementTree.fromstring(html("a & b", Table(("n",), [(1,)]), Drawing(lambda: "<i>c</i>"), "d < e"))
    assert [child.tag for child in page] == ["b", "table", "i", "div"]
    assert (page[0].text, page[3].text) == ("a & b", "d < e")


def test_tables_in_text() -> None:
    rows = [("a", 12345, 1.25, None), ("long", 1, 1000.0, "x")]
    assert text("head", Table(("name", "n", "f", "last"), rows, (1, 2)), Drawing(str), "end").splitlines() == [
        "head",
        "name       n        f  last",
        "a     12,345      1.2  none",
        "long       1  1,000.0  x",
        "end",
    ]
    assert text(Table(("name", "n"), [], (1,))) == "name  n"


def test_texts_have_lines_of_their_own() -> None:
    assert text("one\n  more", "2") == "one\n  more\n2"
    page = ElementTree.fromstring(html("t", "one\n  more", *["x" * 501] * 50))
    assert [part.text for part in page[:3]] == ["t", "one\n  more", "x" * 499 + "…"]
    assert [part.text for part in page[50:]] == ["x" * 499 + "…", "and 1 more"]
    assert "pre-line" in page[1].attrib["style"]


def test_an_object_gives_its_parts_once() -> None:
    class Report(Reported):
        def __init__(self, *parts: Any) -> None:
            self.parts = parts

        def __repr__(self) -> str:
            return "<Report>"

        def _parts(self) -> Any:
            return iter(self.parts)

    table = Table(("n",), [(1,)])
    assert str(Report("title", table)) == "title\nn\n1"
    assert Report("title", table)._repr_html_() == html("title", table)
    assert Report(table)._repr_html_() == html("<Report>", table)


def test_arguments_in_words() -> None:
    assert words(np.zeros((2, 3), "f4")) == "float32 array (2, 3)"
    assert words(np.float32(2)) == repr(np.float32(2))
    assert words(np.zeros((), "f4")) == repr(np.zeros((), "f4"))
    assert [words(value) for value in (3, 2.5, True, 1j)] == ["3", "2.5", "True", "1j"]
    assert words("a long secret") == "str"
    assert words(object()) == "object"


def test_the_signature_is_the_instances_own() -> None:
    class Function:
        __signature__ = ShownSignature(lambda self: self.parameters)

        def __init__(self, *parameters: Parameter) -> None:
            self.parameters = parameters

        def __call__(self, *given: Any) -> None:
            pass

    x, size = Parameter("x", Parameter.POSITIONAL_ONLY), Parameter("size", Parameter.KEYWORD_ONLY, default=None)
    assert str(inspect.signature(Function(x, size))) == "(x, /, *, size=None)"
    assert str(inspect.signature(Function(x))) == "(x, /)"
    assert list(inspect.signature(Function).parameters) == ["parameters"], "the class has its constructor's"


def test_of_two_parameters_of_a_name_that_which_is_given_by_it_keeps_it() -> None:
    given = [
        Parameter("size", Parameter.POSITIONAL_ONLY),
        Parameter("size_", Parameter.POSITIONAL_ONLY),
        Parameter("out", Parameter.VAR_POSITIONAL),
        *keywords({"out": None, "size": 3}),
    ]
    assert [parameter.name for parameter in apart(given)] == ["size_", "size__", "out_", "out", "size"]
    assert [parameter.kind for parameter in apart(given)] == [parameter.kind for parameter in given]
    assert [(p.name, p.default) for p in keywords({"a": 1, "b": None})] == [("a", 1), ("b", None)]
    assert {p.kind for p in keywords({"a": 1})} == {Parameter.KEYWORD_ONLY}
