"""Declarations such as ``"T a, raw T x, const float* z"``, and C++ expressions."""

from __future__ import annotations

import difflib
import functools
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cudakit.errors import CompileError, TemplateError, shortened
from cudakit.types.cpp import HEADER, NARROW, canonical_name, scalar, spelling, split_arguments

#: Types by NumPy's names; every other name is read as C++ reads it, so that ``float`` has 32 bits, as in the body.
_NUMPY_NAMES = (
    *(f"{word}{bits}" for word in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("bool", "float16", "float32", "float64", "complex64", "complex128", "intp", "uintp", "bool_"),
)
#: Names that the body has besides the arguments.
GIVEN_NAMES = ("i", "n", "_ind", "_shape")
#: Names that generated code has beside the arguments'.
NAMESPACES = ("cudakit", "cuda")
CPP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "alignas alignof and asm auto bool break case catch char class const constexpr continue decltype default "
        "delete do double else enum explicit export extern false float for friend goto if inline int long "
        "mutable namespace new noexcept not nullptr operator or private protected public register return short "
        "signed sizeof static struct switch template this throw true try typedef typename union unsigned using "
        "virtual void volatile while xor",
    )
)


class Parameter(NamedTuple):
    """A declared argument.

    Attributes
    ----------
    name : str
        Name of the argument.
    type : str
        Name of a type variable, or a C++ type.
    dtype : numpy.dtype or None
        Dtype that corresponds to the C++ type. None for a type variable and for a struct that the preamble
        declares.
    raw : bool
        Whether the body indexes the argument, rather than seeing one element.
    """

    name: str
    type: str
    dtype: np.dtype | None = None
    raw: bool = False

    @property
    def stored(self) -> str:
        """C++ type of the elements of an indexed array. Bools are stored as bytes."""
        return f"cudakit::stored_t<{self.type}>" if self.dtype is None or self.type == "bool" else self.type

    def __str__(self) -> str:
        return f"{'raw ' if self.raw else ''}{self.type} {self.name}"


@dataclass(frozen=True)
class Declared:
    """Name, arguments and preamble of a generated function. Derived classes have its expressions."""

    name: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    preamble: str

    @cached_property
    def structs(self) -> tuple[str, ...]:
        """Structs that the preamble declares."""
        return tuple(structs_in(self.preamble))

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Type variables, which are the kernel's first template parameters."""
        return tuple(name for name in type_variables(*self.inputs, *self.outputs) if name not in self.structs)

    @property
    def shown(self) -> str:
        """Inputs and outputs, as messages show them."""
        return " → ".join(", ".join(map(str, parameters)) for parameters in (self.inputs, self.outputs))

    def may_use(self, text: str, name: str) -> bool:
        """Return whether an expression, or a macro of the preamble, may use a name."""
        return name in names_in(text) or ("#define" in self.preamble and name in names_in(self.preamble))

    def includes(self, header: str, texts: Iterable[str | None], *types: str) -> str:
        """Return the ``#include`` lines of a kernel: headers of the arguments' types and of C++ `types`, then `header`.

        `texts` are C++ of the user. If they use ``complex<…>``, its declaration follows.
        """
        names = {*(p.type for p in (*self.inputs, *self.outputs) if p.dtype is not None), *types}
        headers = {HEADER[name] for name in (name.partition("<")[0] for name in names) if name in HEADER}
        listed = "".join(f"#include <{name}>\n" for name in (*sorted(headers), header))
        return listed + complex_header(texts, self.preamble)

    @property
    def placed_preamble(self) -> str:
        """The preamble with line directives, so that errors name lines of the preamble.

        An empty string if there is no preamble.
        """
        return placed(self.preamble, f"<{self.name} preamble>") if self.preamble.strip() else ""


