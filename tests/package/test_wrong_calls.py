"""Wrong calls of everything public: each raises cudakit's own error, which names what was wrong and what was given."""

from __future__ import annotations

import dataclasses
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import costs
from support.json_schema import faults_of

import cudakit as ck
from cudakit import cli, hazards, memory, ops, pipeline, reports

SAXPY = """
template <typename T>
__global__ void saxpy(T a, const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
OTHERS = """
struct Params { float a; int b; };
__constant__ float table[4];
__global__ void scalars(int i, float f, bool b, unsigned char c, float4 v, Params p) {}
__global__ void fill(float* out, int n) { if (threadIdx.x < n) out[threadIdx.x] = 1; }
template <typename T, int N> __global__ void sized(T* x) { x[0] = N; }
"""


@dataclasses.dataclass
class Params:
    a: np.float32
    b: np.int32


class World:
    """What the calls are made with."""

    def __init__(self, stream: Any, xp: Any, path: Path) -> None:
        self.s, self.xp, self.path = stream, xp, path
        self.x = xp.ones((2, 3), np.float32)
        self.v = xp.arange(8, dtype=np.float32)
        self.i = xp.arange(8, dtype=np.int32)
        self.b = self.i > 3
        self.h = np.arange(8, dtype=np.float32)
        self.saxpy = ck.Kernel(SAXPY)
        self.scalars, self.fill, self.sized = (ck.Kernel(OTHERS, name) for name in ("scalars", "fill", "sized"))
        self.one = ck.config(1, 32)

    def file(self, text: str) -> Path:
        """A file with a text."""
        (self.path / "given.cu").write_text(text)
        return self.path / "given.cu"

    def give(self, *changed: Any, **named: Any) -> None:
        """Call `scalars` with some arguments others than the right ones, by position."""
        right = [1, 1.0, True, 1, (1, 2, 3, 4), Params(np.float32(1), np.int32(2))]
        for position, value in zip(changed[::2], changed[1::2], strict=True):
            right[position] = value
        self.scalars(self.s, self.one, *right)


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A wrong call, and words that its error must have."""

    name: str
    call: Callable[[World], Any]
    words: tuple[str, ...]
    kind: type[BaseException] = ck.CudakitError


WRONG: list[Wrong] = []


def wrong(name: str, call: Callable[[World], Any], *words: str, kind: type[BaseException] = ck.CudakitError) -> None:
    WRONG.append(Wrong(name, call, words, kind))


# ── kernels: made, specialised ───────────────────────────────────────────────────────────────────────────────────────

wrong("kernel: no text", lambda w: ck.Kernel(5), "source", "int")
wrong("kernel: None", lambda w: ck.Kernel(None), "source", "None")
wrong("kernel: bytes", lambda w: ck.Kernel(b"__global__ void f() {}"), "source", "bytes")
wrong("kernel: empty", lambda w: ck.Kernel(""), "__global__")
wrong("kernel: no kernel in it", lambda w: ck.Kernel("int f() { return 1; }"), "__global__")
wrong("kernel: name of none", lambda w: ck.Kernel(SAXPY, "saxpi"), "saxpi", "saxpy")
wrong("kernel: name is no str", lambda w: ck.Kernel(SAXPY, 3), "name", "3")
wrong("kernel: several, no name", lambda w: ck.Kernel(OTHERS), "scalars", "fill")
wrong("kernel: options of nvcc", lambda w: ck.Kernel(SAXPY, options=["-O3"]), "options", "-O3")
wrong("kernel: options as a dict", lambda w: ck.Kernel(SAXPY, options={"std": "c++20"}), "options", "std")
wrong("kernel: file that is not there", lambda w: ck.Kernel.from_file("no/such.cu"), "no/such.cu")
wrong("kernel: file is no path", lambda w: ck.Kernel.from_file(7), "path", "7")
wrong("kernel: file is a folder", lambda w: ck.Kernel.from_file(w.path), "irectory")
wrong("kernel: template without a name", lambda w: ck.Kernel.from_template("gray"), "concept/name", "gray")
wrong("kernel: template of none", lambda w: ck.Kernel.from_template("image/grey"), "grey", "gray")
wrong("kernel: concept of none", lambda w: ck.Kernel.from_template("picture/gray"), "picture")
wrong("kernel: template is no str", lambda w: ck.Kernel.from_template(3), "concept/name", "3")
wrong("kernel: attribute", lambda w: w.saxpy.with_options(fastmath=True), "fastmath", "fast_math")
wrong("specialise: too many", lambda w: w.saxpy[np.float32, 3], "saxpy", "3")
wrong("specialise: no template", lambda w: w.fill[np.float32], "fill", "not a template")
wrong("specialise: unknown name", lambda w: w.sized[{"M": 3}], "sized", "'M'", "T, N")
wrong("specialise: name twice", lambda w: w.sized[np.float32, {"T": np.int32}], "sized", "T", "twice")
wrong("specialise: value for a type", lambda w: w.sized[3], "T", "type", "3")
wrong("specialise: type for a value", lambda w: w.sized[np.float32, np.float32], "N", "value")
wrong("specialise: float for a value", lambda w: w.sized[np.float32, 2.5], "N", "2.5")
wrong("specialise: None", lambda w: w.sized[None], "T", "None")
wrong("specialise: object", lambda w: w.sized[object()], "T", "object")
wrong("specialise: a list", lambda w: w.sized[[1, 2]], "T", "[1, 2]")
wrong("specialise: a dict in a dict", lambda w: w.sized[{"T": {}}], "T", "{}")
wrong("specialise: a set", lambda w: w.sized[np.float32, {1}], "N", "{1}")
wrong("specialise: an array", lambda w: w.sized[np.float32, np.arange(3)], "N", "[0, 1, 2]")
wrong("specialise: empty text", lambda w: w.sized[" "], "T", "empty")
wrong("specialise: a slice", lambda w: w.sized[1:2], "T", "slice")
wrong("specialise: a name that is no str", lambda w: w.sized[{1: 2}], "1")
wrong("specialise: dtype of objects", lambda w: w.sized[object], "T", "object")
wrong("specialise: what cannot be deduced", lambda w: w.sized(w.s, w.one, w.v), "sized", "N")
wrong("compile: type of an argument", lambda w: w.saxpy.specialization("no type", arch="sm_90"), "a", "no type")
wrong("compile: too many types", lambda w: w.saxpy[np.float32].specialization(*[None] * 9, arch="sm_90"), "saxpy", "9")
wrong("compile: arch", lambda w: w.saxpy[np.float32].compile(arch="hopper"), "arch", "hopper")
wrong("kernel: a virtual arch", lambda w: ck.Kernel(SAXPY, arch="compute_90"), "saxpy", "'sm_90'", "compute_90")
wrong("module: a virtual arch", lambda w: ck.Module(OTHERS, arch="compute_90"), "'sm_90'", "compute_90")
wrong("compile: a virtual arch", lambda w: w.fill.compile(arch="compute_90"), "fill", "'sm_90'", "compute_90")
wrong("emulator: a virtual arch", lambda w: ck.emulator.stream("compute_90"), "'sm_90'", "compute_90")
wrong("prove: a virtual arch", lambda w: ck.prove(w.fill, arch="compute_90"), "'sm_90'", "compute_90")
wrong("compile: arch is a number", lambda w: w.saxpy[np.float32].compile(arch=90), "arch", "90")
wrong("compile: target", lambda w: w.saxpy[np.float32].compile(arch="sm_90", target="sass"), "target", "sass")
wrong("ptx: nothing given", lambda w: ck.Kernel(SAXPY).ptx(arch="sm_90"), "saxpy", "T")
wrong("prepare: no type", lambda w: w.saxpy.prepare("float", 3, arch="sm_90"), "3")
wrong("prewarm: a kernel alone", lambda w: ck.prewarm(w.saxpy), "list")
wrong("prewarm: no kernels", lambda w: ck.prewarm([3]), "3")
wrong("prewarm: no iterable", lambda w: ck.prewarm(3), "3")
wrong("prewarm: workers", lambda w: ck.prewarm([w.saxpy[np.float32]], arch="sm_90", workers=0), "workers", "0")
wrong("prewarm: workers as a text", lambda w: ck.prewarm([w.fill], arch="sm_90", workers="2"), "workers", "'2'")
wrong("prewarm: arch", lambda w: ck.prewarm([w.fill], arch="x"), "arch", "'x'")

wrong("module: no text", lambda w: ck.Module(5), "source", "int")
wrong("module: options", lambda w: ck.Module(OTHERS, options=["-O3"]), "options", "-O3")
wrong("module: a kernel of none", lambda w: ck.Module(OTHERS)["nope"], "nope", "fill")
wrong("module: name is no str", lambda w: ck.Module(OTHERS)[3], "name", "3")
wrong("host code", lambda w: ck.Kernel(SAXPY, host_code="drop"), "host_code", "'drop'")
wrong("link: a number", lambda w: ck.CompileOptions(link=3), "link", "3")
wrong("link: numbers", lambda w: ck.CompileOptions(link=[3]), "link", "3")

# ── kernels: called ──────────────────────────────────────────────────────────────────────────────────────────────────

