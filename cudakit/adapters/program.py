"""The run of a user's program on the emulator, with the faults and counters of its kernels."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import importlib
import importlib.util
import os
import re
import sys
import threading
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar

from cudakit import reports
from cudakit.adapters import core_stand_in, numba_driver, triton_kernels
from cudakit.adapters.cupy import cupy_stand_in
from cudakit.adapters.pycuda import PACKAGES
from cudakit.adapters.stand_ins import Find, Put, Replace, StandIns
from cudakit.emulator.face import EmulatedThreads, Finding, Report, begin, check, counters, strict
from cudakit.errors import ArgumentError, CudakitError, EmulatorWarning, LaunchError
from cudakit.jit.launch.tracebacks import cut
from cudakit.places import say_emulated
from cudakit.streams.devices import has_gpu
from cudakit.streams.witnesses import Witness, Work, is_own, warn_at_call, witnessing

PyCUDA: TypeAlias = Literal["ours", "theirs"]
_OLD_CORE = "cuda.core.experimental"
_MATH = r"cu(?:blas|fft|rand|solver|sparse|dnn|tensor)\w*"
_LIBRARY = re.compile(
    rf"\blib(?:cuda|nvrtc|nvjitlink|nvidia-ml|nccl|{_MATH})[\w.-]*|\b{_MATH}(?= library)", re.IGNORECASE
)
P = ParamSpec("P")
T = TypeVar("T")


def fault_of(error: Exception, program: str = "") -> Finding:
    """Return the fault that an error reports, as a finding.

    Its line is the kernel's, if the error names one. Else it is the line of `program` that was running.
    """
    problem = reports.problems_of(error, program)[0]
    return Finding("error", problem["kernel"] or "", problem["file"] or "", problem["line"] or 0, "", str(error))


def exit_status(left: SystemExit) -> int:
    """Return the status of a program that has left, and print the text that it may have left with."""
    if left.code is None or isinstance(left.code, int):
        return left.code or 0
    print(left.code, file=sys.stderr)
    return 1


def _missing_library(error: BaseException) -> str:
    """Return what a program has called that needs a GPU's own library, if that ended it on the emulator; else ""."""
    use = "launch its kernels by ck.Kernel, or run it on a machine with a GPU"
    if type(error).__name__ == "DynamicLibNotFoundError":  # its class is not public
        names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        call = next((name for name in names if name.startswith("cuda.bindings.")), "cuda.bindings")
        return f"the program calls the CUDA driver itself, by {call}, and there is none here: {use}"
    if isinstance(error, OSError | ImportError) and (library := _LIBRARY.search(str(error))) is not None:
        return f"the program loads {library[0]}, a library for GPUs, and there is none here: {use}"
    return ""


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
    problems : list of dict
        Findings and the fault that ended the program, as `cudakit.reports.report` has them.
    """

    report: Report
    faults: tuple[Finding, ...]
    status: int
    problems: list[reports.Problem] = field(default_factory=list)


@dataclass
class Program:
    """A Python program and its arguments; `execute` runs it as Python itself would.

    Attributes
    ----------
    path : str or PathLike or None
        Python file, or folder or archive with a ``__main__.py``.
    arguments : tuple of str
        Arguments of the program.
    module : str
        Name of a module that is run in place of a file, as by ``python -m``.
    text : str or None
        Text that is run in place of a file, as by ``python -c``, or with the path ``-`` as by ``python -``.
    pycuda : {"ours", "theirs"} or None
        PyCUDA that the program gets. Default: PyCUDA itself on a GPU if it is installed, else cudakit's.
    findings : list of Finding
        What checks reported before an exception ended the program.
    raised : BaseException or None
        Exception that ended the program.
    trace : traceback or None
        Its traceback, without frames of cudakit.
    """

    path: str | os.PathLike[str] | None = None
    arguments: tuple[str, ...] = ()
    module: str = ""
    text: str | None = None
    pycuda: PyCUDA | None = None
    findings: list[Finding] = field(default_factory=list, init=False, compare=False)
    raised: BaseException | None = field(default=None, init=False)
    trace: TracebackType | None = field(default=None, init=False)

    def __str__(self) -> str:
        return self.module or (str(self.path) if self.path is not None else "-c")

    @cached_property
    def file(self) -> str:
        """Name of the program's file in tracebacks and in lines of kernels."""
        if self.text is not None:
            return "<string>" if self.path is None else "<stdin>"
        return os.path.join(os.getcwd(), self.path) if self.path is not None else "<string>"

    def execute(self) -> dict[str, Any]:
        """Run the program in this process and return its names. Its arguments, folder and ``__main__`` stay."""
        main = ModuleType("__main__")
        main.__dict__.update(__builtins__=builtins, __cached__=None)
        if sys.version_info < (3, 14):  # later versions make it when it is asked for
            main.__annotations__ = {}
        sys.modules["__main__"] = main
        try:
            exec(self._load(main), main.__dict__)
        except BaseException as error:
            cut(error)
            trace = _own_frames_removed(error.__traceback__, main)
            if trace is not None or not isinstance(error, CudakitError):
                self.raised, self.trace = error, trace
            raise
        return main.__dict__

    def execute_to_end(self) -> int:
        """Run the program, wait for its threads as Python does at its end, and return its exit status."""
        others = threading.enumerate()
        try:
            self.execute()
            return 0
        except SystemExit as left:
            return exit_status(left)
        finally:
            for thread in threading.enumerate():
                if not thread.daemon and thread not in others:
                    thread.join()

    def _load(self, main: ModuleType) -> CodeType:
        """Set arguments and folder, fill in the module's attributes, and return the program's code."""
        argv = [str(self), *self.arguments]
        if self.text is not None:
            folder, sys.argv[:] = "", argv
            _put_first(folder)
            return compile(self.text, self.file, "exec", dont_inherit=True)
        if self.module:
            sys.argv[:] = ["-m", *self.arguments]
            _put_first(os.getcwd())
            return self._load_spec(main, _spec_of(self.module))
        path = Path(self.file)
        sys.argv[:] = argv
        if path.is_dir() or zipfile.is_zipfile(path):
            _put_first(self.file)
            spec = PathFinder.find_spec("__main__", [self.file])
            if spec is None:
                raise CudakitError(f"there is no __main__.py in {self.path}")
            return self._load_spec(main, spec)
        _put_first(os.path.dirname(os.path.realpath(self.file)))
        main.__dict__.update(__file__=self.file, __loader__=SourceFileLoader("__main__", self.file))
        # The bytes: Python decodes them by the comment that names their encoding.
        return compile(path.read_bytes(), self.file, "exec", dont_inherit=True)

    def _load_spec(self, main: ModuleType, spec: ModuleSpec) -> CodeType:
        loader: Any = spec.loader
        code = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
        if code is None:
            raise CudakitError(f"there is no code of {spec.name} to run")
        main.__dict__.update(
            __file__=spec.origin, __cached__=spec.cached, __loader__=loader, __package__=spec.parent, __spec__=spec
        )
        if self.module:
            sys.argv[0] = str(spec.origin)
        return code  # type: ignore[no-any-return]


