"""The command ``cudakit``: look into the kernel cache, look at what a program's kernels do, and run the demo."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib.metadata
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from cudakit.errors import CudakitError, shortened
from cudakit.jit.cache.cache import default_cache
from cudakit.types import cpp
from cudakit.types.shown import byte_size, counted

if TYPE_CHECKING:
    from cudakit.adapters.program import Program, Ran
    from cudakit.adapters.program_proofs import ProgramProof
    from cudakit.jit.cache.cache import Entry, Explanation
    from cudakit.proof.prove import Proof

_NEIGHBOURS_SHOWN: Final = 3
_SHELLS: Final = ("bash", "zsh", "fish")
_CUDA_SUFFIXES: Final = (".cu", ".cuh")


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
        _refuse(rest, options.parser, takes_program)
    options.arguments = words[rest_at:]
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        status = run(options)
        if run is not _run:  # Python flushes after a program, and reports what fails
            sys.stdout.flush()
        return status
    except BrokenPipeError as error:
        _leave_to_python(options, error)
        # The reader, such as `head`, has seen enough; the interpreter would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (CudakitError, OSError) as error:
        _leave_to_python(options, error)
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


class Parser(argparse.ArgumentParser):
    """A parser that suggests the nearest command for an unknown one, and shows its help where none is named."""

    def add_commands(self, title: str, metavar: str) -> Any:
        """Add a group of commands; without a command the help is shown, with the status of a wrong call."""
        self.set_defaults(run=self._show_help, parser=self)
        return self.add_subparsers(title=title, metavar=metavar)

    def _show_help(self, options: argparse.Namespace) -> int:
        self.print_help(sys.stderr)
        return 2

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # Python 3.14 suggests too, in other words and for commands alone.
        if action.choices is not None and value not in action.choices:
            name = str(action.metavar).lower()
            choices = ", ".join(action.choices)
            suggestion = _suggestion(value, action.choices)
            raise argparse.ArgumentError(
                None, f"unknown {name} {value!r}{suggestion or f'; expected one of {choices}'}"
            )


def _refuse(words: Sequence[str], parser: argparse.ArgumentParser, takes_program: bool) -> NoReturn:
    """End the process with the parser's error about `words`, which no argument takes. Suggest the nearest option.

    `takes_program`: else suggest how to pass the words to the program.
    """
    options = [option for action in parser._actions for option in action.option_strings]
    suggestions = {word: _suggestion(word.partition("=")[0], options) for word in words if word.startswith("-")}
    hint = next(filter(None, suggestions.values()), "")
    if takes_program and not hint:
        hint = f"; the program's own arguments follow after --: -- {' '.join(words)}"
    parser.error(f"unrecognized arguments: {' '.join(words)}{hint}")


def _suggestion(word: str, candidates: Iterable[str]) -> str:
    """Return ``; did you mean …?`` with the candidate nearest to `word`; empty if none is near."""
    nearest = difflib.get_close_matches(word, list(candidates), n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def parser() -> Parser:
    """Return the parser of the command line; the site's page of the command line is made from it."""
    parser = Parser(prog="cudakit", description="CUDA C++ templates as Python functions.")
    parser.add_argument("-V", "--version", action="version", version=f"cudakit {_version()}")
    commands = parser.add_commands("commands", "COMMAND")

    text = "show versions, GPU or emulator, compiler, extras, cache, and what is missing"
    info = _command(commands, "info", _info, text)
    info.add_argument("--json", action="store_true", help="write JSON: the sections of ck.show_config")

    cache = commands.add_parser(
        "cache", help="show the cache of compiled kernels, clear it, or move kernels to another machine"
    )
    actions = cache.add_commands("actions", "ACTION")

    info = _command(actions, "info", _cache_info, "show the folder of the cache, its number of kernels and its size")
    info.add_argument("--json", action="store_true", help="write JSON")

    listing = _command(actions, "list", _list, "list the compiled kernels, most recently used first")
    listing.add_argument("--json", action="store_true", help="write JSON, with the parts of each key")

    explain = _command(actions, "explain", _explain, "show whether a kernel is in the cache and, if not, what differs")
    explain.add_argument("source", type=Path, metavar="SOURCE", help="CUDA C++ file")
    explain.add_argument("--kernel", metavar="NAME", help="name of the kernel, if the file has several")
    explain.add_argument(
        "--args", default="", metavar="LIST", help="template arguments, separated by commas, such as float,256"
    )
    explain.add_argument("--arch", help="arch, such as sm_90; default: that of the GPU, or of the emulator")

    clear = _command(actions, "clear", _clear, "remove compiled kernels from the cache")
    clear.add_argument(
        "pattern",
        nargs="?",
        metavar="PATTERN",
        help="only kernels whose file or name contains this text; * stands for any text",
    )

    giving = _command(actions, "export", _export, "write compiled kernels to a file, for machines without a compiler")
    giving.add_argument("file", type=Path, metavar="FILE", help="file to write")
    giving.add_argument(
        "pattern", nargs="?", metavar="PATTERN", help="only kernels whose file or name contains this text"
    )

    taking = _command(
        actions,
        "import",
        _import,
        "read compiled kernels from an exported file; their code will run here: trust its source",
    )
    taking.add_argument("file", type=Path, metavar="FILE", help="file to read")

    run = _command(
        commands, "run", _run, "run a Python program unchanged: on the GPU, or on the emulator if there is none"
    )
    _add_program(run, "app.py 100", "its arguments follow it")
    run.add_argument("-c", dest="text", metavar="TEXT", help="run this text in place of a file")

    check = _command(
        commands,
        "check",
        _check,
        "run a program on the emulator and report races, accesses out of bounds and other faults of its kernels",
    )
    _add_program(check, "app.py --schedules 20 -- 100")
    check.add_argument("--json", action="store_true", help="write JSON")
    check.add_argument(
        "--schedules",
        type=int,
        default=0,
        metavar="N",
        help="repeat each launch in up to N further orders of its threads",
    )

    prove = _command(commands, "prove", _prove, "prove for all sizes that kernels stay in bounds and do not race")
    _add_program(
        prove, "app.py --kernel scale -- 100", text="CUDA C++ file, or Python program whose kernels are proved"
    )
    prove.add_argument("--kernel", metavar="NAME", help="name of a kernel; default: all kernels of the file")
    prove.add_argument(
        "--timeout",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="time limit of the solver for one question, on a common machine; default: 10",
    )
    prove.add_argument("--arch", default="sm_90", help="arch to compile for; default: sm_90")
    prove.add_argument("--json", action="store_true", help="write JSON")

    inspect = _command(
        commands,
        "inspect",
        _inspect,
        "run a program on the emulator and report memory accesses, divergence and instructions of its kernels",
    )
    _add_program(inspect, "app.py --html -- 100")
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

    debug = _command(commands, "debug", _debug, "run a program on the emulator and step through a kernel")
    _add_program(debug, "app.py:12 -- 100", metavar="FILE[:LINE]", text="Python file, and line to stop at")

    tune = _command(commands, "tune", _tune, "find the fastest variant of a kernel, and keep it")
    tune.epilog = f"example: {tune.prog} app.py:scale --sizes 1000,1000000"
    tune.add_argument(
        "kernel", nargs="?", metavar="FILE:NAME", help="Python file, and the name of its kernel.tuned(…) to tune"
    )
    tune.add_argument(
        "--sizes", default="", metavar="LIST", help="sizes to tune for, such as 1000,1000000 or 64x64; default: its own"
    )
    tune.add_argument("--budget", type=int, metavar="N", help="most candidates; default: the whole space")
    tune.add_argument("--strategy", metavar="NAME", help="order in which candidates are tried")
    tune.add_argument(
        "--objective",
        metavar="NAME,…",
        help="what is least: time or energy; on the emulator a counter; the first leads the search",
    )
    tune.add_argument("--seed", type=int, metavar="N", help="seed of the strategy; default: 0")
    tune.add_argument("--json", action="store_true", help="write JSON: a line a candidate, then a line a size")
    tune.add_argument("--list", action="store_true", help="list the kept results")
    tune.add_argument("--export", dest="export_to", type=Path, metavar="FILE", help="write the kept results to a file")
    tune.add_argument("--import", dest="import_from", type=Path, metavar="FILE", help="merge results of a file")

    demo = _command(commands, "demo", _demo, "run three kernels on a photograph: gray, blur, histogram")
    demo.add_argument("photo", nargs="?", type=Path, metavar="PHOTO", help="image file; default: a portrait")
    demo.add_argument("--arch", help="arch to compile the kernels for too, such as sm_90")
    demo.add_argument(
        "--output",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="folder of the picture, or its file, as in blur.png; default: cudakit-demo.png in the current folder",
    )

    text = "write a script that completes commands, options and files in a shell"
    completion = _command(commands, "completion", _completion, text)
    completion.add_argument("shell", choices=_SHELLS, metavar="SHELL", help=" or ".join(_SHELLS))
    return parser


