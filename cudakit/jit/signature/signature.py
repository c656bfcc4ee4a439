"""Stage 2, signature: what a CUDA C++ source declares, and which of its kernels is meant.

`parse` reads a text, `select` picks one kernel of it. A `Declarations` goes to JSON and back unchanged, so that
tree-sitter is imported for a new source only.
"""

from __future__ import annotations

from cudakit.errors import TemplateError
from cudakit.jit.signature.declarations import (
    RECORDS_FORMAT,
    Declarations,
    Enumeration,
    Parameter,
    Signature,
    Symbol,
    TemplateParameter,
)

__all__ = [
    "RECORDS_FORMAT",
    "Declarations",
    "Enumeration",
    "Parameter",
    "Signature",
    "Symbol",
    "TemplateParameter",
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
        Its name, qualified or, where only one kernel has it, not; None for the only kernel.
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
    if not kernels:
        raise TemplateError(
            f"{source_name} has no __global__ function at namespace scope; one that a macro writes or that an included "
            "header defines is not seen: write __global__ out, or give the file that defines it"
        )
    if name is None:
        if len(kernels) > 1:
            raise TemplateError(f"{source_name} has {len(kernels)} kernels; name one of them: {', '.join(kernels)}")
        found = list(kernels)
    else:
        wanted = "".join(name.split()).removeprefix("::")
        found = [wanted] if wanted in kernels else [full for full in kernels if full.endswith(f"::{wanted}")]
        if len(found) > 1:
            raise TemplateError(f"{source_name} has several kernels {wanted!r}; say which: {', '.join(found)}")
        if not found:
            raise TemplateError(f"{source_name} has no kernel {name!r}; {_near(wanted, list(kernels))}")
    overloads = kernels[found[0]]
    if len(overloads) > 1:
        lines = " and ".join(str(kernel.line) for kernel in overloads)
        raise TemplateError(
            f"{source_name} has {len(overloads)} kernels {found[0]!r}, on lines {lines}; a name expression cannot tell "
            "them apart: rename all but one"
        )
    return overloads[0]


def _near(wanted: str, names: list[str]) -> str:
    """What to say of `names` to one who asked for `wanted`."""
    import difflib

    bare = wanted.partition("<")[0]
    if bare != wanted and any(bare in (name, name.rpartition("::")[2]) for name in names):
        return f"name it {bare!r} and give its template arguments in brackets, kernel[...]"
    by_last = {name.rpartition("::")[2]: name for name in names}
    near = difflib.get_close_matches(wanted, names, n=3)
    near += [by_last[last] for last in difflib.get_close_matches(wanted.rpartition("::")[2], by_last, n=3)]
    if near:
        return f"did you mean {' or '.join(dict.fromkeys(near))}?"
    return f"it has {', '.join(names)}"
