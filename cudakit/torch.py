"""Kernels and functions of arrays as ops of torch: ``ck.torch.op("mylib::axpy", kernel, out=…)``.

torch is not needed before the first op is made.
"""

from cudakit.bridges.torch_op import like, op

__all__ = ["like", "op"]


def __dir__() -> list[str]:
    return __all__
