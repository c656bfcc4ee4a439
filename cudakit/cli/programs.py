"""The commands that run a program: ``run``, ``check``, ``inspect`` and ``debug``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudakit import reports
from cudakit.cli import kernels, supervised
from cudakit.cli.parsers import Parser, command
from cudakit.errors import CudakitError
from cudakit.types.shown import counted, red

if TYPE_CHECKING:
    from cudakit.adapters.program import Program, Ran


def add(commands: Any) -> None:
    """Add the commands."""
    text = "run a Python program unchanged, or a kernel: on the GPU, or on the emulator if there is none"
    parser = command(
        commands,
        "run",
        run,
        text,
        "app.py 100",
        "--time-limit 60 --json app.py",
        "saxpy.cu --arg 2.0 --arg random:float32:1000 --arg y=zeros:float32:1000 --arg n=1000 --save y.npy",
    )
    add_program(parser, "its arguments follow it", text="Python file, or CUDA C++ file")
    kernels.add_launch(parser)
    parser.set_defaults(may_use_gpu=True)
    parser.add_argument("-c", dest="text", metavar="TEXT", help="run this text in place of a file")

    check = command(
        commands,
        "check",
        _check,
        "run a program on the emulator and report races, accesses out of bounds and other faults of its kernels",
        "app.py --schedules 20 -- 100",
        "app.py --json --time-limit 60 --memory-limit 4G",
    )
    add_program(check)
    check.add_argument(
        "--schedules",
        type=int,
        default=0,
        metavar="N",
        help="repeat each launch in up to N further orders of its threads",
    )

    inspect = command(
        commands,
        "inspect",
        _inspect,
        "run a program on the emulator and report memory accesses, divergence and instructions of its kernels",
        "app.py --html -- 100",
    )
    add_program(inspect)
    inspect.add_argument(
        "--html",
        nargs="?",
        type=Path,
        const=Path(),
        metavar="PAGE",
        help="write an HTML page; default: beside the program",
    )
    inspect.add_argument("--card", default="H200", help="card whose roofline is drawn; default: H200")

    text = "run a program on the emulator and step through a kernel"
    debug = command(commands, "debug", _debug, text, "app.py:12 -- 100")
    add_program(debug, metavar="FILE[:LINE]", text="Python file, and line to stop at")
    debug.set_defaults(is_supervised=False)  # a person is at the terminal


def add_program(
    command: Parser,
    arguments: str = "its arguments follow after --",
    metavar: str = "FILE",
    text: str = "Python file",
) -> None:
    """Add the arguments that name a program to a command."""
    command.add_argument("program", nargs="?", metavar=metavar, help=f"{text}; {arguments}")
    command.add_argument("-m", dest="module", metavar="MODULE", help="run this module in place of a file")
    command.add_argument(
        "--pycuda",
        choices=("ours", "theirs"),
        metavar="WHOSE",
        help="PyCUDA that the program gets, ours or theirs; default: theirs on a GPU if it is installed, else ours",
    )
    supervised.add(command)


def end_of_run(words: Sequence[str]) -> int:
    """Return the index of the program's own first argument in ``run [options] FILE arguments``."""
    at = 1
    while at < len(words):
        if words[at] in ("-m", "-c"):
            return at + 2
        if words[at].endswith(kernels.SUFFIXES):
            return len(words)
        if not words[at].startswith("-") or words[at] == "-":
            return at + 1
        at += 2 if words[at] in ("--pycuda", "--time-limit", "--memory-limit") else 1
    return at


def run(options: argparse.Namespace) -> int:
    """Carry out ``cudakit run``. Return the exit status."""
    if (options.program or "").endswith(kernels.SUFFIXES):
        return kernels.launch(options)
    # Imported here: the other commands need no emulator.
    from cudakit.adapters.program import run_process

    run_process(program_of(options, "run"))
    return 0


def _ran(options: argparse.Namespace, checked: bool) -> Ran:
    # Imported here: the other commands need no emulator.
    from cudakit.adapters.program import examine

    program = program_of(options, "check" if checked else "inspect")
    ran = examine(program, checked, getattr(options, "schedules", 0))
    options.problems += ran.problems
    if ran.status and not ran.problems:
        text = f"the program ended with status {ran.status}"
        options.problems.append(reports.problem_of("exit", text, status=ran.status))
    options.result = {"program": str(program), **ran.report.to_dict()}
    return ran


def program_of(options: argparse.Namespace, command: str) -> Program:
    """Return the program that the options of a command name. `command` is for errors.

    Raises
    ------
    CudakitError
        If no program or several are named, or if it is a CUDA C++ file or does not exist.
    """
    from cudakit.adapters.program import Program

    text = getattr(options, "text", None)
    if (options.program is not None) + (options.module is not None) + (text is not None) != 1:
        options.parser.error("expected one program: FILE or -m MODULE")
    path = Path(options.program) if options.program is not None else None
    if path is not None and path.suffix in kernels.SUFFIXES:
        raise CudakitError(
            f"{path} is CUDA C++, and cudakit {command} runs a Python program: name the program that launches its "
            f"kernels, as in cudakit {command} program.py. cudakit prove {path} needs no program"
        )
    if options.program == "-":
        text = sys.stdin.read()
    elif path is not None and not path.exists():
        raise CudakitError(f"there is no program {path}").detailed(kind="file", file=str(path))
    program = options.executed = Program(
        options.program, tuple(options.arguments), options.module or "", text, options.pycuda
    )
    return program


def _check(options: argparse.Namespace) -> int:
    folder = f"{Path.cwd()}{os.sep}"  # the program may change it
    ran = _ran(options, checked=True)
    if not options.json:
        for fault in ran.faults:
            print(str(fault).replace(folder, ""))
        kernels = ran.report.kernels.values()
        launches = sum(kernel.launches for kernel in kernels)
        verdict = red(counted(len(ran.faults), "fault"), sys.stdout) if ran.faults else "nothing wrong was found"
        launched = f"{launches} launch{'' if launches == 1 else 'es'}"
        print(f"{counted(len(kernels), 'kernel')}, {launched}: {verdict}.")
    return reports.status_of(options.problems)


def _inspect(options: argparse.Namespace) -> int:
    from cudakit.emulator.face import card_of

    card_of(options.card)  # an unknown card is an error before the program runs
    folder = Path.cwd()  # the program may change it
    ran = _ran(options, checked=False)
    if not options.json:
        for fault in ran.faults:
            print(fault.text)
        print(f"{ran.report}\n\n{ran.report.annotated()}")
    if options.html is not None:
        name = options.module or str(Path(options.program).with_suffix(""))
        page = options.html if options.html != Path() else Path(f"{name}.html")
        ran.report.save_html(folder / page, options.card)
        print(f"wrote {page}", file=sys.stderr)
    return reports.status_of(options.problems)


def _debug(options: argparse.Namespace) -> int:
    from cudakit.adapters.program import debug

    name, _, line = (options.program or "").rpartition(":")
    at = int(line) if name and line.isdigit() else None
    if at is not None:
        options.program = name
    program = program_of(options, "debug")
    if debug(program, at):
        return 0
    where = f" that has line {at}, or any after it" if at else ""
    print(f"cudakit: {program} launches no kernel of threads{where}", file=sys.stderr)
    return 1