def parse(op: str, text: str, reserved: tuple[str, ...] = GIVEN_NAMES, preamble: str = "") -> tuple[Parameter, ...]:
    """Return the arguments that a declaration `text` declares.

    Parameters
    ----------
    op : str
        Name of the op, for messages.
    text : str
        Declaration ``"type name, …"``. A type is a dtype's name (``int64``, ``bfloat16``), a C++ type (``float``,
        ``half``), a struct that `preamble` declares, or a type variable: any other name of one letter or with a
        capital first. ``raw`` before the type, or ``*`` after it, marks an argument that the body indexes.
    reserved : tuple of str
        Names that an argument must not have.
    preamble : str
        C++ source whose structs may be named.

    Raises
    ------
    TemplateError
        A declaration cannot be read, a type is unknown, or a name is used already.
    """
    if not isinstance(text, str):
        raise TemplateError(f"{op}: arguments are declared by a str such as 'T x, float32 y', got {shortened(text)}")
    if not isinstance(preamble, str):
        raise TemplateError(f"{op}: the preamble must be C++ text, got {shortened(preamble)}")
    return _parsed(op, text, reserved, preamble)


@functools.lru_cache(1024)
def _parsed(op: str, text: str, reserved: tuple[str, ...], preamble: str) -> tuple[Parameter, ...]:
    parameters: list[Parameter] = []
    for part in split_arguments(text):
        parameter = _parameter(op, part, frozenset(structs_in(preamble)))
        check_name(op, parameter.name, reserved)
        if parameter.name in [other.name for other in parameters]:
            raise TemplateError(f"{op}: two arguments are called {shortened(parameter.name)} in {shortened(text)}")
        parameters.append(parameter)
    return tuple(parameters)


def check_name(op: str, name: str, reserved: tuple[str, ...] = GIVEN_NAMES) -> None:
    """Raise if an argument cannot have a name.

    Raises
    ------
    TemplateError
        The name is reserved, or is a word of C++ or Python.
    """
    if name in reserved:
        raise TemplateError(
            f"{op}: an argument cannot be called {shortened(name)}, which the expression defines already; rename it"
        )
    if name in CPP_WORDS or keyword.iskeyword(name):
        raise TemplateError(f"{op}: an argument cannot be called {shortened(name)}, a word of C++ or Python")
    if name.startswith("__") or name.endswith("_"):
        raise TemplateError(f"{op}: the argument name {shortened(name)} is for generated code; take another")


def check_kernel_name(noun: str, name: Any) -> None:
    """Raise if a kernel cannot have a name. `noun` is the kernel's description, such as "a stencil".

    Raises
    ------
    TemplateError
    """
    if not isinstance(name, str) or not name.isidentifier() or name.endswith("_"):
        raise TemplateError(
            f"the name of {noun} must be a C++ identifier that does not end in _, got {shortened(name)}"
        )
    if name in CPP_WORDS:
        raise TemplateError(f"the name of {noun} cannot be {name!r}, a word of C++; take another")


def check_distinct(op: str, inputs: Sequence[Parameter], outputs: Sequence[Parameter]) -> None:
    """Raise if an input has the name of an output.

    Raises
    ------
    TemplateError
    """
    both = {p.name for p in inputs} & {p.name for p in outputs}
    if both:
        raise TemplateError(f"{op}: {', '.join(sorted(both))} is an input and an output; give the array as out= too")


def structs_in(text: str) -> list[str]:
    """Return the names of the structs that C++ source declares."""
    return re.findall(r"\b(?:struct|class|union)\s+([A-Za-z_]\w*)", text)


def type_variables(*parameters: Parameter) -> tuple[str, ...]:
    """Return the names of the types that a call decides, in the order of their first use."""
    return tuple(dict.fromkeys(p.type for p in parameters if p.dtype is None))