wrong("call: no stream", lambda w: w.saxpy(w.one, 2.0, w.v, w.v, 8), "stream", "Config")
wrong("call: None as the stream", lambda w: w.saxpy(None, w.one, 2.0, w.v, w.v, 8), "stream", "NoneType")
wrong("call: a number as the stream", lambda w: w.saxpy(0, w.one, 2.0, w.v, w.v, 8), "stream", "int")
wrong("call: no config", lambda w: w.saxpy(w.s, 2.0, w.v, w.v, 8), "configuration", "float")
wrong("call: tuples as in CuPy", lambda w: w.saxpy((1,), (32,), (2.0, w.v, w.v, 8)), "stream", "tuple")
wrong("call: config as a tuple", lambda w: w.saxpy(w.s, (1, 32), 2.0, w.v, w.v, 8), "configuration", "tuple")
wrong("call: too few", lambda w: w.saxpy(w.s, w.one, 2.0, w.v), "saxpy", "y, n are missing")
wrong("call: too many", lambda w: w.saxpy(w.s, w.one, 2.0, w.v, w.v, 8, 9), "saxpy", "4 arguments", "5")
wrong("call: unknown name", lambda w: w.saxpy(w.s, w.one, 2.0, w.v, w.v, m=8), "saxpy", "'m'", "a, x, y, n")
wrong("call: block= of CuPy", lambda w: w.saxpy(w.s, w.one, 2.0, w.v, w.v, 8, block=(1, 1, 1)), "block", "ck.config")
wrong("call: named twice", lambda w: w.saxpy(w.s, w.one, 2.0, w.v, w.v, 8, a=3.0), "saxpy", "a", "twice")
wrong("call: two dtypes", lambda w: w.saxpy(w.s, w.one, 2.0, w.v, w.i, 8), "saxpy", "float", "int")
wrong("call: a list", lambda w: w.fill(w.s, w.one, [1.0, 2.0], 2), "out", "list")
wrong("call: a number for a pointer", lambda w: w.fill(w.s, w.one, 0, 2), "out", "0")
wrong("call: text for a pointer", lambda w: w.fill(w.s, w.one, "x", 2), "out", "'x'")
wrong("call: another dtype", lambda w: w.fill(w.s, w.one, w.i, 2), "out", "float", "int32")
wrong("call: not contiguous", lambda w: w.fill(w.s, w.one, w.v[::2], 2), "out", "contiguous")
wrong("call: transposed", lambda w: w.fill(w.s, w.one, w.x.T, 2), "out", "contiguous")
wrong("call: an array for a number", lambda w: w.fill(w.s, w.one, w.v, w.i), "n", "int32")
wrong("call: a function", lambda w: w.fill(w.s, w.one, w.v, len), "n", "builtin_function_or_method")
wrong("call: a dict", lambda w: w.fill(w.s, w.one, w.v, {}), "n", "dict")
wrong("call: a set", lambda w: w.fill(w.s, w.one, w.v, {1}), "n", "set")
wrong("call: a generator", lambda w: w.fill(w.s, w.one, w.v, (k for k in ())), "n", "generator")
wrong("call: bytes", lambda w: w.fill(w.s, w.one, w.v, b"1"), "n", "bytes")
wrong("call: a class", lambda w: w.fill(w.s, w.one, w.v, np.int32), "n", "type")
wrong("call: a date", lambda w: w.fill(w.s, w.one, w.v, np.datetime64("2026-01-01")), "n", "datetime64")
wrong("call: objects", lambda w: w.fill(w.s, w.one, np.array([None]), 1), "out", "object")
wrong("call: text array", lambda w: w.fill(w.s, w.one, np.array(["a"]), 1), "out", "<U1")
wrong("call: None for a number", lambda w: w.fill(w.s, w.one, w.v, None), "n", "None")
wrong("call: Ellipsis", lambda w: w.fill(w.s, w.one, w.v, ...), "n", "ellipsis")
wrong("call: a kernel", lambda w: w.fill(w.s, w.one, w.v, w.fill), "n", "Kernel")
wrong("int: a float", lambda w: w.give(0, 2.5), "i", "2.5", "int")
wrong("int: text", lambda w: w.give(0, "2"), "i", "'2'")
wrong("int: too large", lambda w: w.give(0, 2**31), "i", "2147483648", "outside", kind=ck.RangeError)
wrong("int: far too large", lambda w: w.give(0, 2**70), "i", str(2**70), kind=ck.RangeError)
wrong("int: NaN", lambda w: w.give(0, float("nan")), "i", "nan")
wrong("int: None", lambda w: w.give(0, None), "i", "None")
wrong("int: complex", lambda w: w.give(0, 1j), "i", "1j")
wrong("int: a tuple", lambda w: w.give(0, (1,)), "i", "(1,)")
wrong("int: float64 of NumPy", lambda w: w.give(0, np.float64(1.5)), "i", "1.5")
wrong("float: text", lambda w: w.give(1, "1.0"), "f", "'1.0'")
wrong("float: too large", lambda w: w.give(1, 1e39), "f", "1e+39", kind=ck.RangeError)
wrong("float: a huge int", lambda w: w.give(1, 10**400), "f", "too large", kind=ck.RangeError)
wrong("float: complex", lambda w: w.give(1, 1j), "f", ".real")
wrong("float: a list", lambda w: w.give(1, [1.0]), "f", "list")
wrong("uchar: 300", lambda w: w.give(3, 300), "c", "300", "255", kind=ck.RangeError)
wrong("uchar: negative", lambda w: w.give(3, -1), "c", "-1", kind=ck.RangeError)
wrong("vector: too few", lambda w: w.give(4, (1, 2, 3)), "v", "4 numbers", "3")
wrong("vector: too many", lambda w: w.give(4, (1, 2, 3, 4, 5)), "v", "4 numbers", "5")
wrong("vector: a number", lambda w: w.give(4, 1.0), "v", "4 numbers")
wrong("vector: text", lambda w: w.give(4, ("a", 2, 3, 4)), "v", "'a'")
wrong("vector: None in it", lambda w: w.give(4, (None, 2, 3, 4)), "v", "None")
wrong("vector: two dimensions", lambda w: w.give(4, np.ones((2, 2), np.float32)), "v", "(2, 2)")
wrong("struct: a tuple", lambda w: w.give(5, (1.0, 2)), "p", "struct")
wrong("struct: a dict", lambda w: w.give(5, {"a": 1, "b": 2}), "p", "dict")
wrong("struct: a number", lambda w: w.give(5, 1.0), "p", "struct")
wrong("struct: the class", lambda w: w.give(5, Params), "p", "type")
wrong("struct: a field that is text", lambda w: w.give(5, Params("x", 2)), "a", "'x'")  # type: ignore[arg-type]
wrong("struct: a field out of range", lambda w: w.give(5, Params(1.0, 2**40)), "b", str(2**40), kind=ck.RangeError)
wrong("struct: a field of None", lambda w: w.give(5, Params(None, 2)), "a", "None")  # type: ignore[arg-type]
wrong("struct: other fields", lambda w: w.give(5, np.zeros((), [("a", "f8")])[()]), "p", "Params")
wrong("plan: no stream", lambda w: w.fill.plan(None, w.one, w.v, 8), "stream", "NoneType")
wrong("plan: no config", lambda w: w.fill.plan(w.s, 32, w.v, 8), "configuration", "int")
wrong("plan: too few", lambda w: w.fill.plan(w.s, w.one, w.v), "fill", "n is missing")
wrong("plan: host arrays", lambda w: w.fill.plan(w.s, w.one, ck.Out(w.h), 8), "fill", "ck.Out")
wrong("plan: dtype", lambda w: w.fill.plan(w.s, w.one, w.i, 8), "out", "int32")
wrong("globals: no name", lambda w: ck.Kernel(OTHERS, "fill").globals["tabel"], "tabel", "table", kind=KeyError)
wrong("globals: name is no str", lambda w: w.fill.globals[3], "3", "table")
wrong("globals: wrong size", lambda w: w.fill.globals.write("table", np.ones(5, "f4"), w.s), "table", "5")
wrong("globals: text", lambda w: w.fill.globals.write("table", "x", w.s), "table", "'x'")
wrong("globals: None", lambda w: w.fill.globals.write("table", None, w.s), "table", "None")
wrong("globals: too large", lambda w: w.fill.globals.write("table", 1e300, w.s), "table", "1e+300", kind=ck.RangeError)
wrong("globals: stream", lambda w: w.fill.globals.read("table", 3), "stream", "int")
# ── configurations, options ──────────────────────────────────────────────────────────────────────────────────────────

wrong("config: text", lambda w: ck.config("1", 32), "grid", "'1'")
wrong("config: float", lambda w: ck.config(1.5, 32), "grid", "1.5")
wrong("config: negative", lambda w: ck.config(-1, 32), "grid", "-1")
wrong("config: no block", lambda w: ck.config(1, 0), "block", "0")
wrong("config: None", lambda w: w.fill(w.s, ck.config(1, None), w.v, 8), "the number of threads in a block")
wrong("config: four", lambda w: ck.config((1, 1, 1, 1), 32), "grid", "(1, 1, 1, 1)")
wrong("config: none", lambda w: ck.config((), 32), "grid", "()")
wrong("config: bool", lambda w: ck.config(True, 32), "grid", "True")
wrong("config: bytes", lambda w: ck.config(1, 32, shared_bytes=-1), "shared_bytes", "-1")
wrong("config: bytes as a float", lambda w: ck.config(1, 32, shared_bytes=1.0), "shared_bytes", "1.0")
wrong("config: cluster", lambda w: ck.config(3, 32, cluster=2), "cluster", "2", "3")
wrong("config: cluster text", lambda w: ck.config(4, 32, cluster="2"), "cluster", "'2'")
wrong("config: array", lambda w: ck.config(np.arange(3), 32), "grid")
wrong("config: set", lambda w: ck.config({1, 2}, 32), "grid", "{1, 2}")
wrong("config: list in a list", lambda w: ck.config([[1]], 32), "grid", "[[1]]")
wrong("cover: array", lambda w: ck.cover(w.v), "array", ".size")
wrong("cover: None", lambda w: ck.cover(None), "shape", "None")
wrong("cover: text", lambda w: ck.cover("8"), "shape", "8")
wrong("cover: float", lambda w: ck.cover(8.0), "shape", "8.0")
wrong("cover: negative", lambda w: ck.cover(-8), "shape", "-8")
wrong("cover: four", lambda w: ck.cover((1, 2, 3, 4)), "(1, 2, 3, 4)", "three")
wrong("cover: block", lambda w: ck.cover(8, block=0), "block", "0")
wrong("cover: block text", lambda w: ck.cover(8, block="x"), "block", "'x'")
wrong("cover: dict", lambda w: ck.cover({}), "shape", "{}")
wrong("launch: too many threads", lambda w: w.fill(w.s, ck.config(1, 2048), w.v, 8), "fill", "2048")
wrong("launch: too large a grid", lambda w: w.fill(w.s, ck.config((1, 70000), 32), w.v, 8), "grid.y", "70000")
wrong("launch: shared memory", lambda w: w.fill(w.s, ck.config(1, 32, 2**24), w.v, 8), "shared", str(2**24))
wrong("options: unknown", lambda w: ck.CompileOptions().replace(fast=True), "fast", "fast_math")
wrong("options: std", lambda w: ck.Kernel(SAXPY, options=ck.CompileOptions(std=17)), "std", "17")
wrong("options: registers", lambda w: ck.CompileOptions(max_registers="32"), "max_registers", "'32'")
wrong("options: negative registers", lambda w: ck.CompileOptions(max_registers=-1), "max_registers", "-1")
wrong("options: defines", lambda w: ck.CompileOptions(defines=5), "defines", "5")
wrong("options: defines of three", lambda w: ck.CompileOptions(defines=[("A", 1, 2)]), "defines", "A")
wrong("options: include_paths", lambda w: ck.CompileOptions(include_paths=5), "include_paths", "5")
wrong("options: include_paths of numbers", lambda w: ck.CompileOptions(include_paths=[5]), "include_paths", "5")
wrong("options: extra", lambda w: ck.CompileOptions(extra=5), "extra", "5")
wrong("options: extra as a list", lambda w: ck.CompileOptions(extra=["-O3"]), "extra", "-O3")
wrong("options: extra of a dict", lambda w: ck.CompileOptions(extra={"x": {}}), "extra", "x", "{}")
wrong(
    "options: extra that there is not",
    lambda w: ck.Kernel(OTHERS, "fill", options=ck.CompileOptions(extra={"no_such": 1}))(w.s, w.one, w.v, 8),
    "no_such",
)
wrong(
    "options: std of none",
    lambda w: ck.Kernel(OTHERS, "fill", options=ck.CompileOptions(std="c++1999"))(w.s, w.one, w.v, 8),
    "c++1999",
)
wrong("options: fast_math", lambda w: ck.CompileOptions(fast_math="yes"), "fast_math", "'yes'")

