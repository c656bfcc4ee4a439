"""Checked calls on the emulator: NumPy arrays and numbers become the bytes of a launch's parameters."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from cudakit.emulator.machine.decode import Linked
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.machine.module import Module
from cudakit.emulator.machine.state import Geometry
from cudakit.emulator.ptx.parser import parse
from cudakit.emulator.ptx.program import Program
from cudakit.emulator.ready import Emulated, EmulatedThreads, EmulatedTiles, limits_of
from cudakit.emulator.resources.allocations import room
from cudakit.emulator.resources.device_array import is_of_host, is_reachable, refuse_host_array
from cudakit.emulator.resources.texture import EmulatedTensorMap
from cudakit.emulator.streams.order import Turn, order
from cudakit.emulator.streams.stream import EmulatedStream
from cudakit.errors import ArgumentError, CudakitError, LaunchError
from cudakit.jit.compile.mangled import common_name
from cudakit.jit.launch.bind import Callee, Fragment, Mismatch, bind, evaluate
from cudakit.jit.launch.plan import Plan
from cudakit.jit.launch.report import accesses, report_launch
from cudakit.jit.launch.tracebacks import cut
from cudakit.jit.load.config import Config, Cover, as_config, is_empty
from cudakit.jit.load.image import Code, Image
from cudakit.jit.specialise.specialise import BoundParameter, Specialization
from cudakit.streams.witnesses import Call, Work
from cudakit.types.arguments import Argument, Evidence, as_numpy, describe, passable, pointer_of, texture_handle
from cudakit.types.tensors import layout_of, packer, passed_strides


def describe_host(value: Any) -> Argument:
    """Describe an argument of a call on the emulator.

    Arrays may be NumPy's, torch's on the CPU, or any object's that exports host memory by DLPack or the array
    interface.

    Raises
    ------
    ArgumentError
        For an array in device memory, and for an object that no kernel can take.
    """
    if isinstance(value, EmulatedTensorMap):
        return Argument(value, "object", Evidence("object", "tensor map", text="CUtensorMap"))
    if texture_handle(value) is not None:
        return _texture(value)
    array = as_numpy(value)
    if array is None:
        argument = describe(value)
        if argument.evidence.text == "CUtensorMap":
            raise ArgumentError(
                "the tensor map is of an array in device memory and this stream is the emulator's; give ck.tensor_map "
                "a NumPy array"
            )
        if argument.evidence.category == "array" or argument.family == "buffer":
            raise ArgumentError(
                f"{argument.evidence.shown} is in device memory and this stream is the emulator's; give a NumPy array, "
                "as x.get() is"
            )
        return argument
    passable(array.dtype, "numpy array")
    size = max(1, array.dtype.itemsize)
    if any(step % size for step in array.strides):
        raise ArgumentError(
            f"numpy array has strides {array.strides} in bytes, not whole elements of {array.dtype}; copy it"
        )
    library = type(value).__module__.partition(".")[0]
    words = f"{library} array of {array.dtype} with shape {array.shape}"
    evidence = Evidence("array", words, array.dtype, array.ndim, not array.flags.writeable)
    address = int(array.__array_interface__["data"][0])
    strides = tuple(step // size for step in array.strides)
    return Argument(array, "memory", evidence, None, address, array.flags.c_contiguous, array.shape, strides, address)


def _texture(value: Any) -> Argument:
    """Describe a texture or surface, which must be of host memory."""
    if not type(value).__module__.startswith("cudakit.emulator"):
        raise ArgumentError(
            f"{type(value).__name__} is of device memory and this stream is the emulator's; give "
            f"ck.{'surface' if type(value).__name__ == 'SurfaceObject' else 'texture'}(array) of a NumPy array"
        )
    return Argument(value, "object", Evidence("scalar", type(value).__name__, np.dtype("u8")))


#: Number in PTX that may be the address of an array.
_LITERAL = re.compile(rb"[1-9](?<![\w.].)\d{10,18}(?![\w.])")


class EmulatedVariables(NamedTuple):
    """Device variables of a module, kept in host memory."""

    linked: Linked

    def names(self) -> list[str]:
        return list(self.linked.variables)

    def address(self, name: str) -> tuple[int, int]:
        data, address = self.linked.variables[common_name(name)]
        return address, data.size

    def read(self, name: str, stream: EmulatedStream | None) -> np.ndarray:
        data = self.linked.variables[common_name(name)][0]
        with _copying("a variable's read", stream, (data,), ()):
            return data.copy()

    def write(self, name: str, data: np.ndarray, stream: EmulatedStream | None) -> None:
        target = self.linked.variables[common_name(name)][0]
        with _copying("a variable's write", stream, (), (target,)):
            target[:] = data


@contextlib.contextmanager
def _copying(
    name: str, stream: EmulatedStream | None, reads: tuple[Any, ...], writes: tuple[Any, ...]
) -> Iterator[None]:
    """Return a context for a copy on a stream, which waits for the stream's earlier work and for the copy.

    Without a stream, the host first waits for all streams.
    """
    if stream is None:
        order().finish_all()
        yield
        return
    stream.sync()  # raises on a captured stream
    with stream.doing(Work("copy", name, stream, reads, writes), insert_waits=False, reported=False):
        yield
    stream.sync()


class EmulatedImage(Image):
    """Module on the emulator: programs that share variables and memory."""

    def __init__(self) -> None:
        super().__init__()
        self._memory = Memory(room().arrays)
        self._linked = Linked()

    def add(self, specialization: Specialization) -> Code:
        if specialization.is_tile:
            # Loaded late: few programs have tile kernels.
            from cudakit.emulator.tile.machine import TileProgram
            from cudakit.jit.compile import tile_bytecode

            compiled = self.compiled(specialization)
            program = TileProgram(tile_bytecode.read(compiled.code), self._memory)
            self.codes.append(Code((specialization,), compiled, program))
            return self.codes[-1]
        compiled = self.compiled(specialization.among(ahead for ahead in self.ahead if not ahead.is_tile))

        def read() -> Program:
            return parse(compiled.code.decode())

        literals = np.array([*map(int, _LITERAL.findall(compiled.code))], np.uint64)
        self._memory.literals = np.concatenate([self._memory.literals, literals])
        module = Module(read(), self._memory, read, self._linked)
        self.codes.append(Code((specialization, *self.ahead), compiled, module))
        return self.codes[-1]

    def load(self, specialization: Specialization, code: Code, parameters: tuple[BoundParameter, ...]) -> Emulated:
        cls = EmulatedTiles if specialization.is_tile else EmulatedThreads
        emulated: Emulated = cls(specialization, code.compiled, parameters, code.loaded)
        _ = emulated.sizes  # which are checked
        return emulated

    def variables(self) -> EmulatedVariables:
        return EmulatedVariables(self._linked)


def _check_arch(name: str, own: str | None, arch: str) -> None:
    """Check that the code of `name`, compiled for the arch `own`, runs on a device of `arch`; None: code for any arch.

    Compute capabilities must have the same major number, and that of `own` must not be higher.

    Raises
    ------
    LaunchError
    """
    if own is None:
        return
    compiled, available = limits_of(own).compute_capability, limits_of(arch).compute_capability
    if compiled[0] != available[0] or compiled > available:
        raise LaunchError(f"{name} is compiled for {own}, and this stream is the emulator's {arch}")


@dataclasses.dataclass(eq=False)
class EmulatedShape:
    """Call shape of the emulator: a combination of argument types, bound to a specialization.

    A fragment's value is the host array for memory. All other values are as a device's.

    Attributes
    ----------
    emulated : Emulated
        Kernel that the call launches.
    fragments : tuple of Fragment
        Check and conversion of each argument.
    families : tuple of str
        Family of each argument, as `describe_host` names it.
    arch : str
        Arch of the streams that the shape is for.
    strict : bool
        Whether these streams are strict.
    """

    emulated: Emulated
    fragments: tuple[Fragment, ...]
    families: tuple[str, ...]
    arch: str
    strict: bool
    _geometries: dict[Config | Cover, Geometry] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        #: Whether every host array is passed as it is, without a conversion.
        self._alike = all(
            fragment.value == "{a}"
            for family, fragment in zip(self.families, self.fragments, strict=True)
            if family == "memory"
        )

    @property
    def name(self) -> str:
        """Name expression of the specialization."""
        return self.emulated.specialization.name_expression

    def target(self, stream: Any) -> EmulatedStream | None:
        """Return the stream if it is an emulator's stream with the shape's arch and strictness, else None."""
        if not isinstance(stream, EmulatedStream) or (stream.arch, stream.strict) != (self.arch, self.strict):
            return None
        return stream

    def launch(self, target: EmulatedStream, config: Any, values: Sequence[Any], arguments: Sequence[Any]) -> None:
        """Run the kernel to its end, after earlier work that it depends on; record it while the stream is captured.

        Raises
        ------
        LaunchError, EmulationError
        """
        launch_config = as_config(config)
        if is_empty(launch_config):
            return
        host_arguments = self._host_arguments(values, arguments)
        if target.recorder is not None:
            target.recorder.launch(self, launch_config, values, host_arguments)
        else:
            self.run(target, launch_config, values, host_arguments)

    def plan(self, target: EmulatedStream, config: Config | Cover, values: Sequence[Any], arguments: Any) -> Plan:
        """Return the plan of a launch.

        Waits for earlier work are put in now, and the parameters' bytes are written now.
        """
        host_arguments = self._host_arguments(values, arguments)
        order().insert_waits(target, *accesses(self.emulated.parameters, host_arguments), noted=True)
        result = Plan(self._launch_again, target, config, tuple(values), host_arguments, self.pack(values))
        result.name, result.arguments, result.parameters = self.name, arguments, self.emulated.parameters
        return result

    def _launch_again(
        self,
        stream: EmulatedStream,
        config: Config | Cover,
        values: Sequence[Any],
        host_arguments: Sequence[Any],
        packed: bytes,
    ) -> None:
        """Launch a plan: run the kernel with its packed parameters, or record it."""
        try:
            if stream.recorder is not None:
                stream.recorder.launch(self, config, values, host_arguments)
            else:
                self.run(stream, config, values, host_arguments, packed, insert_waits=False, noted=False)
        except CudakitError as error:
            cut(error)
            raise

    def run(
        self,
        stream: EmulatedStream,
        config: Config | Cover,
        values: Sequence[Any],
        arguments: Sequence[Any],
        packed: bytes | None = None,
        insert_waits: bool = True,
        noted: bool = True,
    ) -> None:
        """Run the kernel to its end.

        Parameters
        ----------
        stream : EmulatedStream
        config : Config or Cover
        values : sequence
            Results of the fragments, one an argument.
        arguments : sequence
            Arguments of the call, with host arrays for memory.
        packed : bytes, optional
            Bytes of the parameters, where `pack` has made them before.
        insert_waits : bool
            Whether the launch waits for earlier work by the declared reads and writes. A plan has done so already.
        noted : bool
            Whether later work waits for the launch by the declared reads and writes. Later work waits for a plan from
            the time the plan was made.

        Raises
        ------
        LaunchError, EmulationError
        """
        emulated, memory, ordered = self.emulated, self.emulated.memory, order()
        added: list[int] = []
        # One launch at a time: a module's memory belongs to one launch, and waiting work runs after its predecessors.
        with ordered.lock:
            try:
                for parameter, value in zip(emulated.parameters, values, strict=True):
                    if isinstance(value, np.ndarray):
                        added.append(memory.add(value, parameter.name, not value.flags.writeable))
                    elif isinstance(value, EmulatedTensorMap):
                        tensor = value.array
                        added.append(memory.add(tensor, f"the tensor of {parameter.name}", not tensor.flags.writeable))
                bytes_of_them = self.pack(values) if packed is None else packed
                launch = emulated.launch(stream, self._geometry(config), bytes_of_them)
                call = Call(emulated, config, tuple(values), tuple(arguments))
                used = accesses(emulated.parameters, call.arguments) if ordered.asks_for_arrays else ((), ())
                with Turn(ordered, stream, launch.title, *used, insert_waits, noted) as turn:
                    report_launch(turn.launch, stream, call, launch)
            finally:
                for address in added:
                    memory.remove(address)

    def pack(self, values: Sequence[Any]) -> bytes:
        """Return the bytes of the parameters."""
        return pack(self.emulated, values)

    def value(self, position: int, replacement: Any) -> Any:
        """Return the parameter value for `replacement`, an argument of the same type at a position among the arguments.

        Raises
        ------
        ArgumentError
            If the parameter does not take the argument.
        """
        emulated, argument = self.emulated, describe_host(replacement)
        callee = Callee(self.name, 0, False)
        fragment = bind(emulated.parameters[position], argument, callee, emulated.sizes[position], False)
        return argument.value if argument.family == "memory" else evaluate(fragment, argument.value)

    def _host_arguments(self, values: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Return the arguments, with other libraries' arrays as host arrays."""
        if self._alike:
            return tuple(arguments)
        triples = zip(self.families, values, arguments, strict=True)
        return tuple([value if family == "memory" else argument for family, value, argument in triples])

    def _geometry(self, config: Config | Cover) -> Geometry:
        """Return the checked geometry of a configuration, kept for later launches."""
        geometry = self._geometries.get(config)
        if geometry is None:
            geometry = self._geometries[config] = self.emulated.geometry(self.arch, config)
        return geometry


