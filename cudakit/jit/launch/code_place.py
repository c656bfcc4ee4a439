"""Where code runs, as a kernel's specializations see it: what is compiled for it, loaded and bound there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from cudakit.errors import ArgumentError, TemplateError, shortened
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.launch.bind import Callee, bind
from cudakit.jit.launch.dispatch import MISSING, Shape
from cudakit.jit.launch.launch import CallShape, make_run
from cudakit.jit.load.image import DeviceImage, Image
from cudakit.jit.signature.signature import Signature
from cudakit.jit.specialise.deduce import Deduced, pair_up
from cudakit.jit.specialise.specialise import BoundParameter, Specialization
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.streams import devices
from cudakit.types import structs
from cudakit.types.arguments import Argument, Evidence, components, describe
from cudakit.types.cpp import CppType, Named, is_tensor, tensor_arguments, vector, without_const
from cudakit.types.scalars import constant
from cudakit.types.tensors import layout_of


class Ready(Protocol):
    """A specialization that can be launched: `Loaded`, or the emulator's."""

    specialization: Specialization
    compiled: Compiled
    parameters: tuple[BoundParameter, ...]


class CodePlace(Protocol):
    """What runs kernels: a GPU, or the emulator as one arch."""

    @property
    def target(self) -> Literal["cubin", "ptx"]:
        """What is compiled."""

    @property
    def arch(self) -> str:
        """What is compiled for where the kernel names nothing else."""

    def describe(self, value: Any) -> Argument:
        """What an argument is there."""

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """A block in which kernels can be loaded."""

    def check_arch(self, kernel: str, own: str | None) -> None:
        """Check that code for a kernel's own arch runs there, where that is not seen when it is loaded."""

    def adapted(self, specialization: Specialization) -> Specialization:
        """What is compiled there for it."""

    def image(self) -> Image:
        """A module that nothing of is loaded there yet."""

    def bind(self, ready: Any, given: Any, described: Sequence[Argument], weak: Sequence[bool]) -> Shape:
        """Check a call's arguments and freeze the checks."""


class DeviceCode(NamedTuple):
    """A GPU."""

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

    def bind(self, ready: Any, given: Any, described: Sequence[Argument], weak: Sequence[bool]) -> Shape:
        callee = Callee(ready.specialization.name_expression, self.device_id, devices.device_count() > 1)
        rows = zip(ready.parameters, described, ready.sizes, weak, strict=True)
        fragments = tuple(bind(parameter, argument, callee, size, choice) for parameter, argument, size, choice in rows)
        families = tuple(argument.family for argument in described)
        return CallShape(ready, fragments, families, self.device_id, make_run(ready, fragments))


# The arguments of a call beside the kernel's parameters: counted, named and described.

#: How other libraries name a launch's configuration in the call.
_LAUNCH_WORDS = ("block", "grid", "shared", "shared_mem", "shared_bytes", "stream")


def describe_call(
    signature: Signature, given: tuple[Any, ...], book: TypeBook, describe: Callable[[Any], Argument] = describe
) -> tuple[Argument, ...]:
    """Describe every argument of a call, each by `describe`.

    Raises
    ------
    ArgumentError
        For too few or too many, naming those that are missing, and for an object that no kernel can take.
    """
    _check_count(signature, given)
    described = []
    for (name, cpp), value in zip(_parameters(signature, len(given)), given, strict=True):
        try:
            found = describe(value) if not _is_vector(cpp, value) else components(value)
        except ArgumentError as error:
            raise type(error)(f"{signature.name}: argument {name}: {error}") from error
        if found.family == "text":
            text = book.functor(found.evidence.text, name)
            found = found._replace(evidence=found.evidence._replace(text=text))
        evidence = found.evidence
        if signature.is_tile and cpp is not None and is_tensor(cpp) and evidence.dtype is not None:
            layout = layout_of(found.shape, found.strides, found.pointer, evidence.dtype.itemsize)
            found = found._replace(evidence=evidence._replace(layout=layout))
        described.append(found)
    return tuple(described)


def defaults_of(signature: Signature) -> dict[str, Any]:
    """Values of the parameters that C++ gives default arguments, as far as these are constants."""
    read = {p.name: constant(p.default) for p in signature.parameters or () if p.name and p.default is not None}
    return {name: value[0] for name, value in read.items() if value is not None}


