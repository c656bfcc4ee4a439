"""Binding of an argument to a parameter: one full check, which returns a few expressions for generated code."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from cudakit.errors import ArgumentError, named, shortened
from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.records import NamedTuple
from cudakit.types import scalars
from cudakit.types.arguments import Argument, describe, texture_handle

_FLOAT32 = struct.Struct("<f"), struct.Struct("<i")
_FLOAT16 = struct.Struct("<e"), struct.Struct("<h")


class Mismatch(AttributeError):
    """An argument differs from the arguments of a call shape; the full check follows."""


class Fragment(NamedTuple):
    """Python expressions for an argument of a call shape; ``{a}`` is the argument, ``{k}`` the prefix of its constants.

    Attributes
    ----------
    guard : str
        Expression that is true if the argument is as in the full check. It may assign names for the value.
    value : str
        Expression of the value that is passed on.
    form : str
        ``q`` (an int), ``d`` (a float) or ``s`` (bytes).
    constants : mapping
        Objects that guard and value name, by suffix of ``{k}``.
    fixed : bool
        Whether guard and value never change while the argument lives, so that its identity replaces both.
    number : bool
        Whether the argument is a number that may be kept: its identity then replaces guard and value.
    shaped : bool
        Whether `fixed` is true only while the shape is the same.
    """

    guard: str
    value: str
    form: Literal["q", "d", "s", "native"]
    constants: Mapping[str, Any] = MappingProxyType({})
    fixed: bool = False
    number: bool = False
    shaped: bool = False

    def written(self, argument: str, prefix: str, names: dict[str, Any], value_argument: str = "") -> tuple[str, str]:
        """Return guard and value of an argument in generated code.

        Parameters
        ----------
        argument : str
            Expression of the argument.
        prefix : str
            Prefix of the constants' names.
        names : dict
            Global names of the code, to which the constants are added.
        value_argument : str
            Expression of the argument in the value, if it differs from `argument`.
        """
        names.update({f"{prefix}{suffix}": constant for suffix, constant in self.constants.items()})
        return self.guard.format(a=argument, k=prefix), self.value.format(a=value_argument or argument, k=prefix)


class Callee(NamedTuple):
    """The called kernel and its device, which a binding needs beside the argument and its parameter.

    `several_devices` says whether the process has more than one device.
    """

    kernel: str
    device_id: int
    several_devices: bool


def evaluate(fragment: Fragment, argument: Any) -> Any:
    """Evaluate a fragment for an argument, outside of generated code."""
    names = {"a": argument}
    guard, value = fragment.written("a", "k_", names)
    if ":=" in guard:
        eval(guard, names)  # which finds the value
    return eval(value, names)


def bind(parameter: BoundParameter, argument: Argument, callee: Callee, size: int, weak_choice: bool) -> Fragment:
    """Check `argument` against `parameter`, and return the fragment of the check.

    Parameters
    ----------
    parameter : BoundParameter
        Parameter of the kernel.
    argument : Argument
        Described argument.
    callee : Callee
        Kernel and device.
    size : int
        Size of the parameter in the compiled kernel, in bytes.
    weak_choice : bool
        Whether this argument's value chose the parameter's type (a Python int beyond int).

    Raises
    ------
    ArgumentError
        If the argument does not fit. The message names the kernel, the parameter, the expected and the passed type.
    """
    try:
        return _bound(parameter, argument, callee, size, weak_choice)
    except ArgumentError as error:
        error.detailed(**named(callee.kernel), parameter=parameter.name, expected=parameter.cpp)
        error.detailed(got=argument.evidence.shown)
        raise


def _bound(parameter: BoundParameter, argument: Argument, callee: Callee, size: int, weak_choice: bool) -> Fragment:
    where = f"{callee.kernel}: parameter {parameter.name} ({parameter.cpp})"
    match parameter.category:
        case "pointer":
            return _pointer(parameter, argument, callee, where)
        case "scalar":
            fragment = _scalar(parameter, argument, where, weak_choice)
            return _promised(fragment, parameter, argument, where) if _promises(parameter) else fragment
        case "vector":
            return _vector(parameter, argument, where)
        case "struct":
            return _struct(parameter, argument, where)
        case "strided":
            return _strided(parameter, argument, callee, where)
        case "tensor":
            return _tensor(parameter, argument, callee, where)
        case "functor":
            return Fragment("{a} == {k}text", "0", "q", {"text": argument.value})
        case "tensor_map":
            return _tensor_map(argument, where)
        case "unknown":
            return _unknown(parameter, argument, callee, where, size)


def _shown(argument: Argument) -> str:
    return argument.evidence.shown


def check_memory(argument: Argument, parameter: BoundParameter, callee: Callee, where: str) -> None:
    """Check dtype, device and writability of memory that is passed for a parameter.

    Raises
    ------
    ArgumentError
        If the kernel cannot use the memory. The message begins with `where`, the names of kernel and parameter.
    """
    evidence = argument.evidence
    if parameter.dtype is not None and evidence.dtype is not None and not _same_elements(parameter, evidence.dtype):
        expected = (
            f"{parameter.dtype}"
            if parameter.count == 1 or parameter.category in ("strided", "tensor")
            else f"{parameter.count} × {parameter.dtype}"
        )
        advice = f"convert it with x.astype({shortened(str(parameter.dtype))}), or give other template arguments"
        raise ArgumentError.of(where, f"takes elements of {expected}", _shown(argument), advice)
    if evidence.readonly and not parameter.const:
        raise ArgumentError.of(
            where, "may be written", f"{_shown(argument)}, which is read-only", "copy it, or take const T*",
            expected="memory that can be written",
        )  # fmt: skip
    if argument.device_id is not None and argument.device_id != callee.device_id:
        raise ArgumentError.of(
            f"{where}:",
            f"the stream is of device {callee.device_id}",
            f"{_shown(argument)} on device {argument.device_id}",
            "copy it to the stream's device",
        )


def _same_elements(parameter: BoundParameter, dtype: np.dtype) -> bool:
    if parameter.dtype == dtype:
        return True
    if parameter.category == "pointer" and parameter.count > 1 and parameter.dtype is not None:
        if dtype.names is not None:
            return dtype == np.dtype([(name, parameter.dtype) for name in "xyzw"[: parameter.count]])
        if parameter.count == 2 and dtype.kind == "c":
            return parameter.dtype.kind == "f" and dtype.itemsize == 2 * parameter.dtype.itemsize
    # Plain `char` is bytes: C++ leaves its sign open.
    return parameter.cpp.removeprefix("const ").startswith("char") and dtype == np.uint8


def _pointer(parameter: BoundParameter, argument: Argument, callee: Callee, where: str) -> Fragment:
    if argument.family == "none":
        return Fragment("{a} is None", "0", "q")
    if argument.evidence.category == "address":
        check_memory(argument, parameter, callee, where)
        _check_address(parameter, argument, where)

        def address(value: Any) -> int:
            again = describe(value)
            if again.device_id != argument.device_id or again.pointer % parameter.alignment:
                raise Mismatch
            if again.evidence.readonly and not parameter.const:
                raise Mismatch
            return again.pointer

        return Fragment(
            "type({a}) is {k}type", "{k}address({a})", "q", {"type": type(argument.value), "address": address}
        )
    if argument.evidence.category != "array":
        hint = ""
        if argument.family == "number":
            hint = "a raw address is given as ctypes.c_void_p(address)"
        elif isinstance(argument.value, list | tuple):
            array = f"np.array({parameter.name}, {str(parameter.dtype or 'dtype')!r})"
            hint = f"make one of it with ck.to_device({array}, stream)"
        raise ArgumentError.of(where, "takes an array", _shown(argument), hint)
    check_memory(argument, parameter, callee, where)
    if not argument.contiguous:
        copies = {"memory": "numpy.ascontiguousarray(x)", "torch": "x.contiguous()"}
        raise ArgumentError.of(
            where,
            "takes contiguous (C-ordered) memory",
            f"{_shown(argument)} and strides {argument.strides}",
            f"copy it with {copies.get(argument.family, 'cupy.ascontiguousarray(x)')}, or let the kernel take "
            "cudakit::strided<T, RANK>",
        )
    extra = ""
    is_record = argument.evidence.dtype is not None and argument.evidence.dtype.names is not None
    if parameter.alignment > 1 and (parameter.count == 1 or is_record):
        _check_address(parameter, argument, where)
        extra = f" and not {{pointer}} % {parameter.alignment}"
    elif parameter.count > 1 and argument.evidence.dtype == parameter.dtype:
        if argument.pointer % parameter.alignment or (np.prod(argument.shape, dtype=int) % parameter.count):
            raise ArgumentError.of(
                where,
                f"reads {parameter.count} elements at a time: the size must be a multiple of {parameter.count} and the "
                f"address of {parameter.alignment} bytes",
                f"{_shown(argument)} at address {argument.pointer:#x}",
            )
        extra = f" and not {{size}} % {parameter.count} and not {{pointer}} % {parameter.alignment}"
    return _array(argument, callee, extra, parameter, where, ("{pointer}", "q"), None)


def _check_address(parameter: BoundParameter, argument: Argument, where: str) -> None:
    if argument.pointer % parameter.alignment:
        clause = f"its address must be a multiple of {parameter.alignment} bytes"
        raise ArgumentError.of(f"{where}:", clause, f"{_shown(argument)} at address {argument.pointer:#x}")


def _array(
    argument: Argument,
    callee: Callee,
    extra: str,
    parameter: BoundParameter,
    where: str,
    value_and_form: tuple[str, Literal["q", "s"]],
    reader: Callable[[Argument], Any] | None,
) -> Fragment:
    """Return the fragment of an array: attribute tests for CuPy and torch, a new description for other libraries."""
    dtype = argument.evidence.dtype
    value, form = value_and_form
    if argument.family == "cupy":
        same = "is" if dtype is not None and dtype.names is None else "=="
        guard = f"{{a}}.dtype {same} {{k}}dtype"
        guard += " and {a}._c_contiguous" if reader is None else f" and {{a}}.ndim == {argument.evidence.rank}"
        if callee.several_devices:
            guard += f" and {{a}}.data.device_id == {callee.device_id}"
        names = {"pointer": "{a}.data.ptr", "size": "{a}.size"}
        constants = {"dtype": argument.value.dtype, "class": type(argument.value)}
    elif argument.family == "torch":
        guard = f"{{a}}.dtype is {{k}}dtype and {{a}}.get_device() == {callee.device_id}"
        guard += " and {a}.is_contiguous()" if reader is None else f" and {{a}}.dim() == {argument.evidence.rank}"
        names = {"pointer": "{a}.data_ptr()", "size": "{a}.numel()"}
        constants = {"dtype": argument.value.dtype, "class": type(argument.value)}
    else:

        def again(value: Any) -> Any:
            described = describe(value)
            same = described.evidence.dtype == dtype and described.evidence.rank == argument.evidence.rank
            if not same or described.evidence.readonly != argument.evidence.readonly:
                raise Mismatch
            if extra and described.pointer % parameter.alignment:
                raise Mismatch
            if extra and dtype == parameter.dtype and np.prod(described.shape, dtype=int) % parameter.count:
                raise Mismatch
            if described.device_id != argument.device_id or not (described.contiguous or reader):
                raise Mismatch
            return reader(described) if reader else described.pointer

        return Fragment("type({a}) is {k}type", "{k}again({a})", form, {"type": type(argument.value), "again": again})
    for name, expression in names.items():
        extra, value = extra.replace(f"{{{name}}}", expression), value.replace(f"{{{name}}}", expression)
    if reader is not None:
        constants["read"] = lambda value: reader(describe(value))
    # CuPy's arrays cannot change memory or dtype, and reshaping in place keeps them contiguous.
    return Fragment(guard + extra, value, form, constants, fixed=argument.family == "cupy" and reader is None)


def _strided(parameter: BoundParameter, argument: Argument, callee: Callee, where: str) -> Fragment:
    if argument.evidence.category != "array":
        raise ArgumentError.of(where, "takes an array", _shown(argument))
    check_memory(argument, parameter, callee, where)
    if argument.evidence.rank != parameter.count:
        raise ArgumentError.of(where, f"takes {parameter.count} dimensions", _shown(argument))
    pack = struct.Struct(f"<Q{2 * parameter.count}q").pack

    def read(argument: Argument) -> bytes:
        return pack(argument.pointer, *argument.shape, *argument.strides)

    if argument.family == "cupy" and argument.evidence.dtype is not None:
        size = max(1, argument.evidence.dtype.itemsize)
        fragment = _array(argument, callee, "", parameter, where, ("{k}pack({a})", "s"), read)

        def pack_cupy(value: Any) -> bytes:
            return pack(value.data.ptr, *value.shape, *[step // size for step in value.strides])

        return Fragment(fragment.guard, fragment.value, "s", {**fragment.constants, "pack": pack_cupy})
    return _array(argument, callee, "", parameter, where, ("{k}read({a})", "s"), read)


def _tensor(parameter: BoundParameter, argument: Argument, callee: Callee, where: str) -> Fragment:
    if argument.evidence.category != "array":
        raise ArgumentError.of(where, "takes an array", _shown(argument))
    check_memory(argument, parameter, callee, where)
    if argument.evidence.rank != parameter.count:
        raise ArgumentError.of(where, f"takes {parameter.count} dimensions", _shown(argument))
    from cudakit.jit.launch.tensor_binding import TensorBinding  # for tile kernels alone

    size = max(1, argument.evidence.dtype.itemsize) if argument.evidence.dtype is not None else 1
    is_cupy = argument.family == "cupy"
    whole = TensorBinding(parameter, size, size if is_cupy else 1)
    if refusal := whole.refusal(argument.pointer, argument.shape, argument.strides):
        raise ArgumentError(f"{where}: {refusal}; got {_shown(argument)}")

    def read(array: Argument) -> bytes | None:
        return whole.pack(array.pointer, array.shape, array.strides)

    strides = "{a}.strides" if is_cupy else "{a}.stride()"
    expression = f"{{k}}pack({{pointer}}, {{a}}.shape, {strides})"
    fragment = _array(argument, callee, "", parameter, where, (expression, "s"), read)
    # An array of another layout needs another specialization.
    guard = f"{fragment.guard} and ({{k}}bytes := {fragment.value}) is not None"
    constants = {**fragment.constants, "pack": whole.pack}
    return fragment._replace(guard=guard, value="{k}bytes", constants=constants, fixed=is_cupy, shaped=is_cupy)


def _scalar(parameter: BoundParameter, argument: Argument, where: str, weak_choice: bool) -> Fragment:
    dtype, value = parameter.dtype, argument.value
    assert dtype is not None
    if argument.family == "object" and (handle := texture_handle(value)) is not None and dtype.itemsize == 8:
        del handle
        return Fragment("type({a}) is {k}type", "{k}handle({a})", "q", {"type": type(value), "handle": texture_handle})
    if argument.family != "number":
        raise ArgumentError.of(where, "takes a number", _shown(argument))
    convert = scalars.converter(dtype, where)
    convert(value)
    value_class = type(value)
    if value_class is int and dtype.kind in "iu":
        least, greatest = scalars.integer_range(dtype)
        # CPython compares ints of one digit (30 bits) several times faster: they are tried first.
        wide = f"{least} <= {{a}} <= {min(greatest, 2**63 - 1)}"
        within = f"(0 <= {{a}} <= {2**30 - 1} or {wide})" if greatest > 2**30 else wide
        guard = f"type({{a}}) is int and {within}"
        if weak_choice:
            guard += f" and not {-(2**31)} <= {{a}} < {2**31}"
        if greatest < 2**63 or value < 2**63:
            return Fragment(guard, "{a}", "q", number=True)
    if value_class is bool and dtype.kind == "b":
        return Fragment("type({a}) is bool", "{a}", "q", number=True)
    if value_class is float and dtype == np.float64:
        return Fragment("type({a}) is float", "{a}", "d", number=True)
    if value_class is float and dtype in (np.dtype("f4"), np.dtype("f2")):
        # Packing and unpacking by struct costs half as much as making a numpy.float32. A number that is too large
        # raises.
        real, bits = _FLOAT32 if dtype.itemsize == 4 else _FLOAT16
        constants = {"pack": real.pack, "unpack": bits.unpack}
        return Fragment("type({a}) is float", "{k}unpack({k}pack({a}))[0]", "q", constants, number=True)
    form: Literal["q", "d", "native"] = "d" if dtype == np.float64 else "native" if dtype == np.complex128 else "q"
    guard = "type({a}) is {k}type"
    if weak_choice:
        guard += f" and {{a}} >= {2**63}" if dtype.kind == "u" else f" and not {-(2**31)} <= {{a}} < {2**31}"
    return Fragment(guard, "{k}convert({a})", form, {"type": value_class, "convert": convert}, number=True)


def _promises(parameter: BoundParameter) -> list[tuple[str, str]]:
    """Return tile code's assumptions about a number, as pairs: a Python condition on ``{a}``, and the same in words."""
    conditions = [
        (parameter.divisor > 1, f"{{a}} % {parameter.divisor} == 0", f"a multiple of {parameter.divisor}"),
        (parameter.low is not None, f"{{a}} >= {parameter.low}", f"at least {parameter.low}"),
        (parameter.high is not None, f"{{a}} <= {parameter.high}", f"at most {parameter.high}"),
    ]
    return [(guard, words) for is_there, guard, words in conditions if is_there]