# ── streams, traces, timers ──────────────────────────────────────────────────────────────────────────────────────────

wrong("using: None", lambda w: ck.using(None).__enter__(), "stream", "NoneType")
wrong("using: a number", lambda w: ck.using(3).__enter__(), "stream", "int")
wrong("limits: a number", lambda w: ck.device_limits(3), "stream", "int")
wrong("emulator: arch", lambda w: ck.emulator.stream("hopper"), "arch", "hopper")
wrong("emulator: arch is a number", lambda w: ck.emulator.stream(90), "arch", "90")
wrong("emulator: budget", lambda w: ck.emulator.stream(step_budget="many"), "step_budget", "'many'")
wrong("emulator: negative budget", lambda w: ck.emulator.stream(step_budget=-1), "step_budget", "-1")
wrong("emulator: output", lambda w: ck.emulator.stream(output=3), "output", "3")
wrong("emulator: waits for None", lambda w: ck.emulator.stream().wait(None), "wait", "NoneType")
wrong("emulator: records a number", lambda w: ck.emulator.stream().record(3), "event", "int")
wrong("emulator: event minus", lambda w: ck.emulator.stream().record() - 3, "event", "int")
wrong("emulator: no PTX", lambda w: ck.emulator.parse("void f() {}"), ".version")
wrong("emulator: PTX is no str", lambda w: ck.emulator.parse(3), "PTX", "int")
wrong("emulator: PTX as bytes", lambda w: ck.emulator.parse(b".version 8.0"), "PTX", "bytes")
wrong("timer: no stream", lambda w: ck.Timer(3), "stream", "int")
wrong("timer: None", lambda w: ck.Timer(None), "stream", "NoneType")
wrong("timer: not started", lambda w: ck.Timer(w.s).lap(), "timer", "start")
wrong("timer: not measured", lambda w: ck.Timer(w.s).elapsed_ms, "timer", "not started")
wrong("trace: max_spans", lambda w: ck.trace(max_spans=0), "max_spans", "0")
wrong("trace: streams", lambda w: ck.trace([w.s]), "streams", "list")
wrong("trace: no stream", lambda w: ck.trace({"a": 3}), "a", "int")
wrong("trace: name", lambda w: ck.trace({3: w.s}), "streams", "3")
wrong("trace: read before", lambda w: ck.trace().spans, "block")
wrong("kernel: arch is a number", lambda w: ck.Kernel(SAXPY, arch=90)[np.float32].compile(), "saxpy", "90")
wrong("compile: arch of PTX", lambda w: w.saxpy[np.float32].compile(arch="compute_90"), "compute_90")
wrong("hazards: after", lambda w: hazards.ordered(w.s, after=3), "stream", "int")
wrong("hazards: ordered", lambda w: hazards.ordered(3, after=w.s), "stream", "int")

# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────────

wrong("empty: kind", lambda w: ck.empty(4, np.float32, "shared"), "kind", "'shared'")
wrong("empty: kind is a list", lambda w: ck.empty(4, np.float32, []), "kind", "[]")
wrong("empty: shape text", lambda w: ck.empty("4", np.float32), "shape", "'4'")
wrong("empty: shape float", lambda w: ck.empty(4.0, np.float32), "shape", "4.0")
wrong("empty: shape None", lambda w: ck.empty(None, np.float32), "shape", "None")
wrong("empty: negative", lambda w: ck.empty((2, -1), np.float32), "shape", "-1")
wrong("empty: dtype", lambda w: ck.empty(4, "no such"), "dtype", "no such")
wrong("empty: dtype number", lambda w: ck.empty(4, 3), "dtype", "3")
wrong("empty: objects", lambda w: ck.empty(4, object), "dtype", "object")
wrong("empty: stream", lambda w: ck.empty(4, np.float32, stream=3), "stream", "int")
wrong("empty: too much", lambda w: ck.empty(2**60, np.float64, stream=w.s), f"{2**63:,}")
wrong("empty: overflow", lambda w: ck.empty((2**62, 2**62), np.float64), "shape", str(2**62))
wrong("empty: dimensions", lambda w: ck.empty((1,) * 70, np.float32), "shape", "64")
wrong("allocated: kind", lambda w: ck.allocated(4, np.float32, "x").__enter__(), "kind", "'x'")
wrong("to_device: a list", lambda w: ck.to_device([1, 2], w.s), "array", "list", "numpy.asarray")
wrong("to_device: None", lambda w: ck.to_device(None, w.s), "array", "NoneType")
wrong("to_device: objects", lambda w: ck.to_device(np.array([None]), w.s), "array", "object")
wrong("to_device: text", lambda w: ck.to_device("x", w.s), "array", "str")
wrong("to_device: stream", lambda w: ck.to_device(w.h, 3), "stream", "int")
wrong("to_host: a list", lambda w: ck.to_host([1], w.s), "array", "list")
wrong("to_host: stream", lambda w: ck.to_host(w.v, 3), "stream", "int")
wrong("to_host: out shape", lambda w: ck.to_host(w.v, w.s, np.empty(3, np.float32)), "out", "(3,)", "(8,)")
wrong("to_host: out dtype", lambda w: ck.to_host(w.v, w.s, np.empty(8)), "out", "float64")
wrong("to_host: out list", lambda w: ck.to_host(w.v, w.s, [0] * 8), "out", "list")
wrong("host_view: a number", lambda w: memory.host_view(3), "int")
wrong("host_view: None", lambda w: memory.host_view(None), "NoneType")
wrong("prefetch: to", lambda w: memory.prefetch(w.v, w.s, "disk"), "'disk'")
wrong("prefetch: stream", lambda w: memory.prefetch(w.v, 3), "stream", "int")
wrong("prefetch: no array", lambda w: memory.prefetch(3, w.s), "prefetch")
wrong("limit: text", lambda w: memory.limit("1 GB"), "'1 GB'")
wrong("limit: zero", lambda w: memory.limit(0), "0")
wrong("limit: float", lambda w: memory.limit(1e9), "1000000000.0")
wrong("limit: kind", lambda w: memory.limit(1, "gpu"), "kind", "'gpu'")
wrong("In: a list", lambda w: ck.In([1]), "ck.In", "list")
wrong("In: a number", lambda w: ck.In(3), "ck.In", "int")
wrong("Out: None", lambda w: ck.Out(None), "ck.Out", "NoneType")
wrong("InOut: text", lambda w: ck.InOut("x"), "ck.InOut", "str")
wrong("In: objects", lambda w: ck.In(np.array([None])), "ck.In", "object")
wrong("In: dtype", lambda w: w.fill(w.s, w.one, ck.InOut(np.arange(8)), 8), "out", "int64")
wrong("copy: no array", lambda w: memory.copy(3, w.v, w.s), "copy", "target", "int")
wrong("copy: a list", lambda w: memory.copy(w.v, [1], w.s), "copy", "source", "list")
wrong("copy: shapes", lambda w: memory.copy(w.v, w.x, w.s), "copy", "(8,)", "(2, 3)")
wrong("copy: dtypes", lambda w: memory.copy(w.v, w.i, w.s), "copy", "float32", "int32")
wrong("copy: stream", lambda w: memory.copy(w.v, w.v, 3), "stream", "int")
wrong("pitched: shape", lambda w: memory.empty_pitched("x", "f4"), "shape", "'x'")
wrong("pitched: a row", lambda w: memory.empty_pitched((3,), "f4"), "shape", "(3,)")
wrong("pitched: dtype", lambda w: memory.empty_pitched((2, 3), "nope"), "dtype", "'nope'")
wrong("pitched: kind", lambda w: memory.empty_pitched((2, 3), "f4", "x"), "kind", "'x'")
wrong("register: a list", lambda w: memory.register([1]), "register", "list")
wrong("register: objects", lambda w: memory.register(np.array([None])), "register", "object")
wrong("to_device: out", lambda w: ck.to_device(w.h, w.s, out=3), "to_device", "out", "int")
wrong("to_device: out shape", lambda w: ck.to_device(w.h, w.s, out=w.x), "to_device", "out", "(2, 3)")
wrong("surface: None", lambda w: ck.surface(None), "surface", "NoneType")
wrong("surface: dtype", lambda w: ck.surface(w.x.astype("f8")), "surface", "float64")
wrong("surface: channels", lambda w: ck.surface(w.x, channels=[1]), "channels", "[1]")
wrong("texture: a list", lambda w: ck.texture([[1.0]]), "texture", "list")
wrong("texture: None", lambda w: ck.texture(None), "texture", "NoneType")
wrong("texture: filter", lambda w: ck.texture(w.x, filter="cubic"), "filter", "'cubic'")
wrong("texture: address", lambda w: ck.texture(w.x, address="repeat"), "address", "'repeat'")
wrong("texture: address number", lambda w: ck.texture(w.x, address=3), "address", "3")
wrong("texture: address None", lambda w: ck.texture(w.x, address=None), "address", "None")
wrong("texture: address list", lambda w: ck.texture(w.x, address=[["clamp"]]), "address", "clamp")
wrong("texture: addresses", lambda w: ck.texture(w.x, address=("clamp",) * 3), "address", "3")
wrong("texture: wrap", lambda w: ck.texture(w.x, address="wrap"), "address", "normalized")
wrong("texture: dtype", lambda w: ck.texture(w.x.astype("f8")), "float64")
wrong("texture: read", lambda w: ck.texture(w.x, read="int"), "read", "'int'")
wrong("texture: channels", lambda w: ck.texture(w.x, channels=3), "channels", "3")
wrong("texture: channels text", lambda w: ck.texture(w.x, channels="1"), "channels", "1")
wrong("texture: channels list", lambda w: ck.texture(w.x, channels=[1]), "channels", "[1]")
wrong("texture: memory", lambda w: ck.texture(w.x, memory="pitch"), "memory", "'pitch'")
wrong("texture: empty", lambda w: ck.texture(w.x[:0]), "(0, 3)")
wrong("texture: four", lambda w: ck.texture(w.v.reshape(1, 2, 2, 2)), "4 dimensions")
wrong("texture: number", lambda w: ck.texture(np.float32(1)), "texture")
wrong("tensor_map: box", lambda w: ck.tensor_map(w.v, (0,)), "box", "(0,)")
wrong("tensor_map: box number", lambda w: ck.tensor_map(w.v, 4), "box", "4")
wrong("tensor_map: box text", lambda w: ck.tensor_map(w.v, "4"), "box", "4")
wrong("tensor_map: box floats", lambda w: ck.tensor_map(w.v, (4.0,)), "box", "4.0")
wrong("tensor_map: box of two", lambda w: ck.tensor_map(w.v, (2, 4)), "box", "(2, 4)")
wrong("tensor_map: box None", lambda w: ck.tensor_map(w.v, None), "box", "None")
wrong("tensor_map: swizzle", lambda w: ck.tensor_map(w.v, (4,), swizzle="16B"), "swizzle", "'16B'")
wrong("tensor_map: swizzle list", lambda w: ck.tensor_map(w.v, (4,), swizzle=["32B"]), "swizzle", "32B")
wrong("tensor_map: fill", lambda w: ck.tensor_map(w.v, (4,), fill=0), "fill", "0")
wrong("tensor_map: steps", lambda w: ck.tensor_map(w.v, (4,), element_strides=(9,)), "element_strides", "9")
wrong("tensor_map: steps number", lambda w: ck.tensor_map(w.v, (4,), element_strides=1), "element_strides", "1")
wrong("tensor_map: a list", lambda w: ck.tensor_map([1.0] * 8, (4,)), "tensor_map", "list")
wrong("tensor_map: None", lambda w: ck.tensor_map(None, (4,)), "tensor_map", "None")
wrong("tensor_map: dtype", lambda w: ck.tensor_map(w.v.astype("c8"), (4,)), "complex64")

