"""Stencils from an expression or a function of neighbours: what is declared, and how far it reaches."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, overload

import numpy as np

from cudakit.arrays.elements import as_number
from cudakit.errors import ArgumentError, TemplateError, shortened
from cudakit.generate.call import dtype_of
from cudakit.generate.declarations import CPP_WORDS, Parameter, check_kernel_name, check_set, parse
from cudakit.generate.outside import Outside
from cudakit.generate.stencil_call import Stencil
from cudakit.generate.stencil_code import BORDERS, RESERVED, StencilRecipe, called_with_offsets, offsets_of
from cudakit.generate.stencil_traced import PREAMBLE, traced
from cudakit.generate.ufuncs import OPTIONS
from cudakit.jit.specialise.options import CompileOptions
from cudakit.types.checked import is_one_of, listed, whole

#: How far away an expression may look.
_FURTHEST = 16


@overload
def stencil(
    outputs: str,
    body: str,
    inputs: str | None = None,
    name: str | None = None,
    *,
    mode: str | Sequence[str] = "reflect",
    cval: float = 0.0,
    radius: int | Sequence[int] | None = None,
    preamble: str = "",
    options: CompileOptions | None = None,
) -> Stencil: ...
@overload
def stencil(
    outputs: Callable[..., Any],
    *,
    name: str | None = None,
    mode: str | Sequence[str] = "reflect",
    cval: float = 0.0,
) -> TracedStencil: ...
@overload
def stencil(
    outputs: None = None, *, name: str | None = None, mode: str | Sequence[str] = "reflect", cval: float = 0.0
) -> Callable[[Callable[..., Any]], TracedStencil]: ...
def stencil(
    outputs: Any = None,
    body: str | None = None,
    inputs: str | None = None,
    name: str | None = None,
    *,
    mode: str | Sequence[str] = "reflect",
    cval: float = 0.0,
    radius: int | Sequence[int] | None = None,
    preamble: str = "",
    options: CompileOptions | None = None,
) -> Any:
    """A function of arrays from a C++ expression of neighbours: ``out[y, x] = 0.25 (u[y, x + 1] + u[y, x − 1] + …)``.

    Parameters
    ----------
    outputs : str
        ``"type name, …"``, as `elementwise` has them: dtypes, C++ types, type variables. Or a Python function of
        ``u(dy, dx)`` and numbers, which is traced as `fuse` does it, once for each signature of types, with NumPy's
        dtypes; then there is neither body nor inputs. Left out, a decorator for such a function.
    body : str
        The one output's value, or C++ statements that set the outputs. ``u(dx)``, ``u(dy, dx)`` or ``u(dz, dy, dx)`` is
        the element of an array so far from the one that is worked out; offsets are constant integers. half and bfloat16
        are read as float, and rounded where they are set.
    inputs : str, optional
        As `outputs`. Those that the body calls are arrays, others numbers. Left out: what the body calls with integers,
        in that order, of the first output's type.
    name : str
        Of the kernel, in messages and profilers.
    mode : str or sequence of str
        What lies beyond the borders, as SciPy has it; a sequence is for each axis. ``reflect``: d c b a | a b c d | d c
        b a; ``mirror``: d c b | a b c d | c b a; ``nearest``: a a | a b c d | d d; ``wrap``: c d | a b c d | a b;
        ``constant``: `cval`.
    cval : float
        Beyond the borders of mode ``constant``.
    radius : int or sequence of int, optional
        How far neighbours lie at most, for bodies whose offsets are not written as integers (loops); a sequence is for
        each axis. Left out: found in the body. An offset beyond it is refused; a kernel that computes one traps.
    preamble : str
        C++ before the kernel.
    options : CompileOptions, optional

    Returns
    -------
    Stencil or TracedStencil
        Called as ``f(*inputs, out=None, stream=None, steps=1)``.

    Raises
    ------
    TemplateError
        For declarations and bodies that cannot be read.

    Examples
    --------
    >>> average = stencil("float out", "0.25f * (u(0,1) + u(0,-1) + u(1,0) + u(-1,0))", mode="nearest")
    >>> v = average(u, steps=10)
    """
    if outputs is None and body is None:
        return functools.partial(stencil, name=name, mode=mode, cval=cval)
    if callable(outputs):
        if body is not None or inputs is not None or radius is not None or preamble or options is not None:
            raise TemplateError(
                f"{name or 'stencil'}: a function is traced, and takes name=, mode= and cval= beside it"
            )
        return TracedStencil(outputs, name or _name_of(outputs), mode, cval)
    name = "stencil_kernel" if name is None else name
    check_kernel_name("a stencil", name)
    made = parse(name, outputs, RESERVED, preamble)
    if not made:
        raise TemplateError(f"{name}: it has no output; declare one, as in 'float out'")
    if not isinstance(body, str) or not body.strip():
        raise TemplateError(f"{name}: the expression must be C++ text, got {shortened(body)}")
    if inputs is None:
        found = [each for each in called_with_offsets(body) if each not in [p.name for p in made]]
        given = tuple(made[0]._replace(name=each) for each in found)
    else:
        given = parse(name, inputs, RESERVED, preamble)
    both = {p.name for p in given} & {p.name for p in made}
    if both or any(p.raw for p in (*given, *made)):
        raise TemplateError(f"{name}: inputs and outputs have names of their own, and none of them is raw")
    if len(made) > 1:
        check_set(name, "expression", body, [p.name for p in made], preamble)
    return Stencil(_recipe(name, given, made, body, preamble, mode, cval, radius), options)


def _name_of(function: Any) -> str:
    name = str(getattr(function, "__name__", "stencil")).strip("_")
    return name if name.isidentifier() and name not in CPP_WORDS else "stencil"


def _recipe(
    name: str,
    inputs: tuple[Parameter, ...],
    outputs: tuple[Parameter, ...],
    body: str,
    preamble: str,
    mode: str | Sequence[str],
    cval: float,
    radius: int | Sequence[int] | None = None,
) -> StencilRecipe:
    halos, rank, points = _halos(name, inputs, body, preamble, radius)
    modes = _per_axis(name, "mode", mode, rank, "nearest")
    for each in modes:
        if not is_one_of(each, BORDERS):
            raise TemplateError(f"{name}: mode {shortened(each)} is none of {', '.join(BORDERS)}")
    try:
        beyond = float(as_number(name, "cval", cval, np.dtype(np.float64)))
    except ArgumentError as error:
        raise TemplateError(str(error)) from None
    return StencilRecipe(name, inputs, outputs, body, preamble, halos, rank, points, modes, beyond)


def _per_axis(op: str, what: str, given: Any, rank: int, filler: Any) -> tuple[Any, Any, Any]:
    """One of a kind for each of three axes, the last `rank` of which are the arrays'."""
    each = (
        [given] * rank if isinstance(given, str | int) else listed(f"{op}: {what} is one, or one for each axis", given)
    )
    if len(each) != rank:
        raise TemplateError(f"{op}: {what} has {len(each)} entries, and the expression {rank} axes")
    first, second, third = [filler] * (3 - rank) + each
    return first, second, third


