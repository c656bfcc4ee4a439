"""A checked call on the emulator: NumPy arrays and numbers become the bytes of a launch's parameters."""

from __future__ import annotations

import contextlib
import dataclasses
import struct
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from cudakit.emulator.arguments import describe_host
from cudakit.emulator.machine.geometry import Geometry
from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.machine.module import PROGRAMS, Module
from cudakit.emulator.machine.symbols import Linked
from cudakit.emulator.ptx.parser import parse
from cudakit.emulator.ptx.program import Function, Program, as_compiled
from cudakit.emulator.resources.allocations import room
from cudakit.emulator.resources.tensor_map import EmulatedTensorMap
from cudakit.emulator.streams.order import order
from cudakit.emulator.streams.stream import EmulatedStream
from cudakit.errors import LaunchError
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.diagnostics import line_of_text
from cudakit.jit.compile.symbol_names import common_name
from cudakit.jit.launch.bind import Fragment, Mismatch, Target, bind, evaluate
from cudakit.jit.launch.plan import Plan
from cudakit.jit.launch.tell import accesses, tell_launch
from cudakit.jit.load.config import Config, Cover, as_config, is_empty, spread
from cudakit.jit.load.image import Code, Image
from cudakit.jit.load.limits import check_cooperative, check_launch
from cudakit.jit.load.load import check_sizes
from cudakit.jit.specialise.parameters import BoundParameter
from cudakit.jit.specialise.specialise import Specialization
from cudakit.streams.devices import Limits
from cudakit.streams.witnesses import Call, Work
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
    parameters: tuple[BoundParameter, ...]
    module: Module

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each parameter."""
        return tuple(variable.size for variable in self.entry.parameters)

    @cached_property
    def layout(self) -> struct.Struct:
        """The parameters as they lie, of bytes each; too few are filled up with zeros."""
        parts, end = "<", 0
        for variable in self.entry.parameters:
            padding = -end % max(1, variable.align)
            parts += f"{padding}x{variable.size}s"
            end += padding + variable.size
        return struct.Struct(parts)

    @property
    def entry(self) -> Function:
        """The kernel in the program."""
        return self.module.program.functions[self.compiled.lowered[self.specialization.name_expression]]

    def placed(self, file: str, line: int) -> str:
        """A line of the compiler as its user knows it: of a text in a Python file, that file and its line there."""
        source = self.specialization.source
        if file not in (source.name, str(Path(source.name).absolute())):
            return as_compiled(file, line)
        shift, file = line_of_text(source)
        return as_compiled(file, line + shift - self.specialization.unnumbered_lines)


class EmulatedVariables(NamedTuple):
    """The variables of a module, in host memory."""

    linked: Linked

    def names(self) -> list[str]:
        return list(self.linked.variables)

    def address(self, name: str) -> tuple[int, int]:
        data, address = self.linked.variables[common_name(name)]
        return address, data.size

    def read(self, name: str, stream: EmulatedStream | None) -> np.ndarray:
        held = self.linked.variables[common_name(name)][0]
        with _copying("a variable's read", stream, (held,), ()):
            return held.copy()

    def write(self, name: str, data: np.ndarray, stream: EmulatedStream | None) -> None:
        held = self.linked.variables[common_name(name)][0]
        with _copying("a variable's write", stream, (), (held,)):
            held[:] = data


@contextlib.contextmanager
def _copying(
    name: str, stream: EmulatedStream | None, reads: tuple[Any, ...], writes: tuple[Any, ...]
) -> Iterator[None]:
    """A block that copies on a stream, and lets the host wait for it; without one, after all streams."""
    if stream is None:
        order().finish_all()
        yield
        return
    stream.sync()  # which a stream that is captured refuses
    with stream.doing(Work("copy", name, stream, reads, writes), put_in=False):
        yield
    stream.sync()


class EmulatedImage(Image):
    """A module on the emulator: programs that share variables and memory."""

    def __init__(self) -> None:
        super().__init__()
        self._memory = Memory(room().arrays)
        self._linked = Linked()

    def add(self, wanted: Specialization) -> Code:
        compiled = self.compiled(wanted.among(self.ahead))

        def read() -> Program:
            return parse(compiled.code.decode())

        module = Module(read(), self._memory, read, self._linked)
        self.codes.append(Code((wanted, *self.ahead), compiled, module))
        return self.codes[-1]

    def load(self, wanted: Specialization, code: Code, parameters: tuple[BoundParameter, ...]) -> Emulated:
        made = Emulated(wanted, code.compiled, parameters, code.loaded)
        check_sizes(wanted, parameters, made.sizes)
        return made

    def variables(self) -> EmulatedVariables:
        return EmulatedVariables(self._linked)


def _check_arch(name: str, own: str | None, arch: str) -> None:
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


@dataclasses.dataclass(eq=False)
class EmulatedShape:
    """One combination of argument types, bound to a specialization: what `CallShape` is for a device.

    The values of its fragments are host arrays for memory; all others as a device's are.

    Attributes
    ----------
    emulated : Emulated
    fragments : tuple of Fragment
        One an argument.
    families : tuple of str
        What kind of object each argument is, as `describe_host` names it.
    arch : str
        Of the streams that it is for.
    """

    emulated: Emulated
    fragments: tuple[Fragment, ...]
    families: tuple[str, ...]
    arch: str
    _geometries: dict[Config | Cover, Geometry] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """The specialization's name expression."""
        return self.emulated.specialization.name_expression

    def target(self, stream: Any) -> EmulatedStream | None:
        """The stream, if it is the emulator's, of the shape's arch."""
        return stream if isinstance(stream, EmulatedStream) and stream.arch == self.arch else None

    def launch(self, target: EmulatedStream, config: Any, values: Sequence[Any], arguments: Sequence[Any]) -> None:
        """Run the kernel to its end, after what must come before it; or let it be recorded.

        Raises
        ------
        LaunchError, EmulationError
        """
        wanted = as_config(config)
        if is_empty(wanted):
            return
        given = self._given(values, arguments)
        if target.recorder is not None:
            target.recorder.launch(self, wanted, values, given)
        else:
            self.run(target, wanted, values, given)

    def plan(self, target: EmulatedStream, config: Config | Cover, values: Sequence[Any], arguments: Any) -> Plan:
        """The plan of a launch: what must come before is put in now, and the parameters' bytes are written now."""
        given = self._given(values, arguments)
        order().put_in(target, *accesses(self.emulated.parameters, given))
        made = Plan(self._launch_again, target, config, tuple(values), given, self.pack(values))
        made.name, made.arguments = self.name, arguments
        return made

    def _launch_again(
        self, stream: EmulatedStream, config: Config | Cover, values: Sequence[Any], given: Sequence[Any], packed: bytes
    ) -> None:
        if stream.recorder is not None:
            stream.recorder.launch(self, config, values, given)
        else:
            self.run(stream, config, values, given, packed, put_in=False)

    def run(
        self,
        stream: EmulatedStream,
        config: Config | Cover,
        values: Sequence[Any],
        arguments: Sequence[Any],
        packed: bytes | None = None,
        put_in: bool = True,
    ) -> None:
        """Run the kernel to its end.

        Parameters
        ----------
        stream : EmulatedStream
        config : Config or Cover
        values : sequence
            What the fragments give for the arguments.
        arguments : sequence
            As they were given, host arrays for memory.
        packed : bytes, optional
            The values' bytes, where `pack` has made them before.
        put_in : bool
            Whether it waits for what must come before it, by what was declared; a plan has done so.

        Raises
        ------
        LaunchError, EmulationError
        """
        emulated, memory = self.emulated, self.emulated.module.memory
        added: list[int] = []
        # One launch at a time: a module's memory is one machine's, and work that waits for other work comes after it.
        with order().lock:
            PROGRAMS.use(emulated.module)
            try:
                for parameter, value in zip(emulated.parameters, values, strict=True):
                    if isinstance(value, np.ndarray):
                        added.append(memory.add(value, parameter.name, not value.flags.writeable))
                    elif isinstance(value, EmulatedTensorMap):
                        tensor = value.array
                        added.append(memory.add(tensor, f"the tensor of {parameter.name}", not tensor.flags.writeable))
                wanted = Launch(
                    emulated.module,
                    emulated.entry,
                    self._geometry(config),
                    self.pack(values) if packed is None else packed,
                    stream.output,
                    step_budget=stream.step_budget,
                    name=self.name,
                    placed=emulated.placed,
                )
                call = Call(emulated, config, tuple(values), tuple(arguments))
                used = accesses(emulated.parameters, call.arguments) if order().watches else ((), ())
                with order().turn(stream, wanted.title, *used, put_in) as turn:
                    tell_launch(turn.launch, stream, call, wanted)
            finally:
                for address in added:
                    memory.remove(address)

    def pack(self, values: Sequence[Any]) -> bytes:
        """The bytes of the parameters."""
        pairs = zip(self.emulated.parameters, values, strict=True)
        return self.emulated.layout.pack(*[_bytes(parameter, value) for parameter, value in pairs])

    def value(self, position: int, given: Any) -> Any:
        """What is passed for another argument of the same kind in the place of one.

        Raises
        ------
        ArgumentError
        """
        emulated, argument = self.emulated, describe_host(given)
        target = Target(self.name, 0, False)
        fragment = bind(emulated.parameters[position], argument, target, emulated.sizes[position], False)
        return argument.value if argument.family == "memory" else evaluate(fragment, argument.value)

    def _given(self, values: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments, with the host arrays that those of other libraries are."""
        triples = zip(self.families, values, arguments, strict=True)
        return tuple([value if family == "memory" else argument for family, value, argument in triples])

    def _geometry(self, config: Config | Cover) -> Geometry:
        found = self._geometries.get(config)
        if found is None:
            found = self._geometries[config] = _geometry(self.emulated, self.arch, config)
        return found


def _bind(
    emulated: Emulated, arch: str, given: Sequence[Any], described: Sequence[Argument], weak: Sequence[bool]
) -> EmulatedShape:
    """Check the arguments of a call, and freeze the checks.

    Parameters
    ----------
    emulated : Emulated
    arch : str
    given, described : sequence
        The arguments, as they are and as `describe_host` has them.
    weak : sequence of bool
        Whether each is a number whose value chose its parameter's type.

    Raises
    ------
    ArgumentError
    """
    rows = zip(emulated.parameters, given, described, emulated.sizes, weak, strict=True)
    name = emulated.specialization.name_expression
    fragments = tuple(_fragment(name, *row) for row in rows)
    return EmulatedShape(emulated, fragments, tuple(argument.family for argument in described), arch)


def _fragment(name: str, parameter: BoundParameter, given: Any, argument: Argument, size: int, weak: bool) -> Fragment:
    """The fragment of an argument: of a host array the array, others as a device's."""
    target = Target(name, 0, False)
    checked = bind(parameter, argument, target, size, weak)
    if argument.family != "memory" or parameter.kind == "vector":
        return checked
    dtype, rank, readonly = argument.evidence.dtype, argument.evidence.rank, argument.evidence.readonly
    constants: dict[str, Any] = {"class": type(given), "dtype": dtype}
    if (
        isinstance(given, np.ndarray)
        and parameter.kind == "pointer"
        and parameter.count == 1
        and given.dtype.names is None
    ):
        guard = "{a}.__class__ is {k}class and {a}.dtype == {k}dtype and {a}.flags.c_contiguous"
        return Fragment(f"{guard} and {{a}}.flags.writeable is {not readonly}", "{a}", "native", constants)

    def again(value: Any) -> np.ndarray:
        found = describe_host(value)
        evidence = found.evidence
        if found.family != "memory" or (evidence.dtype, evidence.rank, evidence.readonly) != (dtype, rank, readonly):
            raise Mismatch
        bind(parameter, found, target, size, False)
        array: np.ndarray = found.value
        return array

    return Fragment("{a}.__class__ is {k}class", "{k}again({a})", "native", {**constants, "again": again})


def _bytes(parameter: BoundParameter, value: Any) -> bytes:
    """The bytes of what a parameter is given."""
    if isinstance(value, np.ndarray):
        address = value.__array_interface__["data"][0]
        if parameter.kind != "strided":
            return struct.pack("<Q", address)
        size = max(1, value.itemsize)
        return struct.pack(
            f"<Q{2 * parameter.count}q", address, *value.shape, *[step // size for step in value.strides]
        )
    if isinstance(value, EmulatedTensorMap):
        return value.data
    if isinstance(value, bytes):
        return value
    if isinstance(value, complex):
        return struct.pack("<2d", value.real, value.imag)
    return struct.pack("<d", value) if isinstance(value, float) else (value & (2**64 - 1)).to_bytes(8, "little")


def _geometry(emulated: Emulated, arch: str, given: Config | Cover) -> Geometry:
    name, directives = emulated.specialization.name_expression, emulated.entry.directives
    limits = limits_of(arch)
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


class EmulatedCode(NamedTuple):
    """The emulator, as one arch; see `cudakit.jit.launch.code_place.CodePlace`."""

    arch: str
    target: Literal["cubin", "ptx"] = "ptx"

    def describe(self, value: Any) -> Argument:
        return describe_host(value)

    def entered(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def check_arch(self, kernel: str, own: str | None) -> None:
        _check_arch(kernel, own, self.arch)

    def adapted(self, specialization: Specialization) -> Specialization:
        # With source lines, which change no code and which the emulator's errors name.
        options = specialization.options
        options = options if options.debug else options.replace(lineinfo=True)
        return specialization._replace(options=options, target="ptx")

    def image(self) -> EmulatedImage:
        return EmulatedImage()

    def bind(self, ready: Any, given: Any, described: Sequence[Argument], weak: Sequence[bool]) -> EmulatedShape:
        return _bind(ready, self.arch, given, described, weak)


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
