"""Products of matrices by tile kernels: operands as TMA reads them, copied where it cannot, and the launch."""

from __future__ import annotations

import functools
from math import prod
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from cudakit.arrays.layout import flat, span, steps_of
from cudakit.arrays.place import ArrayPlace, address_of, device_limits
from cudakit.errors import CompileError
from cudakit.jit.cache.stages import compiled_of
from cudakit.jit.load.load import loadable
from cudakit.kernel.kernel import Kernel
from cudakit.ops.epilogue import Activation
from cudakit.ops.matmul_plan import Choice, Lying, Product, choose, kind, lying, product
from cudakit.ops.move_plan import copy_job
from cudakit.ops.pad import pad_job

#: How a product is made: by tile kernels, or by kernels of threads.
Way: TypeAlias = Literal["tiles", "threads"]
#: What the addresses of rows must be multiples of for TMA.
_ROW_BYTES = 16
#: From this extent on without TMA a product takes so much longer that a copy is made first.
_WORTH = 128
#: From so many uses of each element on A is turned for TF32: the copy takes less than what a product by columns loses.
_WORTH_TURNING = 1024


class Taken(NamedTuple):
    """How the kernel finds an operand, and why it is a copy of it, or None."""

    lying: Lying
    reason: str | None


class Tiled(NamedTuple):
    """A product by tiles: operands of one batch, those that are copies for that, how they are taken, and the launch."""

    a: Any
    b: Any
    copied: tuple[str, ...]
    left: Taken
    right: Taken
    choice: Choice
    product: Product

    def run(self, place: ArrayPlace, bias: Any, residual: Any, c: Any, scale: float) -> None:
        """Launch it, once operands are copied that are not read as they lie."""
        a, b = _operand(place, self.a, self.left), _operand(place, self.b, self.right)
        # What the instance does not read may be anything.
        extras = (c if bias is None else bias), (c if residual is None else residual)
        place.launch(self.product.kernel, self.product.config, a, b, *extras, c, scale, *self.product.numbers)

    def told(self) -> list[str]:
        """Which tiles, and how the operands are read."""
        tiles, why = self.choice
        lines = [f"{tiles.m} × {tiles.n} × {tiles.k}, {tiles.warps} warps, {tiles.ctas} CTAs: {why}"]
        for name, taken in (("a", self.left), ("b", self.right)):
            as_it_lies = f"read as it lies{', turned' if taken.lying.turned else ''}"
            reason = "its batch is not one of rows as far apart" if name in self.copied else taken.reason
            lines.append(f"{name}: {f'copied first, for {reason}' if reason else as_it_lies}")
        return lines


def tiled(
    place: ArrayPlace, a: Any, b: Any, made: np.dtype, activation: Activation, extras: list[Any], written: Any
) -> Tiled:
    """The product of `a` and `b`; `extras` are bias and residual or None, `written` the result or None."""
    given = a, b
    a, b = _of_one_batch(place, a, b)
    copied = tuple(n for n, x, y in zip("ab", given, (a, b), strict=True) if address_of(x) != address_of(y))
    batches, (m, k), n = prod(a.shape[:-2]), a.shape[-2:], b.shape[-1]
    right = _taken(place, b, m)
    left = _taken(place, a, n, right.lying)
    of_c = Lying(False, n, m * n if batches > 1 else 0)
    choice = choose(kind(a.dtype.itemsize, left.lying.turned, right.lying.turned), batches, m, n, k, place.device)
    read = [x for x, taken in ((a, left), (b, right)) if taken.reason is None]
    others = [x for x in (*extras, written) if x is not None]
    found = product(
        a.dtype,
        made,
        activation,
        (left.lying, right.lying, of_c),
        (batches, m, n, k),
        (place.alignment(*(flat_of(x) for x in read)), place.alignment(*others)),
        (extras[0] is not None, extras[1] is not None),
        choice.tiles,
        place.device,
    )
    return Tiled(a, b, copied, left, right, choice, found)


def flat_of(x: Any) -> Any:
    """The memory that an array reaches."""
    return x if x.flags.c_contiguous else flat(x, *span(x.shape, steps_of("matmul", x.dtype, x.strides)))


@functools.lru_cache(1024)
def missing(kernel: Kernel, device: int | str) -> str | None:
    """Why a tile kernel cannot be had on a device, or None."""
    arch = device_limits(device).arch
    wanted = kernel.specialization(arch=arch, target="tileir" if isinstance(device, str) else "cubin")
    try:
        compiled_of(loadable(wanted))
    except CompileError as error:
        return str(error).splitlines()[0]
    return None


def _of_one_batch(place: ArrayPlace, a: Any, b: Any) -> tuple[Any, Any]:
    """Operands of which both have the same batch, or neither any: one product of many rows where B is one matrix."""
    if prod(b.shape[:-2]) == 1:
        b = b.reshape(b.shape[-2:])
        return (place.contiguous(a).reshape(-1, a.shape[-1]) if a.ndim > 2 else a), b
    if a.shape[:-2] != b.shape[:-2]:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (
            x if x.shape[:-2] == batch else place.contiguous(place.xp.broadcast_to(x, (*batch, *x.shape[-2:])))
            for x in (a, b)
        )
    return a, b


def _operand(place: ArrayPlace, x: Any, taken: Taken) -> Any:
    """A matrix or batch as memory: a copy, with rows for TMA, where the kernel could not take it, or only slowly."""
    shape, dtype = x.shape, x.dtype
    if taken.reason is None:
        return flat_of(x)
    *around, rows, columns = shape
    pitch = taken.lying.pitch
    made = place.empty((*around, rows, pitch), dtype)
    if pitch > columns:
        # What is padded is stored 16 bytes at a time; a copy into a part of each row is not.
        widths = (*((0, 0) for _ in shape[:-1]), (0, pitch - columns))
        pad_job(dtype, shape, x.strides, widths, "constant", b"", None).run(place, x, made)
    else:
        copy_job("matmul", dtype, shape, x.strides, None, None).run(place, x, made)
    return made


def _taken(place: ArrayPlace, x: Any, uses: int, beside: Lying | None = None) -> Taken:
    """How the kernel finds an operand, of which each element is used so often; `beside` is how B lies, for A."""
    found = lying(x.shape, x.strides, x.dtype.itemsize)
    reason = _reason_to_copy(place, x, found, uses, beside)
    if found is not None and reason is None:
        return Taken(found, None)
    rows, columns = x.shape[-2:]
    pitch = -(-columns * x.dtype.itemsize // _ROW_BYTES) * _ROW_BYTES // x.dtype.itemsize
    return Taken(Lying(False, pitch, rows * pitch if x.ndim > 2 else 0), reason)


def _reason_to_copy(place: ArrayPlace, x: Any, found: Lying | None, uses: int, beside: Lying | None) -> str | None:
    """Why an operand is copied first, or None."""
    if found is None:
        return "no axis of it is contiguous"
    steps = (found.pitch, found.step)
    slow = place.alignment(x) < _ROW_BYTES or any(step * x.dtype.itemsize % _ROW_BYTES for step in steps)
    if slow and min(uses, *x.shape[-2:]) >= _WORTH:
        return f"its address or pitch is no multiple of {_ROW_BYTES} bytes"
    if x.dtype.itemsize == 4 and found.turned and beside and not beside.turned and uses >= _WORTH_TURNING:
        return "TF32 is multiplied by rows of B with rows of A"
    return None