def with_defaults(signature: Signature, defaults: Mapping[str, Any], given: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a call, those that are left out by their default values, as far as there are any."""
    names = [parameter.name for parameter in signature.parameters or ()]
    filled = [defaults.get(names[i], value) if value is MISSING else value for i, value in enumerate(given)]
    for name in names[len(given) :]:
        if name not in defaults:
            break
        filled.append(defaults[name])
    return tuple(filled)


def _is_vector(cpp: CppType | None, value: Any) -> bool:
    """Whether a host array stands for a vector type: its components, by value, and not memory."""
    return isinstance(value, np.ndarray) and isinstance(cpp, Named) and vector(cpp.name) is not None


def in_order(
    kernel: str, parameters: Sequence[str], given: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Positional and named arguments of a call in the order of the kernel's parameters."""
    ordered = dict(zip(parameters, given, strict=False))
    for name, value in named.items():
        if name not in parameters:
            hint = "; a call is kernel(stream, ck.config(grid, block), *arguments)" if name in _LAUNCH_WORDS else ""
            raise ArgumentError(f"{kernel} has no parameter {shortened(name)}; it has {', '.join(parameters)}{hint}")
        if name in ordered:
            raise ArgumentError(f"{kernel}: argument {name} is given twice")
        ordered[name] = value
    return (*(ordered.get(name, MISSING) for name in parameters), *given[len(parameters) :])


def _check_count(signature: Signature, given: tuple[Any, ...]) -> None:
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
        if (position >= len(given) or given[position] is MISSING) and parameter.name not in readable
    ]
    if missing:
        got = sum(value is not MISSING for value in given)
        are = "is" if len(missing) == 1 else "are"
        more = f": {', '.join(missing)} {are} missing"
        unread = [f"{p.name} = {p.default}" for p in parameters if p.name in missing and p.default is not None]
        if unread:
            more += f"; the default {', '.join(unread)} cannot be read here: give the value"
        raise wrong_count(signature.name, least, got, f" ({names})", more)
    if len(given) > least and not pack:
        raise wrong_count(signature.name, least, len(given), f" ({names})")


def wrong_count(kernel: str, takes: int, got: int, names: str = "", more: str = "") -> ArgumentError:
    """The error for a wrong number of arguments."""
    arguments = f"{takes} argument{'s' * (takes != 1)}"
    return ArgumentError(f"{kernel} takes {arguments}{names} after stream and config, got {got}{more}")


def _parameters(signature: Signature, count: int) -> list[tuple[str, CppType | None]]:
    """Name and type of the parameter that each of `count` arguments goes to."""
    pairs = pair_up(signature, [Evidence("address", "")] * count)
    named: list[tuple[str, CppType | None]] = [
        (parameter.name or str(position), parameter.type) for position, (parameter, _) in enumerate(pairs)
    ]
    return named + [(str(position), None) for position in range(len(named), count)]


def evidence_of_types(signature: Signature, types: tuple[Any, ...]) -> tuple[Evidence, ...]:
    """The evidence that the types of arguments give without the arguments; see `Kernel.specialization`."""
    parameters = signature.parameters
    if parameters is not None and len(types) > len(parameters) and not (parameters and parameters[-1].pack):
        raise TemplateError(f"{signature.name} has {len(parameters)} parameters, got {len(types)} types of arguments")
    return tuple(
        _evidence_of_type(name, cpp, given)
        for (name, cpp), given in zip(_parameters(signature, len(types)), types, strict=True)
    )


def _evidence_of_type(name: str, cpp: CppType | None, given: Any) -> Evidence:
    if given is None:
        return Evidence("address", "None")
    if isinstance(given, np.ndarray) and cpp is not None and is_tensor(cpp):
        strides = tuple(step // given.itemsize for step in given.strides)
        layout = layout_of(given.shape, strides, given.ctypes.data, given.itemsize)
        return Evidence("array", f"{given.dtype}", given.dtype, given.ndim, layout=layout)
    said = str(tensor_arguments(cpp)[1]) if cpp is not None and is_tensor(cpp) else ""
    rank = int(said) if said.isdigit() else 1
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], int):
        given, rank = given
    try:
        dtype = structs.struct_dtype(given) if structs.is_struct_type(given) else np.dtype(given)
    except TypeError:
        raise TemplateError(f"the type of argument {name} must be a dtype or None, got {shortened(given)}") from None
    plain = without_const(cpp) if cpp is not None else None
    scalar = isinstance(plain, Named) and plain.name.split("::")[-1] not in ("strided", "tensor")
    return Evidence("scalar" if scalar else "array", f"{dtype}", dtype, rank)


def weak_choices(
    signature: Signature, evidence: tuple[Evidence, ...], explicit: Mapping[str, Deduced]
) -> tuple[bool, ...]:
    """Whether each argument is a Python int whose size alone chose its parameter's type."""
    types = {parameter.name for parameter in signature.template_parameters} - set(explicit)
    chosen = [
        found.category == "weak" and found.dtype is not None and str(without_const(parameter.type)) in types
        for parameter, found in pair_up(signature, evidence)
    ]
    return (*chosen, *[False] * (len(evidence) - len(chosen)))
