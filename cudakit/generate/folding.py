"""What reductions and scans from expressions have in common: how they are declared, their arguments, their outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cudakit import structs
from cudakit.errors import ArgumentError, TemplateError
from cudakit.generate.deduction import can_convert, check_dtype
from cudakit.generate.elementwise_plan import Layout
from cudakit.generate.expression import names_in, placed
from cudakit.generate.parameters import Parameter, parse, structs_in, type_variables
from cudakit.ops.place import Place, output, place_of
from cudakit.types import HEADER, scalar
from cudakit.work import doing

_NUMBERS = (bool, int, float, complex)
#: Names that generated code has beside the arguments'.
NAMESPACES = ("cudakit", "cuda")


class Declared(NamedTuple):
    """Name, arguments and preamble of a generated function."""

    name: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    preamble: str

    @property
    def structs(self) -> tuple[str, ...]:
        """Structs that the preamble declares."""
        return tuple(structs_in(self.preamble))

    @property
    def variables(self) -> tuple[str, ...]:
        """Type variables, which are the kernel's first template parameters."""
        known = self.structs
        return tuple(name for name in type_variables(*self.inputs, *self.outputs) if name not in known)

    def may_use(self, text: str, name: str) -> bool:
        """Whether an expression, or a macro of the preamble, may mean a name that is given to it."""
        return name in names_in(text) or ("#define" in self.preamble and name in names_in(self.preamble))


class Given(NamedTuple):
    """The arguments of one call: where they are, each as an array or a number, and what decides the call's kind."""

    place: Place
    values: list[Any]
    kinds: tuple[Layout | type | np.dtype, ...]

    @property
    def arrays(self) -> list[Any]:
        """Those of the values that are arrays."""
        return [value for value, kind in zip(self.values, self.kinds, strict=True) if type(kind) is Layout]


def declared(
    name: str, inputs: str, outputs: str, preamble: str, before: tuple[str, ...], after: tuple[str, ...]
) -> Declared:
    """The arguments that two texts declare; `before` and `after` are names that expressions have besides them.

    Raises
    ------
    TemplateError
    """
    if not isinstance(name, str) or not name.isidentifier() or name.endswith("_"):
        raise TemplateError(f"the name of a kernel must be a C++ identifier that does not end in _, got {name!r}")
    made = Declared(
        name,
        parse(name, inputs, (*before, *NAMESPACES), preamble),
        parse(name, outputs, (*after, *NAMESPACES), preamble),
        preamble,
    )
    if not made.inputs or not made.outputs:
        raise TemplateError(f"{name}: it has no {'output' if made.inputs else 'input'}; declare one, as in 'T x'")
    both = {p.name for p in made.inputs} & {p.name for p in made.outputs}
    if both:
        raise TemplateError(f"{name}: {', '.join(sorted(both))} is an input and an output; give the array as out= too")
    return made


def expression(op: str, what: str, text: Any) -> str:
    """`text`, of one expression.

    Raises
    ------
    TemplateError
    """
    if not isinstance(text, str) or not text.strip():
        raise TemplateError(f"{op}: the {what} must be C++ text, got {text!r}")
    return text.strip().rstrip(";")


def gather(of: Declared, args: tuple[Any, ...], stream: Any, more: Sequence[tuple[str, Any]] = ()) -> Given:
    """The arguments of a call, `more` of them at the end beside the inputs; None stays None.

    Raises
    ------
    ArgumentError
        For too few or too many, none that is an array, arrays in several places.
    """
    if len(args) != len(of.inputs):
        names = ", ".join(p.name for p in of.inputs)
        raise ArgumentError(f"{of.name} takes {len(of.inputs)} inputs: {names}; got {len(args)}")
    named = [(p.name, value) for p, value in zip(of.inputs, args, strict=True) if not _is_number(of, p, value)]
    named += [(name, value) for name, value in more if value is not None]
    if not named:
        raise ArgumentError(f"{of.name}: none of its inputs is an array")
    place, arrays = place_of(of.name, stream, *named)
    found = iter(arrays)
    values, kinds = [], []
    for p, value in zip(of.inputs, args, strict=True):
        if _is_number(of, p, value):
            values.append(value)
            kinds.append(_kind_of(value))
        else:
            array = next(found)
            values.append(array)
            kinds.append(Layout(array.dtype, array.shape, array.strides))
    for _, value in more:
        array = None if value is None else next(found)
        values.append(array)
        kinds.append(type(None) if array is None else Layout(array.dtype, array.shape, array.strides))
    return Given(place, values, tuple(kinds))


def _is_number(of: Declared, p: Parameter, value: Any) -> bool:
    if hasattr(value, "strides") and not isinstance(value, np.generic):
        return False
    kind: Any = type(value)
    if isinstance(value, (*_NUMBERS, np.generic)) or structs.is_struct_type(kind):
        if p.raw:
            raise ArgumentError(f"{of.name}: {p.name} is raw and takes an array, got {kind.__name__}")
        return True
    return False


