"""The declarations of a CUDA C++ source, and the choice of a kernel among them.

`reader.parse` reads a source; `select` picks a kernel. A `Declarations` is stored as JSON, so that only a new source
needs the reader, and with it tree-sitter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from cudakit.errors import TemplateError, shortened
from cudakit.records import NamedTuple
from cudakit.types import cpp

#: Increased when the records, or the parser's results, change: stored declarations are then ignored.
RECORDS_FORMAT = 10


class TemplateParameter(NamedTuple):
    """A template parameter.

    Attributes
    ----------
    name : str
        Name, ``""`` for an unnamed parameter.
    category : {"type", "value", "template"}
        Category of its arguments. A parameter that a concept constrains is a type.
    value_type : CppType or None
        Type of a value parameter; None for other categories.
    default : str or None
        Default argument as written; None if there is none.
    pack : bool
        Whether the parameter is a pack.
    """

    name: str
    category: Literal["type", "value", "template"]
    value_type: cpp.CppType | None = None
    default: str | None = None
    pack: bool = False


class Parameter(NamedTuple):
    """A kernel parameter.

    Attributes
    ----------
    name : str
        Name, ``""`` for an unnamed parameter.
    type : CppType
        C++ type.
    pack : bool
        Whether the parameter is a pack.
    default : str or None
        Default argument as written; None if there is none.
    """

    name: str
    type: cpp.CppType
    pack: bool = False
    default: str | None = None


class TensorHead(NamedTuple):
    """The place of a signature with tensor parameters (``cudakit::tensor``) in its source.

    Attributes
    ----------
    parameters : tuple of (int, int, int)
        For each tensor parameter: its position in the signature, and the offsets of its begin and end in the source.
    body : int
        Offset after the brace that opens the body; -1 for a prototype.
    """

    parameters: tuple[tuple[int, int, int], ...]
    body: int


class Signature(NamedTuple):
    """The signature of a kernel.

    Attributes
    ----------
    name : str
        Name, qualified by the enclosing namespaces.
    template_parameters : tuple of TemplateParameter
        Template parameters; empty if the kernel is no template.
    parameters : tuple of Parameter or None
        Parameters; None if they cannot be parsed, or if the preprocessor decides between several lists.
    line : int
        Line of the name, counted from 1.
    defined : bool
        Whether the source has the body, and not only a prototype.
    is_tile : bool
        Whether the kernel is a tile kernel, ``__tile_global__``.
    is_overload : bool
        Whether other kernels of the source share the name, so that the parameters are part of it.
    overloads : tuple of Signature
        Kernels that share the name, while none is chosen; the rest of this record is empty then.
    heads : tuple of TensorHead
        Places of the signatures of a tile kernel with tensor parameters, prototypes included.
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
        """True if the kernel has template parameters."""
        return bool(self.template_parameters)

    @property
    def full_name(self) -> str:
        """The name; if kernels share it, with the types of the parameters: ``scale(float*, int)``."""
        if not self.is_overload:
            return self.name
        return f"{self.name}({', '.join(str(parameter.type) for parameter in self.parameters or ())})"


class Symbol(NamedTuple):
    """A ``__constant__``, ``__device__`` or ``__managed__`` variable at namespace scope.

    Attributes
    ----------
    name : str
        Qualified name.
    type : CppType
        Type of the variable, or of an array's elements.
    extents : tuple of str
        Extents of the array as written, outermost first; ``""`` for an extent that the initialiser decides.
    constant : bool
        Whether the variable is in constant memory.
    managed : bool
        Whether it is ``__managed__``; NVRTC accepts no ``&name`` of such a variable as a name expression.
    """

    name: str
    type: cpp.CppType
    extents: tuple[str, ...]
    constant: bool
    managed: bool = False


class Enumeration(NamedTuple):
    """An enumeration: its qualified name, its enumerators, and whether these need its name (``enum class``).

    `underlying` is the type of its values; empty if the compiler chooses it.
    """

    name: str
    enumerators: tuple[str, ...]
    scoped: bool
    underlying: str


