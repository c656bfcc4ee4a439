"""The run of a user's program on the emulator, with the faults and counters of its kernels."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import json
import os
import re
import runpy
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from cudakit.adapters import numba_kernels, triton_kernels
from cudakit.adapters.cupy_kernels import cupy_stand_in
from cudakit.emulator.face import EmulatedThreads, Finding, Report, begin, check, counters, strict
from cudakit.errors import ArgumentError, CompileError, CudakitError, EmulatorWarning, LaunchError
from cudakit.streams.devices import has_gpu
from cudakit.streams.witnesses import Witness, Work, witnessing

_ERROR = re.compile(r"^(?P<file>[^\n]*?):(?P<line>\d+): error: ", re.MULTILINE)
_PLACE = re.compile(r"\(PTX line (?P<ptx>\d+)(?:, (?P<file>[^()]*?):(?P<line>\d+)(?=[,)]))?")


def fault_of(error: Exception, program: Path | None = None) -> Finding:
    """Return the fault that an error reports, as a finding.

    Its line is the kernel's, if the error names one. Else it is the line of `program` that was running.
    """
    text = str(error)
    kernel, lines = "", list[tuple[str, str | int | None]]()
    if (place := _PLACE.search(text)) is not None:
        kernel, lines = text.partition(": ")[0], [(place["file"] or "", place["line"])]
    elif isinstance(error, CompileError) and (source := _ERROR.search(text)) is not None:
        lines = [(source["file"], source["line"])]
    else:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [(str(program), frame.lineno) for frame in frames if frame.filename == str(program)]
    file, line = (lines or [("", 0)])[-1]
    return Finding("error", kernel, file, int(line or 0), "", text)


@dataclass(frozen=True)
class Ran:
    """The result of a program's run.

    Attributes
    ----------
    report : Report
        Counters of the program's kernels.
    faults : tuple of Finding
        Findings of checks, and last the fault that ended the program, if any.
    status : int
        Exit status of the program.
    """

    report: Report
    faults: tuple[Finding, ...]
    status: int

    def to_json(self, path: Path) -> str:
        """Return the result as JSON, for editors and for programs that write kernels. Write no file.

        `path` is the program's path, which the JSON contains.
        """
        faults = [asdict(fault) for fault in self.faults]
        ok = not faults and not self.status
        return json.dumps({"program": str(path), "ok": ok, "faults": faults, **self.report.to_dict()}, indent=1)


class Replaced(importlib.abc.MetaPathFinder):
    """A context in which parts of a module are replaced, whether the module is imported before or during the context.

    Parameters
    ----------
    name : str
        Name of the module.
    replace : callable
        Function that takes the module, and a function that replaces a part of it.
    """

    def __init__(self, name: str, replace: Callable[[Any, Callable[[Any, str, Any], None]], None]) -> None:
        self._name, self._replace = name, replace
        self._former: list[tuple[Any, str, Any]] = []
        self._is_searching = False

    def __enter__(self) -> Replaced:
        if self._name in sys.modules:
            self._replace(sys.modules[self._name], self._put)
        else:
            sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *raised: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for owner, name, former in reversed(self._former):
            setattr(owner, name, former)
        self._former.clear()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module's spec, as `importlib.abc.MetaPathFinder` does; replace parts of the module once it has run."""
        if fullname != self._name or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_searching = False
        loader = spec.loader if spec is not None else None
        if loader is not None:
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                self._replace(module, self._put)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _put(self, owner: Any, name: str, value: Any) -> None:
        self._former.append((owner, name, getattr(owner, name, None)))
        setattr(owner, name, value)


