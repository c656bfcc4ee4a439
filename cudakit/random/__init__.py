"""Random numbers, as NumPy's Generator gives them, on Philox4x32-10: the same on any grid, any GPU and the emulator.

A number is a function of the generator's seed and of how many were drawn before: nothing is kept on the device. The
numbers are not NumPy's own, whose generators are others.
"""

from cudakit.random.generator import Generator, default_rng

__all__ = ["Generator", "default_rng"]


def __dir__() -> list[str]:
    return __all__
