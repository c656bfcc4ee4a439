"""Proofs of the kernels that a Python program launches, with what its launches have in common."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from cudakit.adapters.program import Program, without_gpu
from cudakit.emulator.face import EmulatedThreads
from cudakit.errors import ArgumentError, CudakitError
from cudakit.jit.load.config import Config, Cover
from cudakit.jit.source import headers
from cudakit.jit.specialise.specialise import Specialization
from cudakit.kernel.kernel import Kernel, of_source
from cudakit.proof.prove import Finding, Proof, Stated, prove_stated, stated
from cudakit.streams.witnesses import Call, Witness, Work, is_own, witnessing

_MOST_LAUNCHES = 1000
_LARGEST = 1 << 30
_OF_PYTHON = ("cudakit.adapters.numba", "cudakit.adapters.triton")


def _name(name: str) -> str:
    """Return a parameter's name for statements: ``p3`` for ``parameter[3]``, as compiled code has it."""
    return re.sub(r"^parameter\[(\d+)\]$", r"p\1", name)


@dataclass
class Launches:
    """Launches of one kernel of the program's own source.

    Attributes
    ----------
    instance : Specialization
        The kernel, with template arguments and options.
    blocks, grids : set
        Blocks and grids of the launches; None of a launch whose block or grid cudakit has chosen.
    facts : list of dict
        Integer arguments by name, and lengths of arrays in elements as ``len(x)``, of each launch.
    parameters : list of (str, str)
        Name and C++ type of each parameter.
    axes : int
        Number of axes along which blocks may have more than one thread.
    """

    instance: Specialization
    blocks: set[Any] = field(default_factory=set)
    grids: set[Any] = field(default_factory=set)
    facts: list[dict[str, int]] = field(default_factory=list)
    parameters: list[tuple[str, str]] = field(default_factory=list)
    axes: int = 1

    def kernel(self) -> Kernel:
        """Return the kernel without template arguments. Unnamed parameters of compiled code get names."""
        origin, name = self.instance.source, self.instance.kernel
        if origin.code is not None and origin.head is None:
            parameters = (f"{cpp} {_name(parameter)}" for parameter, cpp in self.parameters)
            origin = replace(origin, head=f"void {name}({', '.join(parameters)})")
        return of_source(origin, name, self.instance.options)

    def add(self, call: Call) -> None:
        """Add a launch."""
        self.parameters = [(parameter.name, parameter.cpp) for parameter in call.target.parameters]
        chosen = call.config
        self.blocks.add(chosen.block)
        self.grids.add(chosen.grid if isinstance(chosen, Config) else None)
        self.axes = max(self.axes, len(chosen.shape) if isinstance(chosen, Cover) else 3)
        facts = dict[str, int]()
        for parameter, value in zip(call.target.parameters, call.values, strict=False):
            if parameter.category == "pointer" and hasattr(value, "nbytes") and parameter.dtype is not None:
                facts[f"len({_name(parameter.name)})"] = value.nbytes // parameter.dtype.itemsize
            elif parameter.category == "scalar" and parameter.dtype is not None and parameter.dtype.kind in "iu":
                facts[_name(parameter.name)] = int(value)
        if len(self.facts) < _MOST_LAUNCHES:
            self.facts.append(facts)

    def statements(self) -> list[str]:
        """Return what holds in all launches, as statements for a proof."""
        names = [name for name in self.facts[0] if all(name in facts for facts in self.facts)]
        sizes = [
            name for name in names if "(" not in name and all(0 <= facts[name] <= _LARGEST for facts in self.facts)
        ]
        result = [f"0 <= {name} <= {_LARGEST}" for name in sizes]
        for array in (name for name in names if "(" in name):
            holding = [
                f"{name} <= {array}" for name in sizes if all(facts[name] <= facts[array] for facts in self.facts)
            ]
            holding += [
                f"{first} * {second} <= {array}"
                for first, second in itertools.combinations(sizes, 2)
                if all(facts[first] * facts[second] == facts[array] for facts in self.facts)
            ]
            result += holding or [f"{array} >= {min(facts[array] for facts in self.facts)}"]
        return result

    def configuration(self, stated_settings: dict[str, str]) -> tuple[dict[str, str], list[str]]:
        """Return settings with block and grid if all launches have the same, and what else holds for their threads."""
        settings = {
            name: str(tuple(value))
            for name, values in (("block", self.blocks), ("grid", self.grids))
            if len(values) == 1 and (value := next(iter(values))) is not None
        } | stated_settings
        statements = ["gridDim.x <= 1048576"] if "grid" not in settings else []
        if "block" not in settings and self.axes < 3:
            statements += [f"blockDim.{axis} == 1" for axis in "yz"[self.axes - 1 :]]
        return settings, statements


