"""Kernels as ops of torch: with fake tensors, gradients, torch's streams, and the emulator for tensors on the host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cudakit.bridges.parameters import library, names_of, picked, roles, taking
from cudakit.bridges.tensors import array_of, told
from cudakit.bridges.torch_gradient import Gradient, Once, derived_gradient, differentiated, given_gradient
from cudakit.bridges.torch_registration import broadcast, check_name, registered
from cudakit.bridges.work import Work, of_elementwise, of_function, of_kernel
from cudakit.errors import ArgumentError
from cudakit.generate.elementwise import Elementwise
from cudakit.kernel.kernel import Kernel


def op(
    name: str,
    function: Kernel | Elementwise | Callable[..., Any],
    *,
    out: Callable[..., Any] | None = None,
    config: Callable[..., Any] | None = None,
    values: Mapping[str, Any] | None = None,
    numbers: Sequence[str] = (),
    mutates: Sequence[str] = (),
    outputs: Sequence[str] = (),
    backward: Any = None,
) -> Any:
    """A kernel, an elementwise function or any function of arrays as an op of torch.

    The op goes through autograd, ``torch.compile(fullgraph=True)``, ``torch.export`` and CUDA graphs. It works on
    tensors of a GPU, on torch's current stream of their device, and on the host's, by the emulator.

    Parameters
    ----------
    name : str
        ``"library::name"``, which no other op has.
    function : Kernel, Elementwise, or callable
        A kernel's parameters are the op's arguments, by their names; those of ``const T*`` are read, those of ``T*``
        are outputs or are changed in place. Of an elementwise function shapes and dtypes of outputs are known. Other
        functions take arrays of CuPy, on the host of NumPy (and ``out=``, where they have such a parameter, and
        ``stream=``), and return such; arguments that have a default keep it, but for `numbers` and `mutates`.
    out : callable, optional
        Makes the outputs, of some of the op's arguments, by their names: ``lambda a, x, y: like(x)``; several as a
        tuple. It is called with fake tensors too. A kernel's outputs are the ``T*`` that it does not name, in order.
    config : callable, optional
        A kernel's configuration, of some of the op's arguments and outputs, by their names. Left out, a thread for each
        element of the first output, or of the first array where there is none.
    values : mapping, optional
        What parameters of a kernel are given that the op does not take: constants, or functions of arguments and
        outputs, ``{"n": lambda x: x.numel()}``. An integer that is called n or size, and that `out` does not name, is
        how many elements the first output has.
    numbers : sequence of str
        Arguments of an elementwise or another function that are numbers, and no tensors.
    mutates : sequence of str
        Arguments that a function, which is no kernel, changes.
    outputs : sequence of str
        What a function's results are called, for `backward`; left out, it has one, ``out``.
    backward : Kernel, Elementwise or callable, optional
        Gradients: its parameters are, by their names, arguments and outputs of the op, and ``dz``, the gradient of the
        output z. A kernel writes ``dx``, the gradient of the argument x, and so does an elementwise function; another
        function, of torch's ops, returns a gradient for each tensor, None for none. Of an elementwise function it is
        derived by SymPy and generated, where it is left out.

    Returns
    -------
    torch.library.CustomOpDef
        Called as ``torch.ops.library.name`` is.

    Raises
    ------
    ArgumentError
        For a name that is taken or is none, and what does not fit the function.
    CudakitError
        Where torch is not installed.

    Examples
    --------
    >>> axpy = ck.torch.op("mylib::axpy", kernel, out=lambda a, x, y: ck.torch.like(x))
    >>> z = axpy(2.0, x, y)
    """
    torch = library("torch", "ck.torch.op", "pip install torch")
    check_name(torch, name)
    gradient: Callable[[], Gradient] | None = None
    if isinstance(function, Kernel):
        named = names_of(name, "out", out) if out else ()
        work = of_kernel(name, function, _outputs(name, function, out, values or {}), config, values, named)
        extra: dict[str, Any] = {"numbers": numbers, "mutates": mutates, "outputs": outputs}
    elif isinstance(function, Elementwise):
        work = of_elementwise(name, function, numbers, array_of, told)
        extra = {"config": config, "values": values, "mutates": mutates, "outputs": outputs}
        # Derived when it is asked for, since SymPy takes its time to import.
        gradient = Once(lambda: derived_gradient(name, function, work))
    else:
        work = of_function(name, function, (outputs or ("out",)) if out else (), numbers, mutates, array_of)
        extra = {"config": config, "values": values}
        if out is None and not mutates:
            raise ArgumentError(
                f"{name}: shapes and dtypes of results are not known; give out=lambda x: ck.torch.like(x), or the "
                "arguments that are changed in place in mutates="
            )
    if given := [each for each, value in extra.items() if value]:
        raise ArgumentError(f"{name}: {given[0]}= is not for {type(function).__name__}")
    made: Callable[..., Any] | None = None
    if out is not None:
        made = taking(picked(name, "out", out, [role.name for role in work.takes]), len(work.takes))
    elif isinstance(function, Elementwise):
        made = broadcast(torch, name, function)
    op = registered(torch, name, work, made, isinstance(function, Elementwise) and out is None)
    if backward is not None:
        found = given_gradient(name, work, backward)
        gradient = lambda: found  # noqa: E731
    differentiated(op, name, work, gradient)
    if isinstance(function, Elementwise) and out is None:
        op.register_vmap(functools.partial(_batched, torch, op, work))
    return op


def _outputs(name: str, kernel: Kernel, out: Callable[..., Any] | None, values: Mapping[str, Any]) -> list[str]:
    """The parameters of a kernel that `out` makes: what is written, and `out` does not name."""
    if out is None:
        return []
    named = names_of(name, "out", out)
    found = [role.name for role in roles(name, kernel) if role.kind == "written"]
    if outputs := [each for each in found if each not in (*named, *values)]:
        return outputs
    raise ArgumentError(
        f"{name}: out makes outputs, and {kernel.name} has no parameter T* for them, beside what out takes "
        f"({', '.join(named)}); leave it out for a kernel that writes into its arguments alone"
    )


def _batched(torch: Any, op: Any, work: Work, info: Any, places: Sequence[int | None], *arguments: Any) -> Any:
    """What `torch.vmap` does with an elementwise op: the batch is the first dimension of all."""
    rank = max(arguments[k].dim() - (places[k] is not None) for k in work.arrays)
    given = list(arguments)
    for k in work.arrays:
        place = places[k]
        if place is not None:
            moved = arguments[k].movedim(place, 0)
            given[k] = moved.reshape(moved.shape[0], *(1,) * (rank - moved.dim() + 1), *moved.shape[1:])
    found = op(*given)
    return found, 0 if isinstance(found, torch.Tensor) else (0,) * len(found)
