"""Commands in a process of their own: a document says what ended it, and no process of it is left.

The parent starts the same command again, waits for it with a time limit and a memory limit, and ends it with all
processes that it has started. The child writes into a folder: its document, the kernel that runs, and, when a signal
comes, the lines that run.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from cudakit import reports, system
from cudakit.cli.parsers import Parser, byte_count, complain
from cudakit.errors import Details, named
from cudakit.streams.witnesses import Witness, Work, is_own, witnessing

#: First word of the child's command line; the folder follows.
_FLAG: Final = "--supervised-in"
#: Before the name of a kernel on a GPU: the launch is over, and the kernel may run.
_LAUNCHED: Final = "launched "
_DOCUMENT, _KERNEL, _LINES = "document.json", "kernel", "lines"
#: Seconds between two looks at the memory, and for which lines are waited for.
_PERIOD_S, _LINES_S = 0.1, 1.0
#: Signal at which the child writes the lines that run; None: the system has no such signals.
_ASK: Final = getattr(signal, "SIGRTMAX", None) and signal.SIGRTMAX - 3
_FRAME: Final = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in ', re.MULTILINE)


def add(parser: Parser, *, names_kernels: bool = True) -> None:
    """Add the options of the limits to a command, whose ``--json`` writes a document however it ends.

    Unless `names_kernels`, launches are not watched, and the document does not say which kernel ran.
    """
    parser.set_defaults(is_supervised=True, names_kernels=names_kernels)
    parser.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="end the command after this time, with exit status 124"
    )
    parser.add_argument(
        "--memory-limit",
        type=byte_count,
        metavar="SIZE",
        help="end the command above this memory of all its processes, such as 2G, with exit status 125",
    )


def is_needed(options: argparse.Namespace) -> bool:
    """Return whether a command needs a process of its own: for limits, and for a document however it ends."""
    has_limit = options.time_limit is not None or options.memory_limit is not None
    return has_limit or (options.json and options.is_supervised)


# ── the child ──


def child_of(words: list[str]) -> tuple[list[str], Child | None]:
    """Return the words of the command itself, and the child that this process is; None if it is none."""
    return (words[2:], Child(Path(words[1]))) if words[:1] == [_FLAG] else (words, None)


class _Kernels(Witness):
    """A witness that writes the name of the running kernel to a file, on a GPU of the last kernel launched."""

    def __init__(self, file: FileIO) -> None:
        self._file = file

    def begin(self, work: Work) -> None:
        self._write(work, work.name)

    def end(self, work: Work, begun: None) -> None:
        self._write(work, f"{_LAUNCHED}{work.name}" if hasattr(work.stream, "__cuda_stream__") else "")

    def _write(self, work: Work, name: str) -> None:
        if work.kind == "kernel":
            self._file.seek(0)
            self._file.truncate()
            self._file.write(name.encode())


class Child:
    """The side of the supervised process: its files in the parent's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()

    def begin(self, options: argparse.Namespace) -> None:
        """Prepare the process for the command: its limit of memory, and files that outlast a crash."""
        system.end_with_parent()
        lines = self._stack.enter_context((self._folder / _LINES).open("wb"))
        faulthandler.enable(lines)
        if _ASK is not None:
            faulthandler.register(_ASK, lines, all_threads=True)
        kernel = self._stack.enter_context((self._folder / _KERNEL).open("wb", buffering=0))
        if options.names_kernels:
            self._stack.enter_context(witnessing(_Kernels(kernel)))
        if options.memory_limit is not None and not (options.may_use_gpu and _is_gpu_here()):
            system.limit_data(options.memory_limit)

    def write(self, document: dict[str, Any]) -> None:
        """Write the document for the parent."""
        text = json.dumps(document, default=str)
        path = self._folder / _DOCUMENT
        path.with_suffix(".part").write_text(text, encoding="utf-8")
        path.with_suffix(".part").replace(path)


def _is_gpu_here() -> bool:
    # Imported here: most commands need no program. A GPU's driver reserves more memory than there is.
    from cudakit.adapters.program import is_gpu_here

    return is_gpu_here()


# ── the parent ──


def supervise(options: argparse.Namespace, words: list[str]) -> int:
    """Carry out a command in another process, within its limits. Write its document, and return the exit status."""
    with tempfile.TemporaryDirectory(prefix="cudakit") as name:
        folder = Path(name)
        with _started(folder, words, options.json) as (process, tree):
            try:
                reached = _wait(process, tree, options)
            except KeyboardInterrupt:
                reached = "interrupt"
            if reached:
                _ask_for_lines(process, folder / _LINES)
        status = process.returncode
        document = _document(folder)
        problems = document["problems"] if document else []
        if reached:
            problems.append(_limit_problem(reached, options, folder, tree.most))
        elif status < 0:
            problems.append(_signal_problem(-status, options, folder))
        elif status and document is None:
            problems.append(reports.problem_of("exit", f"the program ended with status {status}", status=status))
    command = options.parser.prog.removeprefix("cudakit ")
    if document is None or reached or status < 0:
        status = reports.status_of(problems)
        if problems:
            complain(problems[-1]["text"])
        document = {**reports.document(problems, status, command), **_own_keys(document)}
    elif options.json:
        status = document["status"]
    if options.json:
        print_document(document)
    return status


