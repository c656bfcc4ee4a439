"""Kernels and functions of arrays inside of other libraries: ops of torch, calls of JAX."""
