"""Scale the rows of a matrix, for arrays of any library."""

from rowkit.rows import include_path, prewarm, rescale

__all__ = ["include_path", "prewarm", "rescale"]