# ── ops ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

wrong("Kernel: a NUL", lambda w: ck.Kernel("\n__global__ void k() {}\0\n#error"), "NUL character in line 2")
wrong("Kernel: half a character", lambda w: ck.Kernel("__global__ void k() {} // \ud800"), "is no text", "\\ud800")
wrong("from_file: a NUL", lambda w: ck.Kernel.from_file(w.file("__global__ void k() {}\0")), "NUL character in line 1")
wrong(
    "compact: count in out",
    lambda w: ops.compact(w.i.astype("i8"), w.b, out=(out := w.xp.empty(8, "i8")), count=out[:1]),
    "compact: two outputs overlap",
)
for _name, _call in {
    "to_host: wait": lambda w: ck.to_host(w.v, w.s, wait="no"),
    "surface: layered": lambda w: ck.surface(w.x, layered="no"),
    "texture: layered": lambda w: ck.texture(w.x, layered="no"),
    "texture: normalized": lambda w: ck.texture(w.x, normalized="no"),
    "Pipeline: graph": lambda w: ck.Pipeline([lambda x, stream: x], graph="no"),  # type: ignore[arg-type]
    "ordered: wait": lambda w: hazards.ordered(w.s, after=w.s, wait="no"),
    "scale.map: ordered": lambda w: ck.scale.map(lambda x: x, [w.v], ordered="no"),  # type: ignore[arg-type]
    "testing.values: finite": lambda w: ck.testing.values(np.float32, finite="no"),  # type: ignore[arg-type]
    "testing.arrays: strided": lambda w: ck.testing.arrays(np.float32, strided="no"),  # type: ignore[arg-type]
    "testing.arrays: finite": lambda w: ck.testing.arrays(np.float32, finite="no"),  # type: ignore[arg-type]
    "config: cooperative": lambda w: ck.config(1, 1, cooperative="no"),  # type: ignore[arg-type]
}.items():
    wrong(f"a flag of text, {_name}", _call, f"{_name} is True or False, got 'no'")

_NAMED = """
    sum prod mean var std norm min max argmin argmax any all count_nonzero cumsum cumprod cummin cummax softmax
    log_softmax logsumexp layernorm rmsnorm flip copy transpose
"""
for _op in _NAMED.split():
    wrong(f"{_op}: a list", lambda w, op=_op: getattr(ops, op)([1, 2]), _op, "x", "list")
    wrong(f"{_op}: None", lambda w, op=_op: getattr(ops, op)(None), _op, "x", "NoneType")
    wrong(f"{_op}: out list", lambda w, op=_op: getattr(ops, op)(w.v, out=[0]), _op, "out", "list")
    wrong(
        f"{_op}: out shape", lambda w, op=_op: getattr(ops, op)(w.v, out=w.xp.empty((7, 7), "f4")), _op, "out", "(7, 7)"
    )
    wrong(f"{_op}: stream", lambda w, op=_op: getattr(ops, op)(w.v, stream=3), "stream", "int")
    if _op not in ("copy", "transpose"):
        wrong(f"{_op}: axis text", lambda w, op=_op: getattr(ops, op)(w.x, axis="rows"), _op, "axis", "'rows'")
        wrong(f"{_op}: axis float", lambda w, op=_op: getattr(ops, op)(w.x, axis=0.5), _op, "axis", "0.5")
        wrong(f"{_op}: axis 7", lambda w, op=_op: getattr(ops, op)(w.x, axis=7), _op, "axis 7", kind=ck.AxisError)
        wrong(f"{_op}: axis dict", lambda w, op=_op: getattr(ops, op)(w.x, axis={}), _op, "axis", "{}")
        wrong(f"{_op}: axis of lists", lambda w, op=_op: getattr(ops, op)(w.x, axis=[[0]]), _op, "axis", "[[0]]")
for _op in ("sum", "prod", "mean", "var", "std", "argmin", "argmax", "cumsum", "cumprod"):
    wrong(f"{_op}: dtype", lambda w, op=_op: getattr(ops, op)(w.v, dtype="no such"), _op, "dtype", "no such")
    wrong(f"{_op}: dtype object", lambda w, op=_op: getattr(ops, op)(w.v, dtype=object), _op, "object")
    wrong(f"{_op}: dtype number", lambda w, op=_op: getattr(ops, op)(w.v, dtype=3), _op, "dtype", "3")
    wrong(f"{_op}: dtype list", lambda w, op=_op: getattr(ops, op)(w.v, dtype=[1]), _op, "dtype", "[1]")
    wrong(f"{_op}: dtype dict", lambda w, op=_op: getattr(ops, op)(w.v, dtype={}), _op, "dtype")
for _op in ("cumsum", "cumprod", "cummin", "cummax"):
    wrong(f"{_op}: keys list", lambda w, op=_op: getattr(ops, op)(w.v, keys=[1]), _op, "keys", "list")
    wrong(f"{_op}: keys shape", lambda w, op=_op: getattr(ops, op)(w.v, keys=w.i[:3]), _op, "keys", "(3,)")
