"""Proofs of kernels and their results; also of kernels in a file, by the comments above them."""

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
from cudakit.proof.confirm import Example, ExpectedFault, example, run_example, small
from cudakit.proof.execution import Execution
from cudakit.proof.instructions import Numbers, Unsupported
from cudakit.proof.obligations import Obligation, assumptions, obligations
from cudakit.proof.problem import Extent, Problem, content_name
from cudakit.proof.solver import Answer, OutOfSteps, Solver, z3_module
from cudakit.proof.terms import Formula, at_least, equal, everything, negation, polynomial
from cudakit.types.checked import text_of

#: A type that is only declared has size 0; the length of its array is in bytes.
_SIZE = f"""#line 1 "{GENERATED}"
template <typename T_, typename = void> struct cudakit_size {{ enum {{ bytes, alignment }}; }};
template <typename T_> struct cudakit_size<T_*, decltype((void)sizeof(T_))> {{
    enum {{ bytes = sizeof(T_), alignment = alignof(T_) }};
}};
"""


def sized(specialization: Specialization, parameters: tuple[BoundParameter, ...]) -> tuple[BoundParameter, ...]:
    """Return the parameters, in which pointers to structs have elements of the struct's size and alignment.

    The compiler is asked for the sizes. If it cannot name a type, the parameters are returned unchanged.

    Parameters
    ----------
    specialization : Specialization
        The kernel, as PTX.
    parameters : tuple of BoundParameter
        Parameters reported by the compiler.
    """
    unknown = [
        at for at, parameter in enumerate(parameters) if parameter.category == "unknown" and parameter.cpp.endswith("*")
    ]
    if not unknown or specialization.source.code is not None:
        return parameters
    variables = "".join(
        f"__device__ char cudakit_{name}_{at}[1 + cudakit_size<{parameters[at].cpp}>::{name}];\n"
        for at in unknown
        for name in ("bytes", "alignment")
    )
    asking = specialization._replace(postlude=(*specialization.postlude, f'{_SIZE}extern "C" {{\n{variables}}}\n'))
    try:
        declared = parse(compiled_of(asking).code.decode()).variables
    except CompileError:  # a type that cannot be named there
        return parameters
    result = list(parameters)
    for at in unknown:
        size, alignment = (max(1, declared[f"cudakit_{name}_{at}"].size - 1) for name in ("bytes", "alignment"))
        pointer = parameters[at]._replace(category="pointer", dtype=np.dtype("u1"), count=size, alignment=alignment)
        result[at] = pointer
    return tuple(result)


Verdict: TypeAlias = Literal["proved", "refuted", "not supported", "not decided"]
_MOST_SAID = 8
_MOST_EXAMPLES = 6


