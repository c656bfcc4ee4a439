"""The fuzzer: random kernels, each called some times; ``python -m support.fuzz.run --seconds 60`` from ``tests/``."""

from __future__ import annotations

import argparse
import collections
import itertools
import random
import re
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from support.fuzz import parameters as parts
from support.fuzz.judge import Held, Judge
from support.fuzz.numbers import DTYPES, WEIGHTS, Value, any_number, right, wrong
from support.fuzz.parameters import WEAK, Argument, Expected, Parameter

import cudakit as ck

_OUT_BYTES = 8192
_NAMES = [
    "a",
    "b",
    "x",
    "n",
    "K0",
    "L0",
    "H0",
    "stream",
    "config",
    "call",
    "check",
    "target",
    "values",
    "self",
    "lambda",
    "in",
    "is",
    "None_",
    "def",
    "launch_0",
    "shape_0",
    "extra",
    "type",
    "a_0_pack",
    "kernel_0",
    "fitting",
    "core",
    "reason",
    "MISSING",
    "x_reference",
    "args",
    "given",
    "named",
    "T0",
    "arguments",
    "k",
    "print",
    "min_",
    "_",
    "__call",
]
_KINDS = [
    parts.scalar,
    parts.scalar,
    parts.scalar,
    parts.enumeration,
    parts.vector,
    parts.pointer,
    parts.pointer,
    parts.strided,
    parts.struct,
    parts.struct,
]


class Finding(NamedTuple):
    """A call that did not go as it must."""

    seed: str
    what: str
    text: str
    arguments: str


class Case(NamedTuple):
    """A random kernel: its text, and what its parameters are."""

    text: str
    name: str
    parameters: list[tuple[str, Parameter]]
    pack: bool
    explicit: dict[str, str]


def a_case(random: random.Random) -> Case:
    """A random kernel with up to five parameters."""
    names = random.sample(_NAMES, 8)
    template, pack, explicit = [], False, {}
    chance = random.random()
    count = random.randint(0 if chance > 0.7 else 1, 3)
    made = [(names[number], random.choice(_KINDS)(random, number)) for number in range(count)]
    if 0.7 < chance < 0.92:
        template = random.choice([["typename T"], ["class T", "int N = 3"], ["typename T", "bool Flag = true"]])
        for number in range(random.randint(1, 3)):
            made.insert(random.randint(0, len(made)), (names[4 + number], parts.deduced(random, number, "T")))
        if random.random() < 0.3:
            code = random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            explicit = {"T": code}
    elif chance >= 0.92:
        template, pack = ["typename... Ts"], True
    name = random.choice(["k", "kernel", "call", "f0"])
    headers = sorted({header for _, one in made for header in one.headers} | parts.header_of(explicit.get("T", "")))
    before = (
        "".join(f"#include <{header}>\n" for header in headers)
        + parts.SUPPORT
        + parts.KINDS
        + "".join(one.before for _, one in made)
    )
    if pack:
        before += (
            "template <typename T> __device__ int tell(unsigned char*& out, T value) {"
            " put(out, kind_of<T>::value); put(out, (unsigned char)sizeof(T)); put(out, value); return 0; }\n"
        )
    head = ", ".join(
        ["unsigned char* OUT", *(one.text.format(name=name) for name, one in made), *(["Ts... rest"] if pack else [])]
    )
    body = "".join("    " + one.writes.format(name=name) + "\n" for name, one in made)
    if pack:
        body += "    int all[] = {0, tell(out, rest)...}; (void)all;\n"
    angled = f"template <{', '.join(template)}>" if template else ""
    kernel = (
        f"{angled}\n__global__ void {name}({head}) {{\n"
        f"    const unsigned long long flags = *(const unsigned long long*)OUT; (void)flags;\n"
        f"    unsigned char* out = OUT;\n{body}}}\n"
    )
    if random.random() < 0.15:
        kernel, name = f"namespace outer {{ namespace inner {{\n{kernel}}} }}\n", f"outer::inner::{name}"
    return Case(before + kernel, name, made, pack, explicit)


def the_arguments(random: random.Random, judge: Judge, case: Case) -> list[Argument]:
    """Random arguments for all parameters, those of a template together."""
    deduced = [one for _, one in case.parameters if one.deduces]
    of_template = iter(_deduced_arguments(random, judge, deduced, case.explicit.get("T")))
    made = [next(of_template) if one.deduces else one.make(random, judge) for _, one in case.parameters]
    if case.pack:
        made += [_of_pack(random, judge) for _ in range(random.randint(0, 3))]
    return made