wrong("sum: bytes", lambda w: ops.sum(b"12"), "sum", "x", "bytes")
wrong("sum: objects", lambda w: ops.sum(np.array([None])), "sum", "object")
wrong("sum: texts", lambda w: ops.sum(np.array(["a"])), "sum", "<U1")
wrong("sum: dates", lambda w: ops.sum(np.array(["2026"], "M8[D]")), "sum", "datetime64")
wrong("sum: records", lambda w: ops.sum(np.zeros(3, [("a", "f4")])), "sum", "a")
wrong("sum: a number", lambda w: ops.sum(3), "sum", "x", "int")
wrong("sum: keepdims list", lambda w: ops.sum(w.x, axis=0, keepdims=[]), "sum", "keepdims", "[]")
wrong("sum: keepdims text", lambda w: ops.sum(w.x, axis=0, keepdims="no"), "sum", "keepdims", "'no'")
wrong("sum: masked", lambda w: ops.sum(np.ma.masked_array([1.0, 2.0], [0, 1])), "mask")
wrong("var: ddof", lambda w: ops.var(w.v, ddof="x"), "var", "ddof", "'x'")
wrong("std: ddof None", lambda w: ops.std(w.v, ddof=None), "std", "ddof", "None")
wrong("var: ddof NaN", lambda w: ops.var(w.v, ddof=float("nan")), "var", "ddof", "nan")
wrong("norm: ord", lambda w: ops.norm(w.v, ord="nuc"), "norm", "ord", "nuc")
wrong("norm: ord list", lambda w: ops.norm(w.v, ord=[2]), "norm", "ord", "[2]")
wrong("dot: lengths", lambda w: ops.dot(w.v, w.v[:3]), "dot", "(3,)")
wrong("dot: matrices", lambda w: ops.dot(w.x, w.x), "dot", "(2, 3)")
wrong("dot: a list", lambda w: ops.dot(w.v, [1]), "dot", "y", "list")
wrong("cumsum: axis of several", lambda w: ops.cumsum(w.x, axis=(0, 1)), "cumsum", "axis", "(0, 1)")
wrong("cumsum: exclusive", lambda w: ops.cumsum(w.v, exclusive=[]), "cumsum", "exclusive", "[]")
wrong("layernorm: eps", lambda w: ops.layernorm(w.x, eps="x"), "layernorm", "eps", "'x'")
wrong("rmsnorm: weight", lambda w: ops.rmsnorm(w.x, w.v), "rmsnorm", "weight", "(8,)")
wrong("rmsnorm: weight list", lambda w: ops.rmsnorm(w.x, [1, 1, 1]), "rmsnorm", "weight", "list")
wrong("logsumexp: keepdims", lambda w: ops.logsumexp(w.x, 0, []), "logsumexp", "keepdims", "[]")
wrong("transpose: axes", lambda w: ops.transpose(w.x, (0, 2)), "transpose", "axes", "2", kind=ck.AxisError)
wrong("transpose: too few", lambda w: ops.transpose(w.x, (0,)), "transpose", "axes", "(0,)")
wrong("transpose: an int", lambda w: ops.transpose(w.x, 0), "transpose", "axes", "0")
wrong("transpose: text", lambda w: ops.transpose(w.x, "01"), "transpose", "axes", "01")
wrong("transpose: floats", lambda w: ops.transpose(w.x, (1.0, 0.0)), "transpose", "axes", "1.0")
wrong("roll: text", lambda w: ops.roll(w.v, "1"), "roll", "shift", "'1'")
wrong("roll: float", lambda w: ops.roll(w.v, 1.5), "roll", "shift", "1.5")
wrong("roll: None", lambda w: ops.roll(w.v, None), "roll", "shift", "None")
wrong("roll: bool", lambda w: ops.roll(w.x, 1, axis=True), "roll", "axis", "True")
wrong("roll: counts", lambda w: ops.roll(w.x, (1, 2, 3), (0, 1)), "roll", "3 shifts", "2 axes")
wrong("roll: empty", lambda w: ops.roll(w.x, (), (0, 1)), "roll", "shift")
wrong("pad: width text", lambda w: ops.pad(w.v, "x"), "pad", "width", "'x'")
wrong("pad: width None", lambda w: ops.pad(w.v, None), "pad", "width", "None")
wrong("pad: width float", lambda w: ops.pad(w.v, 1.5), "pad", "width", "1.5")
wrong("pad: negative", lambda w: ops.pad(w.v, -1), "pad", "width", "-1")
wrong("pad: pairs", lambda w: ops.pad(w.x, ((1, 1),) * 3), "pad", "width")
wrong("pad: mode", lambda w: ops.pad(w.v, 1, "nothing"), "pad", "mode", "'nothing'")
wrong("pad: mode list", lambda w: ops.pad(w.v, 1, ["edge"]), "pad", "mode", "edge")
wrong("pad: value", lambda w: ops.pad(w.v, 1, value="x"), "pad", "value", "'x'")
wrong("pad: value out of range", lambda w: ops.pad(w.i.astype("i1"), 1, value=300), "pad", "value", "300")
wrong("take: indices float", lambda w: ops.take(w.v, w.v), "take", "indices", "float32")
wrong("take: mode", lambda w: ops.take(w.v, w.i, mode="first"), "take", "mode", "'first'")
wrong("take: mode list", lambda w: ops.take(w.v, w.i, mode=["wrap"]), "take", "mode", "wrap")
wrong("take: bounds", lambda w: ops.take(w.v, w.i + 3, mode="raise"), "take", "8", kind=ck.BoundsError)
wrong("take: empty", lambda w: ops.take(w.v[:0], w.i), "take", "empty")
wrong("take: axis", lambda w: ops.take(w.v, w.i, axis=2), "take", "axis 2", kind=ck.AxisError)
wrong("take: axis several", lambda w: ops.take(w.x, w.i, axis=(0, 1)), "take", "axis", "(0, 1)")
wrong("compact: where list", lambda w: ops.compact(w.v, [True]), "compact", "where", "list")
wrong("compact: where shape", lambda w: ops.compact(w.x, w.b), "compact", "where", "(8,)")
wrong("compact: out", lambda w: ops.compact(w.v, w.b, out=w.x), "compact", "out", "(2, 3)")
wrong("compact: count", lambda w: ops.compact(w.v, w.b, count=w.v), "compact", "count", "(8,)")
wrong("compact: count number", lambda w: ops.compact(w.v, w.b, count=3), "compact", "count", "int")
wrong("compact: out list", lambda w: ops.compact(w.v, w.b, out=[0] * 8), "compact", "out", "list")
wrong("concatenate: none", lambda w: ops.concatenate([]), "concatenate", "[]")
wrong("concatenate: an array", lambda w: ops.concatenate(w.x), "concatenate", "arrays")
wrong("concatenate: numbers", lambda w: ops.concatenate([1, 2]), "concatenate", "arrays[0]", "int")
wrong("concatenate: shapes", lambda w: ops.concatenate([w.x, w.v]), "concatenate", "(8,)")
wrong("concatenate: None", lambda w: ops.concatenate(None), "concatenate", "None")
wrong("concatenate: axis", lambda w: ops.concatenate([w.v, w.v], axis=1), "concatenate", "axis 1", kind=ck.AxisError)
wrong("concatenate: axis text", lambda w: ops.concatenate([w.v, w.v], axis="x"), "concatenate", "axis", "'x'")
wrong("cast: dtype", lambda w: ops.cast(w.v, "no such"), "cast", "no such")
wrong("cast: dtype None", lambda w: ops.cast(w.v, [1]), "cast", "[1]")
wrong("cast: objects", lambda w: ops.cast(w.v, object), "cast", "object")
wrong("cast: dates", lambda w: ops.cast(w.v, "M8[D]"), "cast", "datetime64")
wrong("cast: texts", lambda w: ops.cast(w.v, "U3"), "cast", "<U3")
wrong("cast: out", lambda w: ops.cast(w.v, "f8", out=w.i), "cast", "out", "int32")
wrong("cast: a list", lambda w: ops.cast([1], "i4"), "cast", "x", "list")
wrong("histogram: bins", lambda w: ops.histogram(w.v, bins=0), "histogram", "bins", "0")
wrong("histogram: bins text", lambda w: ops.histogram(w.v, bins="auto"), "histogram", "bins", "'auto'")
wrong("histogram: bins float", lambda w: ops.histogram(w.v, bins=2.5), "histogram", "bins", "2.5")
wrong("histogram: bins None", lambda w: ops.histogram(w.v, bins=None), "histogram", "bins", "None")
wrong("histogram: edges", lambda w: ops.histogram(w.v, bins=[3, 2, 1]), "histogram", "bins", "ascend")
wrong("histogram: edge", lambda w: ops.histogram(w.v, bins=[1]), "histogram", "bins", "(1,)")
wrong("histogram: edges of text", lambda w: ops.histogram(w.v, bins=["a", "b"]), "histogram", "bins", "<U1")
wrong("histogram: ragged", lambda w: ops.histogram(w.v, bins=[[1], [2, 3]]), "histogram", "bins")
wrong("histogram: range", lambda w: ops.histogram(w.v, range=3), "histogram", "range", "3")
wrong("histogram: range order", lambda w: ops.histogram(w.v, range=(2, 1)), "histogram", "range", "(2, 1)")
wrong("histogram: range text", lambda w: ops.histogram(w.v, range="ab"), "histogram", "range", "'ab'")
wrong("histogram: weights", lambda w: ops.histogram(w.v, weights=w.v[:2]), "histogram", "weights", "(2,)")
wrong("histogram: weights list", lambda w: ops.histogram(w.v, weights=[1] * 8), "histogram", "weights", "list")
wrong("bincount: floats", lambda w: ops.bincount(w.v), "bincount", "float32")
wrong("bincount: minlength", lambda w: ops.bincount(w.i, minlength=-1), "bincount", "minlength", "-1")
wrong("bincount: minlength text", lambda w: ops.bincount(w.i, minlength="8"), "bincount", "minlength", "'8'")
wrong("bincount: weights", lambda w: ops.bincount(w.i, w.v[:2]), "bincount", "weights", "(2,)")
wrong("bincount: negative", lambda w: ops.bincount(w.i - 3), "bincount", "negative")
wrong("sort: list", lambda w: ops.sort([3, 1]), "sort", "x", "list")
wrong("sort: axis", lambda w: ops.sort(w.x, 2), "sort", "axis 2", kind=ck.AxisError)
wrong("sort: axis several", lambda w: ops.sort(w.x, (0, 1)), "sort", "axis", "(0, 1)")
wrong("sort: complex", lambda w: ops.sort(w.v.astype("c8")), "sort", "complex64")
wrong("sort: descending", lambda w: ops.sort(w.v, descending="yes"), "sort", "descending", "'yes'")
wrong("argsort: dtype", lambda w: ops.argsort(w.v, dtype="f4"), "argsort", "dtype", "float32")
wrong("sort_by_key: shapes", lambda w: ops.sort_by_key(w.v, w.x), "sort_by_key", "(2, 3)", "(8,)")
wrong("sort_by_key: out", lambda w: ops.sort_by_key(w.v, w.i, out=w.v), "sort_by_key", "out", "two")
wrong("partition: kth", lambda w: ops.partition(w.v, 8), "partition", "kth", "8")
wrong("partition: kth text", lambda w: ops.partition(w.v, "1"), "partition", "kth", "'1'")
wrong("argpartition: kth None", lambda w: ops.argpartition(w.v, None), "argpartition", "kth", "None")
wrong("topk: k", lambda w: ops.topk(w.v, 9), "topk", "k is 9", "8")
wrong("topk: k negative", lambda w: ops.topk(w.v, -1), "topk", "k", "-1")
wrong("topk: k float", lambda w: ops.topk(w.v, 2.0), "topk", "k", "2.0")
wrong("gaussian_blur: sigma", lambda w: ops.gaussian_blur(w.x, 3, -1), "gaussian_blur", "sigma", "-1")
wrong("box_blur: size", lambda w: ops.box_blur(w.x, "3"), "box_blur", "size", "'3'")
wrong("sobel: axis", lambda w: ops.sobel(w.x, -1), "sobel", "axis", "-1")
wrong("convolve2d: kernel", lambda w: ops.convolve2d(w.x, [["a"]]), "convolve2d", "kernel")
wrong("median3: a list", lambda w: ops.median3([[1.0]]), "median3", "image", "list")
wrong("erode: mode", lambda w: ops.erode(w.x, mode=3), "erode", "mode", "3")
wrong("dilate: value", lambda w: ops.dilate(w.x, value="black"), "dilate", "value", "'black'")
wrong("resize: shape", lambda w: ops.resize(w.x, (2, -1)), "resize", "columns", "-1")
wrong("resize: axes", lambda w: ops.resize(w.x, (2, 2), axes=3), "resize", "axes", "3")
wrong("warp_affine: matrix", lambda w: ops.warp_affine(w.x, 1), "warp_affine", "matrix")
wrong("rgb_to_gray: axis", lambda w: ops.rgb_to_gray(w.x, 4), "rgb_to_gray", "axis", "4", kind=ck.AxisError)
wrong("equalize: dtype", lambda w: ops.equalize(w.x), "equalize", "float32")
wrong("unique: complex", lambda w: ops.unique(w.v.astype("c8")), "unique", "complex64")
wrong("run_length: list", lambda w: ops.run_length([1, 1]), "run_length", "x", "list")
wrong("searchsorted: a", lambda w: ops.searchsorted(w.x, w.v), "searchsorted", "a", "(2, 3)")
wrong("searchsorted: side", lambda w: ops.searchsorted(w.v, w.v, "mid"), "searchsorted", "side", "'mid'")
wrong("searchsorted: sorter", lambda w: ops.searchsorted(w.v, w.v, sorter=w.v), "searchsorted", "sorter", "float32")
wrong("add: shapes", lambda w: ops.add(w.x, w.v), "add", "(8,)")
wrong("add: text", lambda w: ops.add(w.v, "x"), "add", "y", "str")
wrong("add: numbers", lambda w: ops.add(1, 2), "add", "array")
wrong("add: None", lambda w: ops.add(w.v, None), "add", "y", "NoneType")

