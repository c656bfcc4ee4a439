"""Draw random numbers with the methods of NumPy's Generator, from Philox4x32-10.

>>> import cudakit as ck
>>> stream = ck.stream()  # of the GPU, or of the emulator if there is no GPU
>>> rng = ck.random.default_rng(7)
>>> with ck.using(stream):
...     x = rng.normal(size=(2, 3), dtype="f4")
...     dice = rng.integers(1, 6, size=1000, endpoint=True)
...     order = rng.permutation(5)
>>> print(x.shape, dice.min(), dice.max(), sorted(order.tolist()))
(2, 3) 1 6 [0, 1, 2, 3, 4]

This page is a tour. ``help(ck.random.Generator)`` explains each method.

- Make a generator: `default_rng`, from a seed.
- Draw numbers: `Generator.random`, `uniform`, `normal`, `standard_normal`, `exponential`, `integers`, `bernoulli`.
- Reorder and select: `permutation`, `shuffle`, `choice`.
- Get independent streams: `spawn`, `jumped`, `advance`. Save and restore: `state`.

The numbers depend on the seed and on how many were drawn before. They are the same for every grid, on every GPU and on
the emulator. No state is kept on the device. The numbers differ from NumPy's, which has other generators.
"""

from cudakit.random.generator import Generator, default_rng

__all__ = ["Generator", "default_rng"]


def __dir__() -> list[str]:
    return __all__
