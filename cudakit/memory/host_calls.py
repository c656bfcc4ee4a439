"""Kernel calls with host arrays among their arguments: copied on the call's stream, before the kernel and after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from cudakit.memory import accounting
from cudakit.memory.host_arrays import Callee, HostArray, check, refuse_capture
from cudakit.streams import devices
from cudakit.streams.streams import is_emulated, known, require_stream
from cudakit.streams.witnesses import doing


def call(kernel: Callee, stream: Any, config: Any, given: Sequence[Any]) -> None:
    """A kernel call whose arguments have host arrays among them.

    Raises
    ------
    ArgumentError
        Where the arguments do not fit; arrays overlap, one of which is written; or what is copied in may be written,
        or what is copied out cannot be.
    LaunchError
        While the stream is being captured.
    """
    if is_emulated(stream):
        check(kernel, given)
        refuse_capture(kernel, stream, given)
        _emulate(kernel, stream, config, given)
        return
    require_stream(stream)
    devices.require_gpu()
    _on_gpu()(kernel, stream, known(stream), config, given)


@cache
def _on_gpu() -> Callable[..., None]:
    """What makes such a call on a GPU, which needs CuPy."""
    from cudakit.memory import call_buffers

    return call_buffers.call


def _emulate(kernel: Callee, stream: Any, config: Any, given: Sequence[Any]) -> None:
    arguments = list(given)
    back = []
    for position, value in enumerate(given):
        if not isinstance(value, HostArray):
            continue
        host = value.array
        copied = accounting.emulated_array(host.shape, host.dtype)
        if value.copied_in:
            with doing("copy", type(value).__name__, stream, (host,), (copied,), host.nbytes):
                np.copyto(copied, host)
        else:
            with doing("fill", "Out", stream, (), (copied,), host.nbytes):
                copied[...] = np.zeros((), host.dtype)
        copied.flags.writeable = value.copied_out
        arguments[position] = copied
        if value.copied_out:
            back.append((type(value).__name__, copied, host))
    kernel(stream, config, *arguments)
    for name, copied, host in back:
        with doing("copy", name, stream, (copied,), (host,), host.nbytes):
            np.copyto(host, copied)
