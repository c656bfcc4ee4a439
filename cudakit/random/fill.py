"""How random numbers of a distribution and dtype are made: the kernel, its launch, and what it uses up."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from math import copysign, isfinite
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.log import Source
from cudakit.arrays.place import ArrayPlace
from cudakit.errors import ArgumentError, RangeError, shortened
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel

#: Threads of a block, elements of 16 bytes that each makes at most, and the most blocks.
_BLOCK, _PACKS, _MOST_BLOCKS = 256, 4, (1 << 31) - 1
_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}


class Fill(NamedTuple):
    """What makes numbers of one kind.

    Attributes
    ----------
    kernel : Kernel
        Takes the result, its size, keys, stream number, position, and `arguments`.
    drawn : int
        Numbers that are made of the words at one position.
    arguments : tuple
    """

    kernel: Kernel
    drawn: int
    arguments: tuple[Any, ...]

    def positions(self, size: int) -> int:
        """How many positions `size` numbers use up."""
        return -(-size // self.drawn)

    def run(self, place: ArrayPlace, out: Any, drawn: Sequence[Any], sources: Sequence[Source], *arrays: Any) -> None:
        """Launch on a C-contiguous result; `drawn`: keys, stream number and position, whose `sources` are these."""
        if out.size:
            launch, passed = _launch(out.size, out.dtype.itemsize), (out, out.size, *drawn, *arrays, *self.arguments)
            place.launch(self.kernel, launch, *passed, sources=(None, None, *sources))


@functools.lru_cache(256)
def keys_of(key: int) -> Any:
    """What the rounds of Philox add, of a key of 64 bits: a kernel reads its parameters as operands."""
    rounds = np.arange(10, dtype=np.uint64)
    made = np.zeros((), [("first", np.uint32, 10), ("second", np.uint32, 10)])
    made["first"] = (key % 2**32 + rounds * np.uint64(0x9E3779B9)) & np.uint64(2**32 - 1)
    made["second"] = (key // 2**32 + rounds * np.uint64(0xBB67AE85)) & np.uint64(2**32 - 1)
    return made[()]


@functools.lru_cache(1024)
def _launch(size: int, itemsize: int) -> Config:
    return config(min(-(-size * itemsize // (16 * _BLOCK * _PACKS)), _MOST_BLOCKS), _BLOCK)


def _is_floating(dtype: np.dtype) -> bool:
    return (dtype.kind == "f" and dtype.itemsize <= 8 and dtype.isnative) or dtype.name == "bfloat16"


def real_dtype(op: str, dtype: np.dtype) -> np.dtype:
    """What numbers of a floating dtype are worked out in: float64 or float32.

    Raises
    ------
    ArgumentError
    """
    if not _is_floating(dtype):
        raise ArgumentError(f"{op}: dtype {dtype} is not one of float16, bfloat16, float32 and float64")
    return np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)


@functools.lru_cache(1024)
def uniform(op: str, dtype: np.dtype, low: float, high: float) -> Fill:
    """Of [low, high).

    Raises
    ------
    ArgumentError
    """
    real = real_dtype(op, dtype)
    with np.errstate(over="ignore"):
        least, end = (float(np.asarray(bound).astype(dtype)) for bound in (low, high))
    if not (isfinite(least) and isfinite(end)):
        raise RangeError(f"{op}: low={low} and high={high} must be finite numbers of {dtype}")
    if least > end:
        raise ArgumentError(f"{op}: low={low} is above high={high}")
    exact = Fraction(end) - Fraction(least)
    with np.errstate(over="ignore"):
        extent = real.type(end) - real.type(least)
    if not np.isfinite(extent):
        raise RangeError(f"{op}: high - low is beyond the range of {real}")
    if Fraction(float(extent)) > exact:  # u · extent must stay below it
        extent = np.nextafter(extent, real.type(0))
    kernel = Kernel.from_template("random/uniform")[dtype, real]
    return Fill(kernel, 16 // dtype.itemsize, (real.type(least), extent))


def normal(op: str, dtype: np.dtype, location: float, scale: float, is_exponential: bool = False) -> Fill:
    """Of location + scale × numbers of the standard normal, or exponential, distribution.

    Raises
    ------
    ArgumentError
    """
    if copysign(1, scale) < 0:  # of -0.0 too, which is the same key as 0.0
        real_dtype(op, dtype)
        raise ArgumentError(f"{op}: scale={scale} is below 0")
    return _normal(op, dtype, location, scale, is_exponential)


@functools.lru_cache(1024)
def _normal(op: str, dtype: np.dtype, location: float, scale: float, is_exponential: bool) -> Fill:
    real = real_dtype(op, dtype)
    kernel = Kernel.from_template("random/normal")[dtype, real, "true" if is_exponential else "false"]
    with np.errstate(over="ignore"):
        return Fill(kernel, 16 // real.itemsize, (real.type(location), real.type(scale)))


@functools.lru_cache(1024)
def integers(op: str, dtype: np.dtype, low: int, last: int) -> Fill:
    """Of low … last.

    Raises
    ------
    ArgumentError
    """
    if dtype.kind not in "biu" or not dtype.isnative:
        raise ArgumentError(f"{op}: dtype {dtype} is not one of bool and the integers")
    least, greatest = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if low < least:
        raise ArgumentError(f"{op}: low={shortened(low)} is out of bounds for {dtype}, whose least is {least}")
    if last > greatest:
        raise ArgumentError(
            f"{op}: high is out of bounds for {dtype}, whose greatest is {greatest}; got {shortened(last)} at most"
        )
    if low > last:
        raise ArgumentError(f"{op}: no integer is from low={shortened(low)} on and below high")
    extent = last - low + 1
    size = dtype.itemsize
    if dtype.kind == "b" or extent != 1 << 8 * size:
        size = 4 if _is_even(extent, 32) else 8
    # A word is worth several numbers, if it decides them as well as one.
    several = (n for n in (4, 2) if n * dtype.itemsize <= size == 4 and _is_even(extent**n, 32))
    words, digits = 1 << 8 * size, next(several, int(extent < 1 << 8 * size))
    kernel = Kernel.from_template("random/integers")[dtype, _WORDS[size], digits]
    drawn = 16 // size * max(digits, 1)
    return Fill(kernel, drawn, (low % 2**64, extent % words, words % extent**digits))


def _is_even(extent: int, bits: int) -> bool:
    """Whether words of so many bits decide a number below `extent`, but for less than one of 2¹² of them."""
    return extent <= 1 << bits and (1 << bits) % extent < 1 << bits - 12


@functools.lru_cache(1024)
def bernoulli(op: str, dtype: np.dtype, p: float) -> Fill:
    """1 with probability p.

    Raises
    ------
    ArgumentError
    """
    if not (dtype.kind in "biu" and dtype.isnative) and not _is_floating(dtype):
        raise ArgumentError(f"{op}: dtype {dtype} is not one of bool, the integers and floating point")
    if not 0 <= p <= 1:
        raise ArgumentError(f"{op}: p={p} is no probability; it goes from 0 to 1")
    threshold = round(Fraction(p) * 2**64)
    kernel = Kernel.from_template("random/bernoulli")[dtype]
    return Fill(kernel, 8, (threshold >> 49, (threshold << 15) % 2**64))


@functools.lru_cache(2)
def ties(index: np.dtype) -> Fill:
    """Indices in the order of their keys, which are sorted; those of equal keys in any."""
    return Fill(Kernel.from_template("random/ties")[index], 1, ())


@functools.lru_cache(1)
def chosen() -> Fill:
    """Indices by the edges of their weights."""
    return Fill(Kernel.from_template("random/chosen"), 2, ())