def _deduced_arguments(
    random: random.Random, judge: Judge, deduced: list[Parameter], explicit: str | None
) -> list[Argument]:
    wanted = explicit or random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    given: list[tuple[Any, str | None, Any]] = []
    for one in deduced:
        code = wanted if random.random() < 0.9 else random.choice(list(DTYPES))
        dtype = DTYPES[code]
        if "{name}.element" in one.writes or "*{name}" in one.writes:
            array = np.frombuffer(
                bytes(random.choices(range(2 if code == "bool" else 120), k=3 * dtype.itemsize)), dtype
            ).copy()
            given.append((array, code, None))
        elif random.random() < 0.5:
            value = right(random, code)
            given.append(
                (value.value, value.given.type if isinstance(value.value, np.generic) and value.given else None, value)
            )
        else:
            value = any_number(random) if random.random() < 0.8 else wrong(random)
            if isinstance(value.value, np.ndarray):
                value = Value(object(), None)  # C++ deduces a pointer of an array, so does cudakit
            typed = isinstance(value.value, np.generic) or type(value.value).__module__ in ("ctypes", "_ctypes")
            given.append((value.value, value.given.type if typed and value.given else None, value))
    typed_codes = {code for _, code, _ in given if code is not None}
    told: str | None = explicit
    if explicit is None:
        if len(typed_codes) > 1 or not typed_codes <= set(DTYPES):
            return [Argument(value, None) for value, _, _ in given]
        told = next(iter(typed_codes), None) or next(
            (weak for value, _, _ in given if (weak := _weak(value)) is not None), None
        )
    result = []
    for value, code, number in given:
        expected: Expected = None
        if told is not None and isinstance(value, np.ndarray) and code is not None:
            expected = [Held(parts.kind_bytes(told)), Held(value.tobytes()[: value.itemsize])] if code == told else None
        elif told is not None and number is not None and number.given is not None:
            held = judge(told, number.given)
            expected = None if held is None else [Held(parts.kind_bytes(told)), held]
        result.append(Argument(value, expected))
    return result


def _weak(value: Any) -> str | None:
    """The type that C++ gives a literal of a Python number's value."""
    for kind, code in WEAK.items():
        if isinstance(value, kind) and not isinstance(value, np.generic):
            if code == "i4" and not -(2**31) <= value < 2**31:
                return "i8" if -(2**63) <= value < 2**63 else "u8" if 0 <= value < 2**64 else None
            return code
    return None


def _of_pack(random: random.Random, judge: Judge) -> Argument:
    value = any_number(random) if random.random() < 0.5 else right(random, random.choice(list(DTYPES)))
    if value.given is None or isinstance(value.value, np.ndarray):
        return Argument(object(), None)
    typed = isinstance(value.value, np.generic) or type(value.value).__module__ in ("ctypes", "_ctypes")
    code = value.given.type if typed else _weak(value.value)
    if code not in DTYPES:
        return Argument(value.value, None)
    held = judge(code, value.given)
    return Argument(value.value, None if held is None else [Held(parts.kind_bytes(code)), held])


def difference(written: bytes, expected: list[Held]) -> str | None:
    """In what the bytes that a kernel wrote differ from those expected."""
    at = 0
    for number, held in enumerate(expected):
        got = written[at : at + len(held.data)]
        at += len(held.data)
        if got == held.data:
            continue
        if held.with_nan:
            dtype = DTYPES[held.with_nan]
            real = dtype if dtype.kind != "c" else np.dtype(f"f{dtype.itemsize // 2}")
            pairs = zip(np.frombuffer(got, real), np.frombuffer(held.data, real), strict=True)
            if all((np.isnan(a) and np.isnan(b)) or a.tobytes() == b.tobytes() for a, b in pairs):
                continue
        return f"value {number} is {got.hex()}, must be {held.data.hex()}"
    return f"more was written: {written[at : at + 16].hex()}" if any(written[at:]) else None


