"""NumPy's universal functions as ready kernels: ``ck.math.sin(x)``, ``ck.math.add(x, y, out=z, where=mask)``.

Each function is an `Elementwise` with NumPy's rules for types, by ``numpy.ufunc.resolve_dtypes``: sin of int32 is
float64, Python numbers are weak. NaN, infinities, -0 and integer division by 0 are as in NumPy. half and bfloat16 are
computed as float and rounded once. `TABLE` has the expression and the accuracy of each function, `MISSING` the
functions that are not here, with the reason.

``dtype=`` and ``casting=`` select NumPy's loop. ``where=`` is a mask of the elements to compute. An ``out=`` of another
dtype takes the result by the rule of ``casting=``. A Python number beyond the range of an array's floating point is
infinite. A Python int beyond the range of an array's integers compares correctly; other functions refuse it.

Differences from NumPy:

- A negative power of integers is 1 / x ** n rounded toward zero. NumPy raises an error.
- The integer reciprocal of 0 is 0.
- Complex functions are those of cuda::std.
- There are no warnings.
"""

from __future__ import annotations

import sys
import textwrap

import numpy as np

from cudakit.generate.ufuncs import MISSING, TABLE, Entry, Ufunc

__doc__ = f"{__doc__}\n{textwrap.fill('Functions: ' + ', '.join(sorted(TABLE)), 110)}\n"

__all__ = ["MISSING", "TABLE", "Entry", "Ufunc"]


def __getattr__(name: str) -> Ufunc:
    ufunc = getattr(np, name, None)
    if isinstance(ufunc, np.ufunc):
        # An alias, such as abs, is the same function.
        own = name if name in TABLE else ufunc.__name__
        if own in TABLE:
            function = globals().get(own) or Ufunc(own)
            globals()[own] = globals()[name] = function
            return function
        if own in MISSING:
            raise AttributeError(f"ck.math has no {name}: {MISSING[own]}")
    # With both of these Python's traceback asks "Did you mean …?"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*TABLE, *(name for name in dir(np) if getattr(getattr(np, name), "__name__", "") in TABLE)})