def _spec_of(name: str) -> ModuleSpec:
    """Return the spec of the module that ``python -m name`` runs.

    Raises
    ------
    CudakitError
        If there is no such module.
    """
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name += ".__main__"
            spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        spec = None
    if spec is None:
        raise CudakitError(f"there is no module {name}")
    return spec


def _put_first(folder: str) -> None:
    """Put the program's folder first in ``sys.path``, except under ``python -P``.

    Modules of Python that files of the folder hide are imported from there, although cudakit has imported Python's.
    """
    if sys.flags.safe_path:
        return
    sys.path.insert(0, folder)
    with contextlib.suppress(OSError):
        for name in {entry.partition(".")[0] for entry in os.listdir(folder or ".")} & sys.stdlib_module_names:
            # Python's start imports frozen modules and encodings, which no file hides.
            spec = getattr(sys.modules.get(name), "__spec__", None)
            if spec is None or spec.origin in ("frozen", "built-in") or name == "encodings":
                continue
            own = PathFinder.find_spec(name, [folder or os.getcwd()])
            if own is not None and own.loader is not None:  # a folder of data hides nothing
                del sys.modules[name]


def _own_frames_removed(trace: TracebackType | None, main: ModuleType) -> TracebackType | None:
    """Return a traceback from the program's first frame on; None if none of its frames ran."""
    whole = trace
    while trace is not None and trace.tb_frame.f_globals is not main.__dict__:
        trace = trace.tb_next
    if trace is None:  # raised by an import before the program's first line, or by the compiler
        trace = whole
        while trace is not None and is_own(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
    # Without the finder's frames, where the program imports a name that a stand-in lacks.
    last = frame = trace
    while frame is not None:
        if frame.tb_frame.f_code.co_filename != StandIns.find_spec.__code__.co_filename:
            last = frame
        frame = frame.tb_next
    if last is not None:
        last.tb_next = None
    return trace


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    """Restore ``__main__``, modules of Python, arguments and import path after the block."""
    names = ("__main__", *sys.stdlib_module_names)
    former_modules = {name: sys.modules[name] for name in names if name in sys.modules}
    former_path, former_arguments = list(sys.path), list(sys.argv)
    try:
        yield
    finally:
        sys.modules.update(former_modules)
        sys.path[:], sys.argv[:] = former_path, former_arguments


def stand_ins(on_gpu: bool, pycuda: PyCUDA | None = None) -> StandIns:
    """Return the stand-ins of a program, as a context.

    Parameters
    ----------
    on_gpu : bool
        Whether the program runs on a GPU. There PyCUDA is replaced if it is not installed, and old names of cuda.core
        are added.
    pycuda : {"ours", "theirs"}, optional
        PyCUDA that the program gets. Default: PyCUDA itself on a GPU if it is installed, else cudakit's.

    Raises
    ------
    CudakitError
        If PyCUDA itself is asked for without a GPU.
    """
    if pycuda == "theirs" and not on_gpu:
        raise CudakitError("--pycuda=theirs needs a GPU: the emulator runs programs of PyCUDA with --pycuda=ours")
    if pycuda is None:
        pycuda = "theirs" if on_gpu and importlib.util.find_spec("pycuda") is not None else "ours"
    packages: dict[str, Find] = {_OLD_CORE: partial(_old_core, on_gpu)}
    if pycuda == "ours":
        packages |= PACKAGES
    shared = [name for name in packages if name.startswith("cudakit.")]
    children: dict[str, Replace] = {
        "multiprocessing.spawn": partial(_spawning, pycuda),
        "multiprocessing.forkserver": _forkserver,
    }
    if on_gpu:
        return StandIns(packages, children, shared)
    find_cupy = _with_warning(cupy_stand_in().get)
    packages |= {"cupy": find_cupy, "cupyx": find_cupy, "cuda.core": _find_core}
    packages |= dict.fromkeys(core_stand_in.BINDINGS, core_stand_in.find_binding)
    parts: dict[str, Replace] = {
        "numba.cuda": _with_warning(numba_driver.replace),
        "numba_cuda_mlir.cuda": _with_warning(numba_driver.replace_mlir),
        "triton": _with_warning(triton_kernels.replace),
    }
    return StandIns(packages, parts | children, ["cuda.core", *core_stand_in.BINDINGS, *shared])


def _with_warning(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function, before which the program is warned once that it runs on the emulator."""

    def call(*arguments: P.args, **keywords: P.kwargs) -> T:
        say_emulated()
        return function(*arguments, **keywords)

    return call


def _find_core(name: str) -> ModuleType | None:
    # cuda.core gives itself the name of its part for one version of CUDA, such as cuda.core.cu13.
    return core_stand_in.find(re.sub(r"^cuda\.core\.cu\d+", "cuda.core", name))


def _old_core(on_gpu: bool, name: str) -> ModuleType | None:
    """Return the module of cuda.core for its name of old, which began with ``cuda.core.experimental``."""
    new = f"cuda.core{name.removeprefix(_OLD_CORE)}"
    if name == _OLD_CORE:
        warn_at_call(f"{name} is cuda.core now: import {new}; cudakit run accepts the old name", FutureWarning)
    try:
        module = importlib.import_module(new)
    except ModuleNotFoundError as error:
        if error.name != new:
            raise
        return None
    return module if name != _OLD_CORE else core_stand_in.old_names(module if on_gpu else None)


def _begin(pycuda: PyCUDA | None) -> None:
    """Put in the stand-ins of a program, until the process ends."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)  # it is called after the program's own functions
    on_gpu = is_gpu_here()
    stack.enter_context(stand_ins(on_gpu, pycuda))
    if not on_gpu:
        stack.enter_context(strict())


def _begin_child(pycuda: PyCUDA) -> None:
    warnings.simplefilter("ignore", EmulatorWarning)  # the parent has said it
    _begin(pycuda)


class _Child:
    """A value that puts in the stand-ins where a child process unpickles it."""

    def __init__(self, pycuda: PyCUDA) -> None:
        self._pycuda = pycuda

    def __reduce__(self) -> Any:
        return _begin_child, (self._pycuda,)


def _spawning(pycuda: PyCUDA, module: Any, put: Put) -> None:
    """Let processes that multiprocessing spawns begin with the stand-ins of their parent."""
    prepare = module.get_preparation_data
    put(module, "get_preparation_data", lambda name: {"cudakit": _Child(pycuda), **prepare(name)})


def _forkserver(module: Any, put: Put) -> None:
    """Let the server of multiprocessing import no program, since stand-ins are put in by its children."""
    put(module._forkserver, "_preload_modules", [])


def is_gpu_here() -> bool:
    """Return whether a GPU is here, without a start of CUDA, which would forbid that the program forks."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        from cuda.bindings import nvml

        nvml.init_v2()
        count: int = nvml.device_get_count_v2()
    except Exception:  # no such module, no such library, or an error of it: the driver itself is asked
        return has_gpu()
    first = (visible or "0").partition(",")[0].strip()
    return visible != "" and count > 0 and (not first.lstrip("-").isdigit() or 0 <= int(first) < count)


@contextlib.contextmanager
def without_gpu(program: Program, action: str) -> Iterator[None]:
    """Hide the GPU in the block, and put in all stand-ins. `action` is for the error's message.

    Raises
    ------
    LaunchError
        In a process that has used a GPU.
    """
    former_devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        with warnings.catch_warnings(), _restored(), stand_ins(False, program.pycuda), strict():
            warnings.simplefilter("ignore", EmulatorWarning)
            if has_gpu():
                raise LaunchError(
                    f"this process has used the GPU already; a program is {action} in a process of its own"
                )
            yield
    finally:
        del os.environ["CUDA_VISIBLE_DEVICES"]
        if former_devices is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = former_devices


def run_process(program: Program) -> None:
    """Run a program as the program of this process: on a GPU if there is one, else on the emulator.

    Stand-ins, ``__main__``, arguments and import path stay until the process ends, for the program's threads and for
    its functions that run at exit.
    """
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder of the command
    _begin(program.pycuda)
    try:
        program.execute()
    except Exception as error:
        if not is_gpu_here() and (text := _missing_library(error)):
            error.add_note(f"cudakit: {text}")
        raise


def run(path: str | os.PathLike[str], *arguments: str, pycuda: PyCUDA | None = None) -> dict[str, Any]:
    """Run a program of this or another library in this process, on a GPU if there is one, else on the emulator.

    Without a GPU cudakit stands in for CuPy, PyCUDA and cuda.core, and kernels of Numba and Triton run on the emulator.
    Modules that the program has imported stay imported. ``cudakit run`` runs a program in a process of its own.

    Parameters
    ----------
    path : str or PathLike
        Python file.
    *arguments : str
        Arguments of the program.
    pycuda : {"ours", "theirs"}, optional
        PyCUDA that the program gets. Default: PyCUDA itself on a GPU if it is installed, else cudakit's.

    Returns
    -------
    dict
        Names of the program after its run, with their values.

    Raises
    ------
    BaseException
        Exceptions of the program, ``SystemExit`` too.
    """
    program = Program(path, arguments, pycuda=pycuda)
    on_gpu = is_gpu_here()
    with _restored(), stand_ins(on_gpu, pycuda), contextlib.nullcontext() if on_gpu else strict():
        return program.execute()


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
                if session.is_over and not session.error:  # the line is another kernel's of the same source
                    session.rewind()
                    return
            self.has_stopped = True
            session.interact()
            # The program's own run repeats what this run has written.
            session.rewind()


def debug(program: Program, line: int | None = None) -> bool:
    """Run a program on the emulator, and step through the first kernel that has a line.

    Return whether a kernel had the line.

    Parameters
    ----------
    program : Program
        The program.
    line : int, optional
        Line to stop at, in the same file. Default: the begin of the first kernel.
    """
    witness = _Stepping(f"{program.file}:{line}" if line else "")
    with without_gpu(program, "debugged"), witnessing(witness):
        program.execute_to_end()
    return witness.has_stopped


def examine(program: Program, checked: bool = False, schedules: int = 0) -> Ran:
    """Run a program with all its kernels on the emulator, and count their work.

    Parameters
    ----------
    program : Program
        The program.
    checked : bool
        Whether to check for races, reads of uninitialised memory and other faults.
    schedules : int
        Number of further orders of threads, as in ``ck.check(schedules=…)``.

    Raises
    ------
    LaunchError
        In a process that has used a GPU.
    Exception
        Exceptions of the program, except cudakit's own errors, which are faults. The findings so far are their notes.
    """
    status, error = 0, None
    checks = check(schedules=schedules) if checked else contextlib.nullcontext()
    with without_gpu(program, "checked"), counters() as report, checks as check_report:
        try:
            status = program.execute_to_end()
        except CudakitError as raised:
            error = raised
        except Exception as raised:
            if not (text := _missing_library(raised)):
                for finding in check_report.findings if check_report is not None else ():
                    raised.add_note(f"cudakit check: {finding}")
                    program.findings.append(finding)
                raise
            error = CudakitError(text).with_traceback(raised.__traceback__)
    findings = tuple(check_report.findings) if check_report is not None else ()
    if error is None:
        return Ran(report, findings, status, reports.problems_of(findings))
    problems = [*reports.problems_of(findings), *reports.problems_of(error, program.file)]
    return Ran(report, (*findings, fault_of(error, program.file)), status, problems)
