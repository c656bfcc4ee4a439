"""Constants of C++: default arguments that Python knows the values of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cudakit.types.constants import constant

pytestmark = pytest.mark.emulator


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("true", True),
        ("false", False),
        ("nullptr", None),
        ("NULL", None),
        ("42", 42),
        ("1'000'000", 1_000_000),
        ("0x1F", 31),
        ("0b101", 5),
        ("017", 15),
        ("0", 0),
        ("10u", 10),
        ("10ull", 10),
        ("10UL", 10),
        ("2.5", 2.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e3", 1000.0),
        ("0.1f", float(np.float32(0.1))),
        ("1F", 1.0),
        ("-3", -3),
        ("- -3", 3),
        ("1 << 4", 16),
        ("1 << 4 | 1", None),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("7.0 / 2", 3.5),
        ("10 - 2 - 3", 5),
        ("'a'", 97),
        ("'0'", 48),
        ("'+' - '~'", 43 - 126),
        ("1'000", 1000),
        ("1'0'0 + '0'", 148),
    ],
)
def test_constants(text: str, wanted: Any) -> None:
    found = constant(text)
    if wanted is None and text not in ("nullptr", "NULL"):
        assert found is None
        return
    assert found is not None
    (value,) = found
    assert value == wanted
    assert type(value) is type(wanted)


@pytest.mark.parametrize(
    "text",
    [
        "BLOCK",
        "f(1)",
        "1 +",
        "' '",
        "'é'",
        "'ab'",
        "L'a'",
        '"text"',
        "x1",
        "1 / 0",
        "1.5 << 2",
        "-1 << -1",
        "sizeof(int)",
        "~1",
        "",
        "09",
    ],
)
def test_what_is_no_constant(text: str) -> None:
    assert constant(text) is None


def test_no_shift_takes_all_memory() -> None:
    found = constant("1 << 1000000000000")
    assert found is not None
    assert found[0] >= 1 << 64
