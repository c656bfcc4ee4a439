"""Kernels as ops of torch: with fake tensors, gradients, torch's streams, and the emulator for tensors on the host."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cudakit.bridges.derivative import derivatives
from cudakit.bridges.work import (
    Role,
    Work,
    check_gradients,
    gradient_kernel,
    gradients_in_order,
    library,
    names_of,
    of_elementwise,
    of_function,
    of_kernel,
    picked,
    places_of,
    refuse_options,
    roles,
    taken,
    taking,
)
from cudakit.errors import ArgumentError, CudakitError, shortened
from cudakit.generate.elementwise import Elementwise
from cudakit.kernel.kernel import Kernel
from cudakit.places import emulator
from cudakit.streams.order import order
from cudakit.types.arguments import as_numpy, torch_dtype

# Tensors: as arrays of CuPy or NumPy, their dtypes, and torch's streams.

_dtypes: dict[Any, np.dtype] = {}


def array_of(value: Any) -> Any:
    """CuPy's or NumPy's array of a tensor's memory; any other value as it is."""
    if not hasattr(value, "data_ptr"):
        return value
    if not value.is_cuda:
        return as_numpy(value)
    import cupy

    dtype = dtype_of(value)
    span = sum((extent - 1) * step for extent, step in zip(value.shape, value.stride(), strict=True)) + 1
    memory = cupy.cuda.UnownedMemory(value.data_ptr(), span * dtype.itemsize, value, value.get_device())
    strides = tuple([step * dtype.itemsize for step in value.stride()])
    return cupy.ndarray(tuple(value.shape), dtype, cupy.cuda.MemoryPointer(memory, 0), strides)


def told(value: Any) -> Any:
    """How a tensor lies; the class of a number."""
    return (value.dtype, value.shape, value.stride()) if hasattr(value, "data_ptr") else type(value)


def dtype_of(tensor: Any) -> np.dtype:
    """NumPy's dtype of a tensor's elements.

    Raises
    ------
    ArgumentError
    """
    found = _dtypes.get(tensor.dtype)
    if found is None:
        found = torch_dtype(tensor.dtype)
        if found is None:
            raise ArgumentError(f"torch tensor has dtype {tensor.dtype}, which has no C++ equivalent here")
        _dtypes[tensor.dtype] = found
    return found


def dtype_in_torch(dtype: np.dtype) -> Any:
    """The dtype of torch's for NumPy's.

    Raises
    ------
    ArgumentError
    """
    torch = library("torch", "a dtype", "pip install torch")
    found = getattr(torch, dtype.name, None)
    if not isinstance(found, torch.dtype):
        raise ArgumentError(f"torch has no dtype {dtype}")
    return found


def kind_of(value: Any) -> np.dtype | type:
    """A tensor's dtype, or a number's class, torch's symbols too."""
    if hasattr(value, "data_ptr"):
        return dtype_of(value)
    kind: type = type(value)
    return {"SymInt": int, "SymFloat": float, "SymBool": bool}.get(kind.__name__, kind)


def _start(value: Any) -> int:
    """Where the memory of a tensor of torch or an array of CuPy begins; -1 of anything else."""
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr())
    return int(getattr(getattr(value, "data", None), "ptr", -1))