def _command(group: Any, name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
    """Add a command, or an action of a command, to `group`, and return its parser. `run` carries it out.

    `text` is the line of help.
    """
    command: argparse.ArgumentParser = group.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    command.set_defaults(run=run, parser=command)
    return command


def _add_program(
    command: argparse.ArgumentParser,
    example: str,
    arguments: str = "its arguments follow after --",
    metavar: str = "FILE",
    text: str = "Python file",
) -> None:
    command.epilog = f"example: {command.prog} {example}"
    command.add_argument("program", nargs="?", metavar=metavar, help=f"{text}; {arguments}")
    command.add_argument("-m", dest="module", metavar="MODULE", help="run this module in place of a file")
    command.add_argument(
        "--pycuda",
        choices=("ours", "theirs"),
        metavar="WHOSE",
        help="PyCUDA that the program gets, ours or theirs; default: theirs on a GPU if it is installed, else ours",
    )


def _version() -> str:
    try:
        return importlib.metadata.version("cudakit")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _info(options: argparse.Namespace) -> int:
    # Imported here: the other commands need no compiler.
    from cudakit import installation

    config = installation.show_config("dicts")
    print(json.dumps(config, indent=2) if options.json else installation.as_text(config))
    return 1 if config["missing"] else 0


def _cache_info(options: argparse.Namespace) -> int:
    info = default_cache().info()
    if options.json:
        state = {name: getattr(info, name) for name in ("folder", "entries", "blobs", "bytes", "max_bytes")}
        print(json.dumps(state, indent=2, default=str))
    elif info.folder is None:
        print("There is no cache on disk: CUDAKIT_CACHE_DIR is empty.")
    else:
        print(f"folder   {info.folder}")
        print(f"kernels  {info.entries}")
        print(f"size     {byte_size(info.bytes)} of at most {byte_size(info.max_bytes)}")
    return 0


def _list(options: argparse.Namespace) -> int:
    entries = default_cache().entries()
    if options.json:
        print(json.dumps([_entry_record(entry) for entry in entries], indent=2))
    elif not entries:
        print("The cache holds no kernels.")
    else:
        print(f"{'last used':<16}  {'size':>9}  {'arch':<8}  kernel")
        for entry in entries:
            used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.last_used))
            print(f"{used:<16}  {byte_size(entry.bytes):>9}  {entry.parts.get('arch', ''):<8}  {entry.label}")
    return 0