def pack(emulated: Emulated, values: Sequence[Any]) -> bytes:
    """Return the bytes of a kernel's parameters."""
    pairs = zip(emulated.parameters, values, strict=True)
    return emulated.layout.pack(
        *[
            (value & _WORD).to_bytes(8, "little") if value.__class__ is int else _bytes(parameter, value)
            for parameter, value in pairs
        ]
    )


def _bind(
    emulated: Emulated,
    streams: tuple[str, bool],
    arguments: Sequence[Any],
    described: Sequence[Argument],
    weak: Sequence[bool],
) -> EmulatedShape:
    """Check the arguments of a call, and keep the checks for later calls.

    Parameters
    ----------
    emulated : Emulated
    streams : (str, bool)
        Arch of the streams that the shape is for, and whether they are strict.
    arguments, described : sequence
        Arguments of the call, and their descriptions by `describe_host`.
    weak : sequence of bool
        Whether each argument is a number whose value chose its parameter's type.

    Raises
    ------
    ArgumentError
    """
    rows = zip(emulated.parameters, arguments, described, emulated.sizes, weak, strict=True)
    name = emulated.specialization.name_expression
    fragments = tuple(_fragment(name, *row) for row in rows)
    if streams[1]:
        fragments = tuple(map(_require_reachable, fragments, arguments))
    return EmulatedShape(emulated, fragments, tuple(argument.family for argument in described), *streams)