# ── math, generated kernels ──────────────────────────────────────────────────────────────────────────────────────────

wrong("math: too few", lambda w: ck.math.add(w.v), "add", "x, y", "1")
wrong("math: too many", lambda w: ck.math.sqrt(w.v, w.v, w.v), "sqrt", "3")
wrong("math: a list", lambda w: ck.math.add(w.v, [1]), "add", "y", "list")
wrong("math: text", lambda w: ck.math.add(w.v, "1"), "add", "y", "str")
wrong("math: None", lambda w: ck.math.add(w.v, None), "add", "y", "NoneType")
wrong("math: shapes", lambda w: ck.math.add(w.x, w.v), "add", "(8,)")
wrong("math: dtype", lambda w: ck.math.bitwise_and(w.v, w.v), "bitwise_and", "float32")
wrong("math: objects", lambda w: ck.math.add(w.h, np.array([None] * 8)), "add", "y", "object")
wrong("math: out", lambda w: ck.math.add(w.v, 1, out=3), "add", "out", "int")
wrong("math: out shape", lambda w: ck.math.add(w.v, 1, out=w.x), "add", "(2, 3)")
wrong("math: out dtype", lambda w: ck.math.add(w.v, 1.5, out=w.xp.empty(8, "i4")), "add", "int32")
wrong("math: outs", lambda w: ck.math.divmod(w.v, 2, out=w.v), "divmod", "out", "1")
wrong("math: where", lambda w: ck.math.add(w.v, 1, where=w.v), "add", "where", "float32")
wrong("math: where list", lambda w: ck.math.add(w.v, 1, where=[True] * 8), "add", "where", "list")
wrong("math: where text", lambda w: ck.math.add(w.v, 1, where="x"), "add", "where", "str")
wrong("math: size", lambda w: ck.math.add(w.v, 1, size=3), "add", "size")
wrong("math: stream", lambda w: ck.math.add(w.v, 1, stream=3), "stream", "int")
wrong("math: dtype unknown", lambda w: ck.math.add(w.v, 1, dtype="nope"), "add", "dtype", "'nope'")
wrong("math: casting", lambda w: ck.math.add(w.v, 1, casting="nope"), "add", "casting", "'nope'")
wrong("math: block_size", lambda w: ck.math.add(w.v, 1, block_size="x"), "add", "block_size", "'x'")
wrong("math: range", lambda w: ck.math.add(w.i.astype("i1"), 300), "add", "300", kind=ck.RangeError)
wrong("math: dates", lambda w: ck.math.add(np.zeros(3, "M8[D]"), 1), "add", "datetime64")
wrong("elementwise: inputs", lambda w: ck.elementwise(3, "T z", "z = 1"), "3", "T x")
wrong("elementwise: outputs", lambda w: ck.elementwise("T x", None, "z = x"), "None")
wrong("elementwise: no output", lambda w: ck.elementwise("T x", "", "x"), "output")
wrong("elementwise: body", lambda w: ck.elementwise("T x", "T z", 3), "expression", "3")
wrong("elementwise: never set", lambda w: ck.elementwise("T x", "T z", "x + 1"), "z")
wrong("elementwise: name", lambda w: ck.elementwise("T x", "T z", "z = x", "a b"), "name", "'a b'")
wrong("elementwise: name number", lambda w: ck.elementwise("T x", "T z", "z = x", 3), "name", "3")
wrong("elementwise: both", lambda w: ck.elementwise("T x", "T x", "x = 1"), "x", "input and an output")
wrong("elementwise: type", lambda w: ck.elementwise("flaot x", "T z", "z = x"), "flaot", "float")
wrong("elementwise: no type", lambda w: ck.elementwise("x", "T z", "z = x"), "'x'")
wrong("elementwise: preamble", lambda w: ck.elementwise("T x", "T z", "z = x", preamble=3), "preamble", "3")
wrong("elementwise: options", lambda w: ck.elementwise("T x", "T z", "z = x", options=("-O3",)), "options", "-O3")
wrong(
    "elementwise: compile",
    lambda w: ck.elementwise("T x", "T z", "z = y", "el")(w.v),
    "y",
    "x, z",
    kind=ck.CompileError,
)
wrong("elementwise: undeducible", lambda w: ck.elementwise("T x", "U z", "z = x", "el")(w.v), "el", "U")
wrong(
    "elementwise: size",
    lambda w: ck.elementwise("raw T x", "T z", "z = x[0]", "el")(w.v, size="8"),
    "el",
    "size",
    "'8'",
)
wrong(
    "elementwise: size negative",
    lambda w: ck.elementwise("raw T x", "T z", "z = x[0]", "el")(w.v, size=-8),
    "size",
    "-8",
)
wrong(
    "elementwise: size float",
    lambda w: ck.elementwise("raw T x", "T z", "z = x[0]", "el")(w.v, size=8.0),
    "size",
    "8.0",
)
wrong(
    "elementwise: raw number", lambda w: ck.elementwise("raw T x, T y", "T z", "z = y", "el")(3, w.v), "el", "x", "raw"
)
wrong("reduction: map", lambda w: ck.reduction("T x", "T y", map=3, reduce="a + b"), "map", "3")
wrong("reduction: reduce", lambda w: ck.reduction("T x", "T y", map="x", reduce=""), "reduce", "''")
wrong("reduction: identity", lambda w: ck.reduction("T x", "T y", map="x", reduce="a + b", identity=0), "identity", "0")
wrong("reduction: post", lambda w: ck.reduction("T x", "T y", map="x", reduce="a + b", post="z = a"), "post", "y")
wrong("reduction: post number", lambda w: ck.reduction("T x", "T y", map="x", reduce="a + b", post=3), "post", "3")
wrong("reduction: acc", lambda w: ck.reduction("T x", "T y", map="x", reduce="a + b", acc=3), "acc", "3")
wrong("reduction: outputs", lambda w: ck.reduction("T x", "T y, T z", map="x", reduce="a + b"), "post")
wrong("reduction: name", lambda w: ck.reduction("T x", "T y", map="x", reduce="a + b", name=""), "name", "''")
_sum = ck.reduction("T x", "T y", map="x", reduce="a + b", name="total")
wrong("reduction: too many", lambda w: _sum(w.v, w.v, w.v), "total", "3")
wrong("reduction: axis", lambda w: _sum(w.v, axis=1), "total", "axis 1", kind=ck.AxisError)
wrong("reduction: axis text", lambda w: _sum(w.v, axis="x"), "total", "axis", "'x'")
wrong("reduction: nothing", lambda w: _sum(w.v[:0]), "total", "no elements")
wrong("reduction: keepdims", lambda w: _sum(w.x, axis=0, keepdims=[]), "total", "keepdims", "[]")
wrong("reduction: segments", lambda w: _sum(w.v, segments=[0, 8]), "total", "segments", "list")
wrong("reduction: segments floats", lambda w: _sum(w.v, segments=w.v), "total", "segments", "float32")
wrong("reduction: out", lambda w: _sum(w.v, out=3), "total", "out", "int")
wrong("reduction: outs", lambda w: _sum(w.v, out=(w.v, w.v)), "total", "out", "2")
wrong("reduction: size", lambda w: _sum(w.v, size="x"), "total", "size")
wrong("reduction: a list", lambda w: _sum([1]), "total", "x", "list")
wrong("reduction: stream", lambda w: _sum(w.v, stream=3), "stream", "int")
wrong("scan: map", lambda w: ck.scan("T x", "T y", map=None, reduce="a + b", identity="0"), "map", "None")
wrong("scan: identity", lambda w: ck.scan("T x", "T y", map="x", reduce="a + b", identity=0), "identity", "0")
wrong("scan: output", lambda w: ck.scan("T x", "T y", map="x", reduce="a + b", identity="0", output="z = item"), "y")
_running = ck.scan("T x", "T y", map="x", reduce="a + b", identity="0", name="running")
wrong("scan: axis", lambda w: _running(w.v, axis=1), "running", "axis 1", kind=ck.AxisError)
wrong("scan: axes", lambda w: _running(w.x, axis=(0, 1)), "running", "axis", "(0, 1)")
wrong("scan: out", lambda w: _running(w.v, out="x"), "running", "out", "str")
wrong("scan: a number", lambda w: _running(3), "running", "array")
wrong("scan: size", lambda w: _running(w.v, size=[]), "running", "size")
wrong("scan: initial", lambda w: _running(w.v, initial="x"), "running", "initial", "str")
wrong("scan: block_size", lambda w: _running(w.v, block_size=100), "running", "block_size", "100")
wrong("cumsum: initial", lambda w: ops.cumsum(w.v, initial=[1]), "cumsum", "initial", "[1]")


