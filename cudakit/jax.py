"""Kernels and functions of arrays as functions of JAX's arrays: ``ck.jax.call(kernel, out)(x, y)``.

JAX is not needed before the first call is made.
"""

from cudakit.bridges.jax_call import call

__all__ = ["call"]


def __dir__() -> list[str]:
    return __all__