def _entry_record(entry: Entry) -> dict[str, object]:
    return {
        "label": entry.label,
        "parts": dict(entry.parts),
        "bytes": entry.bytes,
        "last_used": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry.last_used)),
        "path": str(entry.path),
    }


def _explain(options: argparse.Namespace) -> int:
    # Imported here: the other commands need neither the parser nor the compiler.
    from cudakit.jit.cache.stages import first_request
    from cudakit.kernel.kernel import Kernel

    kernel = Kernel.from_file(options.source, options.kernel)
    if arguments := split_arguments(options.args):
        kernel = kernel[arguments if len(arguments) > 1 else arguments[0]]
    specialization = kernel.specialization(arch=options.arch)
    request = first_request(specialization)
    if default_cache().imported(specialization) is not None:
        print(f"hit: {request.label} is in the cache, imported.")
        return 0
    for line in _explanation_lines(default_cache().explain(request)):
        print(line)
    return 0


def split_arguments(text: str) -> tuple[str | int, ...]:
    """Split a template argument list at the commas that no bracket encloses; whole numbers become int."""
    if any(cpp.closing(text, opening.start()) < 0 for opening in re.finditer(r"[(\[{]", text)):
        raise CudakitError(
            f"--args {shortened(text)} has a bracket that is not closed; expected a list such as float,256."
        )
    pieces = cpp.split_arguments(text)
    if "" in pieces:
        raise CudakitError(
            f"--args {shortened(text)} has an empty template argument; expected a list such as float,256."
        )
    return tuple(int(piece) if re.fullmatch(r"[+-]?[0-9]+", piece) else piece for piece in pieces)


