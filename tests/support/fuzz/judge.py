"""The judge, a C++ program: the bytes that a number has in a C++ type, or that the type cannot hold it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

_NAN = 256


class Given(NamedTuple):
    """A number as it was given: its type, as ``f4``, or ``integer`` for an int of any size, and its bytes."""

    type: str
    data: bytes


class Held(NamedTuple):
    """A number in a C++ type: its bytes and, where there is a NaN for which any other is as good, the type."""

    data: bytes
    with_nan: str = ""


def compiler() -> str | None:
    """The host's C++ compiler, if there is one."""
    return shutil.which("g++") or shutil.which("c++")


@cache
def _library(folder: Path) -> ctypes.CDLL:
    path = folder / "judge.so"
    source = Path(__file__).with_name("judge.cpp")
    found = compiler()
    assert found is not None
    subprocess.run([found, "-std=c++17", "-O1", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    return ctypes.CDLL(str(path))


class Judge:
    """What C++ makes of numbers; its program is compiled into `folder`."""

    def __init__(self, folder: Path) -> None:
        self._judge = _library(folder).judge
        self._out = ctypes.create_string_buffer(64)

    def __call__(self, to: str, given: Given) -> Held | None:
        """What `given` is in the type `to`, or None where that cannot hold it."""
        if to == given.type:
            return Held(given.data)
        size = self._judge(to.encode(), given.type.encode(), given.data + b"\0", self._out)
        if size == -2:
            raise ValueError(f"the judge does not know {to} of {given.type}")
        if size < 0:
            return None
        return Held(self._out.raw[: size & (_NAN - 1)], to if size & _NAN else "")
