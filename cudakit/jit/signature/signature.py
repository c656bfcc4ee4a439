"""Stage 2, signature: what a CUDA C++ source declares, and which of its kernels is meant.

`parse` reads a text, `select` picks one kernel of it. A `Declarations` goes to JSON and back unchanged, so that
tree-sitter is imported for a new source only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cudakit.errors import TemplateError, shortened
from cudakit.jit.signature.declarations import (
    RECORDS_FORMAT,
    Declarations,
    Enumeration,
    Parameter,
    Signature,
    Symbol,
    TemplateParameter,
    TensorHead,
)
from cudakit.types.cpp import parse_type, split_arguments, without_const

__all__ = [
    "RECORDS_FORMAT",
    "Declarations",
    "Enumeration",
    "Parameter",
    "Signature",
    "Symbol",
    "TemplateParameter",
    "TensorHead",
    "listed",
    "parse",
    "select",
]


def parse(text: str) -> Declarations:
    """Declarations at namespace scope of CUDA C++ `text`.

    No text is refused: of a kernel whose head cannot be parsed `Signature.parameters` is None, and what else cannot
    be read is left out.
    """
    # Reading brings tree-sitter, which a process that finds its signatures in the cache never needs.
    from cudakit.jit.signature.reader import read

    return read(text)


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
        str(without_const(parse_type(text))).replace(" __restrict__", "")
        for text in split_arguments(name.partition("(")[2].rpartition(")")[0])
    ]
    for kernel in overloads:
        types = [without_const(parameter.type) for parameter in kernel.parameters or ()]
        if [str(cpp).replace(" __restrict__", "") for cpp in types] == wanted:
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