def _explanation_lines(explanation: Explanation) -> Iterator[str]:
    if explanation.where != "miss":
        where = "in memory" if explanation.where == "memory" else "on disk"
        yield f"hit: {explanation.label} is in the cache, {where}."
        return
    yield f"miss: {explanation.label} is not in the cache."
    if explanation.unstorable is not None:
        yield f"It is never kept on disk: {explanation.unstorable}."
    elif not explanation.neighbours:
        yield "Nothing of this kernel or this file is stored."
    for neighbour in explanation.neighbours[:_NEIGHBOURS_SHOWN]:
        yield f"Stored is {neighbour.entry.label}, which differs in:"
        for difference in neighbour.differences:
            yield f"  {difference.part}: asked for {_value(difference.requested)}, stored {_value(difference.stored)}"
    more = len(explanation.neighbours) - _NEIGHBOURS_SHOWN
    if more > 0:
        yield f"And {more} more that differ at least as much."


def _value(value: str | None) -> str:
    if value is None:
        return "nothing"
    return f"{value[:12]}…" if re.fullmatch("[0-9a-f]{40,}", value) else value or "(empty)"


def _export(options: argparse.Namespace) -> int:
    count, alone = default_cache().export_to(options.file, options.pattern)
    print(f"Wrote {counted(count, 'kernel')} to {options.file}.")
    for label in alone:
        print(f"left out, because it depends on files of this machine: {label}", file=sys.stderr)
    return 0 if count else 1


def _import(options: argparse.Namespace) -> int:
    count = default_cache().import_from(options.file)
    print(f"Imported {counted(count, 'kernel')}.")
    return 0


def _clear(options: argparse.Namespace) -> int:
    removed = default_cache().clear(options.pattern)
    print(f"Removed {counted(removed, 'kernel')} from the cache.")
    return 0


def _run(options: argparse.Namespace) -> int:
    from cudakit.adapters.program import run_process

    run_process(_program(options, "run"))
    return 0


def _ran(options: argparse.Namespace, checked: bool) -> Ran:
    # Imported here: the other commands need no emulator.
    from cudakit.adapters.program import examine

    program = _program(options, "check" if checked else "inspect")
    # What is written for programs to read is not mixed with what the program prints.
    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        return examine(program, checked, getattr(options, "schedules", 0))


def _program(options: argparse.Namespace, command: str) -> Program:
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


def _prove(options: argparse.Namespace) -> int:
    # Imported here: the other commands need neither the compiler nor a solver.
    from cudakit.proof.prove import proofs_of

    path = Path(options.program or "")
    proofs: Iterator[Proof | ProgramProof]
    if options.program is None or path.suffix == ".py" or path.is_dir():
        proofs = _proofs_of_program(options)
    else:
        proofs = proofs_of(path, options.kernel, options.timeout, options.arch)
    verdicts, records = [], []
    for proof in proofs:
        verdicts.append(bool(proof))
        records.append(proof.to_json())
        if not options.json:
            print(proof, flush=True)
    if options.json:
        print(json.dumps(records, indent=1))
    return 0 if all(verdicts) else 1


def _proofs_of_program(options: argparse.Namespace) -> Iterator[ProgramProof]:
    """Yield a proof of each kernel that a Python program launches.

    Raises
    ------
    CudakitError
        If the program launches no kernel of its own.
    """
    from cudakit.adapters.program_proofs import launches_of, proofs_of_launches

    program = _program(options, "prove")
    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        kernels, error = launches_of(program)
    if error is not None:
        print(f"cudakit: {program} ended early: {error}", file=sys.stderr)
    kernels = [kernel for kernel in kernels if options.kernel in (None, kernel.instance.kernel)]
    if not kernels:
        subject = "kernel of its own CUDA C++" if options.kernel is None else f"kernel {options.kernel}"
        raise CudakitError(f"{program} launches no {subject} on the emulator: there is nothing to prove")
    yield from proofs_of_launches(kernels, options.timeout, options.arch)


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
    program = _program(options, "debug")
    if debug(program, at):
        return 0
    where = f" that has line {at}, or any after it" if at else ""
    print(f"cudakit: {program} launches no kernel of threads{where}", file=sys.stderr)
    return 1


def _tune(options: argparse.Namespace) -> int:
    from cudakit.tuning.command import run

    return run(options)


def _demo(options: argparse.Namespace) -> int:
    from cudakit.demo import main as run_demo

    return run_demo(options.photo, options.arch, options.output)


def _completion(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError as error:
        raise CudakitError("cudakit completion: shtab makes the scripts: pip install shtab") from error
    whole = parser()
    for action in _actions(whole):
        if action.metavar == "FOLDER":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.type is Path or action.metavar in ("FILE", "FILE[:LINE]"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(whole, options.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield argparse's arguments of a parser, and of its commands in place of the choice of a command."""
    for action in parser._actions:
        if isinstance(action.choices, dict):  # the commands of a parser with commands
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action
