"""An instruction form: a template of PTX around one instruction, the kinds of its inputs, and what it must give."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b

from support.instructions import values

#: Width in bits of each kind of result; of `pred` one byte is stored, 1 or 0.
RESULT_WIDTHS = {"pred": 8, "b8": 8, "b16": 16, "b32": 32, "b64": 64, "f16": 16, "bf16": 16, "f16x2": 32,
                 "bf16x2": 32, "f32": 32, "f64": 64}  # fmt: skip

#: Bytes of shared memory that each lane has for itself.
OWN_BYTES = 16


_HEAD = ".version 8.6\n.target sm_90\n.address_size 64"
_PARAMETERS = "ld.param.u64 %in, [a]; ld.param.u64 %out, [b];"


@dataclass(frozen=True, slots=True)
class Bound:
    """How far an approximate result may be from the exact one, by the PTX ISA.

    Attributes
    ----------
    relative, absolute : float
        Largest errors; either suffices.
    ulp : float
        The same in units of the last place of the result.
    """

    relative: float = 0.0
    absolute: float = 0.0
    ulp: float = 0.0


@dataclass(frozen=True, slots=True)
class Form:
    """One instruction with its modifiers and operand types.

    Attributes
    ----------
    name : str
        The opcode with modifiers, and what else tells it from the others.
    family : str
        The list that it is in.
    body : str
        PTX with ``{0}``, ``{1}``, … for inputs, ``{d0}``, ``{d1}``, … for results (``{d}`` is the first), ``{s}`` for
        the address of the lane's own 16 bytes of shared memory, ``{t}`` for that of all, ``{m}`` for the address
        of the lane's first result in memory, and ``%t0`` … ``%t7`` (32 bits), ``%l0`` … ``%l3`` (64), ``%h0`` …
        ``%h3`` (16), ``%p0`` … ``%p3`` as registers.
    sources : tuple of str
        Kinds of inputs: keys of `values.WIDTHS`.
    results : tuple of str
        Kinds of results: keys of `RESULT_WIDTHS`. One with ``@`` before it is memory that the body itself writes.
    bound : Bound, optional
        Error allowed by the ISA; without it results are the same bit for bit.
    """

    name: str
    family: str
    body: str
    sources: tuple[str, ...]
    results: tuple[str, ...]
    bound: Bound | None = None

    @property
    def result_bytes(self) -> int:
        """Bytes that all lanes store, of all results."""
        return sum(values.LANES * width(kind) // 8 for kind in self.results)

    def digest(self) -> str:
        """A few letters that change when the form or its inputs do."""
        state = blake2b(entry(self, "f").encode(), digest_size=6)
        for array in values.inputs(self.sources):
            state.update(array.tobytes())
        return state.hexdigest()


def width(kind: str) -> int:
    """Width of a result in memory, in bits."""
    return RESULT_WIDTHS[kind.removeprefix("@")]


def entry(form: Form, name: str) -> str:
    """The kernel ``name(inputs, results)`` that runs a form: each array after the other, each lane at its place."""
    lines = [
        f".visible .entry {name}(.param .u64 a, .param .u64 b)",
        "{",
        ".reg .b64 %in, %out, %at, %m; .reg .b32 %lane, %flag, %s, %t; .reg .pred %p<4>;",
        ".reg .b32 %t<8>; .reg .b64 %l<4>; .reg .b16 %h<4>;",
    ]
    names: dict[str, str] = {"s": "%s", "t": "%t", "m": "%m", "n": name}
    for number, kind in enumerate(form.sources):
        names[f"x{number}"] = f"%x{number}"
        lines.append(f".reg .b{max(16, values.WIDTHS[kind])} %x{number};")
    for number, kind in enumerate(form.results):
        names[f"d{number}"] = f"%d{number}"
        lines.append(f".reg .{'pred' if kind == 'pred' else f'b{max(16, width(kind))}'} %d{number};")
    names["d"] = names.get("d0", "")
    uses_shared = "{s}" in form.body or "{t}" in form.body
    if uses_shared:
        lines.append(f".shared .align 16 .b8 own_{name}[{OWN_BYTES * values.LANES}];")
    lines.append(f"mov.u32 %lane, %tid.x; {_PARAMETERS}")
    if uses_shared:
        lines.append(f"mov.u32 %t, own_{name}; mad.lo.u32 %s, %lane, {OWN_BYTES}, %t;")
    offset = 0
    for number, kind in enumerate(form.sources):
        size = values.WIDTHS[kind] // 8
        lines.append(f"mad.wide.u32 %at, %lane, {size}, %in; ld.global.b{8 * size} %x{number}, [%at+{offset}];")
        offset += size * values.LANES
    lines.append(f"mad.wide.u32 %m, %lane, {width(form.results[0]) // 8}, %out;")
    lines.append(_filled(form.body, names))
    offset = 0
    for number, kind in enumerate(form.results):
        size = width(kind) // 8
        where = f"mad.wide.u32 %at, %lane, {size}, %out;"
        if kind == "pred":
            lines.append(f"selp.u32 %flag, 1, 0, %d{number}; {where} st.global.u8 [%at+{offset}], %flag;")
        elif kind[0] != "@":
            lines.append(f"{where} st.global.b{8 * size} [%at+{offset}], %d{number};")
        offset += size * values.LANES
    return "\n".join((*lines, "ret;", "}"))


def together(forms: Iterable[Form], input_bytes: Callable[[Form], int]) -> str:
    """PTX of a module whose one entry ``f`` runs forms one after the other, each with its own part of both arrays."""
    lines, inputs, results = [".visible .entry f(.param .u64 a, .param .u64 b)", "{"], 0, 0
    for number, form in enumerate(forms):
        body = entry(form, f"f{number}").split("\n")[1:-1]
        own = f"add.u64 %in, %in, {inputs}; add.u64 %out, %out, {results};"
        lines += [line.replace(_PARAMETERS, f"{_PARAMETERS} {own}") for line in body]
        lines[-1] = "}"  # in place of its return
        inputs, results = inputs + input_bytes(form), results + form.result_bytes
    return "\n".join((_HEAD, *lines, "ret;", "}")) + "\n"


def _filled(body: str, names: dict[str, str]) -> str:
    # Braces are PTX's own, too: only the marks are replaced.
    for name in sorted(names, key=len, reverse=True):
        mark = name[1:] if name[0] == "x" else name
        body = body.replace("{" + mark + "}", names[name])
    return body if body.rstrip().endswith(";") else f"{body};"


def module(forms: Iterable[Form]) -> str:
    """PTX of a module with an entry ``f0``, ``f1``, … for each form."""
    return "\n".join((_HEAD, *(entry(form, f"f{number}") for number, form in enumerate(forms)))) + "\n"
