"""A program with its variables in memory: what is kept between launches.

The variables stay as long as the module. What is decoded is large, and made again from the text where it is gone:
`PROGRAMS` lets go of what was used least recently.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import prod
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from cudakit.emulator.machine.decode import Context, Decoded, Linked, Symbols, decode
from cudakit.emulator.machine.kernel_memory import SharedLayout, reached, recurses, shared_layout
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.machine.state import LOCAL_BYTES, Geometry
from cudakit.emulator.ptx.program import Function, Program
from cudakit.errors import EmulationError


class Module:
    """A program with its variables in memory; made once, launched many times.

    Parameters
    ----------
    program : Program
    memory : Memory
    read : callable, optional
        Gives the program again, after `release`.
    linked : Linked, optional
        What it shares with other programs, in the same memory.
    """

    def __init__(
        self, program: Program, memory: Memory, read: Callable[[], Program] | None = None, linked: Linked | None = None
    ) -> None:
        self.program = program
        self.memory = memory
        self.symbols: Symbols = Symbols(program, memory, linked or Linked())
        self._read = read
        self._decoded: dict[str, list[Decoded]] = {}
        #: By kernel, which machine ran it last, and why.
        self.ran: dict[str, tuple[str, str]] = {}
        self._contexts: dict[str, Context] = {}
        #: What other machines have made of the program, by machine; it goes when the program does.
        self.compiled: dict[object, Any] = {}
        self._recursive: dict[str, bool] = {}
        self._shared: dict[str, SharedLayout] = {}
        #: The driver's words for a grid that synchronises: size and barrier (cooperative_groups' driver_abi.h).
        self.grid_barrier: np.ndarray = np.zeros(2, np.uint32)
        self.grid_barrier_address: int = memory.add(self.grid_barrier, "the grid's barrier")

    @cached_property
    def program(self) -> Program:
        """The program, read again where it was let go of."""
        assert self._read is not None
        return self._read()

    @cached_property
    def functions(self) -> list[Function]:
        """The program's functions by their numbers."""
        return list(self.program.functions.values())

    def release(self) -> None:
        """Let go of the program and what was decoded of it; the variables, and pointers to functions, stay valid."""
        if self._read is not None:
            self._decoded.clear()
            self._contexts.clear()
            self.compiled.clear()
            for name in ("program", "functions"):
                self.__dict__.pop(name, None)

    def context(self, function: Function) -> Context:
        """Layout of a function's registers, shared and local variables."""
        if function.name not in self._contexts:
            self._contexts[function.name] = Context(self.symbols, function)
        return self._contexts[function.name]

    def decoded(self, function: Function) -> list[Decoded]:
        """The function's instructions, decoded at its first use."""
        if function.name not in self._decoded:
            context = self.context(function)
            self._decoded[function.name] = [decode(instruction, context) for instruction in function.code]
        return self._decoded[function.name]

    def recurses(self, function: Function) -> bool:
        """Whether a function may come to call itself, looked into once."""
        if function.name not in self._recursive:
            self._recursive[function.name] = recurses(self.program, function)
        return self._recursive[function.name]

    def reached(self, function: Function) -> list[Function]:
        """The function and the device functions that it may come to."""
        return reached(self.program, function)

    def shared(self, kernel: str) -> SharedLayout:
        """Shared memory of a kernel's blocks, by its name in the program."""
        if kernel not in self._shared:
            self._shared[kernel] = shared_layout(self.program, self.program.functions[kernel])
        return self._shared[kernel]


class Programs:
    """The modules whose programs are held, the most recently used last.

    Parameters
    ----------
    most : int
        Instructions that they may have together; the module that is used is held whatever it has.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._sizes: WeakKeyDictionary[Module, int] = WeakKeyDictionary()
        self._latest: ref[Module] | None = None

    @property
    def instructions(self) -> int:
        """Of all programs that are held."""
        return sum(self._sizes.values())

    def use(self, module: Module) -> None:
        """A module is launched now: others may have to go."""
        if self._latest is not None and self._latest() is module:
            return
        self._latest = ref(module)
        size = self._sizes.pop(module, None)
        self._sizes[module] = size or sum(len(function.code) for function in module.functions)
        while size is None and self.instructions > self.most and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest]
            oldest.release()


#: An instruction takes about 3 KB once it is decoded, and 0.2 ms to be decoded again.
PROGRAMS = Programs(1 << 17)


# ── blocks that run at once ──

#: Lanes that run at once; blocks beyond them run after.
MOST_LANES = 65_536
#: Bytes of registers, shared and local memory that the blocks at once may take; fewer run at once to keep to it.
USUAL_BYTES = 1 << 30
#: What one cluster, or a grid that synchronises, may take at most, and what the frames of nested calls may.
MOST_BYTES = 4 << 30
#: A recursion keeps the registers of each depth; so many times fewer lanes run at once.
_RECURSION = 16


def blocks_at_once(module: Module, entry: Function, geometry: Geometry, title: str) -> int:
    """Blocks of a launch that run at once: whole clusters, all blocks of a grid that synchronises.

    `title` is what messages call the kernel.

    Raises
    ------
    EmulationError
        If they take more memory than the emulator gives.
    """
    context = module.context(entry)
    if context.local_bytes > LOCAL_BYTES:
        raise EmulationError(
            f"{title}: the variables of a thread in local memory are {context.local_bytes} bytes, over the "
            f"limit of {LOCAL_BYTES} bytes a thread"
        )
    cluster = prod(geometry.cluster)
    block_bytes = module.shared(entry.name).static_bytes + geometry.shared_bytes + geometry.threads * context.lane_bytes
    least = geometry.blocks if geometry.cooperative else cluster
    if least * block_bytes > MOST_BYTES:
        raise EmulationError(
            f"{title}: {least} blocks that must run at once take {least * block_bytes} bytes of registers, "
            f"shared and local memory, and {MOST_BYTES} are available; use smaller blocks, fewer of them or less memory"
        )
    if geometry.cooperative:
        return geometry.blocks
    lanes = MOST_LANES // _RECURSION if module.recurses(entry) else MOST_LANES
    clusters = min(lanes // (geometry.threads * cluster), USUAL_BYTES // (block_bytes * cluster))
    return max(1, clusters) * cluster
