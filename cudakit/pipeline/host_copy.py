"""Copies between arrays of the host: large ones by several threads, for one alone does not fill the memory bus."""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from typing import Any

import numpy as np

from cudakit.memory.staging import MOST_THREADS, copiers

_LARGE = 8 << 20


def copy(target: np.ndarray, source: np.ndarray) -> None:
    """``target[...] = source``, of one shape and dtype."""
    if source.nbytes < _LARGE:
        np.copyto(target, source)
        return
    for copied in start(target, source):
        copied.result()


def start(target: np.ndarray, source: np.ndarray) -> list[Future[None]]:
    """Begin ``target[...] = source``; it is done once all that is returned is."""
    if target.flags.c_contiguous and source.flags.c_contiguous:
        target, source = target.reshape(-1), source.reshape(-1)
    count = MOST_THREADS if source.nbytes >= _LARGE else 1
    bounds = [len(source) * part // count for part in range(count + 1)]
    strips = [slice(*ends) for ends in itertools.pairwise(bounds)]
    return [copiers().submit(np.copyto, target[strip], source[strip]) for strip in strips]


def ordinary(part: Any) -> Any:
    """A copy of an array in memory of its own; anything else as it is."""
    if not isinstance(part, np.ndarray):
        return part
    made = np.empty(part.shape, part.dtype)
    copy(made, part)
    return made
