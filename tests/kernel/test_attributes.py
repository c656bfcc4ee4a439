"""Kernels, plans and functions of arrays as attributes of a class: what was put there, and no methods of it."""

from __future__ import annotations

from typing import Any

from support.places import to_host

import cudakit as ck


def test_what_is_an_attribute_of_a_class_is_called_as_it_is(stream: Any, xp: Any) -> None:
    """Partials, which these are, bind their first argument from Python 3.14 on; 3.13 warns of it."""
    x = xp.ones(4, xp.int32)

    class Filter:
        kernel = ck.Kernel("__global__ void twice(int* x) { x[threadIdx.x] *= 2; }")
        plan = kernel.plan(stream, ck.config(1, 4), x)
        add = ck.elementwise("T x, T y", "T z", "z = x + y")
        total = ck.reduction("T x", "T z", "x", "a + b", "0")

    own = Filter()
    own.kernel(stream, ck.config(1, 4), x)
    own.plan()
    with ck.using(stream):
        assert to_host(own.add(x, x)).tolist() == [8, 8, 8, 8]
        assert int(own.total(x)) == 16
    for name in ("kernel", "plan", "add", "total"):
        made = vars(Filter)[name]
        assert getattr(own, name) is made is getattr(Filter, name)
        assert type(made).__get__(made, own) is made