def converter(parameter: BoundParameter, where: str) -> scalars.Converter:
    """Return a function that converts numbers for a scalar parameter, and raises `ArgumentError` for refused numbers.

    It is `scalars.converter`'s, with checks of the promises of tile code.
    """
    assert parameter.dtype is not None
    convert, promises = scalars.converter(parameter.dtype, where), _promises(parameter)

    def checked(value: Any) -> Any:
        converted = convert(value)
        for guard, words in promises:
            if not eval(guard.format(a="a"), {"a": converted}):
                raise ArgumentError(f"{where.removesuffix(',')} is {value}: the kernel assumes that it is {words}")
        return converted

    return checked if promises else convert


def _promised(fragment: Fragment, parameter: BoundParameter, argument: Argument, where: str) -> Fragment:
    """Return the fragment of a number with the checks of tile code's promises added."""
    converter(parameter, where)(argument.value)
    return fragment._replace(guard=" and ".join((fragment.guard, *(guard for guard, _ in _promises(parameter)))))


def _vector(parameter: BoundParameter, argument: Argument, where: str) -> Fragment:
    assert parameter.dtype is not None
    dtype, count = parameter.dtype, parameter.count
    convert = scalars.converter(dtype, where)
    array = isinstance(argument.value, np.ndarray)

    def to_bytes(value: Any) -> bytes:
        if isinstance(value, complex | np.complexfloating):
            items: Any = (value.real, value.imag)
        elif isinstance(value, np.void):
            items = value.item()
        else:
            items = value
        if array and value.ndim != 1:
            raise ArgumentError(f"{where} takes {count} numbers, got an array of shape {value.shape}")
        # Checked before a million elements are converted.
        if isinstance(items, list | tuple | np.ndarray) and len(items) != count:
            raise ArgumentError(f"{where} takes {count} numbers, got {len(items)}: {shortened(value)}")
        try:
            parts = [scalars.to_bytes(convert(item), dtype) for item in items]
        except TypeError as error:
            if isinstance(error, ArgumentError):
                raise
            raise ArgumentError.of(where, f"takes {count} numbers, as in a tuple", _shown(describe(value))) from None
        if len(parts) != count:
            raise ArgumentError(f"{where} takes {count} numbers, got {len(parts)}: {shortened(value)}")
        return b"".join(parts)

    to_bytes(argument.value)
    return _bytes_fragment(argument, to_bytes, dtype.itemsize * count)


