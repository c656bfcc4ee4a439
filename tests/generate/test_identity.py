"""An identity that is none is refused, where the operator can be computed here."""

from __future__ import annotations

import pytest

import cudakit as ck
from cudakit.generate.fold import check_identity

RIGHT = [
    ("a + b", "0"),
    ("a + b", "0.0f"),
    ("a + b", "-0.f"),
    ("a * b", "1"),
    ("b * a", "1.0"),
    ("a & b", "-1"),
    ("a | b", "0u"),
    ("a ^ b", "0"),
    ("max(a, b)", "0"),  # of elements above 0
    ("min(a, b)", "0"),  # of elements below 0
    ("max(a, b)", "-2147483647 - 1"),
    ("fminf(a, b)", "1e30f"),
    ("a - b * -1", "0"),
    # What is not computed is taken as it is given.
    ("a < b ? a : b", "0"),
    ("a + b", "zero()"),
    ("a + b", "T(1)"),
    ("combine(a, b)", "5"),
    ("a.x + b.x", "1"),
    ("a + b + c", "1"),
    ("a + b", None),
    ("a / b", "1"),
    ("a && b", "0"),
    ("a + b", "010"),
    ("a ** b", "1"),
]
WRONG = [
    ("a + b", "1"),
    ("a + b", "-1e-3f"),
    ("a * b", "0"),
    ("a * b", "2u"),
    ("a & b", "0"),
    ("a | b", "1"),
    ("a ^ b", "~0"),
    ("max(a, b)", "9"),
    ("fmin(a, b)", "-9.0"),
    ("(a + b)", "(1)"),
    ("a * b + 1", "1"),
]


@pytest.mark.parametrize(("reduce", "identity"), RIGHT)
def test_identities(reduce: str, identity: str | None) -> None:
    check_identity("f", reduce, identity)


@pytest.mark.parametrize(("reduce", "identity"), WRONG)
def test_what_is_no_identity(reduce: str, identity: str) -> None:
    words = r"is not an identity of .*: with it \d becomes .*; give its identity, or none, and .* initial="
    for make in (
        lambda: ck.reduction("T x", "T y", "x", reduce, identity),
        lambda: ck.scan("T x", "T y", "x", reduce, identity),
    ):
        with pytest.raises(ck.TemplateError, match=words):
            make()
