"""A process that links what it reads from its input, pickled, and writes the code, or None, and the linker's log."""

from __future__ import annotations

import os
import pickle
import sys


def link(flags: list[str], inputs: list[tuple[str, str, bytes]]) -> tuple[bytes | None, str]:
    """Code and log; by nvJitLink itself: cuda.core's Linker would fall back on the driver, which may not be there."""
    from cuda.bindings import nvjitlink

    linker = nvjitlink.create(len(flags), flags)
    code = None
    try:
        for kind, name, data in inputs:
            nvjitlink.add_data(linker, getattr(nvjitlink.InputType, kind.upper()), data, len(data), name)
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


if __name__ == "__main__":
    # What a library prints must not mix with the answer.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    pickle.dump(link(*pickle.load(sys.stdin.buffer)), answer)
    answer.close()
