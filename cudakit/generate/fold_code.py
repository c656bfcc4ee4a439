"""CUDA C++ that reductions and scans from expressions have in common."""

from __future__ import annotations

from collections.abc import Sequence

from cudakit.generate.declarations import complex_header, placed
from cudakit.generate.fold_arguments import INITIAL, Declared, cpp_type, initial_type
from cudakit.types.cpp import HEADER


def includes(of: Declared, header: str, acc: str | None, *expressions: str | None) -> str:
    """The headers of the arguments' types, of the accumulator's and of the templates; then the preamble."""
    types = {p.type.partition("<")[0] for p in (*of.inputs, *of.outputs) if p.dtype is not None}
    types |= set() if acc is None else {cpp_type(of, acc).partition("<")[0]}
    headers = [*sorted({HEADER[name] for name in types if name in HEADER}), header]
    text = "".join(f"#include <{each}>\n" for each in headers) + complex_header([*expressions, acc], of.preamble)
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


def seen_inputs(of: Declared) -> list[str]:
    """Parameters of a function that has an expression of the inputs."""
    return [f"const {p.stored}* {p.name}" if p.raw else f"const {p.type} {p.name}" for p in of.inputs]


def mapped_text(of: Declared, text: str, acc: str | None, index: Sequence[str]) -> tuple[str, str]:
    """The struct with the map, and the type that its values are combined in; `index` are further parameters."""
    head, mapped = template_head(of.variables), f"cudakit_mapped{template_arguments(of.variables)}"
    if acc is None:
        # The map's own type is known once its function is: outside of its struct.
        types = (f"const {p.stored}*" if p.raw else p.type for p in of.inputs)
        values = ", ".join([*(f"cudakit::unevaluated<{each}>()" for each in types), *("0" for _ in index)])
        own, result = "", "auto"
        state = f"cudakit::accumulator_t<decltype({mapped}::cudakit_map({values}))>"
    else:
        own = f"    using cudakit_state =\n{placed(cpp_type(of, acc), f'<{of.name} acc>')}    ;\n"
        result, state = "cudakit_state", f"{'typename ' * bool(of.variables)}{mapped}::cudakit_state"
    seen = ", ".join([*seen_inputs(of), *index])
    function = f"    static __device__ {result} cudakit_map({seen}){returned(of, 'map', text)}"
    return f"{head}struct cudakit_mapped {{\n{own}{function}}};\n\n", state


def kernel_inputs(of: Declared, numbers: frozenset[str]) -> tuple[list[str], list[str], list[str]]:
    """Of a kernel: its template parameters for arrays' types, its parameters, and what the templates are given."""
    types, parameters, several = [], [], []
    for p in of.inputs:
        if p.name in numbers:
            parameters.append(f"const {p.type} {p.name}")
            several.append(f"cudakit::value_of<{p.type}>({p.name})")
        elif p.raw:
            parameters.append(f"const {p.type}* {p.name}")
            several.append(f"cudakit::value_of(cudakit::stored({p.name}))")
        else:
            stored = p.type if p.type in of.structs else f"{p.name}_type_"
            types += [stored] if stored != p.type else []
            parameters.append(f"const {stored}* {p.name}")
            several.append(f"cudakit::array_of<{p.type}>({p.name})")
    return types, parameters, several


def initial_parameter(of: Declared, acc: str | None) -> tuple[list[str], str]:
    """Of a kernel that takes an initial value: its template parameters for that, and the parameter."""
    kind = initial_type(of, acc)
    return [kind] * (kind not in of.structs), f"const {kind} {INITIAL}"
