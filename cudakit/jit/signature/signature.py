"""Stage 2, signature: what a CUDA C++ source declares, and which of its kernels is meant.

`reader.parse` reads a text, `select` picks one kernel of it. A `Declarations` goes to JSON and back unchanged, so that
the reader, and with it tree-sitter, is imported for a new source only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from cudakit.errors import TemplateError, shortened
from cudakit.types import cpp

#: Raised whenever the records, or the way in which texts are read into them, change: stored ones then count no more.
RECORDS_FORMAT = 10


@dataclass(frozen=True, slots=True)
class TemplateParameter:
    """One template parameter.

    Attributes
    ----------
    name : str
        Its name, ``""`` where it has none.
    kind : {"type", "value", "template"}
        What it stands for; a parameter that a concept constrains is a type.
    value_type : CppType or None
        The type of a value parameter.
    default : str or None
        Its default argument as written.
    pack : bool
        Whether it takes any number of arguments.
    """

    name: str
    kind: Literal["type", "value", "template"]
    value_type: cpp.CppType | None = None
    default: str | None = None
    pack: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter.

    Attributes
    ----------
    name : str
        Its name, ``""`` where it has none.
    type : CppType
    pack : bool
        Whether it takes any number of arguments.
    default : str or None
        Its default argument as written.
    """

    name: str
    type: cpp.CppType
    pack: bool = False
    default: str | None = None


class TensorHead(NamedTuple):
    """Where a head with array parameters (``cudakit::tensor``) stands in its text.

    Attributes
    ----------
    parameters : tuple of (int, int, int)
        The position of each of them, and the offsets where it begins and ends.
    body : int
        The offset behind the brace that opens the body; -1 of a prototype.
    """

    parameters: tuple[tuple[int, int, int], ...]
    body: int