def _struct(parameter: BoundParameter, argument: Argument, where: str) -> Fragment:
    dtype = parameter.dtype
    assert dtype is not None
    if _is_bytes(argument) and argument.value.nbytes == dtype.itemsize:
        return _raw(argument)
    if argument.family != "struct" or argument.evidence.dtype != dtype:
        fields = ", ".join(dtype.names or ())
        raise ArgumentError.of(where, f"takes a struct with fields {fields} ({dtype.itemsize} bytes)", _shown(argument))

    from cudakit.types.packing import struct_packer  # few kernels take structs

    pack = struct_packer(dtype, where)

    def to_bytes(value: Any) -> bytes:
        if isinstance(value, np.generic | np.ndarray) and (value.dtype != dtype or value.shape):
            raise Mismatch
        return pack(value)

    to_bytes(argument.value)
    if type(argument.value) is np.void and dtype.itemsize > 8:
        # NumPy's record already has the bytes.
        guard = "{a}.__class__ is {k}class and {a}.dtype == {k}dtype"
        return Fragment(guard, "{a}.tobytes()", "s", {"class": np.void, "dtype": dtype})
    return _bytes_fragment(argument, to_bytes, dtype.itemsize)


def _is_bytes(argument: Argument) -> bool:
    """Return whether an argument is a ``numpy.void`` without fields: the bytes of a struct."""
    return isinstance(argument.value, np.void) and argument.value.dtype.names is None


