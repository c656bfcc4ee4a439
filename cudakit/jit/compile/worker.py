"""Calls of NVRTC and nvJitLink, in this process or in a process of their own, which runs this module as a script.

This module imports nothing of the package, so that a process starts quickly.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO

from cudakit.records import NamedTuple

_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
#: Failure message of an NVRTC without Tile IR.
NO_TILE_IR = "this NVRTC makes no Tile IR"


class Answer(NamedTuple):
    """The result of NVRTC; `code` is None if it failed.

    Attributes
    ----------
    code : bytes or None
        Compiled code.
    lowered : dict of str to str
        Lowered name of each name expression.
    log : str
        NVRTC's log.
    failure : str
        Message of a failure without a log.
    """

    code: bytes | None
    lowered: dict[str, str]
    log: str
    failure: str = ""


def compiled(
    library: str, text: str, name: str, flags: Sequence[bytes], expressions: Sequence[str], output: str
) -> Answer:
    """Compile `text`, called `name`, to an output of NVRTC: ``PTX``, ``CUBIN``, ``TileIR``.

    `library` is the path of NVRTC, which is called by ctypes. A process that compiles a tile kernel then needs 0.08 s
    of processor time. With an import of cuda.bindings it would need 0.19 s (NVRTC 13.5, 2026-11-26).
    """
    nvrtc = ctypes.CDLL(library)

    def check(status: int) -> None:
        if status != 0:
            raise RuntimeError(nvrtc.nvrtcGetErrorString(status).decode())

    def result(name: str) -> bytes:
        size = ctypes.c_size_t()
        check(getattr(nvrtc, f"nvrtcGet{name}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        check(getattr(nvrtc, f"nvrtcGet{name}")(program, buffer))
        return buffer.raw

    def lowered(expression: str) -> str:
        pointer = ctypes.c_char_p()
        check(nvrtc.nvrtcGetLoweredName(program, expression.encode(), ctypes.byref(pointer)))
        return (pointer.value or b"").decode()

    if not hasattr(nvrtc, f"nvrtcGet{output}Size"):
        return Answer(None, {}, "", NO_TILE_IR)
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    program, log = ctypes.c_void_p(), ""
    try:
        check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None))
        try:
            for expression in expressions:
                check(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
            status = nvrtc.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
            log = result("ProgramLog").decode(errors="replace").strip("\0")
            if status != 0:
                return Answer(None, {}, log)
            return Answer(result(output), {expression: lowered(expression) for expression in expressions}, log)
        finally:
            nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    except RuntimeError as error:
        return Answer(None, {}, log, str(error))


def link(flags: list[str], inputs: list[tuple[str, str, bytes]]) -> tuple[bytes | None, str]:
    """Link by nvJitLink: cuda.core's Linker may need a driver. Return the code, or None, and the log."""
    from cuda.bindings import nvjitlink

    linker = nvjitlink.create(len(flags), flags)
    code = None
    try:
        for code_format, name, data in inputs:
            nvjitlink.add_data(linker, getattr(nvjitlink.InputType, code_format.upper()), data, len(data), name)
        nvjitlink.complete(linker)
        code = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, code)
    except nvjitlink.nvJitLinkError as error:
        failure = str(error)
    logs = []
    for size, read in (
        (nvjitlink.get_error_log_size, nvjitlink.get_error_log),
        (nvjitlink.get_info_log_size, nvjitlink.get_info_log),
    ):
        log = bytearray(max(2, size(linker)))
        read(linker, log)
        logs.append(log.decode(errors="replace").strip("\0\n "))
    if code is None and not logs[0]:
        logs[0] = failure
    return None if code is None else bytes(code), "\n".join(filter(None, logs))


def command(script: str) -> list[str]:
    """Return the command that runs the file `script` in this Python, as a list.

    The working directory and the script's folder are not on its import path.
    """
    return [sys.executable, "-P", script]


def environment() -> dict[str, str]:
    """Return this process's environment with its import path, so that an uninstalled checkout works too.

    The working directory, which may hold anything, is not on the path, unless cudakit itself came from there.
    """
    folders = [entry for entry in sys.path if os.path.isabs(entry)]
    if _ROOT not in folders:
        folders.insert(0, _ROOT)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}


def apart(function: str, *arguments: Any) -> tuple[int, tuple[Any, ...], str]:
    """Call a function of this module in a process of its own.

    Returns
    -------
    int, tuple, str
        Exit status, the function's result (empty if the status is not 0), and the printed text.
    """
    import subprocess  # most programs start no such process

    process = subprocess.run(
        command(__file__),
        input=pickle.dumps((function, arguments)),
        capture_output=True,
        env=environment(),
        check=False,
    )
    result = pickle.loads(process.stdout) if process.returncode == 0 else ()
    return process.returncode, result, process.stderr.decode(errors="replace")


def answer_channel() -> BinaryIO:
    """Reserve standard output for a process's answers; text that a library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def serve() -> None:
    """Answer calls from standard input until it ends: pickled pairs of a function's name and its arguments."""
    answers = answer_channel()
    while True:
        try:
            function, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(tuple(link(*arguments) if function == "link" else compiled(*arguments)), answers)
        answers.flush()


if __name__ == "__main__":
    serve()
