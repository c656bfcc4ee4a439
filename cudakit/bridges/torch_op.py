"""Kernels as ops of torch: with fake tensors, gradients, torch's streams, and the emulator for host tensors."""

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
    pick,
    places_of,
    refuse_options,
    roles,
    roles_of,
    taking,
)
from cudakit.errors import ArgumentError, CudakitError, shortened
from cudakit.generate.elementwise import Elementwise
from cudakit.kernel.kernel import Kernel
from cudakit.places import emulator
from cudakit.streams.order import order
from cudakit.types.arguments import as_numpy, torch_dtype

# Conversion of tensors, dtypes and streams.

_dtypes: dict[Any, np.dtype] = {}


def array_of(value: Any) -> Any:
    """Return a CuPy or NumPy array of a tensor's memory; return any other value unchanged."""
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


def layout_of(value: Any) -> Any:
    """Return (dtype, shape, strides) of a tensor; return the class of a number."""
    return (value.dtype, value.shape, value.stride()) if hasattr(value, "data_ptr") else type(value)


def dtype_of(tensor: Any) -> np.dtype:
    """Return NumPy's dtype of a tensor's elements.

    Raises
    ------
    ArgumentError
        For a dtype without a C++ type here.
    """
    dtype = _dtypes.get(tensor.dtype)
    if dtype is None:
        dtype = torch_dtype(tensor.dtype)
        if dtype is None:
            raise ArgumentError(f"torch tensor has dtype {tensor.dtype}, which has no C++ equivalent here")
        _dtypes[tensor.dtype] = dtype
    return dtype


def dtype_in_torch(dtype: np.dtype) -> Any:
    """Return torch's dtype for NumPy's.

    Raises
    ------
    ArgumentError
        For a dtype that torch lacks.
    """
    torch = library("torch", "a dtype", "pip install torch")
    result = getattr(torch, dtype.name, None)
    if not isinstance(result, torch.dtype):
        raise ArgumentError(f"torch has no dtype {dtype}")
    return result


def dtype_or_class(value: Any) -> np.dtype | type:
    """Return a tensor's dtype, or a number's class; torch's symbolic numbers count as numbers."""
    if hasattr(value, "data_ptr"):
        return dtype_of(value)
    value_class: type = type(value)
    return {"SymInt": int, "SymFloat": float, "SymBool": bool}.get(value_class.__name__, value_class)


def _start(value: Any) -> int:
    """Return the address of a tensor's or a CuPy array's memory; -1 for another object."""
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr())
    return int(getattr(getattr(value, "data", None), "ptr", -1))


class Streams:
    """Torch's streams: always the same object for the same stream, so that repeated launches recognize it."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._current = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        #: Returns whether torch's current stream, of its current device, is being captured.
        self.is_captured: Callable[[], bool] = torch.cuda.is_current_stream_capturing
        self._by_handle: dict[tuple[int, int], Any] = {}
        self._several: bool | None = None
        #: Whether ops have seen torch on another stream than its default stream.
        self.are_several: bool = False

    def are_elsewhere(self, device: int) -> bool:
        """Return whether a device, by its number, is not torch's current device."""
        if self._several is None:
            self._several = self._torch.cuda.device_count() > 1
        return self._several and device != self._torch.cuda.current_device()

    def of(self, device: int) -> Any:
        """Return torch's current stream on a device."""
        assert self._current is not None  # there are tensors on a GPU
        key = device, self._current(device)
        stream = self._by_handle.get(key)
        if stream is None:
            stream = self._by_handle[key] = self._torch.cuda.current_stream(device)
            self.are_several = self.are_several or key[1] != 0
        return stream

    def take_over(self, stream: Any, tensors: Sequence[Any]) -> None:
        """Have torch's allocator keep the memory of tensors until a stream is done with it.

        Any tensor may be from another stream's pool, whether or not cudakit has seen the tensor on that stream. To
        torch, a tensor that an op holds beyond its call is a leak, for example in a pool of CUDA graphs. So cudakit
        drops its own references to the tensors' memory. Memory of other libraries, which torch's allocator does not
        know, stays held.
        """
        for tensor in tensors:
            tensor.record_stream(stream)  # ignores memory of other allocators, and of this stream
        spans: list[tuple[int, int]] = []

        def still(things: Any) -> Any:
            if type(things) is not tuple:
                return things
            if not spans:
                for tensor in tensors:
                    storage = tensor.untyped_storage()
                    if storage.resizable():  # torch's allocator's own
                        spans.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
            return tuple([thing for thing in things if not any(first <= _start(thing) < last for first, last in spans)])

        order().hand_over(stream, still)


