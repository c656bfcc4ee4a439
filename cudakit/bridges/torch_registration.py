"""Registration of an op with torch: its schema, its work on each kind of device and on fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cudakit.bridges.tensors import Streams, dtype_in_torch, kind_of, told
from cudakit.bridges.work import Work
from cudakit.errors import ArgumentError, shortened
from cudakit.generate.elementwise import Elementwise
from cudakit.places import emulator
from cudakit.streams.order.order import order

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
