"""Graphs: calls captured once and launched again and again, as one, with other arguments where they were named."""

from __future__ import annotations

from cudakit.capturing import is_capturing
from cudakit.graphs.graph import Graph, capture

__all__ = ["Graph", "capture", "is_capturing"]