def _halos(
    op: str, inputs: Sequence[Parameter], body: str, preamble: str, radius: Any
) -> tuple[tuple[tuple[int, int, int] | None, ...], int, int]:
    """How far each input's neighbours lie, how many axes there are, and how many neighbours of one input at most."""
    text = f"{body}\n{preamble}" if "#define" in preamble else body
    offsets = [offsets_of(op, p.name, text, radius is not None) for p in inputs]
    ranks = {len(each) for of in offsets for each in of}
    if len(ranks) != 1 or not ranks <= {1, 2, 3}:
        shown = "no neighbours" if not ranks else f"offsets of {' and '.join(map(str, sorted(ranks)))} axes"
        raise TemplateError(f"{op}: the expression has {shown}; write u(0, -1) and the like, with 1, 2 or 3 for all")
    rank = ranks.pop()
    least = (0,) * 3 if radius is None else _per_axis(op, "radius", radius, rank, 0)
    halos: list[tuple[int, int, int] | None] = []
    for p, of in zip(inputs, offsets, strict=True):
        if not of:
            halos.append(None)
            continue
        reach = [0] * (3 - rank) + [max(abs(each[d]) for each in of) for d in range(rank)]
        halo = tuple(max(a, whole(f"{op}: radius", b)) for a, b in zip(reach, least, strict=True))
        if radius is not None and halo != tuple(least):
            raise TemplateError(
                f"{op}: {p.name} is looked at {reach[3 - rank :]} away, beyond radius={shortened(radius)}; give a "
                "greater radius"
            )
        if max(halo) > _FURTHEST:
            raise TemplateError(f"{op}: {p.name} is looked at {max(halo)} away; {_FURTHEST} is the most")
        halos.append((halo[0], halo[1], halo[2]))
    boxes = [prod(2 * reach + 1 for reach in halo) for halo in halos if halo is not None]
    return tuple(halos), rank, max(boxes if radius is not None else (len(set(of)) for of in offsets))


class TracedStencil:
    """A stencil that a Python function says, made by `stencil`: called as a `Stencil` is.

    Attributes
    ----------
    function : callable
    """

    name: str

    def __init__(self, function: Callable[..., Any], name: str, mode: str | Sequence[str], cval: float) -> None:
        check_kernel_name("a stencil", name)
        self.function, self.name = function, name
        self._mode, self._cval = mode, cval
        self._names = tuple(inspect.signature(function).parameters)
        self._made: dict[Any, Stencil] = {}
        self._outside = Outside(function)
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<cudakit.stencil {self.name}({', '.join(self._names)})>"

    def __call__(self, *args: Any, out: Any = None, stream: Any = None, steps: int = 1) -> Any:
        """As a `Stencil`; arrays are those arguments that are no Python numbers."""
        if len(args) != len(self._names):
            raise ArgumentError(
                f"{self.name} takes {len(self._names)} arguments: {', '.join(self._names)}; got {len(args)}"
            )
        kinds = tuple([dtype_of(self.name, name, value) for name, value in zip(self._names, args, strict=True)])
        return self.specialized(kinds)(*args, out=out, stream=stream, steps=steps)

    def specialized(self, kinds: tuple[Any, ...]) -> Stencil:
        """The stencil for arrays of these dtypes, and Python's numbers by their classes."""
        made = self._made.get((kinds, self._outside()))
        if made is None:
            before = self._outside.values()
            of = traced(self.name, self.function, self._names, kinds)
            self._outside.traced(before)
            recipe = _recipe(self.name, of.inputs, of.outputs, of.body, PREAMBLE, self._mode, self._cval)
            made = self._made[kinds, self._outside()] = Stencil(recipe, OPTIONS)
        return made
