"""A worker process of `prewarm`: compiles each pickled `Specialization` that it reads, until its input ends."""

from __future__ import annotations

import os
import pickle
import sys

from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.nvrtc import Request


def serve() -> None:
    """Read specializations from standard input; write `Compiled` or the exception, and what was read; all pickled."""
    # What a compiler or a plug-in prints must not mix with the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            specialization = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        request = Request(specialization)
        try:
            made: Compiled | BaseException = request.compile()
        except Exception as error:
            made = error
        pickle.dump((made, request.closure, request.unstorable), answers)
        answers.flush()


if __name__ == "__main__":
    serve()
