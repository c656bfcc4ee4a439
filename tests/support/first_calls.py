"""A program that makes public calls first in a process of its own: in the main thread or in a fresh one.

``python first_calls.py PLACE IMPORTED FOLDER CALLS``; CALLS is JSON, a list of names with "main" or "thread". For each
it prints a line of JSON: the call, where it came first, and what went wrong. Processes are forked from this one, which
on a GPU has imported nothing yet that could know of the driver.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import traceback
from typing import Any

#: What each call stands in: `xp` and `stream` are made where a call names them, and nothing else before it.
CALLS = {
    "has_gpu": "ck.has_gpu()",
    "device_limits": "ck.device_limits()",
    "stream": "ck.stream()",
    "using": "with ck.using(stream) as made: made.ones(4)",
    "empty": "ck.empty(4, np.float32)",
    "empty pinned": "ck.empty(4, np.float32, 'pinned')",
    "empty managed": "ck.empty(4, np.float32, 'managed')",
    "empty on a stream": "ck.empty(4, np.float32, stream=stream)",
    "allocated": "with ck.allocated(4, np.float32): pass",
    "to_device": "assert ck.to_host(ck.to_device(np.arange(4.0)))[3] == 3",
    "to_device on a stream": "assert ck.to_host(ck.to_device(np.arange(4.0), stream), stream)[3] == 3",
    "to_host": "assert ck.to_host(xp.arange(4.0))[3] == 3",
    "memory.copy": "ck.memory.copy(xp.ones(4), xp.zeros(4))",
    "surface": "ck.surface(xp.ones((4, 4), np.float32))",
    "to_host, strided": "assert ck.to_host(xp.arange(4.0)[::2])[1] == 2",
    "memory.report": "str(ck.memory.report())",
    "memory.trim": "ck.memory.trim()",
    "memory.limit": "with ck.memory.limit(2**30): pass",
    "memory.limit of the stack": "with ck.memory.limit(2048, 'stack'): pass",
    "memory.prefetch": "ck.memory.prefetch(ck.empty(4, np.float32, 'managed', stream), stream)",
    "memory.host_view": "ck.memory.host_view(ck.empty(4, np.float32, 'managed'))",
    "texture": "ck.texture(xp.ones((4, 4), np.float32))",
    "texture of linear memory": "ck.texture(xp.ones(4, np.float32), memory='linear')",
    "tensor_map": "ck.tensor_map(xp.ones((16, 16), np.float32), (8, 8))",
    "kernel": "kernel(stream, ck.cover(4), xp.ones(4, np.float32), 4)",
    "kernel on CuPy's stream": "kernel(default(stream), ck.cover(4), xp.ones(4, np.float32), 4)",
    "kernel and an event": "kernel(stream, ck.cover(4), xp.ones(4, np.float32), 4); stream.record().sync()",
    "kernel, host arrays": "kernel(stream, ck.cover(4), ck.InOut(np.ones(4, np.float32)), 4); stream.sync()",
    "kernel.plan": "kernel.plan(stream, ck.cover(4), xp.ones(4, np.float32), 4)()",
    "kernel.globals": "kernel.globals['table']",
    "kernel.globals.write": "kernel.globals.write('table', np.ones(4, np.float32), stream)",
    "kernel.ptx": "kernel.ptx(arch='sm_90')",
    "kernel.compile": "kernel.compile(arch='sm_90')",
    "prewarm": "ck.prewarm([kernel], arch='sm_90')",
    "ops.sum": "assert ck.ops.sum(xp.ones(4)) == 4",
    "ops.sum on a stream": "ck.ops.sum(xp.ones(4), stream=stream)",
    "ops.cumsum": "ck.ops.cumsum(xp.ones(4))",
    "ops.take": "ck.ops.take(xp.ones(4), xp.arange(4), mode='raise')",
    "ops.transpose": "ck.ops.transpose(xp.ones((4, 4)))",
    "ops.histogram": "ck.ops.histogram(xp.ones(4), 4, (0, 2))",
    "ops.softmax": "ck.ops.softmax(xp.ones(4))",
    "ops.compact": "ck.ops.compact(xp.ones(4), xp.ones(4, bool))",
    "math": "ck.math.add(xp.ones(4), 1)",
    "elementwise": "ck.elementwise('T x', 'T z', 'z = x')(xp.ones(4))",
    "elementwise of a size": "ck.elementwise('', 'float z', 'z = i')(size=4)",
    "reduction": "ck.reduction('T x', 'T y', map='x', reduce='a + b', identity='0')(xp.ones(4))",
    "scan": "ck.scan('T x', 'T y', map='x', reduce='a + b', identity='0')(xp.ones(4))",
    "fuse": "ck.fuse(lambda x: x * x + 1)(xp.ones(4))",
    "capture": "with ck.capture(stream) as graph: kernel(stream, ck.cover(4), ones, 4)\ngraph.launch()",
    "Timer": "with ck.Timer(stream) as timer: kernel(stream, ck.cover(4), ones, 4)\ntimer.elapsed_ms",
    "trace": "with ck.trace() as trace: kernel(stream, ck.cover(4), ones, 4)\nstr(trace)",
    "hazards.trace": "with ck.hazards.trace(): kernel(stream, ck.cover(4), ones, 4)",
    "hazards.ordered": "ck.hazards.ordered(stream, after=ck.stream())",
    "Pipeline": "assert len(list(ck.Pipeline([lambda x, stream: x + x])([np.ones(4)] * 3))) == 3",
    "Pipeline.map_array": "ck.Pipeline([lambda x, stream: x + x]).map_array(np.ones(64), chunk=16)",
}
#: What only a GPU has.
ON_A_GPU = {"kernel.attributes": "kernel.attributes()"}
_TEXT = """
__constant__ float table[4];
__global__ void twice(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] *= 2 + table[0]; }
"""


def names_for(code: str, place: str) -> dict[str, Any]:
    """What a call names: the less of it, the earlier comes the call."""
    import numpy as np

    import cudakit as ck

    names: dict[str, Any] = {"np": np, "ck": ck, "default": lambda stream: stream}
    if "xp" in code or "ones" in code:
        names["xp"] = importlib.import_module("cupy") if place == "gpu" else np
        if place == "gpu":
            names["default"] = lambda stream: names["xp"].cuda.get_current_stream()
    if "stream" in code:
        names["stream"] = ck.stream() if place == "gpu" else ck.emulator.stream()
    if "kernel" in code:
        names["kernel"] = ck.Kernel(_TEXT)
    if " ones" in code:
        names["ones"] = names["xp"].ones(4, np.float32)
    return names


def make(code: str, place: str, thread_first: bool) -> str:
    """Make a call in one thread and then in the other, and again with what the first one had; what went wrong."""
    problems: list[str] = []
    shared: dict[str, Any] = {}

    def once() -> None:
        try:
            names = names_for(code, place)
            exec(code, names)
            shared.setdefault("names", names)
        except BaseException:
            problems.append(traceback.format_exc())

    def again() -> None:
        try:
            for _ in range(3):
                exec(code, shared["names"])
        except BaseException:
            problems.append("with what another thread had:\n" + traceback.format_exc())

    def aside(what: Any) -> None:
        thread = threading.Thread(target=what)
        thread.start()
        thread.join()

    for apart in (thread_first, not thread_first):
        aside(once) if apart else once()
    if not problems and "graph" not in code:
        again()
        aside(again)
    return "\n".join(problems)


def main(place: str, imported: str, folder: str, chosen: str) -> None:
    """Make the chosen calls, several at a time, each in a child of this process."""
    import warnings

    warnings.simplefilter("ignore")
    os.environ["CUDAKIT_CACHE_DIR"] = folder
    if place != "gpu":  # what children would all import
        shared = ("cudakit.ops", "cudakit.pipeline", "cudakit.emulator", "cudakit.generate", "cudakit.math")
        for name in (*shared, *filter(None, [imported])):
            importlib.import_module(name)
    calls = CALLS | ON_A_GPU
    running = 0
    for name, first in json.loads(chosen):
        if running == (os.cpu_count() or 1):
            os.wait()
            running -= 1
        running += 1
        if os.fork() == 0:
            try:
                if imported:
                    importlib.import_module(imported)
                wrong = make(calls[name], place, first == "thread")
            except BaseException:
                wrong = traceback.format_exc()
            # Lines of children are whole up to the size that a pipe takes at once.
            os.write(1, f"{json.dumps([name, first, wrong[-1500:]])}\n".encode())
            os._exit(0)
    for _ in range(running):
        os.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
