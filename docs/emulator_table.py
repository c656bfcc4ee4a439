"""Write the table of instructions in emulator.md: ``python docs/emulator_table.py``.

Each form in instructions.txt is given to the emulator to decode; what it cannot decode is missing. Then a kernel of
the form alone is given to what makes machine code; what that refuses is left to NumPy.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from cudakit import emulator
from cudakit.emulator.compiled import Refusal, kernel
from cudakit.emulator.compiled.layout import Layout
from cudakit.emulator.compiled.source import Inlined
from cudakit.emulator.machine.decode import Context

HERE = Path(__file__).parent
PAGE = HERE / "emulator.md"
START, END = "<!-- table: python docs/emulator_table.py -->\n", "<!-- end of table -->\n"
FAMILIES = (
    "Integer arithmetic", "Extended precision", "Floating point", "Half precision", "Mixed precision", "Comparison",
    "Half precision comparison", "Logic and shift", "Data movement and conversion", "Texture", "Surface",
    "Control flow", "Synchronization and communication", "Warp matrix", "Warpgroup matrix",
    "Tensor core 5th generation", "Stack", "Video", "Miscellaneous",
)  # fmt: skip
TENSOR = "products exact; |D − exact| ≤ u |D| + (k + 1) 2⁻⁵³ (|C| + Σ |A · B|)"
KERNEL = """.version 9.0
.target sm_100a
.address_size 64
.func callee {{ ret; }}
.entry k() {{
    .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<10>; .reg .b64 %rd<9>; .reg .b128 %q<4>;
    .reg .f32 %f<9>; .reg .f64 %d<9>;
    {form};
done:
    ret;
table: .branchtargets done;
}}"""


class Form(NamedTuple):
    """A line of instructions.txt."""

    section: str
    text: str
    bound: str

    @property
    def name(self) -> str:
        return self.text.split()[0]


def forms() -> list[Form]:
    """Return the forms in instructions.txt."""
    lines = (HERE / "instructions.txt").read_text(encoding="utf-8").splitlines()
    rows = [re.split(r"\s*(?<!\\)\|\s*", line) for line in lines if line and line[0] != "#"]
    return [Form(*(part.replace("\\|", "|") for part in (*row, "")[:3])) for row in rows]


def missing(form: Form) -> str:
    """Return why the emulator cannot decode a form, or an empty string."""
    program = emulator.parse(KERNEL.format(form=form.text))
    return emulator.Module(program, emulator.Memory()).decoded(program.functions["k"])[0].missing


def is_compiled(form: Form) -> bool:
    """Return whether a kernel of one form is compiled to machine code."""
    program = emulator.parse(KERNEL.format(form=form.text))
    module = emulator.Module(program, emulator.Memory())
    try:
        function = Inlined(program, program.functions["k"]).function
        kernel.make(Context(module.symbols, function), Layout(32, True, True))
    except Refusal:
        return False
    return True


def table() -> str:
    """Return the table as Markdown."""
    lines, family = [], ""
    for form in forms():
        number = form.section.split(".")[2]
        if number != family:
            family = number
            lines += [
                f"\n### {FAMILIES[int(number) - 1]} (9.7.{number})\n",
                "| section | form | emulator | machine code |",
                "|---|---|---|---|",
            ]
        bound = TENSOR if form.bound == "tensor" else form.bound
        state = "missing" if missing(form) else f"bound: {bound}" if bound else "run"
        escaped = state.replace("|", "\\|")
        compiled = "–" if state == "missing" else "yes" if is_compiled(form) else "no"
        lines.append(f"| {form.section} | `{form.name}` | {escaped} | {compiled} |")
    return "\n".join(lines).lstrip("\n") + "\n\n"


def page(text: str) -> str:
    """Return `text` with the current table."""
    before, rest = text.split(START)
    return before + START + "\n" + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
