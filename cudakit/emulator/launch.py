"""A checked call on the emulator: NumPy arrays and numbers become the bytes of a launch's parameters."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np

from cudakit.emulator.machine.geometry import Geometry
from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.machine.module import PROGRAMS, Module
from cudakit.emulator.ptx.parser import parse
from cudakit.emulator.ptx.program import Function, Program, as_compiled
from cudakit.emulator.resources.tensor_map import EmulatedTensorMap
from cudakit.emulator.streams.order import order
from cudakit.emulator.streams.stream import EmulatedStream
from cudakit.errors import ArgumentError, LaunchError
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.diagnostics import line_of_text
from cudakit.jit.launch import bind as binding
from cudakit.jit.launch.bind import evaluate
from cudakit.jit.launch.launch import accesses, tell_launch
from cudakit.jit.load.config import Config, Cover, spread
from cudakit.jit.load.limits import check_cooperative, check_launch
from cudakit.jit.specialise.parameters import Slot
from cudakit.jit.specialise.specialise import Specialization
from cudakit.streams.devices import Limits
from cudakit.streams.witnesses import Call
from cudakit.types.arguments import Argument

#: Limits of the arches that are emulated, as the CUDA programming guide's table of compute capabilities has them; the
#: multiprocessors are those of an A100 and an H200.
_SHARED_BYTES = {(8, 0): 163 * 1024, (8, 6): 99 * 1024, (8, 9): 99 * 1024, (9, 0): 227 * 1024}
_MULTIPROCESSORS = {(8, 0): 108, (9, 0): 132}
_RESIDENT_THREADS, _RESIDENT_BLOCKS = 2048, 32
_COVER_THREADS = 256


@dataclasses.dataclass
class Emulated:
    """A specialization for the emulator; later launches parse nothing, while the program is held."""

    specialization: Specialization
    compiled: Compiled
    slots: tuple[Slot, ...]
    module: Module

    @property
    def entry(self) -> Function:
        """The kernel in the program."""
        return self.module.program.functions[self.compiled.lowered[self.specialization.name_expression]]

    def variable(self, name: str) -> np.ndarray:
        """The bytes of a variable, by the name that the compiler gave it."""
        return self.module.symbols.storage[name]

    def placed(self, file: str, line: int) -> str:
        """A line of the compiler as its user knows it: of a text in a Python file, that file and its line there."""
        source = self.specialization.source
        if file not in (source.name, str(Path(source.name).absolute())):
            return as_compiled(file, line)
        shift, file = line_of_text(source)
        return as_compiled(file, line + shift - self.specialization.unnumbered_lines)


def prepare(specialization: Specialization, compiled: Compiled, slots: tuple[Slot, ...]) -> Emulated:
    """Parse compiled PTX and find the kernel in it."""

    def read() -> Program:
        return parse(compiled.code.decode())

    made = Emulated(specialization, compiled, slots, Module(read(), Memory(), read))
    if len(made.entry.parameters) != len(slots):
        raise ArgumentError(
            f"{specialization.name_expression}: the compiled kernel has {len(made.entry.parameters)} parameters, its "
            f"signature {len(slots)}"
        )
    return made


def check_arch(name: str, own: str | None, arch: str) -> None:
    """Check that code for a kernel's own arch runs on a device of `arch`, as machine code would.

    Raises
    ------
    LaunchError
    """
    if own is None:
        return
    made, here = limits_of(own).compute_capability, limits_of(arch).compute_capability
    if made[0] != here[0] or made > here:
        raise LaunchError(f"{name} is compiled for {own}, and this stream is the emulator's {arch}")


def launch(
    emulated: Emulated,
    stream: EmulatedStream,
    given: Config | Cover,
    described: Sequence[Argument],
    put_in: bool = True,
) -> None:
    """Check the arguments, run the kernel to its end.

    `put_in` says whether it waits for what must come before it, by what was declared; a plan has done so.

    Raises
    ------
    ArgumentError, LaunchError, EmulationError
    """
    if stream.recorder is not None:
        stream.recorder.launch(emulated, given, described)
        return
    specialization, module = emulated.specialization, emulated.module
    target = binding.Target(specialization.name_expression, 0, False)
    memory = module.memory
    added: list[int] = []
    packed = bytearray()
    # One launch at a time: a module's memory is one machine's, and work that waits for other work comes after it.
    with order().lock:
        PROGRAMS.use(module)
        entry = emulated.entry
        try:
            for slot, argument, variable in zip(emulated.slots, described, entry.parameters, strict=True):
                data = _bytes(slot, argument, target, variable.size)
                if argument.family == "memory":
                    added.append(memory.add(argument.value, slot.name, argument.evidence.readonly))
                elif isinstance(argument.value, EmulatedTensorMap):
                    tensor = argument.value.array
                    added.append(memory.add(tensor, f"the tensor of {slot.name}", not tensor.flags.writeable))
                packed += bytes(-len(packed) % max(1, variable.align)) + data[: variable.size].ljust(
                    variable.size, b"\0"
                )
            geometry = _geometry(emulated, stream, given)
            wanted = Launch(
                module,
                entry,
                geometry,
                bytes(packed),
                stream.output,
                step_budget=stream.step_budget,
                name=specialization.name_expression,
                placed=emulated.placed,
            )
            call = Call(emulated, given, tuple(described), tuple(argument.value for argument in described))
            used = accesses(emulated.slots, call.arguments) if order().watches else ((), ())
            with order().turn(stream, wanted.title, *used, put_in) as turn:
                tell_launch(turn.launch, stream, call, wanted)
        finally:
            for address in added:
                memory.remove(address)


def put_in(emulated: Emulated, stream: EmulatedStream, described: Sequence[Argument]) -> None:
    """Let `stream` wait for what must come before a launch with these arguments, as of now."""
    order().put_in(stream, *accesses(emulated.slots, [argument.value for argument in described]))


def _bytes(slot: Slot, argument: Argument, target: binding.Target, size: int) -> bytes:
    """The bytes that a parameter is given."""
    fragment = binding.bind(slot, argument, target, size, False)
    if argument.family == "memory":
        if slot.kind == "strided":
            return struct.pack(f"<Q{2 * slot.count}q", argument.pointer, *argument.shape, *argument.strides)
        return struct.pack("<Q", argument.pointer)
    value = evaluate(fragment, argument.value)
    if isinstance(value, EmulatedTensorMap):
        return value.data
    if isinstance(value, bytes):
        return value
    if isinstance(value, complex):
        return struct.pack("<2d", value.real, value.imag)
    return struct.pack("<d", value) if isinstance(value, float) else (value & (2**64 - 1)).to_bytes(8, "little")


def _geometry(emulated: Emulated, stream: EmulatedStream, given: Config | Cover) -> Geometry:
    name, directives = emulated.specialization.name_expression, emulated.entry.directives
    limits = limits_of(stream.arch)
    own = prod(directives.get("maxntid") or directives.get("reqntid") or (limits.threads_per_block,))
    config = spread(given, min(_COVER_THREADS, own)) if isinstance(given, Cover) else given
    static = emulated.module.symbols.static_bytes
    check_launch(name, config, limits, own, "set by its __launch_bounds__", static)
    if config.cooperative:
        warps = -(-prod(config.block) // 32)
        resident = min(_RESIDENT_BLOCKS, _RESIDENT_THREADS // (32 * warps))
        if static + config.shared_bytes:
            resident = min(resident, limits.shared_bytes // (static + config.shared_bytes))
        check_cooperative(name, config, limits, resident)
    return Geometry(
        config.grid, config.block, config.shared_bytes, config.cluster or (1, 1, 1), cooperative=config.cooperative
    )


def limits_of(arch: str) -> Limits:
    """What the emulated device of an arch allows a launch."""
    digits = arch.removeprefix("sm_").rstrip("af")
    capability = int(digits[:-1]), int(digits[-1])
    return Limits(
        name=f"the emulator's {arch}",
        arch=arch,
        compute_capability=capability,
        threads_per_block=1024,
        block=(1024, 1024, 64),
        grid=(2**31 - 1, 65_535, 65_535),
        shared_bytes=_SHARED_BYTES.get(capability, 227 * 1024),
        multiprocessors=_MULTIPROCESSORS.get(capability, 132),
        cooperative=True,
    )