class Declarations(NamedTuple):
    """The declarations of a source at namespace scope.

    Attributes
    ----------
    kernels : tuple of Signature
        Kernels in the order of the source, each once, with its prototypes and explicit instantiations merged.
    symbols : tuple of Symbol
        Variables in device memory. Variables that are only declared (``extern``), or that a preprocessor conditional
        may remove, are left out.
    structs : tuple of str
        Qualified names of classes, structs and unions, in alphabetical order.
    enums : tuple of Enumeration
        Named enumerations.
    aliases : tuple of (str, CppType)
        Qualified name and meaning of each ``using``, ``typedef`` and type macro. An alias whose meaning a preprocessor
        conditional decides is left out.
    unclosed : int or None
        Line of an unclosed brace.
    """

    kernels: tuple[Signature, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    structs: tuple[str, ...] = ()
    enums: tuple[Enumeration, ...] = ()
    aliases: tuple[tuple[str, cpp.CppType], ...] = ()
    unclosed: int | None = None

    @property
    def has_tiles(self) -> bool:
        """True if any of the kernels is a tile kernel."""
        return any(kernel.is_tile for kernel in self.kernels)

    def to_json(self) -> str:
        """Return the declarations as compact JSON."""
        return json.dumps(_encoded(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Declarations:
        """Parse the JSON of `to_json`.

        Raises
        ------
        ValueError
            If `text` is no such JSON.
        """
        try:
            record = _decoded(json.loads(text))
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"not the JSON of declarations: {error!r}") from error
        if not isinstance(record, cls):
            raise ValueError(f"not the JSON of declarations: {record!r}")
        return record


def declarations_key(digest: str) -> str:
    """Return the key of the stored declarations of a source, whose SHA-256 is `digest`."""
    return hashlib.sha256(f"{RECORDS_FORMAT} {digest}".encode()).hexdigest()


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
        return [name, *map(_encoded, value)]
    return ["", *map(_encoded, value)] if isinstance(value, tuple) else value


def _decoded(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    name, *fields = value
    values = map(_decoded, fields)
    return tuple(values) if name == "" else _RECORDS[name](*values)


def select(declarations: Declarations, name: str | None, source_name: str) -> Signature:
    """Return the signature of the kernel `name`.

    Parameters
    ----------
    declarations : Declarations
        Declarations of the source.
    name : str or None
        Name of the kernel, qualified if several kernels have the plain name; None for the only kernel. Types of
        parameters choose among kernels that share a name: ``scale(float*, int)``. Without types, `Signature.overloads`
        has all.
    source_name : str
        Name of the source in errors.

    Raises
    ------
    TemplateError
        If the source has no kernel or no such kernel, if `name` fits several, or if it is None and there are several.
    """
    kernels: dict[str, list[Signature]] = {}
    for kernel in declarations.kernels:
        kernels.setdefault(kernel.name, []).append(kernel)
    open_brace = declarations.unclosed
    if open_brace is not None and (not kernels or (name is not None and not _matching(kernels, name))):
        raise TemplateError(f"{source_name}: nothing closes the brace {{ on line {open_brace}: a }} is missing")
    if not kernels:
        raise TemplateError(
            f"{source_name} has no __global__ function at namespace scope; one that a macro writes or that an included "
            "header defines is not seen: write __global__ out, or give the file that defines it"
        )
    if name is None:
        if len(kernels) > 1:
            raise TemplateError(f"{source_name} has {len(kernels)} kernels; name one of them: {', '.join(kernels)}")
        names = list(kernels)
    elif not isinstance(name, str):
        raise TemplateError(
            f"{source_name}: a kernel's name is a str, got {shortened(name)}; it has {', '.join(kernels)}"
        )
    else:
        squeezed = _squeezed(name)
        names = _matching(kernels, name)
        if len(names) > 1:
            raise TemplateError(
                f"{source_name} has several kernels {shortened(squeezed)}; say which: {', '.join(names)}"
            )
        if not names:
            raise TemplateError(f"{source_name} has no kernel {shortened(name)}; {_near(squeezed, list(kernels))}")
    same = kernels[names[0]]
    if len(same) > 1:
        same = [kernel._replace(is_overload=kernel.parameters is not None) for kernel in same]
    # A prototype that fits no definition is an overload without one.
    overloads = [kernel for kernel in same if kernel.defined] or same
    if len(overloads) == 1 and (name is None or "(" not in name):
        return overloads[0]
    if name is not None and "(" in name:
        return _overload(overloads, name, source_name)
    return Signature(names[0], (), None, overloads[0].line, overloads=tuple(overloads))


def _matching(kernels: Mapping[str, object], name: str) -> list[str]:
    """Return the names of `kernels` that `name` can mean.

    It is the equal name alone if there is one, else the names that end with ``::`` and `name`.
    """
    squeezed = _squeezed(name)
    return [squeezed] if squeezed in kernels else [full for full in kernels if full.endswith(f"::{squeezed}")]


def _squeezed(name: str) -> str:
    return "".join(name.partition("(")[0].split()).removeprefix("::")


def _overload(overloads: Iterable[Signature], name: str, source_name: str) -> Signature:
    """Return the overload whose parameters have the types in the brackets of `name`. ``const`` of a value is ignored.

    Raises
    ------
    TemplateError
        If there is none. The message lists the overloads.
    """
    parameter_types = [
        str(cpp.without_const(cpp.parse_type(text))).replace(" __restrict__", "")
        for text in cpp.split_arguments(name.partition("(")[2].rpartition(")")[0])
    ]
    for kernel in overloads:
        types = [cpp.without_const(parameter.type) for parameter in kernel.parameters or ()]
        if [str(parameter_type).replace(" __restrict__", "") for parameter_type in types] == parameter_types:
            return kernel
    raise TemplateError(f"{source_name} has no kernel {shortened(name)}; it has {listed(overloads)}")


def listed(overloads: Iterable[Signature]) -> str:
    """Return kernels of one name, with their lines, as text."""
    return ", ".join(f"{kernel.full_name} on line {kernel.line}" for kernel in overloads)


def _near(name: str, names: list[str]) -> str:
    """Return advice for an error about an unknown kernel name: similar names among `names`, or else all names.

    For a known name with template arguments in angle brackets, the advice is to pass these in ``kernel[…]``.
    """
    import difflib

    bare = name.partition("<")[0]
    if bare != name and any(bare in (name, name.rpartition("::")[2]) for name in names):
        return f"name it {shortened(bare)} and give its template arguments in brackets, kernel[...]"
    by_last = {name.rpartition("::")[2]: name for name in names}
    near = difflib.get_close_matches(name, names, n=3)
    near += [by_last[last] for last in difflib.get_close_matches(name.rpartition("::")[2], by_last, n=3)]
    if near:
        return f"did you mean {' or '.join(dict.fromkeys(near))}?"
    return f"it has {', '.join(names)}"
