"""Template arguments: bound by the user in brackets, or deduced from the arguments as in C++."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from cudakit.errors import TemplateError, shortened
from cudakit.jit.signature.signature import Parameter, Signature, TemplateParameter
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.types import structs
from cudakit.types.arguments import Evidence, torch_dtype
from cudakit.types.cpp import (
    CppType,
    Named,
    Opaque,
    Pointer,
    Reference,
    Value,
    canonical_name,
    is_tensor,
    spelling,
    with_const,
    without_const,
)

Deduced: TypeAlias = str | tuple[str, ...]
COMPLEX_TEMPLATES = ("cuda::std::complex", "thrust::complex", "std::complex")
#: Dtype of a Python scalar if no other argument decides, as for C++ literals.
_WEAK: dict[type, np.dtype] = {
    bool: np.dtype("?"),
    int: np.dtype("i4"),
    float: np.dtype("f8"),
    complex: np.dtype("c16"),
}


SpellDtype: TypeAlias = Callable[[np.dtype, str], str]


def deduce(
    signature: Signature,
    explicit: Mapping[str, Deduced],
    evidence: Sequence[Evidence],
    spell: SpellDtype,
) -> dict[str, Deduced]:
    """Return the template arguments of `signature` by name: explicit, deduced, and needed defaults.

    Parameters
    ----------
    signature : Signature
        Signature of the kernel.
    explicit : mapping
        The user's template arguments: C++ source by parameter name.
    evidence : sequence of Evidence
        Type information of each argument, in order; empty if there is none.
    spell : callable
        ``spell(dtype, where)`` returns the C++ type of a dtype.

    Raises
    ------
    TemplateError
        If two arguments disagree (the message names both), or a template argument is missing.
    """
    state = _Deduction(signature, dict(explicit), spell)
    # Python's numbers come last. The types in a pack keep the order of its arguments, and do not depend on each other.
    pairs = sorted(pair_up(signature, evidence), key=lambda pair: pair[1].category == "weak" and not pair[0].pack)
    for parameter, item in pairs:
        if item.category == "weak":
            state.unify_weak(parameter, item)
        else:
            state.unify(parameter.type, item, parameter)
    return state.finish()


def pair_up(signature: Signature, evidence: Sequence[Evidence]) -> list[tuple[Parameter, Evidence]]:
    """Pair each argument with its parameter; a pack at the end takes all remaining arguments."""
    parameters = list(signature.parameters or ())
    if parameters and parameters[-1].pack and len(evidence) >= len(parameters) - 1:
        parameters[-1:] = [parameters[-1]] * (len(evidence) - len(parameters) + 1)
    return list(zip(parameters, evidence, strict=False))


class _Deduction:
    """The template arguments deduced so far, and the argument that each came from."""

    def __init__(self, signature: Signature, arguments: dict[str, Deduced], spell: SpellDtype) -> None:
        self.signature = signature
        self.explicit = frozenset(arguments)
        self.arguments = arguments
        self.sources: dict[str, str] = {}
        self.spell = spell
        self.parameters = {parameter.name: parameter for parameter in signature.template_parameters}

    def bind(self, name: str, text: str, parameter: Parameter, evidence: Evidence) -> None:
        if name in self.explicit:
            return
        source = f"{parameter.name or 'an unnamed parameter'} ({evidence.shown})"
        if parameter.pack and self.parameters[name].pack:
            previous = self.arguments.get(name, ())
            self.arguments[name] = (*previous, text)
            return
        if name in self.arguments and self.arguments[name] != text:
            raise TemplateError(
                f"{self.signature.name}: template argument {name} is {self.arguments[name]} from {self.sources[name]}, "
                f"but {text} from {source}; convert one of them, or give {name} in brackets"
            )
        self.arguments[name] = text
        self.sources[name] = source

    def unify(self, cpp: CppType, evidence: Evidence, parameter: Parameter) -> None:
        """Match a parameter's type with its argument, and record the template arguments that follow.

        An argument without type information is left to later checks.
        """
        cpp = without_const(cpp)
        match cpp:
            case Pointer(target) if evidence.category == "array" and evidence.dtype is not None:
                self.unify_dtype(without_const(target), evidence.dtype, evidence, parameter)
            case Named(name, None) if name in self.parameters:
                if evidence.category == "functor":
                    self.bind(name, evidence.text, parameter, evidence)
                elif evidence.category == "scalar" and evidence.dtype is not None:
                    self.unify_dtype(cpp, evidence.dtype, evidence, parameter)
                elif evidence.category == "array" and evidence.dtype is not None:
                    element = self.spell(evidence.dtype, f"argument {parameter.name}")
                    self.bind(name, f"{'const ' if evidence.readonly else ''}{element}*", parameter, evidence)
            case Named(name, (element, rank)) if (
                name.split("::")[-1] in ("strided", "tensor") and evidence.category == "array"
            ):
                if isinstance(element, Named | Pointer | Opaque | Reference) and evidence.dtype is not None:
                    inner = without_const(element)
                    spelled = self.spell(evidence.dtype, f"argument {parameter.name}")
                    if isinstance(inner, Named) and inner.name in self.parameters and inner.arguments is None:
                        # `T` may become const, as in C++; with `const T` the kernel has it already.
                        const = "const " if evidence.readonly and inner is element and not is_tensor(cpp) else ""
                        self.bind(inner.name, const + spelled, parameter, evidence)
                    else:
                        self.unify_dtype(inner, evidence.dtype, evidence, parameter)
                if str(rank) in self.parameters:
                    self.bind(str(rank), str(evidence.rank), parameter, evidence)
            case Named() if evidence.category == "scalar" and evidence.dtype is not None:
                self.unify_dtype(cpp, evidence.dtype, evidence, parameter)

    def unify_dtype(self, cpp: CppType, dtype: np.dtype, evidence: Evidence, parameter: Parameter) -> None:
        match cpp:
            case Named(name, None) if name in self.parameters:
                self.bind(name, self.spell(dtype, f"argument {parameter.name}"), parameter, evidence)
            case Named(name, (Named(inner, None),)) if name in COMPLEX_TEMPLATES and inner in self.parameters:
                if dtype.kind == "c":
                    real = np.dtype(f"f{dtype.itemsize // 2}")
                    self.bind(inner, self.spell(real, f"argument {parameter.name}"), parameter, evidence)

    def unify_weak(self, parameter: Parameter, evidence: Evidence) -> None:
        """Deduce a type from a Python number, if no other argument has decided it (NumPy's rule for Python scalars)."""
        cpp = without_const(parameter.type)
        if isinstance(cpp, Named) and cpp.arguments is None and cpp.name in self.parameters:
            pack = parameter.pack and self.parameters[cpp.name].pack
            if (cpp.name not in self.arguments or pack) and evidence.python_type is not None:
                dtype = evidence.dtype or _WEAK[evidence.python_type]
                self.bind(
                    cpp.name, self.spell(dtype, f"argument {parameter.name}"), parameter, evidence._replace(dtype=dtype)
                )

    def finish(self) -> dict[str, Deduced]:
        """Return all template arguments up to the last deduced or explicit one, in order, with defaults filled in.

        Raises
        ------
        TemplateError
            If an argument is missing and has no default.
        """
        parameters = self.signature.template_parameters
        last = max((i for i, p in enumerate(parameters) if p.name in self.arguments), default=-1)
        result: dict[str, Deduced] = {}
        for index, parameter in enumerate(parameters):
            if parameter.name in self.arguments:
                result[parameter.name] = self.arguments[parameter.name]
            elif parameter.pack:
                result[parameter.name] = ()
            elif parameter.default is None:
                raise TemplateError(
                    f"{self.signature.name}: template argument {parameter.name or index} cannot be deduced from the "
                    f"arguments; give it in brackets, as in kernel[{{{parameter.name!r}: …}}]"
                )
            elif index < last:
                result[parameter.name] = substitute_text(parameter.default, result)
        return result


def substitute_text(text: str, arguments: Mapping[str, Deduced]) -> str:
    """Replace each template parameter's name in `text`, as a whole word, by its argument. Packs are not replaced."""
    out, word = [], ""
    for character in text + "\0":
        if character.isalnum() or character == "_":
            word += character
            continue
        if word:
            value = arguments.get(word)
            out.append(value if isinstance(value, str) else word)
            word = ""
        out.append(character)
    return "".join(out)[:-1]


def substitute(cpp: CppType, arguments: Mapping[str, CppType | str]) -> CppType:
    """Replace template parameters in `cpp`: a type by its record, a value by its text."""
    match cpp:
        case Named(name, None, const) if isinstance(arguments.get(name), Named | Pointer | Opaque):
            argument = arguments[name]
            assert isinstance(argument, Named | Pointer | Opaque)
            return with_const(argument, argument.const or const)
        case Named(name, tuple(inner), const):
            return Named(name, tuple(_substitute_argument(argument, arguments) for argument in inner), const)
        case Pointer(target):
            return cpp._replace(target=substitute(target, arguments))
        case Reference(target):
            return cpp._replace(target=substitute(target, arguments))
        case Opaque(text, const):
            return Opaque(substitute_text(text, {name: str(value) for name, value in arguments.items()}), const)
    return cpp


def _substitute_argument(argument: CppType | Value, arguments: Mapping[str, CppType | str]) -> CppType | Value:
    if isinstance(argument, Value):
        return Value(substitute_text(argument.text, {name: str(value) for name, value in arguments.items()}))
    if isinstance(argument, Named) and isinstance(arguments.get(argument.name), str):
        return Value(str(arguments[argument.name]))
    return substitute(argument, arguments)


def explicit_arguments(signature: Signature, template_arguments: Any, book: TypeBook) -> dict[str, Deduced]:
    """Return the C++ source of each template argument in the brackets of ``kernel[…]``.

    Parameters
    ----------
    signature : Signature
        Signature of the kernel.
    template_arguments : object
        An argument, a tuple of arguments, and names: a dict ``{"BLOCK": 256}`` or slices ``"BLOCK": 256``.
    book : TypeBook
        Collects the structs and function objects of the arguments.

    Raises
    ------
    TemplateError
        For too many arguments, an unknown name, a name that is repeated, or an argument of the wrong category.
    """
    parameters = signature.template_parameters
    by_name = {parameter.name: parameter for parameter in parameters}
    result: dict[str, Deduced] = {}
    position = 0

    def put(parameter: TemplateParameter, value: Any) -> None:
        text = argument_text(signature, parameter, value, book)
        if parameter.pack:
            earlier = result.get(parameter.name, ())
            result[parameter.name] = (*earlier, text)
        elif parameter.name in result:
            raise TemplateError(f"{signature.name}: template argument {parameter.name} is given twice")
        else:
            result[parameter.name] = text

    for item in template_arguments if isinstance(template_arguments, tuple) else (template_arguments,):
        names = _by_name(item)
        if names is not None:
            for name, value in names.items():
                if name not in by_name:
                    known_names = ", ".join(by_name) or "none; it is not a template"
                    raise TemplateError(
                        f"{signature.name} has no template parameter {shortened(name)}; it has {known_names}"
                    )
                for element in value if by_name[name].pack and isinstance(value, tuple | list) else (value,):
                    put(by_name[name], element)
            continue
        if position >= len(parameters):
            if not parameters:
                raise TemplateError(
                    f"{signature.name} is not a template: it takes no template arguments, got {shortened(item)}"
                )
            takes = f"takes {len(parameters)} template argument{'s' * (len(parameters) != 1)}"
            raise TemplateError(f"{signature.name} {takes}, got {shortened(item)} too")
        put(parameters[position], item)
        position += not parameters[position].pack
    return result


def _by_name(item: Any) -> Mapping[str, Any] | None:
    if isinstance(item, slice) and isinstance(item.start, str) and item.step is None:
        return {item.start: item.stop}
    return item if isinstance(item, Mapping) else None


def argument_text(signature: Signature, parameter: TemplateParameter, value: Any, book: TypeBook) -> str:
    """Return the C++ source of a template argument that the user passed as `value`.

    Raises
    ------
    TemplateError
        If the value does not fit the parameter.
    """
    where = f"{signature.name}: template argument {parameter.name}"
    if isinstance(value, str):
        if not value.strip():
            raise TemplateError(f"{where} is an empty string")
        if parameter.category != "type":
            return value.strip()
        dtype = _named_dtype(value.strip(), book)
        return canonical_name(book.functor(value, parameter.name)) if dtype is None else book.spell(dtype, where)
    if parameter.category == "type":
        return _type_text(where, value, book)
    if parameter.category == "template":
        raise TemplateError(f"{where} is a template; give its name as a string, got {shortened(value)}")
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if not isinstance(value, int | np.integer):
        of_type = f" of type {parameter.value_type}" if parameter.value_type else ""
        raise TemplateError(f"{where} is a value{of_type}; give an int, a bool, or C++ text, got {shortened(value)}")
    enums = {name for name, *_ in book.declarations.enums}
    if isinstance(parameter.value_type, Named) and parameter.value_type.name in enums:
        return f"static_cast<{parameter.value_type.name}>({int(value)})"
    number = int(value)
    if not -(2**63) <= number < 2**64:
        raise TemplateError(f"{where} is a value of at most 64 bits, got {shortened(value)}")
    # The least number has no literal: C++ negates a positive literal.
    return f"({number + 1}LL - 1)" if number == -(2**63) else str(number)


def _named_dtype(text: str, book: TypeBook) -> np.dtype | None:
    """Return the dtype with NumPy's name `text`, or None.

    None if NumPy has no such dtype, C++ has no type for it, or the source has a type of this name.
    """
    dtype = _dtype(text)
    if dtype is None or dtype.name != text or spelling(dtype) is None:
        return None
    declarations = book.declarations
    names = (
        *declarations.structs,
        *(enum.name for enum in declarations.enums),
        *(name for name, _ in declarations.aliases),
    )
    return None if any(name.split("::")[-1] == text for name in names) else dtype


def _type_text(where: str, value: Any, book: TypeBook) -> str:
    if isinstance(value, bool | int | float | np.number) and not isinstance(value, type):
        raise TemplateError(
            f"{where} is a type; give a dtype such as numpy.float32, or C++ text, got {shortened(value)}"
        )
    if structs.is_struct_type(value):
        dtype = structs.struct_dtype(value)
        return book.name_struct(dtype, structs.struct_name(value))
    scalar = torch_dtype(value) if type(value).__module__ == "torch" else _dtype(value)
    if scalar is None:
        raise TemplateError(
            f"{where} is a type; give a dtype, a NumPy scalar type, a dataclass or C++ text, got {shortened(value)}"
        )
    return book.spell(scalar, where)


def _dtype(value: Any) -> np.dtype | None:
    # NumPy takes None for float64, and a dict for a struct.
    if value is None or isinstance(value, Mapping):
        return None
    try:
        dtype: np.dtype = np.dtype(value)
    except Exception:  # NumPy's, or what the repr of a value raises in its message
        return None
    return dtype if dtype.itemsize else None


def hashable(item: Any) -> Any:
    """Return a key for a template argument as the user wrote it; equal keys mean the same argument."""
    if isinstance(item, slice):
        return ("slice", item.start, item.stop)
    if isinstance(item, Mapping):
        return ("names", *((name, hashable(value)) for name, value in item.items()))
    # 1, 1.0 and True are equal and hash alike, but are different template arguments.
    return (type(item), tuple(item) if isinstance(item, list) else item)
