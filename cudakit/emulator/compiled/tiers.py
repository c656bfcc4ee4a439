"""The code of kernels: found on disk by what it is made of, before any IR is written, or made.

A kernel has code of two tiers: compiled quickly, or optimised. An entry on disk has what launches need to know of the
code, and the digest of the object code, which other kernels with the same IR have too.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cudakit.emulator.compiled import kernel, native
from cudakit.emulator.compiled.kernel import Facts
from cudakit.emulator.compiled.layout import Layout
from cudakit.emulator.compiled.source import Source
from cudakit.jit.cache.cache import default_cache


class Tier(NamedTuple):
    """Object code of a kernel, and what launches of it need to know."""

    facts: Facts
    object_code: bytes
    is_quick: bool


def code_of(source: Source, layout: Layout, short: int) -> Tier:
    """The code of a kernel: the best that is on disk, else made now, optimised up to `short` instructions.

    Raises
    ------
    Refusal
    """
    for optimised in (True, False):
        tier = _stored(source, layout, short, optimised)
        if tier is not None:
            return tier
    return make(source, layout, short, len(source.context.function.code) <= short)


def make(source: Source, layout: Layout, short: int, optimised: bool) -> Tier:
    """Compile a kernel, and keep its code on disk.

    Raises
    ------
    Refusal
    """
    made = kernel.make(source.context, layout, not optimised)
    object_code = native.object_code(made.text, optimised)
    entry = json.dumps((native.digest_of(made.text, optimised), made.facts)).encode()
    default_cache().blob("machinecode", _key(source, layout, short, optimised), lambda: entry)
    return Tier(made.facts, object_code, not optimised)


def _stored(source: Source, layout: Layout, short: int, optimised: bool) -> Tier | None:
    entry = default_cache().stored("machinecode", _key(source, layout, short, optimised))
    if entry is None:
        return None
    digest, facts = json.loads(entry)
    object_code = native.stored_code(digest)
    return None if object_code is None else Tier(Facts.of(facts), object_code, not optimised)


def _key(source: Source, layout: Layout, short: int, optimised: bool) -> str:
    """Digest of all that decides what code a kernel gets."""
    parts = (_compiler(), *native.made_by(), repr(layout), str(short), str(optimised), *source.identity)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _compiler() -> str:
    """Digest of the emulator's source, which decides what code is made of a PTX text."""
    emulator = Path(__file__).parents[1]
    files = sorted(emulator.rglob("*.py"))
    # Where the source is not installed, nothing tells versions apart: what other processes have made is not taken.
    made = hashlib.sha256(b"" if files else os.urandom(32))
    for file in files:
        made.update(f"{file.relative_to(emulator)}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\0".encode())
    return made.hexdigest()
