"""One launch on both of the emulator's machines, which must leave the same bytes or fail in the same words."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import emulator

MACHINES = ("compiled", "numpy")


def copies(arguments: tuple[Any, ...]) -> list[Any]:
    return [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]


def agreed(make: Callable[[], Any], config: Any, *arguments: Any, **options: Any) -> list[np.ndarray]:
    """The arrays after a kernel ran on the compiled machine, which must take it, and are the same as on NumPy's."""
    found = []
    for machine in MACHINES:
        given, stream = copies(arguments), emulator.stream(machine=machine, **options)  # type: ignore[arg-type]
        with warnings.catch_warnings():
            warnings.simplefilter("error", ck.EmulatorWarning)
            make()(stream, config, *given)
        found.append([each for each in given if isinstance(each, np.ndarray)])
    for compiled, by_numpy in zip(*found, strict=True):
        assert compiled.tobytes() == by_numpy.tobytes()
    return found[0]


def failed(make: Callable[[], Any], config: Any, *arguments: Any, **options: Any) -> str:
    """What both machines say of a launch that fails, without the addresses."""
    said = []
    for machine in MACHINES:
        stream = emulator.stream(machine=machine, **options)  # type: ignore[arg-type]
        with warnings.catch_warnings():
            warnings.simplefilter("error", ck.EmulatorWarning)
            with pytest.raises(ck.EmulationError) as error:
                make()(stream, config, *copies(arguments))
        said.append(re.sub("0x[0-9a-f]+|byte -?[0-9]+( … -?[0-9]+)?", "…", str(error.value)))
    assert said[0] == said[1]
    return said[0]