def _is_of_python() -> bool:
    """Return whether this launch comes from the adapter of Numba or Triton, whose kernels are Python functions."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not str(frame.f_globals.get("__name__")).startswith(_OF_PYTHON):
        frame = frame.f_back
    return frame is not None


class _Witness(Witness):
    """A witness of the kernels that a program launches. Kernels without CUDA C++ of its own are left out."""

    def __init__(self) -> None:
        self.kernels: dict[Any, Launches] = {}

    def begin(self, work: Work) -> None:
        call = work.detail
        if work.kind != "kernel" or call is None or not isinstance(call.target, EmulatedThreads):
            return
        instance = call.target.specialization
        source = instance.source.whole or instance.source
        if source.origin is not None:
            is_generated = is_own(source.origin[0])
        elif source.folder is not None:
            is_generated = source.folder.is_relative_to(headers.templates_folder())
        else:
            is_generated = source.code is None or _is_of_python()
        if is_generated:
            return
        key = source, instance.name_expression, instance.options
        self.kernels.setdefault(key, Launches(instance)).add(call)


@dataclass(frozen=True)
class ProgramProof:
    """Proof of a kernel of a program.

    Attributes
    ----------
    proof : Proof
        The proof.
    premises : tuple of str
        Statements that were taken from the launches.
    """

    proof: Proof
    premises: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.proof)

    def __str__(self) -> str:
        lines = [str(self.proof)]
        if self.premises:
            lines.append(f"  taken from its launches: {', '.join(self.premises)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the result as values that JSON can hold."""
        return {**self.proof.to_json(), "premises": list(self.premises)}


def launches_of(program: Program) -> tuple[list[Launches], CudakitError | None]:
    """Run a program on the emulator, and return the kernels of its own that it launches.

    Returns
    -------
    kernels : list of Launches
        The kernels, by template arguments and options.
    error : CudakitError or None
        Error that ended the program early.
    """
    witness, fault = _Witness(), None
    with without_gpu(program, "proved"), witnessing(witness):
        try:
            program.execute_to_end()
        except CudakitError as error:
            fault = error
    return [*witness.kernels.values()], fault


def proofs_of_launches(kernels: list[Launches], timeout_s: float, arch: str) -> Iterator[ProgramProof]:
    """Yield a proof of each kernel, with the statements above it.

    A kernel without statements gets those that hold in all of its launches. Block and grid are those of the launches
    if all have the same and the statements name no other.
    """
    for kernel in kernels:
        instance = kernel.instance
        comments = stated((instance.source.whole or instance.source).text)
        premises = kernel.statements() if instance.kernel not in comments else []
        entry = comments.get(instance.kernel, Stated(list(premises)))
        settings, statements = kernel.configuration(entry.settings)
        premises += [
            *statements,
            *(f"{name} = {value}" for name, value in settings.items() if name not in entry.settings),
        ]
        entry = replace(entry, statements=[*entry.statements, *statements], settings=settings)
        arguments = tuple(argument for _, argument in instance.template_arguments)
        try:
            proof = prove_stated(kernel.kernel(), arguments, entry, timeout_s, arch)
        except ArgumentError as error:
            if instance.kernel in comments:
                raise
            reason = Finding("kernel", "not supported", "", 0, str(error))
            proof = Proof(instance.name_expression, "not supported", (reason,))
        yield ProgramProof(proof, tuple(premises))
