"""What is stated in a file, in comments above its kernels: ``// prove: n <= len(x)``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cudakit.errors import CudakitError, TemplateError
from cudakit.kernel.kernel import Module
from cudakit.proof.prove import Proof, prove

_STATED: Final = re.compile(r"[ \t]*//[ \t]*prove:(.*)")
_HEAD: Final = re.compile(r"\b__global__\b[^;{]*?\b(\w+)\s*\((?!\s*\w+\s*\)\s*\w+\s*\()")
_SETTING: Final = re.compile(r"\s*(\w+)\s*=(?!=)\s*(.+)")


@dataclass
class Stated:
    """What is stated of one kernel.

    Attributes
    ----------
    statements : list of str
    settings : dict
        ``block``, ``grid`` and ``shared_bytes``, as they are written.
    arguments : dict
        Of each template parameter that is named, what it is to be.
    """

    statements: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, list[str]] = field(default_factory=dict)


def stated(text: str) -> dict[str, Stated]:
    """What a text states of its kernels, by their names.

    Raises
    ------
    CudakitError
        For what is stated of no kernel.
    """
    found: dict[str, Stated] = {}
    lines: list[str] = []
    rest: list[str] = []
    for line in [*text.splitlines(), "prove-end"]:
        match = _STATED.fullmatch(line)
        if match is not None:
            if rest:
                raise CudakitError(f"what is stated by // prove:{lines[-1]} stands above no kernel")
            lines.append(match[1].strip())
        elif lines:
            # The kernel's head follows, perhaps on several lines.
            rest.append(line.partition("//")[0])
            head = _HEAD.search("\n".join(rest))
            if head is not None:
                found[head[1]] = _read(lines)
                lines, rest = [], []
            elif "{" in line or ";" in line or line == "prove-end":
                raise CudakitError(f"what is stated by // prove: {lines[-1]} stands above no kernel")
    return found


def _read(lines: Sequence[str]) -> Stated:
    made = Stated()
    for line in lines:
        setting = _SETTING.fullmatch(line)
        if setting is None:
            made.statements.append(line)
        elif setting[1] in ("block", "grid", "shared_bytes"):
            made.settings[setting[1]] = setting[2].strip()
        else:
            made.arguments[setting[1]] = [each.strip() for each in setting[2].split("|")]
    return made


def proofs_of(path: Path, kernel: str | None, timeout_s: float, arch: str) -> Iterator[Proof]:
    """A proof for each kernel of a file of which something is stated, and for each choice of its template arguments.

    Raises
    ------
    CudakitError
        Where nothing is stated, or what is stated cannot be read.
    """
    module = Module.from_file(path)
    found = stated(path.read_text())
    if kernel is not None:
        found = {name: each for name, each in found.items() if name == kernel}
    if not found:
        what = "kernels of it have" if kernel is None else f"kernel {kernel} has"
        raise CudakitError(f"{path}: no {what} comments such as // prove: n <= len(x)")
    for name, each in found.items():
        wanted = module[name]
        parameters = [parameter.name for parameter in wanted.signature.template_parameters]
        if set(each.arguments) - set(parameters):
            unknown = ", ".join(sorted(set(each.arguments) - set(parameters)))
            raise TemplateError(f"{name}: // prove: sets {unknown}, which is no template parameter of it")
        missing = [parameter for parameter in parameters if parameter not in each.arguments]
        if missing:
            raise TemplateError(f"{name}: state its template arguments, as // prove: {missing[0]} = float")
        for chosen in itertools.product(*(each.arguments[parameter] for parameter in parameters)):
            given = tuple(int(one) if re.fullmatch(r"-?\d+", one) else one for one in chosen)
            instance = wanted[given] if given else wanted
            yield prove(
                instance,
                *each.statements,
                block=_extent(each.settings.get("block")),
                grid=_extent(each.settings.get("grid")),
                shared_bytes=each.settings.get("shared_bytes", 0),
                timeout_s=timeout_s,
                arch=arch,
            )


def _extent(text: str | None) -> list[str] | None:
    """Extents with commas between, in parentheses or not."""
    if text is None:
        return None
    whole = re.fullmatch(r"\((.*,.*)\)", text)
    return [each for each in (whole[1] if whole is not None else text).split(",") if each.strip()]
