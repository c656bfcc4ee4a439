"""Graphs: calls captured once and launched repeatedly as one, with other values of the named arguments."""

from __future__ import annotations

from cudakit.graphs.graph import Graph, capture
from cudakit.places import is_capturing

__all__ = ["Graph", "capture", "is_capturing"]
