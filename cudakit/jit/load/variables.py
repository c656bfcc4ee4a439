"""The variables of a module, and the move of their values to code that was loaded anew."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import numpy as np

from cudakit.errors import LaunchError
from cudakit.jit.compile.mangled import common_name, variable_name


class Variables(Protocol):
    """The variables of a module at a place."""

    def names(self) -> Collection[str]:
        """Return the mangled names of all variables."""

    def address(self, name: str) -> tuple[int, int]:
        """Return the address of a variable at the place, and the variable's size in bytes."""

    def read(self, name: str, stream: Any) -> np.ndarray:
        """Wait for the work of `stream` (None: of all streams), and return the bytes of a variable."""

    def write(self, name: str, data: np.ndarray, stream: Any) -> None:
        """Wait for the work of `stream` (None: of all streams), and set the bytes of a variable."""


def move(old: Variables, new: Variables) -> None:
    """Copy the values of a module's variables to its newly loaded code, on the current device.

    Raises
    ------
    LaunchError
        If a variable is missing, or holds the address of a variable.
    """
    after = {common_name(name): name for name in new.names()}
    if len(after) < len(new.names()):
        raise LaunchError("several linked texts have variables of one name")
    pairs = [(name, after[common_name(name)]) for name in old.names() if common_name(name) in after]
    ranges = sorted((*old.address(name), new.address(other)[0]) for name, other in pairs)
    starts, sizes, targets = (np.array(column, np.uint64) for column in zip(*ranges, strict=True))
    values = []
    for name, other in pairs:
        data, fresh = old.read(name, None), new.read(other, None)
        words, as_initialised = (data_bytes[: data.size // 8 * 8].view(np.uint64) for data_bytes in (data, fresh))
        owner = np.searchsorted(starts, words, "right") - 1
        offsets = words - starts[owner]
        is_address = (owner >= 0) & (offsets < sizes[owner])
        moved = targets[owner] + offsets
        # A pointer with its initial value is correct in the new module; any other pointer may have copies elsewhere.
        if (is_address & (moved != as_initialised)).any():
            raise LaunchError(f"its variable {variable_name(name)} holds the address of a variable, and these move")
        words[is_address] = moved[is_address]
        values.append((other, data))
    for other, data in values:
        new.write(other, data, None)
