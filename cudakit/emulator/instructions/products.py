"""D = A · B + C of stacks of small matrices, as tensor cores define it, in float64.

What the hardware does, and what is done here:

- integers and single bits: exact; the sum of all wraps at 32 bits, or is clamped to them (``.satfinite``). The same.
- f64: a chain of fused multiply-adds, each rounded, with k going up. The ISA leaves the order open.
- f16, bf16, tf32, fp8: products are exact, and so they are here, in float64. Order, width and rounding of the sum are
  open. Here it is a float64 sum rounded once to D's type u (2⁻²⁴ relative for f32, 2⁻¹¹ for f16), so that
  |D − exact| ≤ u |D| + (k + 1) 2⁻⁵³ S, with S = |C| + Σ |A · B|. Hardware aligns the products of 4 to 32 terms to the
  largest and cuts off what lies below its 24th bit or so, hence within (k + 1) 2⁻²³ S of the exact sum before it rounds
  to D; fp8 on sm_90 keeps about 14 bits, hence within (k + 1) 2⁻¹³ S. (Fasi, Higham, Mikaitis, Pranesh, "Numerical
  behavior of NVIDIA tensor cores", 2021, measured it up to sm_80.) Where every sum is a small integer both are exact.
- A NaN result is the canonical one (0x7fffffff, 0x7fff).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cudakit.emulator.instructions.fragments import BITS, INTEGERS
from cudakit.emulator.instructions.rounding import MODES, fma_f64
from cudakit.emulator.ptx.program import Instruction
from cudakit.errors import EmulationError

#: Types of C and D for each type of A.
RESULTS = {
    "f64": ("f64",), "bf16": ("f32",), "tf32": ("f32",),
    **dict.fromkeys(("f16", "e4m3", "e5m2"), ("f16", "f32")), **dict.fromkeys(INTEGERS, ("s32",)),
}  # fmt: skip
#: Types of A and B that may differ.
_PAIRS = ({"e4m3", "e5m2"}, {"s8", "u8"}, {"s4", "u4"})


def check_types(given: Instruction, a: str, b: str, *results: str) -> None:
    """Raise for types that do not go together."""
    if not (a == b or {a, b} in _PAIRS) or any(kind not in RESULTS.get(a, ()) for kind in results):
        raise EmulationError(str(given))


def multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray, kind: str, modifiers: Sequence[str]) -> np.ndarray:
    """A · B + C in float64, unrounded but for integers and f64.

    Parameters
    ----------
    a, b, c : numpy.ndarray
        Values, float64, (…, m, k), (…, k, n) and (…, m, n).
    kind : str
        PTX type of A's elements.
    modifiers : sequence of str
        Of the instruction: its rounding, ``satfinite``, ``xor``.
    """
    with np.errstate(all="ignore"):
        if kind == "f64":
            return _chain(a, b, c, next((m for m in modifiers if m in MODES), "rn"))
        product = a @ b
        if "xor" in modifiers:
            product = a.sum(-1)[..., :, None] + b.sum(-2)[..., None, :] - 2 * product
        total = product + c
        if kind not in INTEGERS:
            return np.asarray(total)
        # Exact so far: 256 products of 16 bits at most, and one integer of 32.
        if "satfinite" in modifiers:
            return np.asarray(np.clip(total, -(2.0**31), 2.0**31 - 1))
        return np.asarray(total.astype(np.int64).astype(np.int32))


def _chain(a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: str) -> np.ndarray:
    for k in range(a.shape[-1]):
        c = np.asarray(fma_f64(a[..., :, k, None], b[..., None, k, :], c, mode))
    return c


def types_of(modifiers: Sequence[str]) -> list[str]:
    """The element types among an instruction's modifiers, in their order."""
    return [modifier for modifier in modifiers if modifier in BITS]


def shape_of(modifiers: Sequence[str]) -> tuple[int, int, int]:
    """m, n and k of the modifier ``m16n8k16``."""
    for modifier in modifiers:
        sizes = modifier.replace("n", "m").replace("k", "m").split("m")
        if len(sizes) == 4 and not sizes[0] and all(size.isdigit() for size in sizes[1:]):
            return int(sizes[1]), int(sizes[2]), int(sizes[3])
    raise EmulationError("no shape is named")
