"""Errors and findings as one document for programs, with the schema in ``report.schema.json`` beside this module."""

from __future__ import annotations

import json
import linecache
import re
import sysconfig
import traceback
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from cudakit.errors import (
    ArgumentError,
    CompileError,
    CudakitError,
    Details,
    EmulationError,
    LaunchError,
    PipelineError,
    TemplateError,
    error_text,
    named,
)
from cudakit.streams.witnesses import is_own
from cudakit.types import cpp

if TYPE_CHECKING:
    from cudakit.emulator.face import Finding

#: A problem in the schema's form.
Problem: TypeAlias = dict[str, Any]
VERSION: Final = 1
_NO_DETAILS: Final = Details()


class Category(NamedTuple):
    """A category of problems: the exit status of a command that ends with one, and what it is."""

    status: int
    text: str


#: Exit statuses: an exception of the program, a wrong command line, a fault of a kernel, a call or source that cannot
#: be used, a source that does not compile, a file that cannot be read, and the limits of time and memory.
_OTHER, _USAGE, _FAULT, _CALL, _COMPILE, _FILE, _TIME, _MEMORY = 1, 2, 3, 4, 5, 6, 124, 125

#: All kinds of problems.
KINDS: Final[Mapping[str, Category]] = MappingProxyType({
    "exception": Category(_OTHER, "an exception of the program, or of Python"),
    "syntax": Category(_OTHER, "a Python file that is no Python"),
    "exit": Category(_OTHER, "the program ended with this exit status, which is the command's too"),
    "unproved": Category(_OTHER, "a fact of a kernel that ``cudakit prove`` refutes or does not decide"),
    "missing": Category(_OTHER, "what is needed here and is not installed"),
    "error": Category(_OTHER, "another error of cudakit's"),
    "usage": Category(_USAGE, "a command line that is wrong"),
    "race": Category(_FAULT, "two accesses to the same memory without order"),
    "uninitialised": Category(_FAULT, "a read of memory that nobody wrote"),
    "copy": Category(_FAULT, "an asynchronous copy that is not waited for"),
    "barrier": Category(_FAULT, "a barrier that not all threads reach"),
    "mask": Category(_FAULT, "a member mask with threads that do not come"),
    "const": Category(_FAULT, "a write through a pointer to const"),
    "order": Category(_FAULT, "a result that depends on the order of threads"),
    "access": Category(_FAULT, "an access outside of memory, unaligned, or to memory that is read-only"),
    "assert": Category(_FAULT, "a failed assert() of a kernel"),
    "trap": Category(_FAULT, "__trap() of a kernel"),
    "deadlock": Category(_FAULT, "threads that wait for each other"),
    "steps": Category(_FAULT, "a kernel that takes more steps than its stream allows"),
    "fault": Category(_FAULT, "another fault of a kernel"),
    "argument": Category(_CALL, "an argument that does not fit"),
    "template": Category(_CALL, "a source, kernel name or template argument that cannot be used"),
    "launch": Category(_CALL, "a launch over the device's limits, or an error of the driver"),
    "compile": Category(_COMPILE, "an error of the CUDA C++ compiler"),
    "file": Category(_FILE, "a file that is missing or cannot be read"),
    "time": Category(_TIME, "the time limit was reached"),
    "memory": Category(_MEMORY, "the memory limit was reached, or the host has no more memory"),
    "interrupt": Category(130, "the user's Ctrl-C"),
    "signal": Category(128, "the process was killed by a signal; the exit status is 128 and its number"),
})  # fmt: skip

#: Kinds of errors by class, the first that fits.
_CLASSES: Final = (
    (CompileError, "compile"), (TemplateError, "template"), (LaunchError, "launch"), (ArgumentError, "argument"),
    (EmulationError, "fault"), (SyntaxError, "syntax"), (MemoryError, "memory"), (KeyboardInterrupt, "interrupt"),
    (SystemExit, "exit"), (OSError, "file"),
)  # fmt: skip


def report(error: BaseException | Finding | Iterable[Finding]) -> dict[str, Any]:
    """Return an error or a finding as a document for programs, which `json.dumps` accepts.

    It is the document that commands print with ``--json``, and it follows the same schema.

    Parameters
    ----------
    error : BaseException, Finding or iterable of Finding
        Error of cudakit's or another exception; findings of `ck.check`.

    Returns
    -------
    dict
        The document. Its ``problems`` have kind, kernel, template arguments, file, line, column, text, expected, got
        and advice; faults have block, thread and accesses too.

    Examples
    --------
    >>> try:
    ...     scale(stream, ck.cover(8), [1, 2], 2.0, 8)
    ... except ck.CudakitError as error:
    ...     print(ck.report(error)["problems"][0]["expected"])
    an array
    """
    problems = problems_of(error)
    return document(problems, status_of(problems))


