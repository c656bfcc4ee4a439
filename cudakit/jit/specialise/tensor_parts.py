"""Tensor parameters of tile kernels in the source: replaced by their parts, of which the body builds the tensor.

Tile C++ passes no structs to kernels. A tensor parameter is therefore compiled as its parts, and the tensor is built in
the body (`Edit`). ``cudakit::tensor<const T, 2> a`` becomes an address, two extents and two strides, and the body
begins with a ``tensor`` of that name. Line numbers stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cudakit.jit.signature.signature import Declarations, Signature
from cudakit.records import NamedTuple
from cudakit.types.cpp import CppType, is_tensor, tensor_arguments
from cudakit.types.tensors import TensorLayout


class Edit(NamedTuple):
    """A replacement for a part of the source: `text` replaces the characters from `start` to before `end`."""

    start: int
    end: int
    text: str


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Apply `edits`, which are in order, to `text`; newlines are kept."""
    pieces, behind = [], 0
    for start, end, new in edits:
        pieces += [text[behind:start], new, "\n" * text.count("\n", start, end)]
        behind = end
    return "".join((*pieces, text[behind:]))


def edits_of(
    declarations: Declarations, kernel: Signature | None, layouts: Sequence[tuple[int, TensorLayout | None]]
) -> tuple[Edit, ...]:
    """Return the edits of the source that replace each kernel's tensor parameters by plain ones, sorted by position.

    `layouts` has rank and layout of each parameter of `kernel`. All other kernels get the default layout. Kernels whose
    rank must be deduced have no edits.
    """
    edits: list[Edit] = []
    for signature in declarations.kernels:
        if signature.heads and kernel is not None and signature.heads == kernel.heads:
            edits += _edits(signature, [(rank, layout or TensorLayout()) for rank, layout in layouts])
        elif signature.heads and signature.parameters is not None:
            types = (parameter.type for parameter in signature.parameters)
            ranks = [str(tensor_arguments(cpp)[1]) if is_tensor(cpp) else "0" for cpp in types]
            # Kernels whose rank must be deduced are not compiled here.
            if all(rank.isdigit() for rank in ranks):
                edits += _edits(signature, [(int(rank), TensorLayout()) for rank in ranks])
    return tuple(sorted(edits))


def _edits(signature: Signature, layouts: Sequence[tuple[int, TensorLayout]]) -> Iterator[Edit]:
    """Yield the edits of a kernel's declarations. `layouts` has rank and layout for each parameter, by position."""
    assert signature.parameters is not None
    for head in signature.heads:
        definitions = []
        for position, start, end in head.parameters:
            parameter, (rank, layout) = signature.parameters[position], layouts[position]
            names = _names(parameter.name or str(position), rank)
            types = part_types(parameter.type, rank, layout)
            yield Edit(start, end, ", ".join(map(" ".join, zip(types, names, strict=True))))
            if parameter.name:
                whole = f"::cudakit::tensor<{tensor_arguments(parameter.type)[0]}, {rank}, {layout.cpp}>"
                definitions.append(
                    f" [[maybe_unused]] const auto {parameter.name} = {whole}::maker::of({', '.join(names)});"
                )
        if head.body >= 0:
            yield Edit(head.body, head.body, "".join(definitions))


def _names(name: str, rank: int) -> list[str]:
    axes = range(rank)
    return [
        f"cudakit_{name}",
        *(f"cudakit_{name}_extent_{axis}" for axis in axes),
        *(f"cudakit_{name}_stride_{axis}" for axis in axes),
    ]


def part_types(cpp: CppType, rank: int, layout: TensorLayout) -> list[str]:
    """Return the C++ types of the parameters that replace a tensor parameter: the address, the extents, the strides."""
    return [f"{tensor_arguments(cpp)[0]}* __restrict__", *["int"] * rank, *[layout.stride_type] * rank]
