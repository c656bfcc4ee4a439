"""Code places: how kernels are compiled, loaded and bound for a GPU or the emulator."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from cudakit.errors import ArgumentError, TemplateError, named, shortened
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.launch.bind import Callee, bind
from cudakit.jit.launch.dispatch import MISSING
from cudakit.jit.launch.launch import CallShape, make_run
from cudakit.jit.load.image import DeviceImage, Image
from cudakit.jit.signature.signature import Signature
from cudakit.jit.specialise.deduce import Deduced, pair_up
from cudakit.jit.specialise.specialise import BoundParameter, Specialization
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.records import NamedTuple
from cudakit.streams import devices
from cudakit.types import structs
from cudakit.types.arguments import Argument, Evidence, components, describe
from cudakit.types.cpp import CppType, Named, is_tensor, tensor_arguments, vector, without_const

if TYPE_CHECKING:
    from cudakit.jit.launch.generated import Shape


class Ready(Protocol):
    """A specialization that is ready to launch: `Loaded`, or the emulator's."""

    specialization: Specialization
    compiled: Compiled
    parameters: tuple[BoundParameter, ...]


class CodePlace(Protocol):
    """A place that runs kernels: a GPU, or the emulator of one arch."""

    @property
    def target(self) -> Literal["cubin", "ptx"]:
        """Output of the compiler for this place."""

    @property
    def arch(self) -> str:
        """Arch that is compiled for, if the kernel names no other."""

    def describe(self, value: Any) -> Argument:
        """Return the description of a kernel argument for this place. An object that no kernel can take is refused."""

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager in which kernels can be loaded."""

    def check_arch(self, kernel: str, own: str | None) -> None:
        """Raise LaunchError if code compiled for the arch `own` cannot run here; for None do nothing.

        A GPU does nothing here: loading the code checks its arch.
        """

    def adapted(self, specialization: Specialization) -> Specialization:
        """Return the specialization as it is compiled for this place: the emulator changes its target and options."""

    def image(self) -> Image:
        """Make the image of a module, without any loaded code."""

    def bind(self, ready: Any, arguments: Any, described: Sequence[Argument], weak: Sequence[bool]) -> Shape:
        """Check a call's arguments, and make a call shape of the checks.

        `described` has the descriptions of `arguments`. `weak` says for each whether its value chose its parameter's
        type.
        """


class DeviceCode(NamedTuple):
    """A GPU as a code place."""

    device_id: int
    target: Literal["cubin", "ptx"] = "cubin"

    @property
    def arch(self) -> str:
        return devices.limits(self.device_id).arch

    def describe(self, value: Any) -> Argument:
        return describe(value)

    def entered(self) -> contextlib.AbstractContextManager[None]:
        return devices.on_device(self.device_id)

    def check_arch(self, kernel: str, own: str | None) -> None:
        return

    def adapted(self, specialization: Specialization) -> Specialization:
        return specialization

    def image(self) -> DeviceImage:
        return DeviceImage()

    def bind(self, ready: Any, arguments: Any, described: Sequence[Argument], weak: Sequence[bool]) -> Shape:
        callee = Callee(ready.specialization.name_expression, self.device_id, devices.device_count() > 1)
        rows = zip(ready.parameters, described, ready.sizes, weak, strict=True)
        fragments = tuple(bind(parameter, argument, callee, size, choice) for parameter, argument, size, choice in rows)
        families = tuple(argument.family for argument in described)
        return CallShape(ready, fragments, families, self.device_id, make_run(ready, fragments))


# Counting, naming and describing the arguments of a call.

#: Keywords of other libraries for launch configurations.
_LAUNCH_WORDS = ("block", "grid", "shared", "shared_mem", "shared_bytes", "stream")


def describe_call(
    signature: Signature, arguments: tuple[Any, ...], book: TypeBook, describe: Callable[[Any], Argument] = describe
) -> tuple[Argument, ...]:
    """Describe every argument of a call, each by `describe`.

    Raises
    ------
    ArgumentError
        For too few or too many arguments, naming missing ones, and for an object that no kernel can take.
    """
    _check_count(signature, arguments)
    described = []
    for (name, cpp), value in zip(_parameters(signature, len(arguments)), arguments, strict=True):
        try:
            argument = describe(value) if not _is_vector(cpp, value) else components(value)
        except ArgumentError as error:
            raise type(error)(f"{signature.name}: argument {name}: {error}") from error
        if argument.family == "text":
            text = book.functor(argument.evidence.text, name)
            argument = argument._replace(evidence=argument.evidence._replace(text=text))
        evidence = argument.evidence
        if signature.is_tile and cpp is not None and is_tensor(cpp) and evidence.dtype is not None:
            from cudakit.types.tensors import layout_of  # for tile kernels alone

            layout = layout_of(argument.shape, argument.strides, argument.pointer, evidence.dtype.itemsize)
            argument = argument._replace(evidence=evidence._replace(layout=layout))
        described.append(argument)
    return tuple(described)


def defaults_of(signature: Signature) -> dict[str, Any]:
    """Return the values of C++ default arguments that are constants, by parameter."""
    texts = {p.name: p.default for p in signature.parameters or () if p.name and p.default is not None}
    if not texts:
        return {}
    from cudakit.types.constants import constant  # late: few kernels have defaults

    read = {name: constant(text) for name, text in texts.items()}
    return {name: value[0] for name, value in read.items() if value is not None}


def with_defaults(signature: Signature, defaults: Mapping[str, Any], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a call, with default values for arguments that are left out."""
    names = [parameter.name for parameter in signature.parameters or ()]
    filled = [defaults.get(names[i], value) if value is MISSING else value for i, value in enumerate(arguments)]
    for name in names[len(arguments) :]:
        if name not in defaults:
            break
        filled.append(defaults[name])
    return tuple(filled)