def _if(x: Any) -> Any:
    return x if x else -x


def _listed(x: Any) -> Any:
    return x.tolist()


def _text(x: Any) -> Any:
    return "x"


wrong("fuse: no function", lambda w: ck.fuse(3), "function", "3")
wrong("fuse: static", lambda w: ck.fuse(_if, static=("y",)), "y", "static")
wrong("fuse: static as a text", lambda w: ck.fuse(_if, static="xy"), "static", "xy")
wrong("fuse: static number", lambda w: ck.fuse(_if, static=3), "static", "3")
wrong("fuse: name", lambda w: ck.fuse(_if, name=3), "name", "3")
wrong("fuse: if", lambda w: ck.fuse(_if)(w.v), "_if", "test_wrong_calls.py")
wrong("fuse: method", lambda w: ck.fuse(_listed)(w.v), "_listed", "test_wrong_calls.py")
wrong("fuse: text", lambda w: ck.fuse(_text)(w.v), "_text", "str")
wrong("fuse: too few", lambda w: ck.fuse(_if)(), "_if", "x")
wrong("fuse: too many", lambda w: ck.fuse(_if)(w.v, w.v), "_if", "too many")
wrong("fuse: unknown", lambda w: ck.fuse(_if)(w.v, y=3), "_if", "'y'")
wrong("fuse: a list", lambda w: ck.fuse(lambda x: x + 1, name="plus")([1, 2]), "plus", "x", "list")
wrong("fuse: numbers", lambda w: ck.fuse(lambda x: x + 1, name="plus")(3), "plus", "array")
wrong("fuse: out", lambda w: ck.fuse(lambda x: x + 1, name="plus")(w.v, out=3), "plus", "out", "int")
wrong("fuse: stream", lambda w: ck.fuse(lambda x: x + 1, name="plus")(w.v, stream=3), "stream", "int")
wrong("fuse: objects", lambda w: ck.fuse(lambda x: x + 1, name="plus")(np.array([None])), "plus", "object")
wrong("fuse: constant list", lambda w: ck.fuse(lambda x: x * [1], name="plus")(w.v), "plus", "list")
wrong("fuse: constant text", lambda w: ck.fuse(lambda x: x + "1", name="plus")(w.v), "plus", "str")
wrong(
    "fuse: unhashable static",
    lambda w: ck.fuse(lambda x, k: x + k, static=("k",), name="plus")(w.v, [1]),
    "plus",
    "k",
    "[1]",
)
wrong("fuse: endless", lambda w: ck.fuse(_endless, name="endless")(w.v), "endless", "recursion")


def _endless(x: Any) -> Any:
    return _endless(x + 1)


# ── graphs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _graph(w: World) -> ck.Graph:
    with ck.capture(w.s, v=w.v) as graph:
        w.fill(w.s, w.one, w.v, 8)
    return graph


def _captured(w: World, **named: Any) -> None:
    with ck.capture(w.s, **named):
        w.fill(w.s, w.one, w.v, 8)


def _in_capture(w: World, call: Callable[[Any], Any]) -> None:
    with ck.capture(w.s) as graph:
        w.fill(w.s, w.one, w.v, 8)
        call(graph)


wrong("capture: no stream", lambda w: ck.capture(3).__enter__(), "stream", "int")
wrong("capture: None", lambda w: ck.capture(None).__enter__(), "stream", "NoneType")
wrong("capture: text", lambda w: _captured(w, v="x"), "v", "str")
wrong("capture: list", lambda w: _captured(w, v=[1]), "v", "list")
wrong("capture: None named", lambda w: _captured(w, v=None), "v", "NoneType")
wrong("capture: unused", lambda w: _captured(w, other=w.x), "other")
wrong("graph: name", lambda w: _graph(w)["y"], "'y'", "v", kind=ck.UnknownNameError)
wrong("graph: name number", lambda w: _graph(w)[3], "3", "v", kind=ck.UnknownNameError)
wrong("graph: name list", lambda w: _graph(w)[[]], "[]", "v")
wrong("graph: unknown change", lambda w: _graph(w)(w.s, y=w.v), "'y'", "v")
wrong("graph: number for an array", lambda w: _graph(w)(w.s, v=3), "v", "int")
wrong("graph: list for an array", lambda w: _graph(w)(w.s, v=[1]), "v", "list")
wrong("graph: dtype", lambda w: _graph(w)(w.s, v=w.i), "v", "int32")
wrong("graph: shape", lambda w: _graph(w)(w.s, v=w.v[:4]), "v", "(4,)")
wrong("graph: stream", lambda w: _graph(w).launch(3), "stream", "int")
wrong("graph: loop after", lambda w: _graph(w).loop(w.i[:1]), "graph.loop", "ended")
wrong("graph: loop flag", lambda w: _in_capture(w, lambda g: g.loop(3).__enter__()), "graph.loop", "flag", "int")
wrong("graph: loop list", lambda w: _in_capture(w, lambda g: g.loop([1]).__enter__()), "graph.loop", "flag", "list")
wrong("graph: loop limit", lambda w: _in_capture(w, lambda g: g.loop(w.i[:1], -1)), "limit", "-1")
wrong("graph: loop limit float", lambda w: _in_capture(w, lambda g: g.loop(w.i[:1], 1.5)), "limit", "1.5")
wrong("graph: loop limit bool", lambda w: _in_capture(w, lambda g: g.loop(w.i[:1], True)), "limit", "True")
wrong("graph: branch flag", lambda w: _in_capture(w, lambda g: g.branch(w.v[:0])), "graph.branch", "flag")
wrong("graph: launched inside", lambda w: _in_capture(w, lambda g: g.launch()), "graph", "after the block")
wrong("graph: timer inside", lambda w: _in_capture(w, lambda g: ck.Timer(w.s).start()), "captured")
wrong("graph: host arrays inside", lambda w: _in_capture(w, lambda g: w.fill(w.s, w.one, ck.Out(w.h), 8)), "capture")

# ── pipelines ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _same(x: Any, stream: Any) -> Any:
    return x


def _ran(w: World, source: Any, sink: Any = None, stages: Any = None) -> Any:
    with ck.Pipeline([_same] if stages is None else stages, stream=w.s) as made:
        return list(made(source)) if sink is None else made.run(source, sink)


