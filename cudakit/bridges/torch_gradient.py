"""Gradients of ops of torch: given, or derived of an elementwise function and generated."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cudakit.bridges.derivative import derivatives
from cudakit.bridges.parameters import Role, library, names_of, roles
from cudakit.bridges.tensors import array_of, told
from cudakit.bridges.torch_registration import broadcast, like, registered
from cudakit.bridges.work import Work, check_gradients, missing_gradient, of_elementwise, of_kernel, taken
from cudakit.errors import ArgumentError, CudakitError
from cudakit.generate.elementwise import Elementwise
from cudakit.kernel.kernel import Kernel


def differentiated(op: Any, name: str, work: Work, gradient: Callable[[], Gradient] | None) -> None:
    """Give an op its gradients, or a word where there are none."""
    if not work.outputs or any(role.kind == "written" for role in work.takes):
        if gradient is not None:
            raise ArgumentError(f"{name} changes its arguments, and has no derivative; let it make outputs, by out=")

        def refused(ctx: Any, inputs: Any, output: Any) -> None:
            raise CudakitError(
                f"{name} changes its arguments, and has no derivative: give it tensors that need none, x.detach(), or "
                "call it under torch.no_grad()"
            )

        # register_autograd takes no such op; without this the gradients would be lost in silence.
        op._setup_context_fn = refused
        return
    if gradient is None:
        _without_gradient(op, name, "give ck.torch.op its backward=, or the op x.detach()")
        return
    arrays, count = work.arrays, len(work.takes)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        kept, others = [], {}
        for k in gradient().saved:
            if k >= count:
                kept.append(output[k - count] if isinstance(output, tuple) else output)
            elif k in arrays:
                kept.append(inputs[k])
            else:
                others[k] = inputs[k]
        if kept:
            ctx.save_for_backward(*kept)
        ctx.others = others
        ctx.kinds = [(inputs[k].shape, inputs[k].dtype) for k in arrays]

    def backwards(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        kept = [k for k in gradient().saved if k in arrays or k >= count]
        values = {**ctx.others, **dict(zip(kept, ctx.saved_tensors, strict=True))}
        needed = [ctx.needs_input_grad[k] for k in arrays]
        found = iter(gradient().of(values, gradients, needed))
        results: list[Any] = [None] * len(work.takes)
        for k, (shape, dtype), is_needed in zip(arrays, ctx.kinds, needed, strict=True):
            result = next(found)
            if is_needed and result is not None:
                result = result if result.shape == shape else result.sum_to_size(shape)
                results[k] = result if result.dtype == dtype else result.to(dtype)
        return tuple(results)

    op.register_autograd(backwards, setup_context=setup)


class Gradient(NamedTuple):
    """How gradients are worked out.

    Attributes
    ----------
    saved : tuple of int
        Which arguments and outputs it takes, by place.
    of : callable
        ``of(values, gradients, needed)``: those values by place, the outputs' gradients, and which tensors' gradients
        are asked for; gives one for each tensor among the arguments.
    """

    saved: tuple[int, ...]
    of: Callable[[Mapping[int, Any], Sequence[Any], Sequence[bool]], Sequence[Any]]


class Once:
    """What a function gives, which is called once, whichever threads ask."""

    def __init__(self, make: Callable[[], Gradient]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._found: Gradient | None = None

    def __call__(self) -> Gradient:
        with self._lock:
            if self._found is None:
                self._found = self._make()
            return self._found


def given_gradient(name: str, work: Work, backward: Any) -> Gradient:
    """A gradient that the user gave."""
    inputs = work.inputs
    known = (*work.names, *(f"d{each}" for each in work.outputs))
    is_op = isinstance(backward, Kernel | Elementwise)
    if is_op:
        op, own = _gradient_op(f"{name}_backward", backward, work)
        function, taken = op, [role.name for role in own.takes]
    else:
        function, taken = backward, [*names_of(name, "backward", backward)]
    if unknown := [each for each in taken if each not in known]:
        raise ArgumentError(f"{name}: backward takes {', '.join(unknown)}; there are {', '.join(known)}")
    places = [known.index(each) for each in taken]
    given = len(work.names)

    def of(values: Mapping[int, Any], gradients: Sequence[Any], needed: Sequence[bool]) -> Sequence[Any]:
        arguments = [values[k] if k < given else gradients[k - given] for k in places]
        if is_op:  # kernels take memory as it lies, and gradients come as torch has them
            arguments = [each.contiguous() if k >= given else each for k, each in zip(places, arguments, strict=True)]
        found = function(*arguments)
        several = found if isinstance(found, tuple | list) else (found,)
        if is_op:
            by_name = dict(zip(own.outputs, several, strict=True))
            if lacking := [
                each for each, is_needed in zip(inputs, needed, strict=True) if is_needed and f"d{each}" not in by_name
            ]:
                raise missing_gradient(name, lacking[0])
            return [by_name.get(f"d{each}") for each in inputs]
        if len(several) != len(inputs):
            raise ArgumentError(
                f"{name}: backward returned {len(several)} gradients; it is one for each of {', '.join(inputs)}, None "
                "where there is none"
            )
        return several

    return Gradient(tuple(k for k in places if k < given), of)


def _gradient_op(name: str, function: Kernel | Elementwise, work: Work) -> tuple[Any, Work]:
    """An op of gradients, and what it does: its outputs ``dx`` are like the arguments x."""
    torch = library("torch", name, "pip install torch")
    if isinstance(function, Kernel):
        written = [role.name for role in roles(name, function) if role.kind == "written"]
        own = of_kernel(name, function, written)
        names = [role.name for role in own.takes]
        # Where x is no argument, dx is as the first array is, which then is a gradient.
        sources = [names.index(each[1:]) if each[1:] in names else own.arrays[0] for each in written]

        made: Callable[..., Any] = functools.partial(_alike, sources)
    else:
        numbers = {role.name for role in work.takes if role.kind == "number"}
        own = of_elementwise(name, function, [*numbers & {p.name for p in function.recipe.inputs}], array_of, told)
        made = broadcast(torch, name, function)
    check_gradients(name, own.outputs, work.inputs)
    op = registered(torch, name, own, made, isinstance(function, Elementwise))
    _without_gradient(op, name, "the gradient of an op has none itself (double backward)")
    return op, own


def _alike(places: Sequence[int], *arguments: Any) -> Any:
    """Empty tensors like some of the arguments."""
    found = tuple(like(arguments[k]) for k in places)
    return found[0] if len(found) == 1 else found


def derived_gradient(name: str, function: Elementwise, work: Work) -> Gradient:
    """The gradient of an elementwise function, as SymPy has it."""
    torch = library("torch", name, "pip install torch")
    inputs = work.inputs
    found = derivatives(function, inputs)
    given_numbers = [role.name for role in work.takes if role.kind == "number" and role.name in found.uses]
    tensors = taken(name, [*found.uses, *(f"d{each}" for each in work.outputs)], given_numbers)
    takes = (*tensors, Role("needed_", "number", "constant"))
    first = len(found.uses)
    kinds: dict[int, Work] = {}

    def wanted(needed: int) -> list[str]:
        return [each for k, each in enumerate(inputs) if needed >> k & 1]

    def made(*arguments: Any) -> Any:
        like_output, needed = arguments[first], arguments[-1]
        if like_output.dtype.is_complex:
            raise ArgumentError(f"{name}: no gradient is derived of complex numbers; give backward=")
        results = [like(like_output, shape=None if needed >> k & 1 else (0,)) for k in range(len(inputs))]
        return results[0] if len(results) == 1 else tuple(results)

    def run(stream: Any, *every: Any) -> None:
        given, needed, outputs = every[: len(tensors)], every[len(tensors)], every[len(takes) :]
        kind = kinds.get(needed)
        if kind is None:
            kind = kinds[needed] = of_elementwise(name, found.function(wanted(needed)), given_numbers, array_of, told)
        kind.run(stream, *given, *(each for k, each in enumerate(outputs) if needed >> k & 1))

    outputs = tuple(f"d{each}" for each in inputs)
    op = registered(torch, f"{name}_gradient", Work(takes, outputs, run), made)
    _without_gradient(op, f"{name}_gradient", "the gradient of an op has none itself (double backward)")
    places = [work.names.index(each) for each in found.uses]

    def of(values: Mapping[int, Any], gradients: Sequence[Any], needed: Sequence[bool]) -> Sequence[Any]:
        mask = sum(1 << k for k, each in enumerate(needed) if each)
        results = op(*[values[k] for k in places], *gradients, mask)
        return results if isinstance(results, tuple | list) else (results,)

    return Gradient(tuple(places), of)


def _without_gradient(op: Any, name: str, why: str) -> None:
    def no_gradient(ctx: Any, *gradients: Any) -> None:
        raise CudakitError(f"{name} has no derivative: {why}")

    op.register_autograd(no_gradient)
