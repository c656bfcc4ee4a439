"""What objects show of themselves: tables in a notebook, and signatures to `inspect`."""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from cudakit.types.markup import shown, table, titled, words
from cudakit.types.parameters_shown import ShownSignature, apart, keywords

pytestmark = pytest.mark.emulator


def cells(text: str) -> list[list[str]]:
    """The texts of a table's cells, as a browser reads them."""
    return [["".join(cell.itertext()) for cell in row] for row in ElementTree.fromstring(text)]


def test_texts_are_escaped_and_long_ones_cut() -> None:
    assert shown("a < b & 'c'") == "a &lt; b &amp; &#x27;c&#x27;"
    assert shown("x" * 200) == "x" * 200
    assert shown("x" * 201) == "x" * 199 + "…"
    assert shown("<" * 4, most=3) == "&lt;&lt;…"
    assert shown(12) == "12"


def test_tables() -> None:
    text = table(("name", "size"), [("<x>", 1), ("y", 22)], 2)
    assert cells(text) == [["name", "size"], ["<x>", "1"], ["y", "22"]]
    assert table(("name",), [], 0) == ""
    fifty = table(("n", "m"), ((k, k) for k in range(50)), 50)
    assert len(cells(fifty)) == 51
    many = cells(table(("n", "m"), ((k, k) for k in range(60)), 60))
    assert many[50] == ["49", "49"]
    assert many[51:] == [["and 10 more"]]
    assert 'colspan="2"' in table(("n", "m"), ((k, k) for k in range(60)), 60)
    page = ElementTree.fromstring(titled("a & b", text, "<i>c</i>"))
    assert [child.tag for child in page] == ["b", "table", "i"]
    assert page[0].text == "a & b"


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