# Registration of an op with torch: its schema, and its implementations for devices and fake tensors.

#: Maximum of cached output layouts.
_MOST_LAYOUTS = 1024
#: Number types in a torch schema.
_NUMBERS = {"int": "SymInt", "float": "float", "bool": "bool", "complex": "complex", "any": "Scalar", "constant": "int"}


def like(tensor: Any, *, shape: Sequence[int] | None = None, dtype: Any = None) -> Any:
    """Make an uninitialised C-contiguous tensor on the device of another tensor, for ``out=`` of `op`.

    Parameters
    ----------
    tensor : torch.Tensor
        Tensor whose device, shape and dtype are used.
    shape : sequence of int, optional
        Shape of the result. Default: the tensor's.
    dtype : torch.dtype, optional
        Dtype of the result. Default: the tensor's.
    """
    return tensor.new_empty(tensor.shape if shape is None else shape, dtype=dtype)


def check_name(torch: Any, name: Any) -> None:
    """Raise for an op's name that is in use or invalid."""
    space, _, own = name.partition("::") if isinstance(name, str) else ("", "", "")
    if not (space.isidentifier() and own.isidentifier()):
        raise ArgumentError(f"an op of torch is called 'library::name', as in 'mylib::axpy'; got {shortened(name)}")
    if hasattr(getattr(torch.ops, space), own):
        raise ArgumentError(f"{name}: torch already has an op of this name; give another name, or use that op")


def broadcast(torch: Any, name: str, function: Elementwise) -> Callable[..., Any]:
    """Return a function that takes an elementwise function's arguments and makes its outputs, not initialised.

    They have the broadcast shape. A single output is not in a tuple. `name` is the op's name, for errors.

    Raises
    ------
    ArgumentError
        If an argument or an output of the function is raw.
    """
    recipe = function.recipe
    if raw := [p.name for p in (*recipe.inputs, *recipe.outputs) if p.raw]:
        raise ArgumentError(f"{name}: {raw[0]} is raw, so that the outputs' shapes are not known; give out=")

    def make_outputs(*arguments: Any) -> Any:
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
        dtypes = map(dtype_in_torch, function.result_dtypes(*map(dtype_or_class, arguments)))
        results = tuple(tensors[0].new_empty(shape, dtype=dtype) for dtype in dtypes)
        return results[0] if len(results) == 1 else results

    return make_outputs


def _schema(work: Work) -> str:
    """Return torch's schema of an op's arguments and outputs, ``(Tensor x, float a) -> Tensor``."""
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    parameters = []
    for role in work.takes:
        if role.category == "number":
            type_text = _NUMBERS[role.number]
        else:
            type_text = "Tensor" if role.category == "array" else f"Tensor({next(letters)}!)"
        parameters.append(f"{type_text} {role.name}")
    output_types = ["Tensor"] * len(work.outputs)
    outputs = output_types[0] if len(output_types) == 1 else f"({', '.join(output_types)})"
    return f"({', '.join(parameters)}) -> {outputs}"