wrong("pipeline: a function", lambda w: ck.Pipeline(_same), "list")
wrong("pipeline: none", lambda w: ck.Pipeline([]), "stage")
wrong("pipeline: None", lambda w: ck.Pipeline(None), "stages", "None")
wrong("pipeline: a number", lambda w: ck.Pipeline(3), "stages", "3")
wrong("pipeline: numbers", lambda w: ck.Pipeline([3]), "stage", "int")
wrong("pipeline: a kernel", lambda w: ck.Pipeline([w.fill]), "fill", "stage")
wrong("pipeline: text", lambda w: ck.Pipeline("blur"), "stage", "str")
wrong("pipeline: depth", lambda w: ck.Pipeline([_same], depth=0), "depth", "0")
wrong("pipeline: depth text", lambda w: ck.Pipeline([_same], depth="4"), "depth", "'4'")
wrong("pipeline: streams", lambda w: ck.Pipeline([_same], streams=1.5), "streams", "1.5")
wrong("pipeline: stream", lambda w: ck.Pipeline([_same], stream=3), "stream", "int")
wrong("pipeline: graph of host", lambda w: ck.Pipeline([pipeline.host(len)], graph=True), "graph")
wrong("pipeline: source", lambda w: _ran(w, 3), "source", "int")
wrong("pipeline: source None", lambda w: _ran(w, None), "source", "NoneType")
wrong("pipeline: source path", lambda w: _ran(w, "a.npy"), "a.npy", "from_npy")
wrong("pipeline: sink", lambda w: _ran(w, [w.h], 3), "sink", "int")
wrong("pipeline: sink None", lambda w: ck.Pipeline([_same], stream=w.s).run([w.h], None), "sink", "NoneType")
wrong("pipeline: sink list", lambda w: _ran(w, [w.h], []), "sink", "list")
wrong("pipeline: no result", lambda w: _ran(w, [w.h], stages=[lambda x, stream: None]), "stage", "None")
wrong("pipeline: a stage that fails", lambda w: _ran(w, [w.h], stages=[lambda x, stream: 1 / 0]), "stage", "division")
wrong("pipeline: objects", lambda w: _ran(w, [np.array([None])]), "object")
wrong("host: no function", lambda w: pipeline.host(3), "host", "int")
wrong("host: threads", lambda w: pipeline.host(len, threads=0), "threads", "0")
wrong("host: threads text", lambda w: pipeline.host(len, threads="2"), "threads", "'2'")
wrong("host: name", lambda w: pipeline.host(len, name=3), "name", "3")
wrong("device: no function", lambda w: pipeline.device(None), "device", "NoneType")
wrong("device: name", lambda w: pipeline.device(_same, name=b"x"), "name", "b'x'")
wrong("ahead: a number", lambda w: pipeline.ahead(3), "ahead", "int")
wrong("from_array: list", lambda w: pipeline.from_array([1]), "from_array", "list")
wrong("from_array: rows", lambda w: pipeline.from_array(w.h, 0), "rows", "0")
wrong("from_array: rows text", lambda w: pipeline.from_array(w.h, "2"), "rows", "'2'")
wrong("from_array: halo", lambda w: pipeline.from_array(w.h, 2, halo=-1), "halo", "-1")
wrong("from_array: no file", lambda w: pipeline.from_array("no/such.npy"), "no/such.npy")
wrong("from_array: no dimension", lambda w: pipeline.from_array(np.array(1)), "from_array", "rows")
wrong("from_array: objects", lambda w: pipeline.from_array(np.array([None])), "from_array", "object")
wrong("from_npy: number", lambda w: pipeline.from_npy(3), "from_npy", "int")
wrong("from_npy: numbers", lambda w: pipeline.from_npy([3]), "from_npy", "3")
wrong("from_npy: empty folder", lambda w: pipeline.from_npy(w.path), "from_npy", ".npy")
wrong("from_npy: no file", lambda w: list(pipeline.from_npy(["no/such.npy"])), "no/such.npy")
wrong("from_images: number", lambda w: pipeline.from_images(3), "from_images", "int")
wrong("from_images: mode", lambda w: pipeline.from_images([w.path / "a.png"], mode=3), "mode", "3")
wrong("from_images: mode of none", lambda w: pipeline.from_images([w.path / "a.png"], mode="XYZ"), "mode", "'XYZ'")
wrong("from_images: empty folder", lambda w: pipeline.from_images(w.path), "from_images", ".png")
wrong("from_socket: number", lambda w: pipeline.from_socket(3), "from_socket", "int")
wrong(
    "from_socket: max_bytes", lambda w: _with_socket(lambda s: pipeline.from_socket(s, max_bytes=0)), "max_bytes", "0"
)
wrong("from_zarr: number", lambda w: pipeline.from_zarr(3), "from_zarr")
wrong("to_array: list", lambda w: pipeline.to_array([1]), "to_array", "list")
wrong("to_array: rows", lambda w: _ran(w, [w.h], pipeline.to_array(np.empty(3, "f4"))), "to_array", "(3,)")
wrong("to_array: dtype", lambda w: _ran(w, [w.h], pipeline.to_array(np.empty(8, "i4"))), "to_array", "int32")
wrong("to_npy: number", lambda w: pipeline.to_npy(3), "to_npy", "int")
wrong("to_npy: None", lambda w: pipeline.to_npy(None), "to_npy", "NoneType")
wrong("to_npy: nothing", lambda w: _ran(w, [], pipeline.to_npy(w.path / "a.npy")), "to_npy", "no result")
wrong("to_images: number", lambda w: pipeline.to_images(3), "to_images", "int")
wrong("to_images: a file", lambda w: pipeline.to_images("frame.png"), "to_images", "frame.png", "folder")
wrong("to_images: one name", lambda w: pipeline.to_images(w.path, "frame.png"), "to_images", "frame.png", "{:06d}")
wrong("to_images: name number", lambda w: pipeline.to_images(w.path, 3), "to_images", "name", "3")
wrong("to_images: name field", lambda w: pipeline.to_images(w.path, "{x}.png"), "to_images", "{x}.png")
wrong("to_images: format", lambda w: pipeline.to_images(w.path, "{:06d}.xyz"), "to_images", ".xyz")
wrong("to_images: dtype", lambda w: _ran(w, [w.h.reshape(2, 4)], pipeline.to_images(w.path)), "uint8", "float32")
wrong("to_socket: number", lambda w: pipeline.to_socket(3), "to_socket", "int")
wrong("write_image: path", lambda w: pipeline.write_image(3, np.zeros((2, 2), "u1")), "path", "int")
wrong("write_image: channels", lambda w: pipeline.write_image(w.path / "a.png", np.zeros((2, 2, 7), "u1")), "(2, 2, 7)")
wrong("write_image: empty", lambda w: pipeline.write_image(w.path / "a.png", np.zeros((0, 2), "u1")), "(0, 2)")
wrong("write_image: suffix", lambda w: pipeline.write_image(w.path / "a.xyz", np.zeros((2, 2), "u1")), ".xyz")
wrong("map_array: list", lambda w: ck.Pipeline([_same], stream=w.s).map_array([1]), "list")
wrong("map_array: chunk", lambda w: ck.Pipeline([_same], stream=w.s).map_array(w.h, chunk=0), "0")
wrong("map_array: out", lambda w: ck.Pipeline([_same], stream=w.s).map_array(w.h, out=[1]), "out", "list")
wrong("map_array: out shape", lambda w: ck.Pipeline([_same], stream=w.s).map_array(w.h, np.empty(3)), "out", "(3,)")
wrong(
    "map_array: rows",
    lambda w: ck.Pipeline([lambda x, stream: x[:1]], stream=w.s).map_array(w.h),
    "map_array",
    "8",
    "1",
)


def _with_socket(call: Callable[[socket.socket], Any]) -> None:
    ends = socket.socketpair()
    try:
        call(ends[0])
    finally:
        for end in ends:
            end.close()


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────────

#: What the message says, and the exit status.
COMMANDS = {
    "cache explain no/such.cu": ("no/such.cu", 6),
    "cache explain {folder}": ("{folder}", 6),
    "cache explain {file} --kernel nothing": ("nothing", 4),
    "cache explain {file} --args float,,3": ("float,,3", 1),
    "cache explain {file} --args (": ("(", 1),
    "cache explain {file} --arch x": ("x", 4),
    "cache explain {file}": ("T", 4),
    "demo no/such.png": ("no/such.png", 6),
    "demo {file}": ("{file}", 1),
    "demo --arch x": ("x", 4),
}


# ── what is no error ─────────────────────────────────────────────────────────────────────────────────────────────────

#: C's and NumPy's own meaning, as docs/errors.md lists it, and what comes of it.
RIGHT: dict[str, tuple[Callable[[World], Any], Any]] = {
    "a bool for an int": (lambda w: w.give(0, True), None),
    "a wider integer": (lambda w: w.give(3, np.int64(200)), None),
    "an int for a float": (lambda w: w.give(1, 3), None),
    "a double for a float": (lambda w: w.give(1, np.float64(0.1)), None),
    "NaN for a float": (lambda w: w.give(1, float("nan")), None),
    "None for a pointer": (lambda w: w.fill(w.s, w.one, None, 0), None),
    "a list for a vector": (lambda w: w.give(4, [1, 2, 3, 4]), None),
    "bytes of a struct": (lambda w: w.give(5, np.void(b"12345678")), None),
    "an empty grid": (lambda w: w.fill(w.s, ck.config(0, 32), w.v, 8), None),
    "no extent": (lambda w: w.fill(w.s, ck.cover(0), w.v, 8), None),
    "int8 that overflows": (lambda w: ck.math.add(w.i.astype(np.int8), 127)[1], -128),
    "a division by 0": (lambda w: ck.math.divide(w.v, 0)[1], np.inf),
    "no dtype": (lambda w: ops.cast(w.i, None).dtype, np.float64),
    "no axis": (lambda w: ops.sum(w.x, axis=()).shape, (2, 3)),
    "an axis of NumPy": (lambda w: ops.sum(w.x, axis=np.int64(1)).shape, (2,)),
    "axes of NumPy": (lambda w: ops.sum(w.x, axis=np.array([0, 1])).shape, ()),
    "keepdims=1": (lambda w: ops.sum(w.x, axis=0, keepdims=1).shape, (1, 3)),
    "numbers as a mask": (lambda w: ops.compact(w.v, w.i).size, 7),
    "numbers alone": (lambda w: ck.math.add(1, 2).item(), 3),
    "an index beyond": (lambda w: ops.take(w.v, w.i + 100)[0], 4),
    "two dimensions": (lambda w: ops.bincount(w.i.reshape(2, 4)).shape, (8,)),
    "NaN in a histogram": (lambda w: ops.histogram(w.v * np.nan, 2, (0, 1))[0].sum(), 0),
    "a negative eps": (lambda w: bool(w.xp.isnan(ops.layernorm(w.x, eps=-1.0)).all()), True),
    "a mistake in a body": (lambda w: ck.Kernel("__global__ void f() { nonsense }").name, "f"),
}


# ── the test ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def world(stream: Any, xp: Any, tmp_path: Path) -> World:
    return World(stream, xp, tmp_path)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in WRONG])
def test_wrong_call(world: World, case: Wrong) -> None:
    with pytest.raises(ck.CudakitError) as raised:
        case.call(world)
    text = str(raised.value)
    assert [word for word in case.words if word not in text] == [], text
    assert isinstance(raised.value, case.kind)
    assert len(text) < 2500
    document = ck.report(raised.value)
    assert faults_of(json.loads(json.dumps(document)), reports.schema()) == []
    problem = document["problems"][0]
    if problem["kind"] != "compile":
        assert problem["text"] == text
        # With --budget a function of `support.costs` stands between a call and the compiler.
        assert problem["kind"] == "file" or problem["file"] in (__file__, costs.__file__)


@pytest.mark.parametrize("line", COMMANDS)
def test_wrong_command(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "saxpy.cu"
    file.write_text(SAXPY)
    known = {"folder": str(tmp_path), "file": str(file)}
    word, status = COMMANDS[line]
    assert cli.main(line.format(**known).split()) == status
    said = capsys.readouterr().err
    assert said.startswith("cudakit: ")
    assert word.format(**known) in said


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_no_error(world: World, name: str) -> None:
    call, wanted = RIGHT[name]
    got = call(world)
    world.s.sync()
    assert got is None if wanted is None else bool(got == wanted)


def test_python_itself_tells_of_plain_functions(world: World) -> None:
    with pytest.raises(TypeError, match="grid"):
        ck.config()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="axes"):
        ops.sum(world.v, axes=0)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="nothing"):
        ck.nothing  # type: ignore[attr-defined]


def test_every_class_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
    for name in vars(ck.errors):
        kind = getattr(ck.errors, name)
        if isinstance(kind, type) and issubclass(kind, ck.CudakitError) and kind is not ck.CudakitError:
            row = next(line for line in page.splitlines() if line.startswith(f"| `ck.{name}`"))
            builtin = [
                each.__name__ for each in kind.__mro__ if each.__module__ == "builtins" and each in kind.__bases__
            ]
            assert [each for each in builtin if f"`{each}`" not in row] == []
