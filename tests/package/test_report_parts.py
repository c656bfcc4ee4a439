"""What `ck.report` takes from the messages of errors: parameter, expected, got and advice."""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np
import pytest
from support.syntax import MODULES, nodes_of

import cudakit as ck
from cudakit import reports
from cudakit.errors import ArgumentError
from cudakit.reports import parts_of

#: Places that raise an `ArgumentError` whose message shows neither what was expected nor what came. It may only shrink.
MOST_WITHOUT_PARTS = 269
FAMILY = ("ArgumentError", "BoundsError", "UnknownNameError", "RangeError")


def test_forms_of_messages() -> None:
    shown = {
        "graph.loop: limit is a number of rounds, 0 or more, got -1": "limit|a number of rounds, 0 or more|-1|",
        "prewarm takes several kernels, got one; put it into a list": "|several kernels|one|put it into a list",
        "histogram: bins must be whole, got 'x'; give 8": "bins|whole|'x'|give 8",
        "copy: expected an array of (3, 4), got a list": "|an array of (3, 4)|a list|",
        "get: 8 elements of float32 are expected, got ary with 9": "|8 elements of float32|ary with 9|",
        "bincount: x has dtype float32, expected whole numbers; convert it": "x|whole numbers|dtype float32|convert it",
        "take: mode 'up'; expected one of raise, wrap": "|one of raise, wrap|mode 'up'|",
        "attention: scale is -1; it is a positive number": "scale|a positive number|-1|",
        "sum: out is read-only; give another array": "out||read-only|give another array",
        "take: dtype is float32; indices are integers": "dtype|indices are integers|float32|",
        "dot: a is f4 and b is f8; cast one": "a||a is f4 and b is f8|cast one",
        "sum: no input is an array; give size=": "||no input is an array|give size=",
        "sum: an array of (3, 4) is expected": "|an array of (3, 4)||",
        "sum: an array of (3, 4) is expected; copy it": "|an array of (3, 4)||copy it",
        "take: 2.5; indices are integers": "|indices are integers||",
        "take: rows of x, got 3": "|rows of x|3|",
        "take: the first of all rows must be finite, got nan": "|the first of all rows must be finite|nan|",
        "take: it must be finite, got nan": "|finite|nan|",
        "take: no rows are left and none has a name; pass some": "||no rows are left and none has a name|pass some",
        # Nothing is certain.
        "take: block is 2048, over the limit 1024": "block|||",
        "reshape: 8 elements do not fit the shape (3,)": "|||",
        "the session is closed": "|||",
        "": "|||",
    }  # fmt: skip
    for message, expected in shown.items():
        parts = parts_of(message)
        assert [parts.get(name, "") for name in ("parameter", "expected", "got", "advice")] == expected.split("|"), (
            message
        )


def test_values_are_no_words_of_the_message() -> None:
    """A user's text with the words of the forms in it is taken whole."""
    for value in (
        "a, got b; expected c: d",
        "it's, got; ",
        "[, got ",
        '", got "',
        "; give x",
        ", expected 1, got 2",
        "\\', got ",
    ):
        message = f"f: mode is 'up' or 'down', got {value!r}; give one"
        assert parts_of(message) == {
            "parameter": "mode",
            "expected": "'up' or 'down'",
            "got": repr(value),
            "advice": "give one",
        }
    nested = "f: p is pairs, got [('a, got b', {'; give': [1, 2]}), (3,)]"
    assert parts_of(nested)["got"] == "[('a, got b', {'; give': [1, 2]}), (3,)]"


def test_a_long_message_takes_no_long_time() -> None:
    """Unclosed quotes and brackets, which a shortened value may have."""
    for text in ("'" * 800, "(" * 800, '"\\' * 800, " is" * 800, ": " * 800, "a " * 800):
        parts_of(f"f: x is a number, got {text}")
        parts_of(text)


@pytest.mark.parametrize("use", [
    (lambda: ck.use_bundle("x", compile="often"), "compile", "'never' or 'missing'", "'often'"),
    (lambda: ck.ops.sum(np.ones(3, "f4"), axis="x"), "axis", "an int, several, or None", "'x'"),
    (lambda: ck.CompileOptions(include_paths=3), None, None, "int: 3"),
], ids=["bundle", "axis", "options"])  # fmt: skip
def test_errors_of_calls(use: tuple[Any, str | None, str | None, str]) -> None:
    call, parameter, expected, got = use
    with pytest.raises(ArgumentError) as raised:
        call()
    problem = ck.report(raised.value)["problems"][0]
    assert problem["got"] == got
    assert problem["expected"]
    if expected:
        assert (problem["parameter"], problem["expected"]) == (parameter, expected)


def test_what_an_exception_is_in_a_report() -> None:
    """Members of a group, the cause of a pipeline's error, the file of an error, and the status of an exit."""
    inner = ck.ArgumentError("f: n is an int, got 2.5")
    stage = ck.PipelineError("the stage 'read' failed")
    stage.__cause__ = inner
    missing = FileNotFoundError(2, "No such file or directory", "absent.npy")
    document = ck.report(BaseExceptionGroup("two", [stage, missing]))
    first, second = document["problems"]
    assert (first["error"], first["kind"], first["text"]) == ("PipelineError", "argument", str(stage))
    assert (first["parameter"], first["expected"], first["got"]) == ("n", "an int", "2.5")
    assert (second["kind"], second["file"], document["status"]) == ("file", "absent.npy", 6)
    assert ck.report(ck.PipelineError("closed"))["problems"][0]["kind"] == "error"
    for code, status in ((3, 3), (None, 0), ("text", 1), (0, 0)):
        (problem,) = ck.report(SystemExit(code))["problems"]
        assert (problem["kind"], problem["status"]) == ("exit", status)


def test_statuses_of_kinds() -> None:
    assert all(isinstance(row.status, int) and isinstance(row.text, str) for row in reports.KINDS.values())
    shown = {kind: row.status for kind, row in reports.KINDS.items()}
    assert shown.items() >= {"exception": 1, "usage": 2, "race": 3, "argument": 4, "compile": 5, "file": 6}.items()
    assert shown.items() >= {"time": 124, "memory": 125, "interrupt": 130}.items()


def message_of(node: ast.expr) -> str:
    """Return the text of a message, with a word in place of each value."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(message_of, node.values))
    return f"{message_of(node.left)}{message_of(node.right)}" if isinstance(node, ast.BinOp) else "V7"


def test_most_errors_have_parts() -> None:
    without, count = list[str](), 0
    for path in MODULES:
        for node in nodes_of(path):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            count += name in FAMILY or name.removesuffix(".of") in FAMILY
            if name in FAMILY and not parts_of(message_of(node.args[0])).keys() & {"expected", "got"}:
                without.append(f"{path}:{node.lineno}")
    assert count > 700
    assert len(without) <= MOST_WITHOUT_PARTS, (
        f"{len(without)} of {count} errors show neither what was expected nor what came: write 'x is …, got …; advice'"
    )
    assert len(without) > MOST_WITHOUT_PARTS - 10, f"lower the bound to {len(without)}"
    assert not [line for line in without if re.search(r"types/checked\.py", line)]