@dataclass(frozen=True, slots=True)
class Signature:
    """The head of one kernel.

    Attributes
    ----------
    name : str
        Its name, qualified by the namespaces around it.
    template_parameters : tuple of TemplateParameter
        Its template parameters, empty where it is no template.
    parameters : tuple of Parameter or None
        Its parameters; None where the head could not be parsed, or where the preprocessor decides between several.
    line : int
        The line, counted from 1, where its name stands.
    defined : bool
        Whether the text has its body, and not its prototype alone.
    is_tile : bool
        Whether it is a tile kernel, ``__tile_global__``.
    is_overload : bool
        Whether other kernels of the source have its name, so that its parameters are part of it.
    overloads : tuple of Signature
        The kernels that share the name, where none of them is chosen yet; the rest of this record is empty then.
    heads : tuple of TensorHead
        Of a tile kernel with array parameters its heads, prototypes too.
    """

    name: str
    template_parameters: tuple[TemplateParameter, ...]
    parameters: tuple[Parameter, ...] | None
    line: int
    defined: bool = True
    is_tile: bool = False
    is_overload: bool = False
    overloads: tuple[Signature, ...] = ()
    heads: tuple[TensorHead, ...] = ()

    @property
    def is_template(self) -> bool:
        """Whether the kernel has template parameters."""
        return bool(self.template_parameters)

    @property
    def full_name(self) -> str:
        """Its name, with the types of its parameters where others have the same name: ``scale(float*, int)``."""
        if not self.is_overload:
            return self.name
        return f"{self.name}({', '.join(str(parameter.type) for parameter in self.parameters or ())})"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A ``__constant__``, ``__device__`` or ``__managed__`` variable at namespace scope.

    Attributes
    ----------
    name : str
        Its qualified name.
    type : CppType
        Its type, or its elements' type where it is an array.
    extents : tuple of str
        Extents of the array as written, outermost first; ``""`` for one that the initialiser decides.
    constant : bool
        Whether it lies in constant memory.
    managed : bool
        Whether it is ``__managed__``; NVRTC takes no ``&name`` of such a variable as a name expression.
    """

    name: str
    type: cpp.CppType
    extents: tuple[str, ...]
    constant: bool
    managed: bool = False


class Enumeration(NamedTuple):
    """An enumeration: its qualified name, its enumerators, and whether these need its name (``enum class``).

    `underlying` is the type of its values; empty where the compiler chooses it.
    """

    name: str
    enumerators: tuple[str, ...]
    scoped: bool
    underlying: str


@dataclass(frozen=True, slots=True)
class Declarations:
    """What a source declares at namespace scope.

    Attributes
    ----------
    kernels : tuple of Signature
        Kernels in the order of the text, each once, whatever prototypes and explicit instantiations it has.
    symbols : tuple of Symbol
        Variables in device memory; one is left out whose existence a preprocessor conditional decides, or that is
        only declared (``extern``).
    structs : tuple of str
        Qualified names of classes, structs and unions, in alphabetical order.
    enums : tuple of Enumeration
        Named enumerations.
    aliases : tuple of (str, CppType)
        Qualified name and meaning of each ``using``, ``typedef`` and type macro; one whose meaning a preprocessor
        conditional decides is left out.
    unclosed : int or None
        The line of a brace that nothing closes.
    """

    kernels: tuple[Signature, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    structs: tuple[str, ...] = ()
    enums: tuple[Enumeration, ...] = ()
    aliases: tuple[tuple[str, cpp.CppType], ...] = ()
    unclosed: int | None = None

    @property
    def has_tiles(self) -> bool:
        """Whether any of the kernels is a tile kernel."""
        return any(kernel.is_tile for kernel in self.kernels)

    def to_json(self) -> str:
        """These declarations as compact JSON."""
        return json.dumps(_encoded(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Declarations:
        """The declarations that `to_json` wrote.

        Raises
        ------
        ValueError
            `text` is not such JSON.
        """
        try:
            record = _decoded(json.loads(text))
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"not the JSON of declarations: {error!r}") from error
        if not isinstance(record, cls):
            raise ValueError(f"not the JSON of declarations: {record!r}")
        return record


#: The records that JSON has, as lists of their class's name and their fields; tuples have an empty name.
_RECORDS: Final = {
    record.__name__: record
    for record in (
        *(Declarations, Signature, TemplateParameter, Parameter, TensorHead, Symbol, Enumeration),
        *(cpp.Named, cpp.Pointer, cpp.Reference, cpp.Opaque, cpp.Value),
    )
}


def _encoded(value: Any) -> Any:
    name = type(value).__name__
    if name in _RECORDS:
        fields = value if isinstance(value, tuple) else [getattr(value, field) for field in value.__match_args__]
        return [name, *map(_encoded, fields)]
    return ["", *map(_encoded, value)] if isinstance(value, tuple) else value


def _decoded(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    name, *fields = value
    made = map(_decoded, fields)
    return tuple(made) if name == "" else _RECORDS[name](*made)


def select(declarations: Declarations, name: str | None, source_name: str) -> Signature:
    """The kernel called `name`.

    Parameters
    ----------
    declarations : Declarations
        What the source declares.
    name : str or None
        Its name, qualified or, where only one kernel has it, not; None for the only kernel. Of kernels that share a
        name, the types of the parameters choose: ``scale(float*, int)``; without them `Signature.overloads` is given.
    source_name : str
        What to call the source in an error.

    Raises
    ------
    TemplateError
        The source has no kernel, or no such kernel; or `name` fits several, or is None and there are several.
    """
    kernels: dict[str, list[Signature]] = {}
    for kernel in declarations.kernels:
        kernels.setdefault(kernel.name, []).append(kernel)
    open_brace = declarations.unclosed
    if open_brace is not None and (not kernels or (name is not None and not _named(kernels, name))):
        raise TemplateError(f"{source_name}: nothing closes the brace {{ on line {open_brace}: a }} is missing")
    if not kernels:
        raise TemplateError(
            f"{source_name} has no __global__ function at namespace scope; one that a macro writes or that an included "
            "header defines is not seen: write __global__ out, or give the file that defines it"
        )
    if name is None:
        if len(kernels) > 1:
            raise TemplateError(f"{source_name} has {len(kernels)} kernels; name one of them: {', '.join(kernels)}")
        found = list(kernels)
    elif not isinstance(name, str):
        raise TemplateError(
            f"{source_name}: a kernel's name is a str, got {shortened(name)}; it has {', '.join(kernels)}"
        )
    else:
        wanted = _squeezed(name)
        found = _named(kernels, name)
        if len(found) > 1:
            raise TemplateError(f"{source_name} has several kernels {shortened(wanted)}; say which: {', '.join(found)}")
        if not found:
            raise TemplateError(f"{source_name} has no kernel {shortened(name)}; {_near(wanted, list(kernels))}")
    same = kernels[found[0]]
    if len(same) > 1:
        same = [replace(kernel, is_overload=kernel.parameters is not None) for kernel in same]
    # A prototype beside a definition that it does not fit is an overload that nothing defines.
    overloads = [kernel for kernel in same if kernel.defined] or same
    if len(overloads) == 1 and (name is None or "(" not in name):
        return overloads[0]
    if name is not None and "(" in name:
        return _overload(overloads, name, source_name)
    return Signature(found[0], (), None, overloads[0].line, overloads=tuple(overloads))


def _named(kernels: Mapping[str, object], name: str) -> list[str]:
    """Those of `kernels` that `name` can mean."""
    wanted = _squeezed(name)
    return [wanted] if wanted in kernels else [full for full in kernels if full.endswith(f"::{wanted}")]


def _squeezed(name: str) -> str:
    return "".join(name.partition("(")[0].split()).removeprefix("::")


def _overload(overloads: Iterable[Signature], name: str, source_name: str) -> Signature:
    """That of `overloads` whose parameters have the types in the brackets of `name`."""
    wanted = [
        str(cpp.without_const(cpp.parse_type(text))).replace(" __restrict__", "")
        for text in cpp.split_arguments(name.partition("(")[2].rpartition(")")[0])
    ]
    for kernel in overloads:
        types = [cpp.without_const(parameter.type) for parameter in kernel.parameters or ()]
        if [str(found).replace(" __restrict__", "") for found in types] == wanted:
            return kernel
    raise TemplateError(f"{source_name} has no kernel {shortened(name)}; it has {listed(overloads)}")


def listed(overloads: Iterable[Signature]) -> str:
    """Kernels of one name, with their lines."""
    return ", ".join(f"{kernel.full_name} on line {kernel.line}" for kernel in overloads)


def _near(wanted: str, names: list[str]) -> str:
    """What to say of `names` to one who asked for `wanted`."""
    import difflib

    bare = wanted.partition("<")[0]
    if bare != wanted and any(bare in (name, name.rpartition("::")[2]) for name in names):
        return f"name it {shortened(bare)} and give its template arguments in brackets, kernel[...]"
    by_last = {name.rpartition("::")[2]: name for name in names}
    near = difflib.get_close_matches(wanted, names, n=3)
    near += [by_last[last] for last in difflib.get_close_matches(wanted.rpartition("::")[2], by_last, n=3)]
    if near:
        return f"did you mean {' or '.join(dict.fromkeys(near))}?"
    return f"it has {', '.join(names)}"