def register(torch: Any, name: str, work: Work, make_outputs: Callable[..., Any] | None, is_plain: bool = False) -> Any:
    """Register an op with torch, for each type of device and for fake tensors; return the op.

    With `is_plain`, shapes and dtypes of the outputs depend only on those of the arguments, and are cached.
    """
    check_name(torch, name)
    run, arrays = work.run, work.arrays
    if not arrays:
        raise ArgumentError(f"{name}: none of its arguments is an array, which says where it works")
    first, count, tensor = arrays[0], len(work.outputs), torch.Tensor
    streams = Streams(torch)

    def results(arguments: Sequence[Any]) -> Any:
        """Make and check the op's outputs: a tensor or a tuple of tensors."""
        outputs = () if make_outputs is None else make_outputs(*arguments)
        if (count != 1 or not isinstance(outputs, tensor)) and not (
            isinstance(outputs, tuple) and len(outputs) == count
        ):
            raise ArgumentError(
                f"{name}: out= makes {', '.join(work.outputs)}: a tensor for each, as a tuple where there are several; "
                f"got {type(outputs).__name__}"
            )
        return outputs if count != 1 or isinstance(outputs, tensor) else outputs[0]

    layouts_by_key: dict[Any, list[tuple[Any, Any]]] = {}

    def looked_up(arguments: Sequence[Any]) -> Any:
        """Make the op's outputs from cached shapes and dtypes, which are those of `results`; not for fake tensors."""
        key = tuple([layout_of(argument) for argument in arguments])
        layouts = layouts_by_key.get(key)
        if layouts is None:
            outputs = results(arguments)
            if len(layouts_by_key) >= _MOST_LAYOUTS:
                layouts_by_key.clear()
            layouts_by_key[key] = [(output.shape, output.dtype) for output in ((outputs,) if count == 1 else outputs)]
            return outputs
        of = arguments[first].new_empty
        anew = [of(shape, dtype=dtype) for shape, dtype in layouts]
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
            # Torch orders the capture itself; a wait from here would break it.
            with order().capturing(stream, begun=True):
                return run_and_return(stream, arguments)
        result = run_and_return(stream, arguments)
        if streams.are_several or not order().single:
            outputs = () if count == 0 else (result,) if count == 1 else result
            streams.take_over(stream, [value for value in (*arguments, *outputs) if isinstance(value, tensor)])
        return result

    def run_and_return(stream: Any, arguments: Sequence[Any]) -> Any:
        if count == 0:
            run(stream, *arguments)
            return None
        outputs = new(arguments)
        if count == 1:
            run(stream, *arguments, outputs)
        else:
            run(stream, *arguments, *outputs)
        return outputs

    def on_host(*arguments: Any) -> Any:
        outputs = new(arguments)
        stream = emulator().current()
        run(stream, *arguments, *((outputs,) if count == 1 else outputs))
        stream.sync()
        return outputs if count else None

    changed = [role.name for role in work.takes if role.category == "written"]
    strides = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    op = torch.library.custom_op(
        name, on_gpu, mutates_args=changed, device_types="cuda", schema=_schema(work), tags=(strides,)
    )
    op.register_kernel("cpu", on_host)
    op.register_fake(lambda *arguments: results(arguments) if count else None)
    return op


# Gradients of ops of torch: from the user, or derived from an elementwise function.


