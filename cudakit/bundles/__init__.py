"""Bundles of compiled kernels for machines without a compiler: what is in one, and how it is built."""
