"""The commands that run a program: ``run``, ``check``, ``inspect`` and ``debug``."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cudakit.cli.parsers import command
from cudakit.errors import CudakitError
from cudakit.types.shown import counted

if TYPE_CHECKING:
    from cudakit.adapters.program import Program, Ran

_CUDA_SUFFIXES: Final = (".cu", ".cuh")


def add(commands: Any) -> None:
    """Add the commands."""
    parser = command(
        commands, "run", run, "run a Python program unchanged: on the GPU, or on the emulator if there is none"
    )
    add_program(parser, "app.py 100", "its arguments follow it")
    parser.add_argument("-c", dest="text", metavar="TEXT", help="run this text in place of a file")

    check = command(
        commands,
        "check",
        _check,
        "run a program on the emulator and report races, accesses out of bounds and other faults of its kernels",
    )
    add_program(check, "app.py --schedules 20 -- 100")
    check.add_argument("--json", action="store_true", help="write JSON")
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
    )
    add_program(inspect, "app.py --html -- 100")
    inspect.add_argument("--json", action="store_true", help="write JSON")
    inspect.add_argument(
        "--html",
        nargs="?",
        type=Path,
        const=Path(),
        metavar="PAGE",
        help="write an HTML page; default: beside the program",
    )
    inspect.add_argument("--card", default="H200", help="card whose roofline is drawn; default: H200")

    debug = command(commands, "debug", _debug, "run a program on the emulator and step through a kernel")
    add_program(debug, "app.py:12 -- 100", metavar="FILE[:LINE]", text="Python file, and line to stop at")


def add_program(
    command: argparse.ArgumentParser,
    example: str,
    arguments: str = "its arguments follow after --",
    metavar: str = "FILE",
    text: str = "Python file",
) -> None:
    """Add the arguments that name a program to a command."""
    command.epilog = f"example: {command.prog} {example}"
    command.add_argument("program", nargs="?", metavar=metavar, help=f"{text}; {arguments}")
    command.add_argument("-m", dest="module", metavar="MODULE", help="run this module in place of a file")
    command.add_argument(
        "--pycuda",
        choices=("ours", "theirs"),
        metavar="WHOSE",
        help="PyCUDA that the program gets, ours or theirs; default: theirs on a GPU if it is installed, else ours",
    )


def run(options: argparse.Namespace) -> int:
    """Carry out ``cudakit run``. Return the exit status."""
    # Imported here: the other commands need no emulator.
    from cudakit.adapters.program import run_process

    run_process(program_of(options, "run"))
    return 0


def _ran(options: argparse.Namespace, checked: bool) -> Ran:
    # Imported here: the other commands need no emulator.
    from cudakit.adapters.program import examine

    program = program_of(options, "check" if checked else "inspect")
    # What is written for programs to read is not mixed with what the program prints.
    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        return examine(program, checked, getattr(options, "schedules", 0))


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
    if path is not None and path.suffix in _CUDA_SUFFIXES:
        raise CudakitError(
            f"{path} is CUDA C++, and cudakit {command} runs a Python program: name the program that launches its "
            f"kernels, as in cudakit {command} program.py. cudakit prove {path} needs no program"
        )
    if options.program == "-":
        text = sys.stdin.read()
    elif path is not None and not path.exists():
        raise CudakitError(f"there is no program {path}")
    program = options.executed = Program(
        options.program, tuple(options.arguments), options.module or "", text, options.pycuda
    )
    return program


def _check(options: argparse.Namespace) -> int:
    folder = f"{Path.cwd()}{os.sep}"  # the program may change it
    ran = _ran(options, checked=True)
    if options.json:
        print(ran.to_json(str(options.executed)))
    else:
        for fault in ran.faults:
            print(str(fault).replace(folder, ""))
        kernels = ran.report.kernels.values()
        launches = sum(kernel.launches for kernel in kernels)
        verdict = counted(len(ran.faults), "fault") if ran.faults else "nothing wrong was found"
        launched = f"{launches} launch{'' if launches == 1 else 'es'}"
        print(f"{counted(len(kernels), 'kernel')}, {launched}: {verdict}.")
    return 1 if ran.faults else ran.status


def _inspect(options: argparse.Namespace) -> int:
    from cudakit.emulator.face import card_of

    card_of(options.card)  # an unknown card is an error before the program runs
    folder = Path.cwd()  # the program may change it
    ran = _ran(options, checked=False)
    if options.json:
        print(ran.to_json(str(options.executed)))
    else:
        for fault in ran.faults:
            print(fault.text)
        print(f"{ran.report}\n\n{ran.report.annotated()}")
    if options.html is not None:
        name = options.module or str(Path(options.program).with_suffix(""))
        page = options.html if options.html != Path() else Path(f"{name}.html")
        ran.report.save_html(folder / page, options.card)
        print(f"wrote {page}", file=sys.stderr)
    return 1 if ran.faults else ran.status


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