def _parameter(op: str, part: str, structs: frozenset[str]) -> Parameter:
    shown = f"{op}: cannot read the argument {shortened(part)}"
    if "=" in part:
        raise TemplateError(
            f"{shown}: a declaration has no =. Inputs, outputs and body are three strings, as in 'T x', 'T z', 'z = x'"
        )
    matched = re.fullmatch(r"(?P<type>.*[\s*>])(?P<name>[A-Za-z_]\w*)", part, re.DOTALL)
    if matched is None:
        raise TemplateError(f"{shown}; it is a type and a name, as in 'T x' or 'raw float32 x'")
    type_text = matched["type"].replace("&", " & ").replace("*", " * ")
    words = [word for word in type_text.split() if word not in ("const", "volatile", "__restrict__", "restrict")]
    raw = "raw" in words or "*" in words
    if "&" in words:
        raise TemplateError(f"{shown}: leave the & out; outputs are assigned to by their names")
    if words.count("*") > 1:
        raise TemplateError(f"{shown}: no pointers to pointers")
    name = " ".join(word for word in words if word not in ("raw", "*"))
    if not name:
        raise TemplateError(f"{shown}: it has no type; take a type variable, as in 'T {matched['name']}'")
    cpp, dtype = _type(shown, name, structs)
    return Parameter(matched["name"], cpp, dtype, raw)


def _type(shown: str, name: str, structs: frozenset[str]) -> tuple[str, np.dtype | None]:
    """Return the C++ type and the dtype for the name of a type. The dtype is None for a type variable or a struct.

    Parameters
    ----------
    shown : str
        Beginning of the error message. Not parsed.
    name : str
        Name of the type, as the user wrote it.
    structs : frozenset of str
        Names of the structs that the preamble declares.

    Raises
    ------
    TemplateError
        If no type has this name.
    """
    if name in NARROW:
        return NARROW[name], scalar(NARROW[name])
    if name in _NUMPY_NAMES:
        dtype = np.dtype(name)
        cpp = spelling(dtype)
        assert cpp is not None  # as all of the names have
        return cpp, dtype
    name = re.sub(r"\s*(::|<|>)\s*", r"\1", name)
    scalar_type = scalar(canonical_name(re.sub(r"^complex<", "cuda::std::complex<", name)))
    if scalar_type is not None:
        # The spelling that the dtype has: plain char, long and the like become types of certain width.
        return spelling(scalar_type) or canonical_name(name), scalar_type
    if name in structs:
        return name, None
    if re.fullmatch(r"[A-Za-z]|[A-Z]\w*", name) and not name.endswith("_"):
        return name, None
    near = difflib.get_close_matches(
        name, [*dict.fromkeys((*_NUMPY_NAMES, *NARROW)), "float", "double", "half", *structs], 3
    )
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise TemplateError(
        f"{shown}: no type is called {shortened(name)}{hint or '.'} A type variable has one letter or a capital "
        "first; a struct "
        "is declared in the preamble"
    )


# The user's C++ in generated text, placed so that the compiler's messages point into it.

#: Comments, then literals: what holds no names.
_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\\n])'", re.DOTALL)
_BACK = "#line back"


def placed(text: str, file: str) -> str:
    """Return `text` after a line directive: the compiler reports its lines as lines of `file`.

    A marker line follows the text. `numbered` must replace the marker in the whole source.
    """
    return f'#line 1 "{file}"\n{text}\n{_BACK}\n'


def numbered(text: str, file: str) -> str:
    """Return generated source with a line directive in place of the marker line after each `placed` text.

    The compiler then reports the lines that follow by their numbers in the source, as lines of `file`.
    """
    lines = text.split("\n")
    return "\n".join(f'#line {k + 2} "{file}"' if line == _BACK else line for k, line in enumerate(lines))


def template_head(names: Iterable[str]) -> str:
    """Return the line before a template with type parameters, or an empty text for none."""
    listed = ", ".join(f"typename {name}" for name in names)
    return f"template <{listed}>\n" if listed else ""


def template_arguments(names: Iterable[str]) -> str:
    """Return `names` as C++ template arguments, such as ``<T, U>``; an empty string for none."""
    listed = ", ".join(names)
    return f"<{listed}>" if listed else ""


def seen_type(name: str) -> str:
    """Return the C++ type that an expression sees: half and bfloat16 compute as float."""
    return f"cudakit::narrow<{name}>" if name in NARROW.values() else name


def cpp_of(dtype: np.dtype) -> str:
    """Return the C++ type that an expression sees for a checked dtype."""
    name = spelling(dtype)
    assert name is not None
    return seen_type(name)