def _require_reachable(fragment: Fragment, argument: Any) -> Fragment:
    """Return a fragment that also checks on each call that a kernel can reach the array.

    A pinned array and other NumPy arrays have the same type, so the type does not tell. For an argument that is no host
    array or cannot be reached, return the fragment unchanged.
    """
    if not is_of_host(argument) or not is_reachable(argument):
        return fragment
    constants = {**fragment.constants, "is_reachable": is_reachable}
    return fragment._replace(guard=f"({fragment.guard}) and {{k}}is_reachable({{a}})", constants=constants)


def _fragment(name: str, parameter: BoundParameter, array: Any, argument: Argument, size: int, weak: bool) -> Fragment:
    """Return the fragment of an argument: the array itself for a host array, else as on a device."""
    callee = Callee(name, 0, False)
    checked = bind(parameter, argument, callee, size, weak)
    if argument.family != "memory" or parameter.category == "vector":
        return checked
    dtype, rank, readonly = argument.evidence.dtype, argument.evidence.rank, argument.evidence.readonly
    constants: dict[str, Any] = {"class": type(array), "dtype": dtype}
    if (
        isinstance(array, np.ndarray)
        and parameter.category == "pointer"
        and parameter.count == 1
        and array.dtype.names is None
    ):
        guard = "{a}.__class__ is {k}class and {a}.dtype == {k}dtype and {a}.flags.c_contiguous"
        if parameter.alignment > 1:
            guard += f" and not {{a}}.ctypes.data % {parameter.alignment}"
        return Fragment(f"{guard} and {{a}}.flags.writeable is {not readonly}", "{a}", "native", constants)

    def is_alike(value: Any) -> bool:
        described = describe_host(value)
        size = described.evidence.dtype.itemsize if described.evidence.dtype is not None else 1
        return layout_of(described.shape, described.strides, described.pointer, size) == parameter.layout

    def again(value: Any) -> np.ndarray:
        described = describe_host(value)
        evidence = described.evidence
        if described.family != "memory" or (evidence.dtype, evidence.rank, evidence.readonly) != (
            dtype,
            rank,
            readonly,
        ):
            raise Mismatch
        bind(parameter, described, callee, size, False)
        array: np.ndarray = described.value
        return array

    # An array with another layout belongs to another specialization.
    guard = "{a}.__class__ is {k}class" + " and {k}is_alike({a})" * (parameter.category == "tensor")
    return Fragment(guard, "{k}again({a})", "native", {**constants, "again": again, "is_alike": is_alike})