def document(problems: Iterable[Problem], status: int, command: str | None = None, **result: Any) -> dict[str, Any]:
    """Return a document of the schema, with the command's own `result` beside its problems."""
    problems = list(problems)
    ok = not status and not problems
    return {"schema_version": VERSION, "command": command, "ok": ok, "status": status, "problems": problems, **result}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the documents."""
    text = files("cudakit").joinpath("report.schema.json").read_text(encoding="utf-8")
    result: dict[str, Any] = json.loads(text)
    return result


def status_of(problems: Iterable[Problem]) -> int:
    """Return the exit status of a command that ends with these problems: that of the last."""
    last = next(reversed(list(problems)), None)
    return 0 if last is None else last.get("status") or KINDS[last["kind"]].status


def problems_of(error: BaseException | Finding | Iterable[Finding], program: str = "") -> list[Problem]:
    """Return the problems of an error or of findings.

    `program` is the program's file: an error of Python's is placed at the last of its lines that ran.
    """
    if not isinstance(error, BaseException):
        return [_of_finding(finding) for finding in (error if isinstance(error, Iterable) else (error,))]
    if isinstance(error, BaseExceptionGroup):
        return [problem for member in error.exceptions for problem in problems_of(member, program)]
    # A pipeline's error names the stage; its cause is what happened.
    cause = error.__cause__ if isinstance(error, PipelineError) and error.__cause__ is not None else error
    details = getattr(cause, "details", _NO_DETAILS)
    diagnostics = getattr(cause, "diagnostics", ())
    if isinstance(cause, CudakitError) and details == _NO_DETAILS and isinstance(cause.__cause__, CudakitError):
        details = cause.__cause__.details  # an error of another library, for one of cudakit's
    category = details.kind or next((category for of, category in _CLASSES if isinstance(cause, of)), "")
    category = category or ("error" if hasattr(cause, "details") else "exception")
    if isinstance(cause, OSError) and cause.filename is None:
        category = "exception"
    if isinstance(cause, ArgumentError | TemplateError | LaunchError) and not (details.expected or details.got):
        details = details.filled(parts_of(_text(cause)))
    if not details.file:
        details = details.filled(_place(cause, program) or _place(error, program))
    if diagnostics:
        shared = details._replace(file="", line=0, column=0, text="", advice="")._asdict()
        return [problem_of(category, d.text, d.filled(shared), type(error).__name__) for d in diagnostics]
    extra = {"status": _exit_status(cause)} if isinstance(cause, SystemExit) else {}
    return [problem_of(category, _text(error), details, type(error).__name__, **extra)]


#: Quoted and bracketed parts of a message: values, in which no words of the message are looked for.
_QUOTED: Final = re.compile(r"""(?<![\w)\]])'(?:[^'\\]|\\.)*'(?!\w)|"(?:[^"\\]|\\.)*\"""")
_BRACKETED: Final = re.compile(r"\([^()\[\]{}]*\)|\[[^()\[\]{}]*\]|\{[^()\[\]{}]*\}")
#: First words of advice.
_WORDS_OF_ADVICE: Final = (
    r"(?:allocate|ask|call|cast|convert|copy|debug|drop|fill|give|install|leave|let|make|move|name|number|pass|put|say|"
    r"take|use|write)\b"
)
_GOT: Final = re.compile(r"[,;] got ")
_CLAUSE_END: Final = re.compile(rf"; |: (?={_WORDS_OF_ADVICE})|$")
_EXPECTED: Final = re.compile(
    r"(?:^|[:;,] )(?:expected|(?:it|they) (?:takes?|must be|must|is|are|has|have)|the limit is) "
    r"| is (?:not (?=one of)|none of )"
)
_IS_EXPECTED: Final = re.compile(r"(?:.*: )?(?P<what>.*?) (?:is|are) expected")
#: The verb of a clause that says what must be, and of one that says it, or what is there.
_MUST: Final = re.compile(r"(?<!cannot) (?:must be|must have|may be|takes?|needs?|holds?) (?!no )")
_IS: Final = re.compile(r" (?:is|are|has|have) ")
_SUBJECT: Final = re.compile(r"(?!there\b|it\b)[A-Za-z_]\w*")
_ADVICE: Final = re.compile(_WORDS_OF_ADVICE)
#: A clause that is a rule, such as "indices are integers".
_RULE: Final = re.compile(r"(?:[^\s,:]+ ){1,4}(?:is|are|has|have|holds?|takes?) (?!no )")
#: Words of the subject of a verb, and before a colon in front of a parameter, at most.
_MOST_WORDS: Final = 4


