"""NVRTC itself: compiles a text, here or, as a script, in a process of its own, pickled from input to output."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

#: Of bindings that have no function for it.
NO_TILE_IR = "cuda.bindings knows no Tile IR"


class Answer(NamedTuple):
    """What NVRTC made: no code where it failed.

    Attributes
    ----------
    code : bytes or None
    lowered : dict of str to str
    log : str
        Its own log.
    failure : str
        What it says of a failure that has no log.
    """

    code: bytes | None
    lowered: dict[str, str]
    log: str
    failure: str = ""


def run(text: str, name: str, flags: Sequence[bytes], expressions: Sequence[str], kind: str) -> Answer:
    """Compile `text`, called `name`, to a kind of code as NVRTC's functions name it: ``PTX``, ``CUBIN``, ``TileIR``."""
    from cuda.bindings import nvrtc

    def check(result: tuple[Any, ...]) -> Any:
        if int(result[0]) != 0:
            raise RuntimeError(nvrtc.nvrtcGetErrorString(result[0])[1].decode())
        return result[1] if len(result) == 2 else result[1:]

    if not hasattr(nvrtc, f"nvrtcGet{kind}Size"):
        return Answer(None, {}, "", NO_TILE_IR)
    log = ""
    try:
        program = check(nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, None, None))
        try:
            for expression in expressions:
                check(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
            (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), list(flags))
            told = _buffer(check(nvrtc.nvrtcGetProgramLogSize(program)))
            check(nvrtc.nvrtcGetProgramLog(program, told))
            log = told.decode(errors="replace").strip("\0")
            if int(status) != 0:
                return Answer(None, {}, log)
            lowered = {each: check(nvrtc.nvrtcGetLoweredName(program, each.encode())).decode() for each in expressions}
            code = _buffer(check(getattr(nvrtc, f"nvrtcGet{kind}Size")(program)))
            check(getattr(nvrtc, f"nvrtcGet{kind}")(program, code))
            return Answer(code, lowered, log)
        finally:
            nvrtc.nvrtcDestroyProgram(program)
    except RuntimeError as error:
        return Answer(None, {}, log, str(error))


def _buffer(size: int) -> bytes:
    """Bytes for NVRTC to write into. Never of length 1: those Python shares, and all of it would see the change."""
    return bytes(max(size, 2))


if __name__ == "__main__":
    # What a library prints must not mix with the answer.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    pickle.dump(tuple(run(*pickle.load(sys.stdin.buffer))), answer)
    answer.close()