def print_document(document: dict[str, Any]) -> None:
    """Write a document on standard output, unless its reader has left."""
    try:
        print(json.dumps(document, indent=1, default=str), flush=True)
    except OSError as error:
        if not system.is_closed_pipe(error):
            raise
        system.discard_output()


def _own_keys(document: dict[str, Any] | None) -> dict[str, Any]:
    """Return what a command has put into its document beside the keys of the schema."""
    return {name: value for name, value in (document or {}).items() if name not in reports.document((), 0)}


class _Tree:
    """The processes that the command has started, and the most memory that they have had together."""

    def __init__(self) -> None:
        #: Other children of this process.
        self._others = set(system.descendants())
        self.most = 0

    def bytes(self) -> int:
        """Return the memory of all processes, in bytes."""
        total = sum(system.descendants(self._others).values())
        self.most = max(self.most, total)
        return total

    def end(self) -> None:
        """Kill all processes, also those that have left the group or lost their parent."""
        system.kill_all(lambda: system.descendants(self._others))


@contextlib.contextmanager
def _started(folder: Path, words: list[str], is_json: bool) -> Iterator[tuple[subprocess.Popen[bytes], _Tree]]:
    """Start the command again, and end all its processes after the block.

    What it prints goes to standard error if standard output is for the document.
    """
    flags = [flag for flag, is_set in (("-P", sys.flags.safe_path), ("-E", sys.flags.ignore_environment)) if is_set]
    flags += [f"-W{option}" for option in sys.warnoptions]
    script = Path(__file__).parents[1] / "__main__.py"
    tree = _Tree()
    with system.adopting_orphans(), _ended_by_signals():
        command = [sys.executable, *flags, str(script), _FLAG, str(folder), *words]
        process = subprocess.Popen(command, stdout=2 if is_json else None, **system.GROUP)
        try:
            yield process, tree
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    system.end(process)
                process.wait()
            tree.end()


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Leave the block by an exception when SIGTERM comes, so that the processes are ended first."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    try:
        former = signal.signal(signal.SIGTERM, leave)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _wait(process: subprocess.Popen[bytes], tree: _Tree, options: argparse.Namespace) -> str:
    """Wait for the end of a process. Return the kind of the limit that it reached, or an empty text."""
    deadline = None if options.time_limit is None else time.monotonic() + options.time_limit
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return "time"
        period = _PERIOD_S if options.memory_limit is not None else None
        waits = [limit for limit in (left, period) if limit is not None]
        try:
            process.wait(min(waits) if waits else None)
            return ""
        except subprocess.TimeoutExpired:
            if options.memory_limit is not None and tree.bytes() > options.memory_limit:
                return "memory"


def _ask_for_lines(process: subprocess.Popen[bytes], path: Path) -> None:
    """Let the child write the lines that run, and wait for them."""
    if _ASK is None or not path.exists():  # it has not begun
        return
    process.send_signal(_ASK)
    end = time.monotonic() + _LINES_S
    while time.monotonic() < end and not path.stat().st_size and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.02)


def _document(folder: Path) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = json.loads((folder / _DOCUMENT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return document


def _state(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], str]:
    """Return what the child has left: the kernel and the user's line that ran, as details, and a text of the kernel."""
    kernel, lines = ((folder / name).read_bytes() if (folder / name).exists() else b"" for name in (_KERNEL, _LINES))
    title = kernel.decode(errors="replace")
    parts: dict[str, Any] = named(title.removeprefix(_LAUNCHED))
    text = f"; the kernel {parts['kernel']} was running" if title else ""
    if title.startswith(_LAUNCHED):
        text = f"; {parts['kernel']} was the last kernel launched on the GPU"
    frames = [(match["file"], int(match["line"])) for match in _FRAME.finditer(lines.decode(errors="replace"))]
    program = getattr(options, "program", None)
    path = os.path.join(os.getcwd(), program) if program else ""
    own = [frame for frame in frames if frame[0] in (path, "<string>", "<stdin>")]
    for file, line in own or [frame for frame in frames if not is_own(frame[0])]:
        return parts | {"file": file, "line": line}, text
    return parts, text


def _limit_problem(reached: str, options: argparse.Namespace, folder: Path, most: int) -> reports.Problem:
    parts, running = _state(options, folder)
    details = Details().filled(parts)
    if reached == "interrupt":
        return reports.problem_of(reached, f"the command was interrupted{running}", details)
    if reached == "time":
        text = f"the time limit of {options.time_limit:g} s was reached{running}"
        return reports.problem_of(reached, text, details._replace(expected=f"at most {options.time_limit:g} s"))
    text = f"the memory limit of {options.memory_limit} bytes was reached{running}"
    details = details._replace(expected=f"at most {options.memory_limit} bytes", got=f"{most} bytes")
    return reports.problem_of(reached, text, details)


def _signal_problem(number: int, options: argparse.Namespace, folder: Path) -> reports.Problem:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    details = Details().filled(_state(options, folder)[0])
    text = f"the process was killed by {name}"
    return reports.problem_of("signal", text, details, status=128 + number, signal=name)
