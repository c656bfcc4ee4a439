"""What calls are given beside arrays: taken where it is right, else refused by name."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest

from cudakit.errors import ArgumentError
from cudakit.types.checked import dtype_of, dtype_or_none, flag, path_of, text_of, whole

pytestmark = pytest.mark.emulator


def test_whole_numbers() -> None:
    for value in (0, 7, np.int8(7), np.uint64(2**63), 10**30):
        found = whole("f: n", value)
        assert found == value
        assert type(found) is int
    assert whole("f: n", 3, 3) == 3
    assert whole("f: n", -5, -5) == -5
    for value, least in ((-1, 0), (2, 3), (1.0, 0), (True, 0), ("1", 0), (None, 0), (np.float32(1), 0), (np.True_, 0)):
        with pytest.raises(ArgumentError, match=rf"^f: n is a number from {least} up, got "):
            whole("f: n", value, least)


def test_flags() -> None:
    for value in (True, 1, np.True_, np.int32(1)):
        assert flag("f: x", value) is True
    for value in (False, 0, np.False_, np.uint8(0)):
        assert flag("f: x", value) is False
    for value in (2, -1, 1.0, "True", None, np.array(True)):
        with pytest.raises(ArgumentError, match=r"^f: x is True or False, got "):
            flag("f: x", value)


def test_dtypes() -> None:
    given: list[Any] = ["f4", np.float32, np.dtype("f4"), float, [("a", "i4")]]
    assert [dtype_of("f: dtype", value) for value in given] == [np.dtype(value) for value in given]
    for value in ("f5", "no such", object(), [("a",)]):
        with pytest.raises(ArgumentError, match=r"^f: dtype must be a dtype, got "):
            dtype_of("f: dtype", value)
        with pytest.raises(ArgumentError, match=r"^f: dtype must be a dtype, got "):
            dtype_or_none("f: dtype", value)
    assert dtype_or_none("f: dtype", None) is None
    assert dtype_or_none("f: dtype", "i2") == np.dtype("i2")
    own = np.dtype("f8")
    assert dtype_or_none("f: dtype", own) is own


def test_paths_and_texts() -> None:
    for value in ("a/b", Path("a/b"), PurePosixPath("a/b")):
        assert path_of("f: file", value) == Path("a/b")
    with pytest.raises(ArgumentError, match=r"^f: file is a path, got bytes: b'a'"):
        path_of("f: file", b"a")
    assert text_of("f: mode", "wrap") == "wrap"
    with pytest.raises(ArgumentError, match=r"^f: mode is a str, got int: 3"):
        text_of("f: mode", 3)