def _raw(argument: Argument) -> Fragment:
    dtype = argument.value.dtype

    def to_bytes(value: Any) -> bytes:
        if value.dtype != dtype:
            raise Mismatch
        data: bytes = value.tobytes()
        return data

    return _bytes_fragment(argument, to_bytes, dtype.itemsize)


def _bytes_fragment(argument: Argument, to_bytes: Callable[[Any], bytes], size: int) -> Fragment:
    value_class = type(argument.value)
    if size <= 8:

        def bits(value: Any) -> int:
            return int.from_bytes(to_bytes(value).ljust(8, b"\0"), "little", signed=True)

        return Fragment("type({a}) is {k}type", "{k}bits({a})", "q", {"type": value_class, "bits": bits})
    return Fragment("type({a}) is {k}type", "{k}bytes({a})", "s", {"type": value_class, "bytes": to_bytes})


_TENSOR_MAP_BYTES = 128


def _tensor_map(argument: Argument, where: str) -> Fragment:
    if argument.evidence.text != "CUtensorMap":
        raise ArgumentError.of(where, "takes a cuda.core TensorMapDescriptor", _shown(argument))
    return Fragment("type({a}) is {k}type", "{a}", "native", {"type": type(argument.value)})


def _unknown(parameter: BoundParameter, argument: Argument, callee: Callee, where: str, size: int) -> Fragment:
    """Bind a parameter whose type is unknown. It accepts only bytes of exactly its size."""
    value, dtype = argument.value, argument.evidence.dtype
    if argument.evidence.text == "CUtensorMap" and size == _TENSOR_MAP_BYTES:
        return _tensor_map(argument, where)
    if parameter.cpp == "8 bytes" and argument.evidence.category == "array":
        # A kernel in compiled code without types.
        return _pointer(parameter, argument, callee, where)
    if parameter.cpp.removesuffix(" __restrict__").removesuffix(" const").endswith("*"):
        if argument.evidence.category == "array" and dtype is not None and dtype.names is None and dtype.itemsize != 1:
            raise ArgumentError.of(
                where,
                "points to a type that cudakit does not know",
                _shown(argument),
                "give its bytes, as in x.view('u1'), or a structured dtype of the same layout",
                expected="bytes of the type",
            )
        return _pointer(parameter, argument, callee, where)
    if argument.family == "struct" and dtype is not None:
        if dtype.itemsize != size:
            raise ArgumentError(f"{where} takes {size} bytes, got a struct of {dtype.itemsize}: got {_shown(argument)}")
        return _struct(BoundParameter(parameter.name, parameter.cpp, "struct", dtype), argument, where)
    if _is_bytes(argument) and value.nbytes == size:
        return _raw(argument)
    widest = 16 if dtype is not None and dtype.kind == "c" else 8
    if argument.evidence.category == "scalar" and dtype is not None and size == dtype.itemsize <= widest:
        return _scalar(BoundParameter(parameter.name, parameter.cpp, "scalar", dtype), argument, where, False)
    if isinstance(value, np.generic):
        raise ArgumentError.of(where, f"takes {size} bytes", f"{_shown(argument)} of {value.dtype.itemsize}")
    if parameter.dtype is not None and type(value) is int and size == parameter.dtype.itemsize:
        return _scalar(BoundParameter(parameter.name, parameter.cpp, "scalar", parameter.dtype), argument, where, False)
    advice = "" if parameter.cpp != f"{size} bytes" else ", or tell its type with from_file(…, signature=…)"
    raise ArgumentError.of(
        where,
        "is a type that cudakit does not know",
        _shown(argument),
        f"give it as a struct or a NumPy scalar of exactly {size} bytes{advice}",
        expected=f"{size} bytes",
    )