def _bytes(parameter: BoundParameter, value: Any) -> bytes:
    """Return the bytes that a kernel gets for a parameter's value.

    For an array they are its address, and its extents and strides if the parameter has them.
    """
    if isinstance(value, np.ndarray):
        address = pointer_of(value)
        if parameter.category == "pointer":
            return address.to_bytes(8, "little")
        size = max(1, value.itemsize)
        if parameter.layout is not None:
            strides = passed_strides(value.shape, [step // size for step in value.strides], size)
            return packer(parameter.count, parameter.layout)(address, *value.shape, *strides)
        if parameter.category != "strided":
            return struct.pack("<Q", address)
        return struct.pack(
            f"<Q{2 * parameter.count}q", address, *value.shape, *[step // size for step in value.strides]
        )
    if isinstance(value, EmulatedTensorMap):
        return value.data
    if isinstance(value, bytes):
        return value
    if isinstance(value, complex):
        return struct.pack("<2d", value.real, value.imag)
    return struct.pack("<d", value) if isinstance(value, float) else (value & _WORD).to_bytes(8, "little")


_WORD = 2**64 - 1


class EmulatedCode(NamedTuple):
    """Code place of the emulator for one arch; see `cudakit.jit.launch.code_place.CodePlace`."""

    arch: str
    strict: bool = False
    target: Literal["cubin", "ptx"] = "ptx"

    def describe(self, value: Any) -> Argument:
        if self.strict:
            refuse_host_array(value)
        return describe_host(value)

    def entered(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def check_arch(self, kernel: str, own: str | None) -> None:
        _check_arch(kernel, own, self.arch)

    def adapted(self, specialization: Specialization) -> Specialization:
        # Source lines change no code; the emulator's errors name them.
        options = specialization.options
        options = options if options.debug else options.replace(lineinfo=True)
        return specialization._replace(options=options, target="tileir" if specialization.is_tile else "ptx")

    def image(self) -> EmulatedImage:
        return EmulatedImage()

    def bind(self, ready: Any, arguments: Any, described: Sequence[Argument], weak: Sequence[bool]) -> EmulatedShape:
        return _bind(ready, (self.arch, self.strict), arguments, described, weak)