class Streams:
    """Streams of torch's, one object each, so that launches know them."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._current = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        #: Whether torch's current stream, of its current device, is being captured.
        self.is_captured: Callable[[], bool] = torch.cuda.is_current_stream_capturing
        self._known: dict[tuple[int, int], Any] = {}
        self._several: bool | None = None
        #: Whether torch has worked on another stream than its default one, as far as ops have seen.
        self.are_several: bool = False

    def are_elsewhere(self, device: int) -> bool:
        """Whether a device is another than torch's current one."""
        if self._several is None:
            self._several = self._torch.cuda.device_count() > 1
        return self._several and device != self._torch.cuda.current_device()

    def of(self, device: int) -> Any:
        """The stream that torch works on now, on a device."""
        assert self._current is not None  # there are tensors on a GPU
        key = device, self._current(device)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._torch.cuda.current_stream(device)
            self.are_several = self.are_several or key[1] != 0
        return found

    def take_over(self, stream: Any, tensors: Sequence[Any]) -> None:
        """Let torch's allocator keep tensors' memory until a stream is done with it.

        Any tensor may be of another stream's pool, whether or not cudakit has seen it there. A tensor that an op holds
        beyond its call is a leak to torch, in a pool of CUDA graphs for one: where cudakit holds them, it lets go.
        Memory of others, which torch's allocator does not know, stays held.
        """
        for tensor in tensors:
            tensor.record_stream(stream)  # which passes over memory that is not the allocator's, or is the stream's
        spans: list[tuple[int, int]] = []

        def still(things: Any) -> Any:
            if type(things) is not tuple:
                return things
            if not spans:
                for tensor in tensors:
                    storage = tensor.untyped_storage()
                    if storage.resizable():  # torch's allocator's own
                        spans.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
            return tuple([each for each in things if not any(first <= _start(each) < last for first, last in spans)])

        order().hand_over(stream, still)


# Registration of an op with torch: its schema, its work on each kind of device and on fake tensors.

#: Kinds of arguments whose outputs are known.
_MOST_KINDS = 1024
#: What a schema calls numbers.
_NUMBERS = {"int": "SymInt", "float": "float", "bool": "bool", "complex": "complex", "any": "Scalar", "constant": "int"}


def like(tensor: Any, *, shape: Sequence[int] | None = None, dtype: Any = None) -> Any:
    """A new tensor on the device of another, C-contiguous, not initialised: what `op` takes as ``out=``.

    Parameters
    ----------
    tensor : torch.Tensor
    shape : sequence of int, optional
        Left out, the tensor's.
    dtype : torch.dtype, optional
        Left out, the tensor's.
    """
    return tensor.new_empty(tensor.shape if shape is None else shape, dtype=dtype)


def check_name(torch: Any, name: Any) -> None:
    """Raise for a name that is taken or is none."""
    space, _, own = name.partition("::") if isinstance(name, str) else ("", "", "")
    if not (space.isidentifier() and own.isidentifier()):
        raise ArgumentError(f"an op of torch is called 'library::name', as in 'mylib::axpy'; got {shortened(name)}")
    if hasattr(getattr(torch.ops, space), own):
        raise ArgumentError(f"{name}: torch has an op of that name already; give this one another, or keep that one")


def broadcast(torch: Any, name: str, function: Elementwise) -> Callable[..., Any]:
    """What makes the outputs of an elementwise function."""
    recipe = function.recipe
    if raw := [p.name for p in (*recipe.inputs, *recipe.outputs) if p.raw]:
        raise ArgumentError(f"{name}: {raw[0]} is raw, so that the outputs' shapes are not known; give out=")

    def made(*arguments: Any) -> Any:
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
        dtypes = map(dtype_in_torch, function.result_dtypes(*map(kind_of, arguments)))
        results = tuple(tensors[0].new_empty(shape, dtype=dtype) for dtype in dtypes)
        return results[0] if len(results) == 1 else results

    return made


def _schema(work: Work) -> str:
    """The op's arguments and outputs, as torch writes them."""
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    found = []
    for role in work.takes:
        if role.kind == "number":
            kind = _NUMBERS[role.number]
        else:
            kind = "Tensor" if role.kind == "array" else f"Tensor({next(letters)}!)"
        found.append(f"{kind} {role.name}")
    made = ["Tensor"] * len(work.outputs)
    return f"({', '.join(found)}) -> {made[0] if len(made) == 1 else '(' + ', '.join(made) + ')'}"


