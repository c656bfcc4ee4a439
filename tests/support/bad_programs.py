"""Bad programs for `tests/cli/test_reports.py`: each with the kind of its problem, and its line marked by ``HERE``."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

#: Lines of the kernel, by mode: the kind of the fault, and the statement.
FAULTS = {
    "past the end": ("access", "x[n + i] = 1;"),
    "read past the end": ("access", "x[i] = x[i + n];"),
    "before the beginning": ("access", "x[-1 - i] = 0;"),
    "null": ("access", "((float*)(unsigned long long)(n - 32))[i] = 1;"),
    "not aligned": ("access", "*(float*)((char*)x + 1) = 1;"),
    "past shared memory": ("access", "s[99 + i] = x[i];"),
    "a wild address": ("access", "((float*)0x7000000000ull)[i] = 1;"),
    "in a function": ("access", "beyond(x, n);"),
    "one element written by all": ("race", "x[0] = i;"),
    "one element incremented by all": ("race", "x[0] += 1;"),
    "shared memory without a barrier": ("race", "s[0] = i;"),
    "a neighbour's element": ("race", "x[i] = x[(i + 1) % n] + 1;"),
    "blocks write one element": ("race", "x[threadIdx.x] = i;"),
    "shared memory that nobody wrote": ("uninitialised", "x[i] = s[i];"),
    "a barrier for some": ("barrier", "if (i < 5) __syncthreads();"),
    "a failed assert": ("assert", "assert(i < 0);"),
    "a failed assert of some": ("assert", 'assert(i < 7 && "too many");'),
    "a trap": ("trap", "__trap();"),
    "a named barrier": ("deadlock", 'asm volatile("bar.sync 1, 1024;");'),
    "through const": ("const", "const_cast<float*>(c)[i] = 1;"),
    "a wrong free": ("fault", "free(x);"),
    "an instruction out of its group": ("fault", "__shfl_sync(1u << (i + 1) % 32, n, 0); x[i] = i;"),
}  # fmt: skip
CASES = "\n".join(f"        case {mode}: {line} break;" for mode, (_, line) in enumerate(FAULTS.values()))
KERNELS = f"""#include <cassert>
__device__ __noinline__ void beyond(float* x, int n) {{
    x[n + threadIdx.x] = 2;
}}
__global__ void f(float* x, const float* c, int n, int mode) {{
    __shared__ float s[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    switch (mode) {{
{CASES}
    }}
    if (mode == 1000) x[i] = c[i] + s[0] + s[i];
}}
template <typename T, int N> __global__ void sized(T* x, int n) {{ x[threadIdx.x] = N; }}
template <typename T> __global__ void loop(T* x, long long n) {{
    for (long long j = 0; j < n; j++) x[0] = x[0] * 1.5f + 1;
}}
"""
PRELUDE = """import os, sys, time
import numpy as np
import cudakit as ck
f = ck.Kernel.from_file("kernels.cu", "f")
sized = ck.Kernel.from_file("kernels.cu", "sized")
stream, two, n = ck.emulator.stream(), ck.config(2, 16), 32
x, c = (ck.to_device(np.ones(n, np.float32), stream) for _ in range(2))
"""


class Bad(NamedTuple):
    """A bad program. `kind` and `status` are its document's; empty `text`: the file is missing."""

    name: str
    kind: str
    text: str
    words: tuple[str, ...] = ()
    command: str = "check"
    #: File and marked text of the expected line; the program itself by default.
    file: str = "app.py"


def _programs(kind: str, **texts: str) -> list[Bad]:
    return [Bad(name.replace("_", " "), kind, PRELUDE + textwrap.dedent(text).strip("\n") + "\n")
            for name, text in texts.items()]  # fmt: skip


def faults() -> list[Bad]:
    """Return a program for each fault of a kernel."""
    text = PRELUDE + "f(stream, two, x, c, n, int(sys.argv[1]))\nstream.sync()\n"
    return [
        Bad(name, kind, text, (str(mode),), file="kernels.cu") for mode, (name, (kind, _)) in enumerate(FAULTS.items())
    ]


def fault_line(case: Bad) -> int:
    """Return the line of a fault in `KERNELS`."""
    mode = int(case.words[0])
    start = KERNELS.splitlines().index("    switch (mode) {") + 2
    return KERNELS[: KERNELS.index("    x[n +")].count("\n") + 1 if case.name == "in a function" else start + mode


#: Calls that the checks of arguments refuse, before anything is launched.
ARGUMENTS = [
    *_programs(
        "argument",
        an_argument_is_missing="f(stream, two, x, c, n)  # HERE",
        one_argument_too_many="f(stream, two, x, c, n, 0, 0)  # HERE",
        an_unknown_keyword="f(stream, two, x, c, n, mod=0)  # HERE",
        an_argument_twice="f(stream, two, x, c, n, n=3)  # HERE",
        a_list_for_a_pointer="f(stream, two, [1.0], c, n, 0)  # HERE",
        a_number_for_a_pointer="f(stream, two, 7, c, n, 0)  # HERE",
        a_float_for_an_int="f(stream, two, x, c, 2.5, 0)  # HERE",
        a_text_for_an_int="f(stream, two, x, c, 'n', 0)  # HERE",
        none_for_an_int="f(stream, two, x, c, None, 0)  # HERE",
        an_array_for_an_int="f(stream, two, x, c, x, 0)  # HERE",
        too_large_for_an_int="f(stream, two, x, c, 2**31, 0)  # HERE",
        another_dtype="f(stream, two, ck.empty(n, np.float64, stream=stream), c, n, 0)  # HERE",
        integers_for_floats="f(stream, two, ck.empty(n, np.int32, stream=stream), c, n, 0)  # HERE",
        complex_numbers="f(stream, two, ck.empty(n, np.complex64, stream=stream), c, n, 0)  # HERE",
        no_stream="f(None, two, x, c, n, 0)  # HERE",
        stream_and_configuration_swapped="f(two, stream, x, c, n, 0)  # HERE",
        in_a_function="""
            def call(count):
                f(stream, two, x, c, count, 0)  # HERE
            call("3")
        """,
    ),
    *_programs(
        "launch",
        no_configuration="f(stream, 32, x, c, n, 0)  # HERE",
        too_many_threads="f(stream, ck.config(1, 4096), x, c, n, 0)  # HERE",
        no_threads="f(stream, ck.config(1, 0), x, c, n, 0)  # HERE",
        a_negative_grid="f(stream, ck.config(-1, 32), x, c, n, 0)  # HERE",
        four_dimensions="f(stream, ck.config((1, 1, 1, 1), 32), x, c, n, 0)  # HERE",
        too_much_shared_memory="f(stream, ck.config(1, 32, shared_bytes=1 << 30), x, c, n, 0)  # HERE",
    ),
    *_programs(
        "template",
        an_unknown_kernel="ck.Kernel.from_file('kernels.cu', 'g')  # HERE",
        several_kernels="ck.Kernel.from_file('kernels.cu')(stream, two, x)  # HERE",
        not_a_template="f[np.float32]  # HERE",
        no_value_for_a_parameter="sized(stream, two, x, n)  # HERE",
        an_unknown_template_parameter="sized['M': 3]  # HERE",
        too_many_template_arguments="sized[np.float32, 3, 4]  # HERE",
        a_source_that_is_none="ck.Kernel(3)  # HERE",
        no_kernel_in_the_source="ck.Kernel('int x;')  # HERE",
        a_name_for_a_source="ck.Kernel('kernels.cu')  # HERE",
    ),
]
EXCEPTIONS = [
    *_programs(
        "exception",
        a_value_error="int('x')  # HERE",
        a_division="1 / 0  # HERE",
        a_key="{}['key']  # HERE",
        an_attribute="x.nothing  # HERE",
        an_import="import there_is_no_such_module  # HERE",
        an_assertion="assert n == 0, 'no'  # HERE",
        of_numpy="np.ones(3) + np.ones(4)  # HERE",
        deep_in_a_library="np.linalg.inv(np.zeros((2, 2)))  # HERE",
        with_a_cause="""
            try:
                int("x")
            except ValueError as error:
                raise RuntimeError("twice") from error  # HERE
        """,
        whose_text_fails="""
            class Broken(Exception):
                def __str__(self):
                    raise RuntimeError
            raise Broken  # HERE
        """,
        a_recursion="""
            def again(k):
                return again(k + 1)  # HERE
            again(0)
        """,
    ),
    *_programs("memory", more_memory_than_there_is="np.ones(1 << 48)  # HERE"),
    *_programs("file", a_file_that_is_missing="open('absent.txt')  # HERE"),
    *_programs("exit", a_status="sys.exit(9)", a_text="sys.exit('no')"),
]
SYNTAX = [
    Bad(name, "syntax", f"x = 1\n{line}\n")
    for name, line in {
        "no colon": "if x  # HERE",
        "no end of a bracket": "y = (1, 2  # HERE",
        "a wrong indentation": "  y = 2  # HERE",
        "an unknown character": "y = 2 $ 3  # HERE",
        "an f-string": "y = f'{'  # HERE",
        "a return outside": "return 3  # HERE",
    }.items()
]
MISSING = [
    Bad("no such program", "file", "", file=""),
    Bad("no such program to inspect", "file", "", command="inspect", file=""),
    Bad("no such program to run", "file", "", command="run", file=""),
    Bad("no such module", "error", "", ("-m", "there_is_no_such_module"), file=""),
    Bad("no command", "usage", "", command="chek", file=""),
    Bad("an unknown option", "usage", "pass\n", ("--schedule", "x", "--nothing"), file=""),
    Bad("a number that is none", "usage", "pass\n", ("--schedules", "many"), file=""),
    Bad("a size that is none", "usage", "pass\n", ("--memory-limit", "much"), file=""),
]

#: Kernels that do not compile.
SOURCES = {
    "an undefined name": "__global__ void k(float* x) {\n    x[0] = y;  // HERE\n}",
    "no semicolon": "__global__ void k(float* x) {\n    x[0] = 1\n}  // HERE",
    "a wrong type": "__global__ void k(float* x) {\n    x[0] = x;  // HERE\n}",
    "an unknown type": "__global__ void k(float* x) {\n    flot y = 1;  // HERE\n    x[0] = y;\n}",
    "a missing header": '#include "absent.h"  // HERE\n__global__ void k(float* x) {}',
    "an #error": "#error no  // HERE\n__global__ void k(float* x) {}",
    "a static_assert": "__global__ void k(float* x) {\n    static_assert(sizeof(float) == 2, \"no\");  // HERE\n}",
    "a const": "__global__ void k(const float* x) {\n    x[0] = 1;  // HERE\n}",
    "an unknown function": "__global__ void k(float* x) {\n    x[0] = nothing(1);  // HERE\n}",
    "arguments of a function": "__device__ void g(int a) {}\n__global__ void k() {\n    g();  // HERE\n}",
    "a name twice": "__global__ void k(float* x) {\n    int a = 0;\n    int a = 1;  // HERE\n}",
    "no such member": "struct S { int a; };\n__global__ void k(float* x) {\n    S s; x[0] = s.b;  // HERE\n}",
    "a value returned": "__global__ void k(float* x) {\n    return 1;  // HERE\n}",
    "a division by 0 in a constant": "__global__ void k(float* x) {\n    constexpr int a = 1 / 0;  // HERE\n}",
}  # fmt: skip
COMPILE = [
    Bad(name, "compile", "import cudakit as ck\nk = ck.Kernel.from_file('bad.cu')\nk.compile(arch='sm_90')\n", (text,),
        file="bad.cu")
    for name, text in SOURCES.items()
]  # fmt: skip

#: Names of those of `ENDINGS` that wait for the time limit without work.
SLEEPING = ("a sleep", "a lock", "a child process", "a handler that ignores")
#: Programs that only a process of their own survives: kind, text, and the line that runs at the end.
ENDINGS = [
    *_programs(
        "time",
        an_endless_loop="while True: pass  # HERE",
        a_sleep="time.sleep(100)  # HERE",
        a_lock="""
            import threading
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()  # HERE
        """,
        a_child_process="os.system('setsid sleep 97531 & sleep 97531')  # HERE",
        an_endless_kernel="""
            loop = ck.Kernel.from_file("kernels.cu", "loop")
            loop(stream, ck.config(1, 1), x, 10**12)  # HERE
        """,
        a_handler_that_ignores="""
            import signal
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            time.sleep(100)  # HERE
        """,
    ),
    *_programs(
        "memory",
        a_list_that_grows="""
            pieces = []
            while True:
                pieces.append(np.ones(1 << 20))  # HERE
        """,
        one_large_array="y = np.ones(1 << 30)  # HERE",
    ),
    *_programs(
        "signal",
        a_segmentation_fault="import ctypes; ctypes.string_at(0)  # HERE",
        an_abort="os.abort()  # HERE",
        a_kill="os.kill(os.getpid(), 9)",
        a_term="os.kill(os.getpid(), 15)",
    ),
    *_programs("exit", an_exit_of_the_process="os._exit(5)"),
]
