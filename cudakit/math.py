"""NumPy's universal functions as ready kernels: ``ck.math.sin(x)``, ``ck.math.add(x, y, out=z, where=mask)``.

Each is an `Elementwise` with NumPy's own rules for types (those of ``numpy.ufunc.resolve_dtypes``: sin of int32 is
float64, Python numbers are weak), for NaN, infinities, -0, and integer division by 0. half and bfloat16 are computed as
float and rounded once. `TABLE` has the expression of each and how far it may be from the exact value; `MISSING` the
functions that are not here, with the reason.

``dtype=`` and ``casting=`` choose the loop that is computed, as NumPy has it; `where` leaves elements out; an `out` of
another dtype takes the result by the rule of `casting`. A Python number beyond the range of an array's floating point
is infinite, a Python int beyond that of its integers is told as such by comparisons and refused by all else.

What differs from NumPy: a negative power of integers is 1 / x ** n rounded toward zero instead of an error, the
integer reciprocal of 0 is 0, complex functions are cuda::std's, and nothing warns.
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
        # An alias, as abs, is the same function.
        own = name if name in TABLE else ufunc.__name__
        if own in TABLE:
            made = globals().get(own) or Ufunc(own)
            globals()[own] = globals()[name] = made
            return made
        if own in MISSING:
            raise AttributeError(f"ck.math has no {name}: {MISSING[own]}")
    # With both of these Python's traceback asks "Did you mean …?"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*TABLE, *(name for name in dir(np) if getattr(getattr(np, name), "__name__", "") in TABLE)})