def _is_vector(cpp: CppType | None, value: Any) -> bool:
    """Return whether a host array is passed as a vector type: its components, by value, and not its memory."""
    return isinstance(value, np.ndarray) and isinstance(cpp, Named) and vector(cpp.name) is not None


def in_order(
    kernel: str, parameters: Sequence[str], arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Return positional and keyword arguments as one tuple, in the order of the kernel's parameters."""
    ordered = dict(zip(parameters, arguments, strict=False))
    for name, value in keywords.items():
        if name not in parameters:
            hint = "; a call is kernel(stream, ck.config(grid, block), *arguments)" if name in _LAUNCH_WORDS else ""
            raise ArgumentError(f"{kernel} has no parameter {shortened(name)}; it has {', '.join(parameters)}{hint}")
        if name in ordered:
            raise ArgumentError(f"{kernel}: argument {name} is given twice")
        ordered[name] = value
    return (*(ordered.get(name, MISSING) for name in parameters), *arguments[len(parameters) :])


def _check_count(signature: Signature, arguments: tuple[Any, ...]) -> None:
    parameters = signature.parameters
    if parameters is None:
        return
    pack = bool(parameters) and parameters[-1].pack
    least = len(parameters) - pack
    names = ", ".join(parameter.name or "…" for parameter in parameters)
    readable = defaults_of(signature)
    missing = [
        parameter.name or str(position)
        for position, parameter in enumerate(parameters[:least])
        if (position >= len(arguments) or arguments[position] is MISSING) and parameter.name not in readable
    ]
    if missing:
        count = sum(value is not MISSING for value in arguments)
        are = "is" if len(missing) == 1 else "are"
        more = f": {', '.join(missing)} {are} missing"
        unread = [f"{p.name} = {p.default}" for p in parameters if p.name in missing and p.default is not None]
        if unread:
            more += f"; the default {', '.join(unread)} cannot be read here: give the value"
        raise wrong_count(signature.name, least, count, f" ({names})", more)
    if len(arguments) > least and not pack:
        raise wrong_count(signature.name, least, len(arguments), f" ({names})")


def wrong_count(kernel: str, takes: int, count: int, names: str = "", more: str = "") -> ArgumentError:
    """Return the error for `count` arguments where the kernel takes `takes`.

    `names` and `more` are added to the message.
    """
    arguments = f"{takes} argument{'s' * (takes != 1)}"
    error = ArgumentError(f"{kernel} takes {arguments}{names} after stream and config, got {count}{more}")
    return error.detailed(**named(kernel), expected=arguments, got=str(count))


def _parameters(signature: Signature, count: int) -> list[tuple[str, CppType | None]]:
    """Return pairs (name, C++ type) of the parameters for `count` arguments.

    For further arguments than parameters, the name is the position and the type None.
    """
    pairs = pair_up(signature, [Evidence("address", "")] * count)
    pairs_with_types: list[tuple[str, CppType | None]] = [
        (parameter.name or str(position), parameter.type) for position, (parameter, _) in enumerate(pairs)
    ]
    return pairs_with_types + [(str(position), None) for position in range(len(pairs_with_types), count)]


def evidence_of_types(signature: Signature, types: tuple[Any, ...]) -> tuple[Evidence, ...]:
    """Return the type information in types of arguments, without the arguments; see `Kernel.specialization`."""
    parameters = signature.parameters
    if parameters is not None and len(types) > len(parameters) and not (parameters and parameters[-1].pack):
        raise TemplateError(f"{signature.name} has {len(parameters)} parameters, got {len(types)} types of arguments")
    return tuple(
        _evidence_of_type(name, cpp, argument_type)
        for (name, cpp), argument_type in zip(_parameters(signature, len(types)), types, strict=True)
    )


def _evidence_of_type(name: str, cpp: CppType | None, argument_type: Any) -> Evidence:
    if argument_type is None:
        return Evidence("address", "None")
    if isinstance(argument_type, np.ndarray) and cpp is not None and is_tensor(cpp):
        from cudakit.types.tensors import layout_of  # for tile kernels alone

        strides = tuple(step // argument_type.itemsize for step in argument_type.strides)
        layout = layout_of(argument_type.shape, strides, argument_type.ctypes.data, argument_type.itemsize)
        return Evidence("array", f"{argument_type.dtype}", argument_type.dtype, argument_type.ndim, layout=layout)
    rank_text = str(tensor_arguments(cpp)[1]) if cpp is not None and is_tensor(cpp) else ""
    rank = int(rank_text) if rank_text.isdigit() else 1
    if isinstance(argument_type, tuple) and len(argument_type) == 2 and isinstance(argument_type[1], int):
        argument_type, rank = argument_type
    try:
        dtype = (
            structs.struct_dtype(argument_type) if structs.is_struct_type(argument_type) else np.dtype(argument_type)
        )
    except TypeError:
        raise TemplateError(
            f"the type of argument {name} must be a dtype or None, got {shortened(argument_type)}"
        ) from None
    plain = without_const(cpp) if cpp is not None else None
    scalar = isinstance(plain, Named) and plain.name.split("::")[-1] not in ("strided", "tensor")
    return Evidence("scalar" if scalar else "array", f"{dtype}", dtype, rank)


def weak_choices(
    signature: Signature, evidence: tuple[Evidence, ...], explicit: Mapping[str, Deduced]
) -> tuple[bool, ...]:
    """Return for each argument whether it is a Python int whose size alone chose its parameter's type.

    `explicit` has the user's template arguments: a type among them is not chosen by an argument.
    """
    types = {parameter.name for parameter in signature.template_parameters} - set(explicit)
    chosen = [
        argument.category == "weak" and argument.dtype is not None and str(without_const(parameter.type)) in types
        for parameter, argument in pair_up(signature, evidence)
    ]
    return (*chosen, *[False] * (len(evidence) - len(chosen)))
