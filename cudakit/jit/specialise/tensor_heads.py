"""Kernels that take whole arrays, as they are compiled: the arrays' parts in the head, and the arrays in the body.

Tile C++ passes no structs to kernels. So ``cudakit::tensor<const T, 2> a`` becomes an address, two extents and two
strides, and the body begins with the ``tensor`` of that name. No line moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cudakit.jit.signature.signature import Declarations, Signature
from cudakit.jit.specialise.parameters import BoundParameter
from cudakit.types.cpp import CppType, is_tensor, tensor_arguments
from cudakit.types.tensors import TensorLayout


class Edit(NamedTuple):
    """What is compiled in the place of a part of the text."""

    start: int
    end: int
    text: str


def edited(text: str, edits: Iterable[Edit]) -> str:
    """`text` with `edits`, which are in their order."""
    pieces, behind = [], 0
    for start, end, new in edits:
        pieces += [text[behind:start], new, "\n" * text.count("\n", start, end)]
        behind = end
    return "".join((*pieces, text[behind:]))


def edits_of(
    declarations: Declarations, wanted: Signature | None = None, parameters: Sequence[BoundParameter] = ()
) -> tuple[Edit, ...]:
    """What is compiled in the place of heads with array parameters; those of the `wanted` kernel are `parameters`."""
    found: list[Edit] = []
    for signature in declarations.kernels:
        if signature.heads and wanted is not None and signature.heads == wanted.heads:
            found += _edits(signature, [(each.count, each.layout or TensorLayout()) for each in parameters])
        elif signature.heads and signature.parameters is not None:
            types = (parameter.type for parameter in signature.parameters)
            ranks = [str(tensor_arguments(cpp)[1]) if is_tensor(cpp) else "0" for cpp in types]
            # Of others that have a rank to be deduced nothing is compiled.
            if all(rank.isdigit() for rank in ranks):
                found += _edits(signature, [(int(rank), TensorLayout()) for rank in ranks])
    return tuple(sorted(found))


def _edits(signature: Signature, known: Sequence[tuple[int, TensorLayout]]) -> Iterator[Edit]:
    """Those of one kernel, by rank and layout of each of its parameters."""
    assert signature.parameters is not None
    for head in signature.heads:
        made = []
        for position, start, end in head.parameters:
            parameter, (rank, layout) = signature.parameters[position], known[position]
            names = _names(parameter.name or str(position), rank)
            types = part_types(parameter.type, rank, layout)
            yield Edit(start, end, ", ".join(map(" ".join, zip(types, names, strict=True))))
            if parameter.name:
                whole = f"::cudakit::tensor<{tensor_arguments(parameter.type)[0]}, {rank}, {layout.cpp}>"
                made.append(f" [[maybe_unused]] const auto {parameter.name} = {whole}::maker::of({', '.join(names)});")
        if head.body >= 0:
            yield Edit(head.body, head.body, "".join(made))


def _names(name: str, rank: int) -> list[str]:
    axes = range(rank)
    return [
        f"cudakit_{name}",
        *(f"cudakit_{name}_extent_{axis}" for axis in axes),
        *(f"cudakit_{name}_stride_{axis}" for axis in axes),
    ]


def part_types(cpp: CppType, rank: int, layout: TensorLayout) -> list[str]:
    """The C++ types that an array parameter is compiled as."""
    return [f"{tensor_arguments(cpp)[0]}* __restrict__", *["int"] * rank, *[layout.stride_type] * rank]