@dataclass(frozen=True)
class Finding:
    """A fact that was not proved.

    Attributes
    ----------
    kind : str
        ``bounds``, ``alignment``, ``race``, ``barrier``, or ``kernel`` for the kernel as a whole.
    verdict : str
        ``refuted``, ``not supported`` or ``not decided``.
    file, line : str, int
        Source line; empty and 0 where it is not known.
    text : str
        Description of the fault.
    example : Example or None
        Launch that shows the fault.
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
    """Result of a proof, for all sizes that meet the statements; true if the kernel is proved.

    Attributes
    ----------
    kernel : str
        Name with template arguments.
    verdict : {"proved", "refuted", "not supported", "not decided"}
        ``refuted``: the emulator confirms a fault at an example.
    findings : tuple of Finding
        Facts that were not proved; empty if all were.
    checked : int
        Number of accesses and barriers judged; those of repeated rounds count each.
    assumed : tuple of str
        Assumptions that apply to the kernel.
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
            return "\n".join([text, *(f"  taken for granted: {assumption}" for assumption in self.assumed)])
        return "\n".join([f"{self.kernel}: {self.verdict}", *(f"- {finding}" for finding in self.findings)])

    def to_json(self) -> dict[str, Any]:
        """Return the result as values that JSON can hold."""
        findings = [vars(finding) | {"example": finding.example and vars(finding.example)} for finding in self.findings]
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
    """Prove that a kernel has no access out of bounds and no race, for all sizes that meet the statements.

    The proof is about the kernel as compiled for the emulator. It assumes that different arguments are different arrays
    which do not overlap, and that each begins at a multiple of 256 bytes.

    Parameters
    ----------
    kernel : Kernel
        Kernel without template parameters, or with all its template arguments, as ``scale[np.float32]``.
    *statements : str
        Conditions of every launch, such as ``"n <= len(x)"``. They are comparisons of integer arguments, lengths of
        arrays in elements, ``blockDim.x``, ``gridDim.x`` and so on. An array of integers, as in ``"0 <= ids <
        len(x)"``, stands for each of its elements. ``"x is y"`` declares that two arguments are one array.
    block, grid : int, str or sequence of them, optional
        Numbers, or expressions such as ``"(n + 255) // 256"``. Default: any, and 1 along axes of the grid that neither
        the kernel nor a statement uses.
    shared_bytes : int or str
        Dynamic shared memory, in bytes.
    timeout_s : float
        Limit for each question, in seconds of a common machine; all questions together have 30 times that. A question
        that takes longer is not decided. The limit counts the solver's steps, not time: a slow or busy machine gives
        the same verdict.
    arch : str
        Arch for which the kernel is compiled.

    Returns
    -------
    Proof

    Raises
    ------
    CudakitError
        If the solver is not installed.
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
    specialization = EmulatedCode(arch).adapted(kernel.specialization(arch=arch, target="ptx"))
    name = specialization.name_expression
    if specialization.is_tile:
        return Proof(name, "not supported", (Finding("kernel", "not supported", "", 0, "it is a kernel of tiles"),))
    compiled = compiled_of(specialization)
    ptx = compiled.code.decode()
    parsed = parse(ptx)
    entry = parsed.functions[compiled.lowered[name]]
    declarations = declarations_of(specialization.source, specialization.options.cache)
    parameters = complete_parameters(specialization, compiled, declarations, (), TypeBook(declarations))
    parameters = sized(specialization, parameters)
    problem = Problem.of(name, parsed, entry, parameters, statements, block, grid, shared_bytes)
    solver = Solver(timeout_s)
    if solver.impossible(problem.premises):
        raise ArgumentError(f"{name}: no sizes meet what is stated: {', '.join(statements) or 'block and grid'}")
    work = _Work(kernel, problem, solver, arch, EmulatedThreads(specialization, compiled, parameters, None).placed)
    work.run()
    verdicts: list[Verdict] = [finding.verdict for finding in work.findings]
    order: tuple[Verdict, ...] = ("refuted", "not supported", "not decided")
    verdict: Verdict = next((candidate for candidate in order if candidate in verdicts), "proved")
    version = re.search(r"release ([\d.]+)", ptx) if specialization.source.code is None else None
    compiler_assumption = [f"the code is what the compiler of CUDA {version[1]} makes for {arch}"] if version else []
    return Proof(name, verdict, tuple(work.findings), work.checked, (*compiler_assumption, *work.assumed))


class _Work:
    def __init__(self, kernel: Kernel, problem: Problem, solver: Solver, arch: str, placed: Any) -> None:
        self.kernel, self.problem, self.solver, self.arch, self.placed = kernel, problem, solver, arch, placed
        self.findings: list[Finding] = []
        self.checked = 0
        self.assumed: tuple[str, ...] = ()

    def run(self) -> None:
        problem = self.problem
        numbers = Numbers(self.solver, problem.premises)
        execution: Execution | None = None
        try:
            execution = Execution(problem, numbers)
            execution.run()
            self.checked = len(execution.events)
            self.assumed = assumptions(execution, problem)
            for obligation in obligations(execution, problem):
                if len(self.findings) < _MOST_SAID:
                    self.decide(obligation)
        except OutOfSteps as error:
            self.say("kernel", "not decided", None, str(error))
        except (Unsupported, flow.Refusal, EmulationError) as error:
            at = execution.at if execution is not None else None
            self.say("kernel", "not supported", at, f"not supported here: {error}")

    def decide(self, obligation: Obligation) -> None:
        for case in obligation.cases:
            answer = self.solver.answer([*self.problem.premises, case], small(self.problem))
            if answer.verdict == "no":
                continue
            text = obligation.fault
            if obligation.other is not obligation.instr:
                text += f" ({self.place(obligation.other)})"
            launch = None
            if reasons := obligation.reasons_of_offsets():
                text = f"may be one that {text}: which element it is, is not known: {'; '.join(reasons)}"
                self.say(obligation.category, "not supported", obligation.instr, text)
                return
            if answer.verdict == "yes":
                launch = self.shown(obligation, answer, [*self.problem.premises, case])
                if launch.fault:
                    self.say(obligation.category, "refuted", obligation.instr, text, launch)
                    return
            if reasons := obligation.reasons():
                self.say(
                    obligation.category,
                    "not supported",
                    obligation.instr,
                    f"may be one that {text}: {'; '.join(reasons)}",
                )
            elif launch is None:
                text = f"not decided in the steps of timeout_s={self.solver.timeout_s:g} whether it {text}"
                self.say(obligation.category, "not decided", obligation.instr, text)
            else:
                text = f"may be one that {text}, which the emulator does not show: {_unshown(launch, obligation)}"
                self.say(obligation.category, "not decided", obligation.instr, text, launch)
            return

    def shown(self, obligation: Obligation, answer: Answer, formulas: list[Formula]) -> Example:
        """Run a few launches that the solver's values describe; return the first that shows the fault, or the last.

        `answer` has the values of the first launch. `formulas` are the conditions that further launches must meet. At
        some launches that meet them nothing is wrong: the formulas of a loop's rounds are weaker than the loop.
        """
        problem = self.problem
        symbols = problem.scalars or {f"len({name})": symbol for name, symbol in problem.lengths.items()}
        both = obligation.instr, obligation.other
        fault = ExpectedFault(
            obligation.category, frozenset(instr.line for instr in both), frozenset(map(self.place, both))
        )
        total = sum(map(polynomial, symbols.values()), polynomial(0))
        for left in range(_MOST_EXAMPLES - 1, -1, -1):
            launch = self.with_contents(example(problem, answer.values), answer)
            outcome = run_example(launch, problem, self.kernel, self.arch, fault)
            if outcome.fault or not outcome.was_run or not left:
                break
            numbers = {symbol: outcome.arguments[name] for name, symbol in symbols.items()}
            formulas = [*formulas, negation(everything(equal(symbol, value) for symbol, value in numbers.items()))]
            smaller = at_least(sum(numbers.values()) - 1, total)
            tried = (self.solver.answer([*formulas, *more], small(problem)) for more in ([smaller], []))
            if (other := next((candidate for candidate in tried if candidate.verdict == "yes"), None)) is None:
                break
            answer = other
        return outcome

    def with_contents(self, launch: Example, answer: Answer) -> Example:
        """Return a copy of the launch, with elements of the arrays that have statements about their elements.

        The elements come from the solver's values.
        """
        contents: dict[str, tuple[int, ...]] = {}
        for name in self.problem.contents:
            own, element = content_name(name), self.problem.elements[name]
            values = dict.fromkeys(value for symbol, value in answer.values.items() if symbol.name.rstrip("'") == own)
            contents[name] = tuple(values) or (answer.values.get(element, max(0, element.low or 0)),)
        return replace(launch, contents=contents)

    def place(self, instr: program.Instruction) -> str:
        return instr.source.shown(self.placed) if instr.source is not None else f"PTX line {instr.line}"

    def say(
        self,
        category: str,
        verdict: Verdict,
        instr: program.Instruction | None,
        text: str,
        launch: Example | None = None,
    ) -> None:
        file, line = "", 0
        if instr is not None and instr.source is None:
            text = f"PTX line {instr.line}: {text}"
        if instr is not None and instr.source is not None:
            shown, _, number = self.placed(instr.source.file, instr.source.line).rpartition(":")
            file, line = shown, int(number)
        reported = {(finding.kind, finding.file, finding.line, finding.text) for finding in self.findings}
        if (category, file, line, text) not in reported:
            self.findings.append(Finding(category, verdict, file, line, text, launch))


def _unshown(launch: Example, obligation: Obligation) -> str:
    """Return the reason that the emulator does not show a fault."""
    if not launch.was_run:
        return "the launch is too large for it"
    if obligation.category == "race":
        return "both may store the same value, or more may hold than what is followed here"
    return "more may hold than what is followed here"


# ── kernels in a file, with comments such as ``// prove: n <= len(x)`` ──

_STATED: Final = re.compile(r"[ \t]*//[ \t]*prove:(.*)")
_HEAD: Final = re.compile(r"\b__global__\b[^;{]*?\b(\w+)\s*\((?!\s*\w+\s*\)\s*\w+\s*\()")
_SETTING: Final = re.compile(r"\s*(\w+)\s*=(?!=)\s*(.+)")


@dataclass
class Stated:
    """Statements in the comments above one kernel.

    Attributes
    ----------
    statements : list of str
    settings : dict
        ``block``, ``grid`` and ``shared_bytes``, as they are written.
    arguments : dict
        Values of the template parameters that the comments name, a list for each.
    """

    statements: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, list[str]] = field(default_factory=dict)


def stated(text: str) -> dict[str, Stated]:
    """Return the statements in the ``// prove:`` comments of a source, by the name of the kernel below them.

    Raises
    ------
    CudakitError
        For statements above no kernel.
    """
    kernels: dict[str, Stated] = {}
    lines: list[str] = []
    rest: list[str] = []
    for line in [*text.splitlines(), "prove-end"]:
        match = _STATED.fullmatch(line)
        if match is not None:
            if rest:
                raise CudakitError(f"the comment // prove:{lines[-1]} is not above a kernel")
            lines.append(match[1].strip())
        elif lines:
            # The kernel's signature follows, perhaps on several lines.
            rest.append(line.partition("//")[0])
            head = _HEAD.search("\n".join(rest))
            if head is not None:
                kernels[head[1]] = _read(lines)
                lines, rest = [], []
            elif "{" in line or ";" in line or line == "prove-end":
                raise CudakitError(f"the comment // prove: {lines[-1]} is not above a kernel")
    return kernels


def _read(lines: Sequence[str]) -> Stated:
    result = Stated()
    for line in lines:
        setting = _SETTING.fullmatch(line)
        if setting is None:
            result.statements.append(line)
        elif setting[1] in ("block", "grid", "shared_bytes"):
            result.settings[setting[1]] = setting[2].strip()
        else:
            result.arguments[setting[1]] = [choice.strip() for choice in setting[2].split("|")]
    return result


def proofs_of(path: Path, kernel: str | None, timeout_s: float, arch: str) -> Iterator[Proof]:
    """Yield a proof for each kernel of a file that has statements, and for each choice of its template arguments.

    Raises
    ------
    CudakitError
        If the file has no statements, or some cannot be read.
    """
    module = Module.from_file(path)
    kernels = stated(path.read_text())
    if kernel is not None:
        kernels = {name: entry for name, entry in kernels.items() if name == kernel}
    if not kernels:
        subject = "kernels of it have" if kernel is None else f"kernel {kernel} has"
        raise CudakitError(f"{path}: no {subject} comments such as // prove: n <= len(x)")
    for name, entry in kernels.items():
        listed_kernel = module[name]
        parameters = [parameter.name for parameter in listed_kernel.signature.template_parameters]
        if set(entry.arguments) - set(parameters):
            unknown = ", ".join(sorted(set(entry.arguments) - set(parameters)))
            raise TemplateError(f"{name}: // prove: sets {unknown}, which is no template parameter of it")
        missing = [parameter for parameter in parameters if parameter not in entry.arguments]
        if missing:
            raise TemplateError(f"{name}: state its template arguments, as // prove: {missing[0]} = float")
        for chosen in itertools.product(*(entry.arguments[parameter] for parameter in parameters)):
            yield prove_stated(listed_kernel, chosen, entry, timeout_s, arch)


def prove_stated(
    kernel: Kernel,
    template_arguments: Sequence[str],
    entry: Stated,
    timeout_s: float,
    arch: str,
) -> Proof:
    """Prove a kernel with the statements of the comments above it.

    Parameters
    ----------
    kernel : Kernel
        Kernel without template arguments.
    template_arguments : sequence of str
        C++ source of its template arguments.
    entry : Stated
        The statements.
    timeout_s, arch
        As for `prove`.
    """
    arguments = tuple(int(text) if re.fullmatch(r"-?\d+", text) else text for text in template_arguments)
    return prove(
        kernel[arguments] if arguments else kernel,
        *entry.statements,
        block=_extent(entry.settings.get("block")),
        grid=_extent(entry.settings.get("grid")),
        shared_bytes=entry.settings.get("shared_bytes", 0),
        timeout_s=timeout_s,
        arch=arch,
    )


def _extent(text: str | None) -> list[str] | None:
    """Return the extents in a text with commas, in parentheses or not, as a list of texts; None for None."""
    if text is None:
        return None
    whole = re.fullmatch(r"\((.*,.*)\)", text)
    return [part for part in (whole[1] if whole is not None else text).split(",") if part.strip()]
