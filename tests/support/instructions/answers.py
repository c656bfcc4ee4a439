"""Answers of a GPU in a file: one line of JSON that says of what and where, then the results of all forms, in LZMA."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from support.instructions import values
from support.instructions.forms import Bound, Form, width

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Answers:
    """Results of forms on one GPU.

    Attributes
    ----------
    about : dict
        Card, driver and versions, and why forms were refused.
    results : dict
        Form's name → (digest of form and inputs, bytes of all its results).
    """

    about: dict[str, Any]
    results: dict[str, tuple[str, bytes]]

    def save(self, path: Path) -> None:
        """Write the file."""
        index = {name: [digest, len(data)] for name, (digest, data) in self.results.items()}
        head = json.dumps({"about": self.about, "forms": index}).encode()
        body = head + b"\n" + b"".join(data for _, data in self.results.values())
        path.write_bytes(lzma.compress(body, preset=9 | lzma.PRESET_EXTREME))

    @classmethod
    def load(cls, path: Path) -> Answers:
        """Read a file that `save` wrote."""
        head, body = lzma.decompress(path.read_bytes()).split(b"\n", 1)
        described = json.loads(head)
        results, place = {}, 0
        for name, (digest, size) in described["forms"].items():
            results[name] = (digest, body[place : place + size])
            place += size
        return cls(described["about"], results)


def split(form: Form, data: bytes) -> list[np.ndarray]:
    """The results of a form, an array of unsigned integers each."""
    found, place = [], 0
    for kind in form.results:
        size = width(kind) // 8
        found.append(np.frombuffer(data, f"u{size}", values.LANES, place))
        place += size * values.LANES
    return found


def differing(form: Form, ours: bytes, theirs: bytes) -> np.ndarray:
    """Lanes in which the results are not the same, or further apart than the form's bound."""
    wrong = np.zeros(values.LANES, bool)
    for kind, mine, answer in zip(form.results, split(form, ours), split(form, theirs), strict=True):
        wrong |= (mine != answer) if form.bound is None else _apart(kind, mine, answer, form.bound)
    return np.flatnonzero(wrong)


def _apart(kind: str, mine: np.ndarray, answer: np.ndarray, bound: Bound) -> np.ndarray:
    kind = kind.removeprefix("@")
    if kind.endswith("x2"):
        halves = [_apart(kind[:-2], *(np.asarray(x >> np.uint32(s)).astype(np.uint16) for x in (mine, answer)), bound)
                  for s in (0, 16)]  # fmt: skip
        return np.asarray(halves[0] | halves[1])
    exponent_bits, fraction_bits = values.FORMATS[kind]
    with np.errstate(all="ignore"):
        a, b = _floats(kind, mine), _floats(kind, answer)
        least = 2.0 ** (2 - (1 << exponent_bits - 1))
        place = np.exp2(np.floor(np.log2(np.maximum(np.abs(b), least))) - fraction_bits)
        # Half a unit in the last place is what the emulator's own rounding adds to the function's true value.
        allowed = bound.relative * np.abs(b) + bound.absolute + (bound.ulp + 0.5) * place
        near = (np.abs(a - b) <= allowed) & np.isfinite(a) & np.isfinite(b) & ((a != 0) | (b != 0))
        # Which NaN, the ISA leaves open.
        return np.asarray(~((mine == answer) | near | (np.isnan(a) & np.isnan(b))))


def _floats(kind: str, bits: np.ndarray) -> np.ndarray:
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return bits.view(f"f{bits.itemsize}").astype(np.float64)


def report(form: Form, ours: bytes, theirs: bytes, lanes: Iterable[int], inputs: tuple[np.ndarray, ...]) -> list[str]:
    """A line for each lane: inputs, what the emulator gives, what the GPU gave."""
    lines = []
    mine, answer = split(form, ours), split(form, theirs)
    for lane in lanes:
        given = ", ".join(f"{array[lane]:#x}" for array in inputs)
        both = [" ".join(f"{array[lane]:#x}" for array in side) for side in (mine, answer)]
        lines.append(f"lane {lane}: ({given}) gives {both[0]}, on the GPU {both[1]}")
    return lines
