"""Rows of a matrix, brought to one scale, on whatever arrays the caller has."""

from rowkit.rows import include_path, prewarm, rescale

__all__ = ["include_path", "prewarm", "rescale"]