def _kind_of(value: Any) -> np.dtype | type:
    found = getattr(value, "dtype", None)
    if isinstance(found, np.dtype):
        return found
    kind: Any = type(value)
    return structs.struct_dtype(kind) if structs.is_struct_type(kind) else kind


def outs_of(of: Declared, out: Any) -> tuple[Any, ...]:
    """An array or None for each output.

    Raises
    ------
    ArgumentError
    """
    if out is None:
        return (None,) * len(of.outputs)
    outs = out if isinstance(out, tuple) else (out,)
    if len(outs) != len(of.outputs):
        names = ", ".join(p.name for p in of.outputs)
        raise ArgumentError(f"{of.name} has {len(of.outputs)} outputs ({names}); out has {len(outs)}")
    return outs


class Target(NamedTuple):
    """One output of a call: what the kernel writes, and what the caller gets (the same, or it is copied there)."""

    written: Any
    result: Any


def target(
    of: Declared, p: Parameter, place: Place, out: Any, shape: tuple[int, ...], dtype: np.dtype, inputs: Sequence[Any]
) -> Target:
    """The array of an output: `out` once checked, or a new one.

    Raises
    ------
    ArgumentError
        For an `out` of another shape, one that a result would lose in, one that overlaps an input.
    """
    if out is None:
        made = place.empty(shape, dtype)
        return Target(made, made)
    op = f"{of.name}, output {p.name}"
    given = getattr(out, "dtype", dtype)
    if given != dtype:
        check_dtype(op, "out", given)
        if p.raw or not can_convert(dtype, given):
            raise ArgumentError(f"{op}: the result is of {dtype}, which out of {given} would lose")
    result = output(op, place, out, shape, given, *inputs)
    if given == dtype and result.flags.c_contiguous:
        return Target(result, result)
    return Target(place.empty(shape, dtype), result)


def settled(of: Declared, place: Place, targets: Sequence[Target]) -> Any:
    """The results of a call, those that the kernel could not write itself copied to where they belong."""
    for written, result in targets:
        if written is not result:
            with doing("copy", of.name, place.stream, (written,), (result,), result.nbytes), place.inside():
                result[...] = written
    return targets[0].result if len(targets) == 1 else tuple(each.result for each in targets)


# --- text -------------------------------------------------------------------------------------------------------------


def includes(of: Declared, header: str) -> str:
    """The headers of the arguments' types and of the templates; then the preamble."""
    types = {p.type.partition("<")[0] for p in (*of.inputs, *of.outputs) if p.dtype is not None}
    headers = [*sorted({HEADER[name] for name in types if name in HEADER}), header]
    text = "".join(f"#include <{each}>\n" for each in headers)
    return text + (placed(of.preamble, f"<{of.name} preamble>") if of.preamble.strip() else "")


def returned(of: Declared, what: str, text: str) -> str:
    """The body of a function that returns an expression of the user's."""
    return f" {{\n        return\n{placed(text, f'<{of.name} {what}>')}        ;\n    }}\n"


def template_head(names: Sequence[str]) -> str:
    """The line before a template with type parameters; nothing for none."""
    return f"template <{', '.join(f'typename {name}' for name in names)}>\n" if names else ""


def template_arguments(names: Sequence[str]) -> str:
    """What stands behind a template's name."""
    return f"<{', '.join(names)}>" if names else ""


def cpp_type(of: Declared, text: str) -> str:
    """A type as C++ has it: NumPy's names (``float16``) as the C++ type, all else as it is."""
    try:
        return parse(of.name, f"{text} value", (), of.preamble)[0].type
    except TemplateError:
        return text


def type_dtype(cpp: str) -> np.dtype | None:
    """The dtype of a C++ type that stands for one."""
    return scalar(cpp)


def seen_inputs(of: Declared) -> list[str]:
    """Parameters of a function that has an expression of the inputs."""
    return [f"const {p.type}{'*' if p.raw else ''} {p.name}" for p in of.inputs]


def unevaluated_inputs(of: Declared) -> str:
    """What stands for the inputs where only a result's type is asked for."""
    types = (f"const {p.type}*" if p.raw else p.type for p in of.inputs)
    return ", ".join(f"cudakit::unevaluated<{each}>()" for each in types)


def kernel_inputs(of: Declared, numbers: frozenset[str]) -> tuple[list[str], list[str], list[str]]:
    """Of a kernel: its template parameters for arrays' types, its parameters, and what the templates are given."""
    types, parameters, several = [], [], []
    for p in of.inputs:
        if p.name in numbers:
            parameters.append(f"const {p.type} {p.name}")
            several.append(f"cudakit::value_of<{p.type}>({p.name})")
        elif p.raw:
            parameters.append(f"const {p.type}* {p.name}")
            several.append(f"cudakit::value_of<const {p.type}*>({p.name})")
        else:
            stored = p.type if p.type in of.structs else f"{p.name}_type_"
            types += [stored] if stored != p.type else []
            parameters.append(f"const {stored}* {p.name}")
            several.append(f"cudakit::array_of<{p.type}>({p.name})")
    return types, parameters, several
