"""The command ``cudakit``: reads the command line, carries out a command, and reports how it ended."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final

from cudakit import reports, system
from cudakit.cli import bench, bundle, cache, completion, demo, info, kernels, programs, prove, record, supervised, tune
from cudakit.cli.parsers import Parser, UsageError, complain
from cudakit.errors import CudakitError

if TYPE_CHECKING:
    from cudakit.adapters.program import Program

#: Modules of the commands, in the order of the help.
_SUBJECTS: Final = (info, cache, bundle, record, kernels, programs, prove, tune, bench, demo, completion)
_TAKE_PROGRAMS: Final = ("check", "inspect", "debug", "prove", "record")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; `arguments` default to those of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    words, child = supervised.child_of(words)
    try:
        options = _options(words)
    except UsageError as error:
        if "--json" not in words:
            error.leave()
        options = argparse.Namespace(json=True, parser=error.parser, result={}, problems=[])
        options.problems.append(reports.problem_of("usage", str(error)))
        _write(options, 2, child)
        return 2
    if child is None and supervised.is_needed(options):
        return supervised.supervise(options, words)
    if child is not None:
        child.begin(options)
    try:
        with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
            status: int = options.run(options)
        if options.run is not programs.run:  # Python flushes after a program, and reports what fails
            sys.stdout.flush()
    except UsageError as error:
        if not options.json:
            error.leave()
        options.problems.append(reports.problem_of("usage", str(error)))
        status = 2
    except BaseException as error:
        program: Program | None = getattr(options, "executed", None)
        if system.is_closed_pipe(error) and (program is None or error is not program.raised):
            system.discard_output()  # the reader, such as `head`, has seen enough
            return 0
        if program is not None:
            options.problems += reports.problems_of(program.findings)
        if not isinstance(error, SystemExit) or error.code:
            options.problems += reports.problems_of(error, program.file if program is not None else "")
        status = reports.status_of(options.problems)
        if not isinstance(error, CudakitError | OSError) or (program is not None and error is program.raised):
            _write(options, status, child)
            _leave_to_python(options, error)
            raise
        complain(error)
    _write(options, status, child)
    return status


def _options(words: list[str]) -> argparse.Namespace:
    """Read the command line. Options after a program, or after ``--``, are the program's own ``arguments``."""
    takes_program = words[:1] in ([name] for name in _TAKE_PROGRAMS)
    if words[:1] == ["run"]:
        end = rest_at = programs.end_of_run(words)
    else:
        # What follows -- is the program's own, wherever options of ours stand.
        end = words.index("--") if takes_program and "--" in words else len(words)
        rest_at = end + 1
    options, rest = parser().parse_known_args(words[:end])
    if rest:
        options.parser.refuse(rest, takes_program)
    options.arguments, options.result, options.problems = words[rest_at:], {}, []
    return options


def _write(options: argparse.Namespace, status: int, child: supervised.Child | None) -> None:
    """Write the document of a command that has ended: for the parent process, or on standard output."""
    if child is None and not options.json:
        return
    name = options.parser.prog.removeprefix("cudakit").strip() or None
    document = reports.document(options.problems, status, name, **options.result)
    if child is not None:
        child.write(document)
    else:
        supervised.print_document(document)


def _leave_to_python(options: argparse.Namespace, error: BaseException) -> None:
    """Raise `error` if it ended the program. Python reports it then, without frames of cudakit.

    Status, output and signals are Python's own.
    """
    program: Program | None = getattr(options, "executed", None)
    if program is None or error is not program.raised:
        return
    trace, report = program.trace, sys.excepthook

    def excepthook(category: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        sys.excepthook, sys.last_traceback = report, trace
        report(category, error.with_traceback(trace), trace)

    if not isinstance(error, SystemExit):
        sys.excepthook = excepthook
    raise error


def parser() -> Parser:
    """Return the parser of the command line; the site's page of the command line is made from it."""
    parser = Parser(prog="cudakit", description="CUDA C++ templates as Python functions.")
    parser.add_argument("-V", "--version", action="version", version=f"cudakit {_version()}")
    parser.set_defaults(
        root=parser, json=False, is_supervised=False, may_use_gpu=False, time_limit=None, memory_limit=None
    )
    commands = parser.add_commands("commands", "COMMAND")
    for subject in _SUBJECTS:
        subject.add(commands)
    return parser


def _version() -> str:
    try:
        return importlib.metadata.version("cudakit")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