def parts_of(message: str) -> dict[str, str]:
    """Return the details that the form of a message shows: parameter, expected, got and advice.

    The forms are those of cudakit's errors: "where: parameter is …, got …; advice", with "must be", "takes" or
    "expected" in place of "is", and "parameter is …; expected …". A part that is not certain is left out.
    """
    words = _hidden(message)
    parts: dict[str, str] = {}
    actual, expected = _GOT.search(words), _EXPECTED.search(words)
    end = actual.start() if actual else _end_of(words, 0)
    passive = None if expected else _IS_EXPECTED.match(words, 0, end)
    begin = words.rfind(": ", 0, end) + 2 if ": " in words[:end] else 0
    must, says = _MUST.search(words, begin, end), _IS.search(words, begin, end)
    if must and (words.count(" ", begin, must.start()) >= _MOST_WORDS or words.startswith("it ", begin)):
        must = None
    rest = _end_of(words, actual.end() if actual else 0) + 2
    is_advised = _ADVICE.match(words, rest) is not None
    if actual:
        parts["got"] = message[actual.end() : rest - 2]
    if expected:
        stop = actual.start() if actual and expected.end() <= actual.start() else _end_of(words, expected.end())
        parts["expected"] = message[expected.end() : stop]
        if not actual and begin < expected.start():
            verb = _IS.search(words, begin, expected.start())
            parts["got"] = message[verb.end() if verb else begin : expected.start()]
    elif passive:
        parts["expected"] = message[slice(*passive.span("what"))]
    elif must or (actual and says):
        verb = must or says
        parts["expected"] = message[verb.end() if verb else begin : end]
    elif actual and begin:
        parts["expected"] = message[begin:end]
    elif _RULE.match(words, rest) and not is_advised:
        parts["expected"] = message[rest : _end_of(words, rest)]
    if says and not (actual or must or expected or passive) and (is_advised or "expected" in parts):
        several = _IS.search(words, says.end() - 1, end) or words.startswith(("no ", "none "), begin)
        parts["got"] = message[begin if several else says.end() : end]
    if rest < len(message) and not ("expected" in parts and message.endswith(parts["expected"])):
        parts["advice"] = message[rest:]
    if (verb := must or says) and begin > 0 and words.count(" ", 0, begin) <= _MOST_WORDS:
        subject = _SUBJECT.fullmatch(words, begin, verb.start())
        parts["parameter"] = subject[0] if subject else ""
    return {name: part for name, part in parts.items() if part}


def _hidden(message: str) -> str:
    """Return a message of the same length without the content of quotes and brackets."""
    text = _QUOTED.sub(lambda match: "\0" * len(match[0]), message)
    while (shorter := _BRACKETED.sub(lambda match: "\0" * len(match[0]), text)) != text:
        text = shorter
    return text


def _end_of(words: str, begin: int) -> int:
    match = _CLAUSE_END.search(words, begin)
    return match.start() if match else len(words)


def _text(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:
        return error_text(error)


def _exit_status(left: SystemExit) -> int:
    return left.code if isinstance(left.code, int) else 0 if left.code is None else 1


def problem_of(
    category: str, text: str, details: Details = _NO_DETAILS, name: str | None = None, **more: Any
) -> Problem:
    """Return a problem of the schema. `name` is the error's class; empty details become None."""
    accesses = [access._asdict() | {"line": access.line or None} for access in details.accesses]
    first = accesses[0] if accesses else {}
    arguments = cpp.split_arguments(details.template_arguments) if details.template_arguments else []
    code = linecache.getline(details.file, details.line).rstrip("\n") if details.line else ""
    return {
        "kind": category,
        "error": name,
        "text": details.text or text,
        "kernel": details.kernel or None,
        "template_arguments": arguments,
        "parameter": details.parameter or None,
        "file": details.file or None,
        "line": details.line or None,
        "column": details.column or None,
        "code": code or None,
        "expected": details.expected or None,
        "got": details.got or None,
        "advice": details.advice or None,
        "block": first.get("block"),
        "thread": first.get("thread"),
        "accesses": accesses,
        **more,
    }


def _of_finding(finding: Finding) -> Problem:
    details = Details(**named(finding.kernel), file=finding.file, line=finding.line, accesses=finding.accesses)  # type: ignore[arg-type]  # str fields alone
    problem = problem_of("fault" if finding.kind == "error" else finding.kind, finding.text, details)
    return problem | {"schedule": finding.schedule} if finding.schedule is not None else problem


def _place(error: BaseException, program: str) -> dict[str, Any]:
    """Return file, line and column of Python code at which an error was raised, as details."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return {"file": error.filename, "line": error.lineno, "column": error.offset}
    if isinstance(error, OSError) and error.filename is not None and error.__traceback__ is None:
        return {"file": str(error.filename)}
    return place_in(error.__traceback__, program)


def place_in(trace: TracebackType | None, program: str = "") -> dict[str, Any]:
    """Return file, line and column of the user's innermost frame in a traceback, as details; empty without one."""
    frames = [frame for frame in traceback.extract_tb(trace) if not is_own(frame.filename)]
    own = [frame for frame in frames if frame.filename == program] if program else []
    own = own or [frame for frame in frames if not frame.filename.startswith(("<", *_libraries()))] or frames
    if not own:
        return {}
    column = own[-1].colno
    return {"file": own[-1].filename, "line": own[-1].lineno, "column": 0 if column is None else column + 1}


@cache
def _libraries() -> tuple[str, ...]:
    """Return the folders of Python's library and of installed packages."""
    return tuple({path for name, path in sysconfig.get_paths().items() if "lib" in name})