class Fuzzer:
    """Runs cases and counts how their calls go.

    Attributes
    ----------
    counts : collections.Counter
        Calls by outcome; refusals of right calls by the error's beginning.
    findings : list of Finding
    """

    def __init__(self, folder: Path) -> None:
        self.judge = Judge(folder)
        self.counts: collections.Counter[str] = collections.Counter()
        self.findings: list[Finding] = []
        self.refusals: dict[str, tuple[str, str]] = {}

    def run(self, seed: str, calls: int = 12) -> None:
        """One random kernel, called `calls` times."""
        chosen = random.Random(seed)
        case = a_case(chosen)
        self.counts["kernels"] += 1
        stream = ck.emulator.stream()
        try:
            kernel: Any = ck.Kernel(case.text, case.name)
            if case.explicit:
                kernel = kernel[
                    DTYPES[case.explicit["T"]] if chosen.random() < 0.6 else parts.SPELLINGS[case.explicit["T"]][0]
                ]
        except ck.CudakitError as error:
            self._finding(seed, f"refused before any call: {error}", case, [])
            return
        for _ in range(calls):
            made = the_arguments(chosen, self.judge, case)
            if sum(one.expected is None for one in made) > 1 and chosen.random() < 0.7:
                continue  # one wrong argument hides another
            self._call(seed, case, kernel, stream, made, chosen.randrange(10))

    def _call(self, seed: str, case: Case, kernel: Any, stream: Any, made: list[Argument], way: int) -> None:
        out = np.zeros(_OUT_BYTES, np.uint8)
        flags = 0
        for number, ((_, one), argument) in enumerate(zip(case.parameters, made, strict=False)):
            shift = one.writes.partition("flags >> ")[2].partition(" ")[0]
            if shift and not (isinstance(argument.value, np.ndarray) and argument.value.size == 0):
                flags |= 1 << int(shift)
            del number
        out[:8] = np.frombuffer(flags.to_bytes(8, "little"), np.uint8)
        before = out.tobytes()
        values = [one.value for one in made]
        must_refuse = any(one.expected is None for one in made)
        self.counts["calls"] += 1
        config = ck.config(1, 1)
        try:
            if way == 0 and not case.pack:
                names = kernel.dispatcher.parameters[1:]
                kernel(stream, config, OUT=out, **dict(zip(names, values, strict=True)))
            elif way == 1:
                kernel.plan(stream, config, out, *values)()
            else:
                kernel(stream, config, out, *values)
            stream.sync()
        except ck.CudakitError as error:
            self.counts["refused, wrong" if must_refuse else "refused, right"] += 1
            words = str(error)
            if out.tobytes() != before:
                self._finding(seed, f"refused after it ran: {words}", case, made)
            if not must_refuse:
                start = re.sub(
                    r"\(.*?\)|got .*?;|got .*?:|\S+: parameter \S+|field \S+|[0-9.e+-]+", "", words.partition("\n")[0]
                )
                self.refusals.setdefault(
                    f"{type(error).__name__}: {start[:100]}", (seed, f"{words[:500]}\n{values!r}"[:900])
                )
            elif (
                isinstance(error, ck.ArgumentError)
                and not any(name in words for name, _ in case.parameters)
                and not case.pack
            ):
                self._finding(seed, f"an error that names no parameter: {words}", case, made)
            return
        except Exception:
            self._finding(seed, "another error:\n" + traceback.format_exc(limit=-4), case, made)
            return
        if must_refuse:
            self.counts["accepted, wrong"] += 1
            written = out.tobytes()[:64].hex()
            self._finding(seed, f"accepted, must be refused; wrote {written}", case, made)
            return
        self.counts["right"] += 1
        expected = [held for one in made for held in one.expected or ()]
        written = out.tobytes()
        if not any(one.expected for one in made):
            return
        size = sum(len(held.data) for held in expected)
        wrong_bytes = difference(written[: max(size, 8)] if size >= 8 else written[:size], expected)
        if wrong_bytes is not None:
            self._finding(seed, f"wrong: {wrong_bytes}", case, made)

    def _finding(self, seed: str, what: str, case: Case, made: list[Argument]) -> None:
        self.counts["FINDINGS"] += 1
        head = case.text.partition("__global__")[2].partition("{\n")[0]
        types = "".join(
            line + "\n" for line in case.text.replace(parts.SUPPORT, "").replace(parts.KINDS, "").splitlines()
        )
        shown = "\n".join(f"    {type(one.value).__name__} {one.value!r} expected {one.expected}" for one in made)
        self.findings.append(Finding(seed, what, f"{head}\n{types}", shown[:3000]))


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--case", help="run this one case only, as in a finding")
    parser.add_argument("--stop", type=int, default=10**9, help="end after so many findings")
    options = parser.parse_args(given)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder))
        start = time.monotonic()
        shown = 0
        seeds = [options.case] if options.case else (f"{options.seed}:{number}" for number in itertools.count())
        for seed in seeds:
            print(seed, file=sys.stderr, flush=True, end="\r")
            fuzzer.run(seed)
            for finding in fuzzer.findings[shown:]:
                print(f"── {finding.seed}: {finding.what}\n{finding.text}\n{finding.arguments}", flush=True)
            shown = len(fuzzer.findings)
            if time.monotonic() - start > options.seconds or shown >= options.stop:
                break
        print(dict(fuzzer.counts))
        for start_of, (seed, words) in fuzzer.refusals.items():
            print(f"refused, right: {start_of}\n    {seed}: {words}")
    return bool(fuzzer.findings)


if __name__ == "__main__":
    sys.exit(main())
