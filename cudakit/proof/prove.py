"""Proofs of kernels, and what they say; of kernels in a file, by what comments above them state."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from cudakit.emulator.face import EmulatedCode, EmulatedThreads, flow, parse, program
from cudakit.errors import ArgumentError, CompileError, CudakitError, EmulationError, TemplateError, shortened
from cudakit.jit.cache.stages import compiled_of, complete_parameters, declarations_of
from cudakit.jit.specialise.options import check_target
from cudakit.jit.specialise.specialise import GENERATED, BoundParameter, Specialization
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.kernel.kernel import Kernel, Module
from cudakit.proof.confirm import Example, Wanted, example, ran, small
from cudakit.proof.execution import Execution
from cudakit.proof.instructions import Numbers, Unsupported
from cudakit.proof.obligations import Obligation, assumptions, obligations
from cudakit.proof.problem import Extent, Problem, content_name
from cudakit.proof.solver import Answer, OutOfSteps, Solver, z3_module
from cudakit.proof.terms import Formula, at_least, equal, everything, negation, polynomial
from cudakit.types.checked import text_of

#: A type that is only declared has the size 0, and the length of its array is in bytes.
_SIZE = f"""#line 1 "{GENERATED}"
template <typename T_, typename = void> struct cudakit_size {{ enum {{ bytes, alignment }}; }};
template <typename T_> struct cudakit_size<T_*, decltype((void)sizeof(T_))> {{
    enum {{ bytes = sizeof(T_), alignment = alignof(T_) }};
}};
"""


def sized(specialization: Specialization, parameters: tuple[BoundParameter, ...]) -> tuple[BoundParameter, ...]:
    """The parameters; pointers to a struct as pointers to elements of so many bytes.

    Parameters
    ----------
    specialization : Specialization
        The kernel, as PTX.
    parameters : tuple of BoundParameter
        As the compiler tells them.
    """
    unknown = [at for at, each in enumerate(parameters) if each.category == "unknown" and each.cpp.endswith("*")]
    if not unknown or specialization.source.code is not None:
        return parameters
    variables = "".join(
        f"__device__ char cudakit_{name}_{at}[1 + cudakit_size<{parameters[at].cpp}>::{name}];\n"
        for at in unknown
        for name in ("bytes", "alignment")
    )
    asking = specialization._replace(postlude=(*specialization.postlude, f'{_SIZE}extern "C" {{\n{variables}}}\n'))
    try:
        found = parse(compiled_of(asking).code.decode()).variables
    except CompileError:  # a type that cannot be named there
        return parameters
    result = list(parameters)
    for at in unknown:
        size, alignment = (max(1, found[f"cudakit_{name}_{at}"].size - 1) for name in ("bytes", "alignment"))
        made = parameters[at]._replace(category="pointer", dtype=np.dtype("u1"), count=size, alignment=alignment)
        result[at] = made
    return tuple(result)


Verdict: TypeAlias = Literal["proved", "refuted", "not supported", "not decided"]
_MOST_SAID = 8
_MOST_EXAMPLES = 6


@dataclass(frozen=True)
class Finding:
    """Something that was not proved.

    Attributes
    ----------
    kind : str
        ``bounds``, ``alignment``, ``race``, ``barrier``, or ``kernel`` for what is about the kernel as a whole.
    verdict : str
        ``refuted``, ``not supported`` or ``not decided``.
    file, line : str, int
        Of the source; empty and 0 where it is not known.
    text : str
    example : Example or None
        A launch that shows it.
    """

    kind: str
    verdict: Verdict
    file: str
    line: int
    text: str
    example: Example | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file else ""
        shown = f"{self.verdict}: {place}{self.text}"
        if self.example is not None:
            shown += f"\n  with {self.example}"
            if self.example.fault:
                shown += f"\n  the emulator: {self.example.fault}"
        return shown


@dataclass(frozen=True)
class Proof:
    """What is known of a kernel for all sizes that meet what was stated; true where it is proved.

    Attributes
    ----------
    kernel : str
        With its template arguments.
    verdict : {"proved", "refuted", "not supported", "not decided"}
        ``refuted`` where an example shows a fault that the emulator confirms.
    findings : tuple of Finding
        What was not proved; empty where all was.
    checked : int
        How many accesses and barriers were judged, those of repeated rounds each for itself.
    assumed : tuple of str
        What it takes for granted, as far as that applies to the kernel.
    """

    kernel: str
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    checked: int = field(default=0, compare=False)
    assumed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.verdict == "proved"

    def __str__(self) -> str:
        if self:
            text = f"{self.kernel}: proved: no access out of bounds, no race, for all sizes that meet what is stated"
            return "\n".join([text, *(f"  taken for granted: {each}" for each in self.assumed)])
        return "\n".join([f"{self.kernel}: {self.verdict}", *(f"- {each}" for each in self.findings)])

    def to_json(self) -> dict[str, Any]:
        """It as what JSON can hold."""
        findings = [vars(each) | {"example": each.example and vars(each.example)} for each in self.findings]
        return vars(self) | {"findings": findings, "assumed": list(self.assumed)}


def prove(
    kernel: Kernel,
    *statements: str,
    block: Extent = None,
    grid: Extent = None,
    shared_bytes: int | str = 0,
    timeout_s: float = 10.0,
    arch: str = "sm_90",
) -> Proof:
    """Whether no access of a kernel is out of bounds, and no two of its threads race, for all sizes that are stated.

    What is proved is the kernel as it is compiled for the emulator. It takes for granted that different arguments are
    different arrays, which do not overlap, and that each begins at a multiple of 256 bytes.

    Parameters
    ----------
    kernel : Kernel
        One without template parameters, or with all its template arguments, as ``scale[np.float32]``.
    *statements : str
        What holds of every launch, such as ``"n <= len(x)"``: comparisons of integer arguments, lengths of arrays in
        elements, ``blockDim.x``, ``gridDim.x`` and so on. An array of integers, as in ``"0 <= ids < len(x)"``, is each
        of its elements. Or ``"x is y"`` of arguments that are one array.
    block, grid : int, str or sequence of them, optional
        Numbers, or expressions such as ``"(n + 255) // 256"``; default: any, and 1 along axes of the grid that the
        kernel never reads and of which nothing is stated.
    shared_bytes : int or str
        Dynamic shared memory, in bytes.
    timeout_s : float
        For each question, in seconds of a common machine; all together have 30 times that. What takes longer is not
        decided. The solver's steps are counted, not the time: a slow or busy machine gives the same verdict.
    arch : str
        For which it is compiled.

    Returns
    -------
    Proof

    Raises
    ------
    CudakitError
        Where the solver is not installed.
    ArgumentError
        For statements that cannot be read, or that no sizes meet.

    Examples
    --------
    >>> proof = ck.prove(scale[np.float32], "n <= len(x)", block=256, grid="(n + 255) // 256")
    >>> assert proof, proof
    """
    if not isinstance(kernel, Kernel):
        raise ArgumentError(f"prove takes a kernel, as in prove(kernel[np.float32]), got {shortened(kernel)}")
    for statement in statements:
        text_of("prove: a statement", statement)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s < 1e6:
        raise ArgumentError(f"prove: timeout_s is a number of seconds above 0, got {shortened(timeout_s)}")
    check_target("prove", arch, "ptx")
    z3_module()  # before anything is compiled
    wanted = EmulatedCode(arch).adapted(kernel.specialization(arch=arch, target="ptx"))
    name = wanted.name_expression
    if wanted.is_tile:
        return Proof(name, "not supported", (Finding("kernel", "not supported", "", 0, "it is a kernel of tiles"),))
    compiled = compiled_of(wanted)
    ptx = compiled.code.decode()
    parsed = parse(ptx)
    entry = parsed.functions[compiled.lowered[name]]
    declarations = declarations_of(wanted.source, wanted.options.cache)
    parameters = complete_parameters(wanted, compiled, declarations, (), TypeBook(declarations))
    parameters = sized(wanted, parameters)
    problem = Problem.of(name, parsed, entry, parameters, statements, block, grid, shared_bytes)
    solver = Solver(timeout_s)
    if solver.impossible(problem.given):
        raise ArgumentError(f"{name}: no sizes meet what is stated: {', '.join(statements) or 'block and grid'}")
    work = _Work(kernel, problem, solver, arch, EmulatedThreads(wanted, compiled, parameters, None).placed)
    work.run()
    verdicts: list[Verdict] = [each.verdict for each in work.findings]
    order: tuple[Verdict, ...] = ("refuted", "not supported", "not decided")
    verdict: Verdict = next((each for each in order if each in verdicts), "proved")
    version = re.search(r"release ([\d.]+)", ptx) if wanted.source.code is None else None
    made = [f"the code is what the compiler of CUDA {version[1]} makes for {arch}"] if version else []
    return Proof(name, verdict, tuple(work.findings), work.checked, (*made, *work.assumed))


class _Work:
    def __init__(self, kernel: Kernel, problem: Problem, solver: Solver, arch: str, placed: Any) -> None:
        self.kernel, self.problem, self.solver, self.arch, self.placed = kernel, problem, solver, arch, placed
        self.findings: list[Finding] = []
        self.checked = 0
        self.assumed: tuple[str, ...] = ()

    def run(self) -> None:
        problem = self.problem
        numbers = Numbers(self.solver, problem.given)
        execution: Execution | None = None
        try:
            execution = Execution(problem, numbers)
            execution.run()
            self.checked = len(execution.events)
            self.assumed = assumptions(execution, problem)
            for each in obligations(execution, problem):
                if len(self.findings) < _MOST_SAID:
                    self.decide(each)
        except OutOfSteps as error:
            self.say("kernel", "not decided", None, str(error))
        except (Unsupported, flow.Refusal, EmulationError) as error:
            at = execution.at if execution is not None else None
            self.say("kernel", "not supported", at, f"not supported here: {error}")

    def decide(self, wanted: Obligation) -> None:
        for case in wanted.cases:
            answer = self.solver.answer([*self.problem.given, case], small(self.problem))
            if answer.verdict == "no":
                continue
            text = wanted.what
            if wanted.other is not wanted.given:
                text += f" ({self.place(wanted.other)})"
            found = None
            if reasons := wanted.reasons_of_offsets():
                text = f"may be one that {text}: which element it is, is not known: {'; '.join(reasons)}"
                self.say(wanted.kind, "not supported", wanted.given, text)
                return
            if answer.verdict == "yes":
                found = self.shown(wanted, answer, [*self.problem.given, case])
                if found.fault:
                    self.say(wanted.kind, "refuted", wanted.given, text, found)
                    return
            if reasons := wanted.reasons():
                self.say(wanted.kind, "not supported", wanted.given, f"may be one that {text}: {'; '.join(reasons)}")
            elif found is None:
                text = f"not decided in the steps of timeout_s={self.solver.timeout_s:g} whether it {text}"
                self.say(wanted.kind, "not decided", wanted.given, text)
            else:
                text = f"may be one that {text}, which the emulator does not show: {_unshown(found, wanted)}"
                self.say(wanted.kind, "not decided", wanted.given, text, found)
            return

    def shown(self, wanted: Obligation, answer: Answer, formulas: list[Formula]) -> Example:
        """The first of a few launches that shows a fault, or the last of them.

        What is known of a loop's rounds is less than what holds: at some launches that it allows nothing is wrong.
        """
        problem = self.problem
        symbols = problem.scalars or {f"len({name})": symbol for name, symbol in problem.lengths.items()}
        both = wanted.given, wanted.other
        fault = Wanted(wanted.kind, frozenset(each.line for each in both), frozenset(map(self.place, both)))
        total = sum(map(polynomial, symbols.values()), polynomial(0))
        for left in range(_MOST_EXAMPLES - 1, -1, -1):
            launch = self.with_contents(example(problem, answer.values), answer)
            found = ran(launch, problem, self.kernel, self.arch, fault)
            if found.fault or not found.was_run or not left:
                break
            numbers = {symbol: found.arguments[name] for name, symbol in symbols.items()}
            formulas = [*formulas, negation(everything(equal(symbol, value) for symbol, value in numbers.items()))]
            smaller = at_least(sum(numbers.values()) - 1, total)
            tried = (self.solver.answer([*formulas, *more], small(problem)) for more in ([smaller], []))
            if (other := next((each for each in tried if each.verdict == "yes"), None)) is None:
                break
            answer = other
        return found

    def with_contents(self, launch: Example, answer: Answer) -> Example:
        """The launch, with elements of the arrays of whose elements something is stated."""
        contents: dict[str, tuple[int, ...]] = {}
        for name in self.problem.contents:
            own, element = content_name(name), self.problem.elements[name]
            values = dict.fromkeys(value for symbol, value in answer.values.items() if symbol.name.rstrip("'") == own)
            contents[name] = tuple(values) or (answer.values.get(element, max(0, element.low or 0)),)
        return replace(launch, contents=contents)

    def place(self, given: program.Instruction) -> str:
        return given.source.shown(self.placed) if given.source is not None else f"PTX line {given.line}"

    def say(
        self, kind: str, verdict: Verdict, given: program.Instruction | None, text: str, found: Example | None = None
    ) -> None:
        file, line = "", 0
        if given is not None and given.source is None:
            text = f"PTX line {given.line}: {text}"
        if given is not None and given.source is not None:
            shown, _, number = self.placed(given.source.file, given.source.line).rpartition(":")
            file, line = shown, int(number)
        known = {(each.kind, each.file, each.line, each.text) for each in self.findings}
        if (kind, file, line, text) not in known:
            self.findings.append(Finding(kind, verdict, file, line, text, found))


def _unshown(found: Example, wanted: Obligation) -> str:
    """Why a fault does not show."""
    if not found.was_run:
        return "the launch is too large for it"
    if wanted.kind == "race":
        return "both may store the same value, or more may hold than what is followed here"
    return "more may hold than what is followed here"


# ── kernels in a file, with comments such as ``// prove: n <= len(x)`` ──

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
                raise CudakitError(f"the comment // prove:{lines[-1]} is not above a kernel")
            lines.append(match[1].strip())
        elif lines:
            # The kernel's head follows, perhaps on several lines.
            rest.append(line.partition("//")[0])
            head = _HEAD.search("\n".join(rest))
            if head is not None:
                found[head[1]] = _read(lines)
                lines, rest = [], []
            elif "{" in line or ";" in line or line == "prove-end":
                raise CudakitError(f"the comment // prove: {lines[-1]} is not above a kernel")
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