def add_gradients(op: Any, name: str, work: Work, gradient: Callable[[], Gradient] | None) -> None:
    """Register an op's gradients with torch. `gradient` returns the `Gradient` at its first use.

    Without `gradient`, or if the op changes its arguments, an error for autograd is registered.

    Raises
    ------
    ArgumentError
        If there is a `gradient` for an op that changes its arguments.
    """
    if not work.outputs or any(role.category == "written" for role in work.takes):
        if gradient is not None:
            raise ArgumentError(f"{name} changes its arguments, and has no derivative; let it make outputs, by out=")

        def refused(ctx: Any, inputs: Any, output: Any) -> None:
            raise CudakitError(
                f"{name} changes its arguments, and has no derivative: give it tensors that need none, x.detach(), or "
                "call it under torch.no_grad()"
            )

        # register_autograd refuses such an op; without this hook the gradients would be lost silently.
        op._setup_context_fn = refused
        return
    if gradient is None:
        _without_gradient(op, name, "give ck.torch.op its backward=, or the op x.detach()")
        return
    arrays, count = work.arrays, len(work.takes)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        saved, others = [], {}
        for k in gradient().saved:
            if k >= count:
                saved.append(output[k - count] if isinstance(output, tuple) else output)
            elif k in arrays:
                saved.append(inputs[k])
            else:
                others[k] = inputs[k]
        if saved:
            ctx.save_for_backward(*saved)
        ctx.others = others
        ctx.layouts = [(inputs[k].shape, inputs[k].dtype) for k in arrays]

    def backwards(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        saved = [k for k in gradient().saved if k in arrays or k >= count]
        values = {**ctx.others, **dict(zip(saved, ctx.saved_tensors, strict=True))}
        needed = [ctx.needs_input_grad[k] for k in arrays]
        results_in_order = iter(gradient().of(values, gradients, needed))
        results: list[Any] = [None] * len(work.takes)
        for k, (shape, dtype), is_needed in zip(arrays, ctx.layouts, needed, strict=True):
            result = next(results_in_order)
            if is_needed and result is not None:
                result = result if result.shape == shape else result.sum_to_size(shape)
                results[k] = result if result.dtype == dtype else result.to(dtype)
        return tuple(results)

    op.register_autograd(backwards, setup_context=setup)


class Gradient(NamedTuple):
    """The computation of an op's gradients.

    Attributes
    ----------
    saved : tuple of int
        Indices of the arguments and outputs whose values the computation needs.
    of : callable
        ``of(values, gradients, needed)`` returns a gradient for each tensor among the arguments. It takes the saved
        values by index, the outputs' gradients, and whether each tensor's gradient is requested.
    """

    saved: tuple[int, ...]
    of: Callable[[Mapping[int, Any], Sequence[Any], Sequence[bool]], Sequence[Any]]


class Once:
    """The gradient that a function makes, called at the first use and only once, also with several threads."""

    def __init__(self, make: Callable[[], Gradient]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._result: Gradient | None = None

    def __call__(self) -> Gradient:
        with self._lock:
            if self._result is None:
                self._result = self._make()
            return self._result


def gradient_of_backward(name: str, work: Work, backward: Any) -> Gradient:
    """Return the gradient that the user passed as ``backward=``."""
    inputs = work.inputs
    names_and_gradients = (*work.names, *(f"d{output}" for output in work.outputs))
    is_op = isinstance(backward, Kernel | Elementwise)
    written: tuple[str, ...] = ()
    if is_op:
        function, own = _gradient_op(f"{name}_backward", backward, work)
        names, written = [role.name for role in own.takes], own.outputs
    else:
        function, names = backward, [*names_of(name, "backward", backward)]
    places = places_of(name, "backward", names, names_and_gradients)
    count = len(work.names)

    def of(values: Mapping[int, Any], gradients: Sequence[Any], needed: Sequence[bool]) -> Sequence[Any]:
        arguments = [values[k] if k < count else gradients[k - count] for k in places]
        if is_op:  # kernels need contiguous memory, and torch's gradients may have any strides
            arguments = [
                argument.contiguous() if k >= count else argument for k, argument in zip(places, arguments, strict=True)
            ]
        return gradients_in_order(name, function(*arguments), inputs, written, needed)

    return Gradient(tuple(k for k in places if k < count), of)


def _gradient_op(name: str, function: Kernel | Elementwise, work: Work) -> tuple[Any, Work]:
    """Register an op that computes gradients; return the op and its work.

    An output ``dx`` has shape and dtype of x.
    """
    torch = library("torch", name, "pip install torch")
    if isinstance(function, Kernel):
        own, sources = gradient_kernel(name, function)
        make_outputs: Callable[..., Any] = functools.partial(_alike, sources)
    else:
        numbers = {role.name for role in work.takes if role.category == "number"}
        own = of_elementwise(name, function, [*numbers & {p.name for p in function.recipe.inputs}], array_of, layout_of)
        make_outputs = broadcast(torch, name, function)
    check_gradients(name, own.outputs, work.inputs)
    op = register(torch, name, own, make_outputs, isinstance(function, Elementwise))
    _without_gradient(op, name, "the gradient of an op has none itself (double backward)")
    return op, own


def _alike(places: Sequence[int], *arguments: Any) -> Any:
    """Return empty tensors like the arguments at the indices `places`: one tensor, or a tuple of several.

    Shape, dtype and device are the argument's.
    """
    tensors = tuple(like(arguments[k]) for k in places)
    return tensors[0] if len(tensors) == 1 else tensors


def derived_gradient(name: str, function: Elementwise, work: Work) -> Gradient:
    """Return the gradient of an elementwise function, derived by SymPy."""
    torch = library("torch", name, "pip install torch")
    inputs = work.inputs
    gradients = derivatives(function, inputs)
    gradient_numbers = [role.name for role in work.takes if role.category == "number" and role.name in gradients.uses]
    tensors = roles_of(name, [*gradients.uses, *(f"d{output}" for output in work.outputs)], gradient_numbers)
    takes = (*tensors, Role("needed_", "number", "constant"))
    first = len(gradients.uses)
    works: dict[int, Work] = {}

    def requested_inputs(needed: int) -> list[str]:
        return [input_name for k, input_name in enumerate(inputs) if needed >> k & 1]

    def make_outputs(*arguments: Any) -> Any:
        like_output, needed = arguments[first], arguments[-1]
        if like_output.dtype.is_complex:
            raise ArgumentError(f"{name}: gradients of complex numbers are not derived; give backward=")
        results = [like(like_output, shape=None if needed >> k & 1 else (0,)) for k in range(len(inputs))]
        return results[0] if len(results) == 1 else tuple(results)

    def run(stream: Any, *operands: Any) -> None:
        inputs_and_gradients, needed, outputs = operands[: len(tensors)], operands[len(tensors)], operands[len(takes) :]
        gradient_work = works.get(needed)
        if gradient_work is None:
            gradient_work = works[needed] = of_elementwise(
                name, gradients.function(requested_inputs(needed)), gradient_numbers, array_of, layout_of
            )
        gradient_work.run(
            stream, *inputs_and_gradients, *(output for k, output in enumerate(outputs) if needed >> k & 1)
        )

    outputs = tuple(f"d{input_name}" for input_name in inputs)
    op = register(torch, f"{name}_gradient", Work(takes, outputs, run), make_outputs)
    _without_gradient(op, f"{name}_gradient", "the gradient of an op has none itself (double backward)")
    places = [work.names.index(use) for use in gradients.uses]

    def of(values: Mapping[int, Any], gradients: Sequence[Any], needed: Sequence[bool]) -> Sequence[Any]:
        mask = sum(1 << k for k, is_needed in enumerate(needed) if is_needed)
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
    """Make an op of torch of a kernel, an elementwise function or any function of arrays.

    The op works with autograd, ``torch.compile(fullgraph=True)``, ``torch.export`` and CUDA graphs. It runs on tensors
    of a GPU, on torch's current stream of their device, and on host tensors, by the emulator.

    Parameters
    ----------
    name : str
        ``"library::name"``, a name that no other op has.
    function : Kernel, Elementwise, or callable
        A kernel's parameters are the op's arguments, by their names. ``const T*`` are read; ``T*`` are outputs, or are
        changed in place. An elementwise function determines shapes and dtypes of its outputs. Another function takes
        and returns arrays of CuPy, or of NumPy on the host; it may have parameters ``out`` and ``stream``. Its
        arguments with a default keep it, unless they are in `numbers` or `mutates`.
    out : callable, optional
        Function that makes the outputs from some of the op's arguments, by their names: ``lambda a, x, y: like(x)``.
        Several outputs are a tuple. It is called with fake tensors too. A kernel's outputs are the ``T*`` that `out`
        does not name, in order.
    config : callable, optional
        Function that returns a kernel's configuration from some of the op's arguments and outputs, by their names.
        Default: a thread for each element of the first output, or of the first array if there are no outputs.
    values : mapping, optional
        Values of kernel parameters that are no arguments of the op: constants, or functions of arguments and outputs,
        ``{"n": lambda x: x.numel()}``. An integer called n or size that `out` does not name is the number of elements
        of the first output.
    numbers : sequence of str
        Arguments of a function, which is no kernel, that are numbers in place of tensors.
    mutates : sequence of str
        Arguments that a function, which is no kernel, changes.
    outputs : sequence of str
        Names of a function's results, for `backward`. Default: one result, ``out``.
    backward : Kernel, Elementwise or callable, optional
        Gradients. Its parameters are, by their names, arguments and outputs of the op, and ``dz``, the gradient of the
        output z. A kernel or an elementwise function writes ``dx``, the gradient of the argument x. Another function,
        of torch's ops, returns a gradient for each tensor, or None. Default for an elementwise function: derived by
        SymPy.

    Returns
    -------
    torch.library.CustomOpDef
        The op, called like ``torch.ops.library.name``.

    Raises
    ------
    ArgumentError
        For a name that is in use or invalid, and for options that do not fit the function.
    CudakitError
        If torch is not installed.

    Examples
    --------
    >>> axpy = ck.torch.op("mylib::axpy", kernel, out=lambda a, x, y: ck.torch.like(x))
    >>> z = axpy(2.0, x, y)
    """
    torch = library("torch", "ck.torch.op", "pip install torch")
    check_name(torch, name)
    gradient: Callable[[], Gradient] | None = None
    if isinstance(function, Kernel):
        out_names = names_of(name, "out", out) if out else ()
        work = of_kernel(name, function, _outputs(name, function, out, values or {}), config, values, out_names)
        extra: dict[str, Any] = {"numbers": numbers, "mutates": mutates, "outputs": outputs}
    elif isinstance(function, Elementwise):
        work = of_elementwise(name, function, numbers, array_of, layout_of)
        extra = {"config": config, "values": values, "mutates": mutates, "outputs": outputs}
        # Derived on demand, because SymPy is slow to import.
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
    make_outputs: Callable[..., Any] | None = None
    if out is not None:
        make_outputs = taking(pick(name, "out", out, [role.name for role in work.takes]), len(work.takes))
    elif isinstance(function, Elementwise):
        make_outputs = broadcast(torch, name, function)
    op = register(torch, name, work, make_outputs, isinstance(function, Elementwise) and out is None)
    if backward is not None:
        user_gradient = gradient_of_backward(name, work, backward)
        gradient = lambda: user_gradient  # noqa: E731
    add_gradients(op, name, work, gradient)
    if isinstance(function, Elementwise) and out is None:
        op.register_vmap(functools.partial(_batched, torch, op, work))
    return op


def _outputs(name: str, kernel: Kernel, out: Callable[..., Any] | None, values: Mapping[str, Any]) -> list[str]:
    """Return the names of the outputs that `out` makes: the kernel's written parameters that `out` does not take."""
    if out is None:
        return []
    out_names = names_of(name, "out", out)
    written = [role.name for role in roles(name, kernel) if role.category == "written"]
    if outputs := [parameter for parameter in written if parameter not in (*out_names, *values)]:
        return outputs
    raise ArgumentError(
        f"{name}: out makes outputs, and {kernel.name} has no parameter T* for them, beside what out takes "
        f"({', '.join(out_names)}); leave it out for a kernel that writes into its arguments alone"
    )


def _batched(torch: Any, op: Any, work: Work, info: Any, places: Sequence[int | None], *arguments: Any) -> Any:
    """Run an elementwise op under `torch.vmap`, with the batch as the first dimension of all batched arguments.

    `places` has the batch's dimension in each argument, or None. Return the results, and the batch's dimension in
    each result: 0.
    """
    rank = max(arguments[k].dim() - (places[k] is not None) for k in work.arrays)
    batched = list(arguments)
    for k in work.arrays:
        place = places[k]
        if place is not None:
            moved = arguments[k].movedim(place, 0)
            batched[k] = moved.reshape(moved.shape[0], *(1,) * (rank - moved.dim() + 1), *moved.shape[1:])
    results = op(*batched)
    return results, 0 if isinstance(results, torch.Tensor) else (0,) * len(results)