def declared_name(dtype: np.dtype) -> str:
    """Return the name of a dtype in declarations."""
    return "bool" if dtype.kind == "b" else dtype.name


@functools.lru_cache(1024)
def code_of(text: str) -> str:
    """Return `text` without comments and literals."""
    return _NO_CODE.sub(" ", text)


@functools.lru_cache(1024)
def names_in(text: str) -> frozenset[str]:
    """Return the identifiers in C++ source."""
    return frozenset(re.findall(r"(?<![\w.])[A-Za-z_]\w*", code_of(text)))


def complex_header(texts: Iterable[str | None], preamble: str) -> str:
    """Return the declaration of ``complex<float>`` for C++ texts that use it, as in CuPy, or an empty text."""
    shown = " ".join([*(text for text in texts if text), preamble])
    unqualified = re.search(r"(?<![\w:])complex\s*<", code_of(shown)) is not None
    own = re.search(r"\b(?:struct|class)\s+complex\b|\busing\s+[\w:\s]*complex\b", preamble) is not None
    return "#include <cuda/std/complex>\nusing cuda::std::complex;\n" if unqualified and not own else ""


def cpp_text(op: str, part: str, text: Any) -> str:
    """Return a part of an expression, after checking that it is a non-empty string.

    Raises
    ------
    TemplateError
        The value is no string, or is empty.
    """
    if not isinstance(text, str) or not text.strip():
        raise TemplateError(f"{op}: the {part} must be C++ text, got {shortened(text)}")
    return text


def statement(op: str, part: str, text: str) -> str:
    """Return `text` as statements, with a final ``;``.

    Raises
    ------
    TemplateError
        The value is no string, or is empty.
    """
    text = cpp_text(op, part, text)
    return text if code_of(text).rstrip().endswith(";") else f"{text}\n;"


def check_set(op: str, part: str, text: str, names: Iterable[str], preamble: str = "") -> None:
    """Raise if the C++ statements `text` do not name all outputs `names`. An output that is not set keeps old elements.

    If the preamble has macros, a name in the preamble counts, too.

    Raises
    ------
    TemplateError
    """
    macros = names_in(preamble) if "#define" in preamble else frozenset()
    missing = [name for name in names if name not in names_in(text) | macros]
    if missing:
        raise TemplateError(f"{op}: the {part} {shortened(text)} never sets {missing[0]}; write '{missing[0]} = …'")


@functools.lru_cache(1024)
def is_set_first(body: str, name: str) -> bool:
    """Return whether `body` certainly assigns to a variable before it reads it. If in doubt, return False."""
    depth, current = 0, ""
    for character in code_of(body) + ";":
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        if character == ";" and depth == 0:
            if set(re.findall(r"\w+", current)) & {name, "return", "if", "for", "while", "switch", "do", "goto"}:
                assigned = re.match(rf"\s*{name}\s*=(?!=)(.*)", current, re.DOTALL)
                return assigned is not None and re.search(rf"\b{name}\b", assigned[1]) is None
            current = ""
        else:
            current += character
    return False


def explained(of: Declared, error: CompileError, names: Mapping[str, tuple[str, ...]]) -> CompileError:
    """Return a new error, with the names that an expression may use if it used an unknown name.

    The compiler's notes on cudakit's own templates, each hundreds of characters long, are left out. They are in the
    log.

    Parameters
    ----------
    names : mapping
        For each part of the user's source, such as ``expression``: the names it may use besides type variables.
    """
    text = re.sub(r"\n +(?:detected during )?instantiation of [^\n]*cudakit[^\n]*", "", str(error))
    text = re.sub(r"\n +detected during:(?!\n +instantiation of )", "", text)
    part = re.search(rf"<{of.name} (\w+)>:\d+: error", text)
    listed = () if part is None else (*names.get(part[1], ()), *of.variables)
    if listed and re.search(r'identifier "\w+" is undefined', text):
        text += f"\nthe expression has the names {', '.join(listed)}"
    explanation = CompileError(text)
    explanation.__dict__.update(error.__dict__)
    return explanation