@contextlib.contextmanager
def _without_gpu(path: Path, arguments: Sequence[str], action: str) -> Iterator[None]:
    """Hide the GPU in the block, and set the program's arguments and folder.

    CuPy is NumPy in the block, and kernels of Numba's and Triton's run on the emulator. `action` is for the error's
    message.

    Raises
    ------
    LaunchError
        In a process that has used a GPU.
    """
    former_modules, former_path, former_arguments = dict(sys.modules), list(sys.path), list(sys.argv)
    former_devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.modules.update(cupy_stand_in())
    sys.path.insert(0, str(path.resolve().parent))
    sys.argv[:] = [str(path), *arguments]
    numba, triton = Replaced("numba.cuda", numba_kernels.replace), Replaced("triton", triton_kernels.replace)
    try:
        with warnings.catch_warnings(), numba, triton, strict():
            warnings.simplefilter("ignore", EmulatorWarning)
            if has_gpu():
                raise LaunchError(
                    f"this process has used the GPU already; a program is {action} in a process of its own"
                )
            yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "cupy"]:
            del sys.modules[name]
        sys.modules.update({name: module for name, module in former_modules.items() if name.startswith("cupy")})
        sys.path[:], sys.argv[:] = former_path, former_arguments
        del os.environ["CUDA_VISIBLE_DEVICES"]
        if former_devices is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = former_devices


class _Stepping(Witness):
    """A witness that steps through the first launch of a kernel that has a line; later launches run without steps."""

    def __init__(self, line: str) -> None:
        self.line, self.has_stopped = line, False

    def begin(self, work: Work) -> None:
        call = work.detail
        if self.has_stopped or work.kind != "kernel" or not isinstance(call.target, EmulatedThreads):
            return
        with begin(call.target, call.config, call.values, work.stream, True) as session:
            if self.line:
                try:
                    session.break_at(self.line)
                except ArgumentError:
                    return
                session.run()
            self.has_stopped = True
            session.interact()
            # The program's own run repeats what this run has written.
            session.rewind()


def debug(path: Path, arguments: Sequence[str] = (), line: int | None = None) -> bool:
    """Run a program on the emulator, and step through the first kernel that has a line.

    Return whether a kernel had the line.

    Parameters
    ----------
    path : Path
        Python file.
    arguments : sequence of str
        Arguments of the program.
    line : int, optional
        Line to stop at, in the same file. Default: the begin of the first kernel.
    """
    witness = _Stepping(f"{path}:{line}" if line else "")
    with _without_gpu(path, arguments, "debugged"), witnessing(witness), contextlib.suppress(SystemExit):
        runpy.run_path(str(path), run_name="__main__")
    return witness.has_stopped


def run(path: Path, arguments: Sequence[str] = (), checked: bool = False, schedules: int = 0) -> Ran:
    """Run a program with all its kernels on the emulator, and count their work.

    Parameters
    ----------
    path : Path
        Python file.
    arguments : sequence of str
        Arguments of the program.
    checked : bool
        Whether to check for races, reads of uninitialised memory and other faults.
    schedules : int
        Number of further orders of threads, as in ``ck.check(schedules=…)``.

    Raises
    ------
    LaunchError
        In a process that has used a GPU.
    Exception
        Exceptions of the program, except cudakit's own errors, which are faults.
    """
    status, faults = 0, tuple[Finding, ...]()
    checks = check(schedules=schedules) if checked else contextlib.nullcontext()
    with _without_gpu(path, arguments, "checked"), counters() as report, checks as check_report:
        try:
            runpy.run_path(str(path), run_name="__main__")
        except CudakitError as error:
            faults = (fault_of(error, path),)
        except Exception as error:
            if type(error).__name__ != "DynamicLibNotFoundError":
                raise
            # Its own class is not public.
            fault = CudakitError(
                "the program calls the CUDA driver itself, as cuda.core's Device and Program do, and there is none "
                f"here: launch its kernels by ck.Kernel, or run it on a machine with a GPU ({str(error)[:80]}…)"
            )
            faults = (fault_of(fault.with_traceback(error.__traceback__), path),)
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else int(left.code is not None)
    return Ran(report, (*(check_report.findings if check_report is not None else ()), *faults), status)
