"""Strategies for hypothesis: arrays of all shapes, strides, dtypes and values that a kernel meets, and launch shapes.

>>> from hypothesis import given
>>> from cudakit import testing
>>> @given(x=testing.arrays(["f4", "i2"]), config=testing.configs())
... def test_scale(x, config): ...
"""

from cudakit.testing.strategies import arrays, configs, dtypes, shapes, values

__all__ = ["arrays", "configs", "dtypes", "shapes", "values"]


def __dir__() -> list[str]:
    return __all__
