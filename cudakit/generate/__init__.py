"""Kernels from expressions: elementwise, reduction and scan generators, and traced Python functions."""
