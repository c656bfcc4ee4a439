"""Kinds of memory that an array can be asked for in."""

from __future__ import annotations

from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["device", "pinned", "managed"]
KINDS = ("device", "pinned", "managed")
