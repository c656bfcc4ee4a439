"""The command ``cudakit``: look into the kernel cache, look at what a program's kernels do, and run the demo."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final

from cudakit import system
from cudakit.cli import bundle, cache, completion, demo, info, programs, prove, tune
from cudakit.cli.parsers import Parser
from cudakit.errors import CudakitError

if TYPE_CHECKING:
    from cudakit.adapters.program import Program

#: Modules of the commands, in the order of the help.
_SUBJECTS: Final = (info, cache, bundle, programs, prove, tune, demo, completion)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; `arguments` default to those of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    takes_program = words[:1] in (["check"], ["inspect"], ["debug"], ["prove"])
    if words[:1] == ["run"]:
        end = rest_at = _program_end(words)
    else:
        # What follows -- is the program's own, wherever options of ours stand.
        end = words.index("--") if takes_program and "--" in words else len(words)
        rest_at = end + 1
    options, rest = parser().parse_known_args(words[:end])
    if rest:
        options.parser.refuse(rest, takes_program)
    options.arguments = words[rest_at:]
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        status = run(options)
        if run is not programs.run:  # Python flushes after a program, and reports what fails
            sys.stdout.flush()
        return status
    except (CudakitError, OSError) as error:
        _leave_to_python(options, error)
        if system.is_closed_pipe(error):  # the reader, such as `head`, has seen enough
            system.discard_output()
            return 0
        print(f"cudakit: {error}", file=sys.stderr)
        return 1
    except BaseException as error:
        _leave_to_python(options, error)
        raise


def _program_end(words: Sequence[str]) -> int:
    """Return the index of the program's own first argument in ``run [options] FILE arguments``."""
    at = 1
    while at < len(words):
        if words[at] in ("-m", "-c"):
            return at + 2
        if not words[at].startswith("-") or words[at] == "-":
            return at + 1
        at += 2 if words[at] == "--pycuda" else 1
    return at


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
    parser.set_defaults(root=parser)
    commands = parser.add_commands("commands", "COMMAND")
    for subject in _SUBJECTS:
        subject.add(commands)
    return parser


def _version() -> str:
    try:
        return importlib.metadata.version("cudakit")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