def registered(torch: Any, name: str, work: Work, made: Callable[..., Any] | None, is_plain: bool = False) -> Any:
    """The op, with its work on each kind of device and on fake tensors.

    Where it `is_plain`, shapes and dtypes of its outputs come from those of its arguments alone, and are looked up.
    """
    check_name(torch, name)
    run, arrays = work.run, work.arrays
    if not arrays:
        raise ArgumentError(f"{name}: none of its arguments is an array, which says where it works")
    first, count, tensor = arrays[0], len(work.outputs), torch.Tensor
    streams = Streams(torch)

    def results(arguments: Sequence[Any]) -> Any:
        """New outputs, a tensor or a tuple of them."""
        found = () if made is None else made(*arguments)
        if (count != 1 or not isinstance(found, tensor)) and not (isinstance(found, tuple) and len(found) == count):
            raise ArgumentError(
                f"{name}: out= makes {', '.join(work.outputs)}: a tensor for each, as a tuple where there are several; "
                f"got {type(found).__name__}"
            )
        return found if count != 1 or isinstance(found, tensor) else found[0]

    kinds: dict[Any, list[tuple[Any, Any]]] = {}

    def looked_up(arguments: Sequence[Any]) -> Any:
        """The same as `results`, of tensors that are no fake ones."""
        kind = tuple([told(each) for each in arguments])
        known = kinds.get(kind)
        if known is None:
            found = results(arguments)
            if len(kinds) >= _MOST_KINDS:
                kinds.clear()
            kinds[kind] = [(each.shape, each.dtype) for each in ((found,) if count == 1 else found)]
            return found
        of = arguments[first].new_empty
        anew = [of(shape, dtype=dtype) for shape, dtype in known]
        return anew[0] if count == 1 else tuple(anew)

    new = looked_up if is_plain else results

    def on_gpu(*arguments: Any) -> Any:
        device = arguments[first].get_device()
        if device < 0:
            raise ArgumentError(f"{name}: {work.takes[first].name} is on the host and others are on a GPU; move one")
        if streams.are_elsewhere(device):
            with torch.cuda.device(device):
                return on_gpu(*arguments)
        stream = streams.of(device)
        if streams.is_captured():
            # The capture comes after what it needs by torch's means, and would be broken off by a wait of ours.
            with order().capturing(stream, begun=True):
                return worked(stream, arguments)
        found = worked(stream, arguments)
        if streams.are_several or not order().single:
            outputs = () if count == 0 else (found,) if count == 1 else found
            streams.take_over(stream, [each for each in (*arguments, *outputs) if isinstance(each, tensor)])
        return found

    def worked(stream: Any, arguments: Sequence[Any]) -> Any:
        if count == 0:
            run(stream, *arguments)
            return None
        found = new(arguments)
        if count == 1:
            run(stream, *arguments, found)
        else:
            run(stream, *arguments, *found)
        return found

    def on_host(*arguments: Any) -> Any:
        found = new(arguments)
        stream = emulator().current()
        run(stream, *arguments, *((found,) if count == 1 else found))
        stream.sync()
        return found if count else None

    changed = [role.name for role in work.takes if role.kind == "written"]
    strides = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    op = torch.library.custom_op(
        name, on_gpu, mutates_args=changed, device_types="cuda", schema=_schema(work), tags=(strides,)
    )
    op.register_kernel("cpu", on_host)
    op.register_fake(lambda *arguments: results(arguments) if count else None)
    return op


# Gradients of ops of torch: given, or derived of an elementwise function and generated.


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
    written: tuple[str, ...] = ()
    if is_op:
        function, own = _gradient_op(f"{name}_backward", backward, work)
        names, written = [role.name for role in own.takes], own.outputs
    else:
        function, names = backward, [*names_of(name, "backward", backward)]
    places = places_of(name, "backward", names, known)
    given = len(work.names)

    def of(values: Mapping[int, Any], gradients: Sequence[Any], needed: Sequence[bool]) -> Sequence[Any]:
        arguments = [values[k] if k < given else gradients[k - given] for k in places]
        if is_op:  # kernels take memory as it lies, and gradients come as torch has them
            arguments = [each.contiguous() if k >= given else each for k, each in zip(places, arguments, strict=True)]
        return gradients_in_order(name, function(*arguments), inputs, written, needed)

    return Gradient(tuple(k for k in places if k < given), of)


def _gradient_op(name: str, function: Kernel | Elementwise, work: Work) -> tuple[Any, Work]:
    """An op of gradients, and what it does: its outputs ``dx`` are like the arguments x."""
    torch = library("torch", name, "pip install torch")
    if isinstance(function, Kernel):
        own, sources = gradient_kernel(name, function)
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
    refuse_options(name, function, extra)
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
