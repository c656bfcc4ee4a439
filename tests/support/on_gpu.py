"""Runs a kernel on a GPU on copies of host arrays, as the emulator runs it on the arrays themselves."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

import cudakit as ck
from cudakit.emulator.resources.texture import TENSOR_MAP, EmulatedTensorMap
from cudakit.jit.load.config import as_launch_config

#: Copies begin at the same place of such a line as what they are copies of.
_LINE = 1024


class Copies:
    """Copies in device memory of host arrays; those that are parts of one array are parts of one copy."""

    def __init__(self) -> None:
        #: For each array that is part of no other: itself, the memory of its copy, and where in it the copy begins.
        self._held: dict[int, tuple[np.ndarray, Any, int]] = {}

    def of(self, given: Any) -> Any:
        """The copy of an array or of a tensor map's; anything else is given back."""
        if isinstance(given, EmulatedTensorMap):
            return self._map(given)
        if isinstance(given, np.ndarray) and given.shape:
            return self._array(given)
        return given

    def take_back(self) -> None:
        """Write what the copies hold to the arrays."""
        for whole, room, start in self._held.values():
            if whole.flags.writeable:
                whole.reshape(-1).view(np.uint8)[:] = room[start : start + whole.nbytes].get()

    def _array(self, array: np.ndarray) -> Any:
        import cupy

        whole = array
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        if id(whole) not in self._held:
            room = cupy.zeros(whole.nbytes + 2 * _LINE, cupy.uint8)
            start = (_address(whole) - room.data.ptr) % _LINE
            room[start : start + whole.nbytes] = cupy.asarray(np.ascontiguousarray(whole).reshape(-1).view(np.uint8))
            self._held[id(whole)] = whole, room, start
        _, room, start = self._held[id(whole)]
        return cupy.ndarray(
            array.shape, array.dtype, room.data + (start + _address(array) - _address(whole)), array.strides
        )

    def _map(self, given: EmulatedTensorMap) -> Any:
        record = np.frombuffer(given.data, TENSOR_MAP)[0]
        rank = int(record["rank"])
        box, steps = ([int(n) for n in record[field][:rank][::-1]] for field in ("box", "element_strides"))
        swizzle: Any = next(name for name, span in given.SWIZZLES.items() if span == record["swizzle"])
        fill: Any = "nan" if record["nan"] else "zero"
        precision: Any = "tf32" if record["kind"] == b"tf32" else None
        options = {"swizzle": swizzle, "fill": fill, "precision": precision}
        return ck.tensor_map(self._array(given.array), box, element_strides=steps, **options)


def call(kernel: ck.Kernel, config: ck.Config, *arguments: Any) -> None:
    """Call a kernel."""
    stream, copies = ck.stream(), Copies()
    with ck.using(stream):
        kernel(stream, config, *map(copies.of, arguments))
        copies.take_back()


def launch(ptx: str, entry: str, config: ck.Config, *arguments: np.ndarray | int) -> None:
    """Launch an entry of a PTX program with pointers and 64-bit integers."""
    from cuda.core import ObjectCode
    from cuda.core import launch as enqueue

    stream, copies = ck.stream(), Copies()
    with ck.using(stream):
        compiled = ObjectCode.from_ptx(ptx.encode()).get_kernel(entry)
        # The bits of an array's address, and of a number of either sign.
        held = [copies.of(given.view(np.uint8)) if isinstance(given, np.ndarray) else given for given in arguments]
        words = [ctypes.c_int64(given if isinstance(given, int) else given.data.ptr) for given in held]
        enqueue(stream, as_launch_config(config), compiled, *words)
        copies.take_back()


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
