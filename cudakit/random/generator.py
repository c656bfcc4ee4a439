"""Generators of random numbers: seeds, streams, state, and the distributions with NumPy's names."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import copysign, isfinite, prod
from operator import index
from typing import Any, NamedTuple, Self

import numpy as np

from cudakit.arrays.layout import axis_of
from cudakit.arrays.log import Drawn, Source
from cudakit.arrays.output import Casting, as_dtype, checked_output, target
from cudakit.arrays.place import ArrayPlace, as_array
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError, RangeError, error_text, shortened
from cudakit.generate.call import place_for
from cudakit.generate.elementwise import elementwise
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.copies import copy, delivered
from cudakit.ops.sort import LONGEST_ROW, Sorting, argsort, lines_of, order_of, sort_rows
from cudakit.ops.take import take
from cudakit.streams import process
from cudakit.types.checked import flag, whole
from cudakit.types.cpp import NARROW
from cudakit.types.scalars import integer_range

# --- fills ------------------------------------------------------------------------------------------------------------


#: Threads of a block, elements of 16 bytes that each makes at most, and the most blocks.
_BLOCK, _PACKS, _MOST_BLOCKS = 256, 4, (1 << 31) - 1
_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}


class Fill(NamedTuple):
    """A kernel that fills an array with random numbers of one distribution.

    Attributes
    ----------
    kernel : Kernel
        Kernel that takes the result, its size, keys, stream number, position, and `arguments`.
    drawn : int
        Number of results for each position. A position is four words of 32 bits.
    arguments : tuple
        Further arguments of the kernel.
    """

    kernel: Kernel
    drawn: int
    arguments: tuple[Any, ...]

    def positions(self, size: int) -> int:
        """Return how many positions of the generator's stream `size` numbers use."""
        return -(-size // self.drawn)

    def run(self, place: ArrayPlace, out: Any, drawn: Sequence[Any], sources: Sequence[Source], *arrays: Any) -> None:
        """Launch the kernel, which fills the C-contiguous array `out`. An empty array needs no launch.

        `drawn` is keys, stream number and position. `sources` says where a replayed call gets them from. `arrays` are
        further arguments of the kernel.
        """
        if out.size:
            launch, arguments = _launch(out.size, out.dtype.itemsize), (out, out.size, *drawn, *arrays, *self.arguments)
            place.launch(self.kernel, launch, *arguments, sources=(None, None, *sources))


@functools.lru_cache(256)
def keys_of(key: int) -> Any:
    """Return the keys of Philox's ten rounds, made from a key of 64 bits, as one struct for a kernel parameter."""
    rounds = np.arange(10, dtype=np.uint64)
    keys = np.zeros((), [("first", np.uint32, 10), ("second", np.uint32, 10)])
    keys["first"] = (key % 2**32 + rounds * np.uint64(0x9E3779B9)) & np.uint64(2**32 - 1)
    keys["second"] = (key // 2**32 + rounds * np.uint64(0xBB67AE85)) & np.uint64(2**32 - 1)
    return keys[()]


@functools.lru_cache(1024)
def _launch(size: int, itemsize: int) -> Config:
    return config(min(-(-size * itemsize // (16 * _BLOCK * _PACKS)), _MOST_BLOCKS), _BLOCK)


def _is_floating(dtype: np.dtype) -> bool:
    return ((dtype.kind == "f" and dtype.itemsize <= 8) or dtype.name in NARROW) and dtype.isnative


def real_dtype(op: str, dtype: np.dtype) -> np.dtype:
    """Return the dtype in which numbers of a floating dtype are computed: float64 or float32.

    Raises
    ------
    ArgumentError
        The dtype is no supported floating-point dtype.
    """
    if not _is_floating(dtype):
        raise ArgumentError(f"{op}: dtype {dtype} is not one of float16, bfloat16, float32 and float64")
    return np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)


@functools.lru_cache(1024)
def uniform(op: str, dtype: np.dtype, low: float, high: float) -> Fill:
    """Return the fill of uniform numbers in [low, high).

    Raises
    ------
    ArgumentError
        The bounds are no finite numbers of the dtype, or `low` is above `high`.
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
    """Return the fill location + scale × z, where z is standard normal or exponential.

    Raises
    ------
    ArgumentError
        The dtype is not supported, or `scale` is below 0.
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
    """Return the fill of integers from `low` to `last`, both included.

    Raises
    ------
    ArgumentError
        The dtype is no integer dtype, or the bounds do not fit.
    """
    if dtype.kind not in "biu" or not dtype.isnative:
        raise ArgumentError(f"{op}: dtype {dtype} is not one of bool and the integers")
    least, greatest = integer_range(dtype)
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
    """Return whether a word of `bits` random bits gives every number below `extent` the same chance.

    Words may have to be rejected for this, but less than one word in 2¹².
    """
    return extent <= 1 << bits and (1 << bits) % extent < 1 << bits - 12


@functools.lru_cache(1024)
def bernoulli(op: str, dtype: np.dtype, p: float) -> Fill:
    """Return the fill that is 1 with probability p, else 0.

    Raises
    ------
    ArgumentError
        The dtype is not supported, or p is not in [0, 1].
    """
    if not (dtype.kind in "biu" and dtype.isnative) and not _is_floating(dtype):
        raise ArgumentError(f"{op}: dtype {dtype} is not one of bool, the integers and floating point")
    if not 0 <= p <= 1:
        raise ArgumentError(f"{op}: p={p} is not a probability; expected 0 to 1")
    threshold = round(Fraction(p) * 2**64)
    kernel = Kernel.from_template("random/bernoulli")[dtype]
    return Fill(kernel, 8, (threshold >> 49, (threshold << 15) % 2**64))


@functools.lru_cache(2)
def ties(index: np.dtype) -> Fill:
    """Return the fill that writes a permutation from sorted random keys and their indices. `index` is the indices'
    dtype.

    Indices keep the order of the keys. Indices of equal keys are shuffled.
    """
    return Fill(Kernel.from_template("random/ties")[index], 1, ())


@functools.lru_cache(1)
def chosen() -> Fill:
    """Return the fill of random indices, where the cumulative sums of weights decide how probable an index is.

    The kernel takes these sums and their number as further arguments.
    """
    return Fill(Kernel.from_template("random/chosen"), 2, ())


_NAME = "Philox4x32-10"
_POSITIONS, _STREAMS = 1 << 64, 1 << 56
_MOST_CHILDREN, _MOST_DIMENSIONS = 2**20, 64
#: The keys of a weighted order: the index with the least key comes first.
_RACE = elementwise("double ran, double weight", "double key", "key = ran / weight", name="race")
_BOOL, _INT64, _FLOAT64 = (np.dtype(name) for name in ("bool", "int64", "float64"))
_UINT32, _UINT64 = np.dtype("uint32"), np.dtype("uint64")


def default_rng(seed: Any = None) -> Generator:
    """Return a `Generator` for a seed. A `Generator` is returned as it is."""
    return seed if isinstance(seed, Generator) else Generator(seed)


class Generator:
    """A generator of random numbers: a stream of Philox4x32-10. Each call continues the stream.

    Parameters
    ----------
    seed : int, sequence of int or numpy.random.SeedSequence, optional
        Seed, as for NumPy's generators. Default: randomness of the operating system.

    Notes
    -----
    `numpy.random.SeedSequence` turns the seed into a key of 64 bits and a stream number of 56 bits. A position of 64
    bits counts within the stream.

    Generators with other seeds, and spawned generators, have other keys and stream numbers, and then share no word. The
    chance that two generators have the same key and stream number is 2⁻¹²⁰. Jumped generators always have other stream
    numbers.

    Each method takes `out`, an array of any strides to fill, and `stream`. Without both, the numbers are made on the
    execution place of ``ck.stream()``. ``size=None`` is one number, an array of no dimensions. Arguments such as `low`
    and `scale` are numbers, not arrays.

    A call captured in a graph draws the same numbers at each launch of the graph. A generator may be used from several
    threads.
    """

    def __init__(self, seed: Any = None) -> None:
        try:
            self._seeds = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        except Exception as error:  # NumPy's, or what the repr of a seed raises in its message
            raise ArgumentError(f"Generator: seed {shortened(seed)} is none: {error_text(error)}") from None
        key, number = (int(word) for word in self._seeds.generate_state(2, np.uint64))
        self._key, self._number, self._position = key, number % _STREAMS, 0
        self._keys = keys_of(key)
        self._lock = process.renewed(self, "_lock", threading.Lock)

    def __repr__(self) -> str:
        return f"<cudakit.random.Generator {_NAME}: key {self._key:#x}, stream {self._number:#x}, at {self._position}>"

    def __getstate__(self) -> dict[str, Any]:
        return {"seeds": self._seeds, **self.state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._lock, self._seeds = threading.Lock(), state["seeds"]
        self.state = {name: value for name, value in state.items() if name != "seeds"}

    # ── streams and state ──

    @property
    def state(self) -> dict[str, Any]:
        """State of the generator, a dict of str and int that JSON can store. Set it to restore the state."""
        with self._lock:
            return {"generator": _NAME, "key": self._key, "stream": self._number, "position": self._position}

    @state.setter
    def state(self, state: Mapping[str, Any]) -> None:
        names = {"generator", "key", "stream", "position"}
        if not isinstance(state, Mapping) or set(state) != names or state["generator"] != _NAME:
            raise ArgumentError(
                f"Generator: the state of a {_NAME} generator has {sorted(names)}; got {shortened(state)}"
            )
        limits = {"key": 1 << 64, "stream": _STREAMS, "position": _POSITIONS}
        numbers = {name: whole(f"Generator: {name} of the state", state[name]) for name in limits}
        for name, limit in limits.items():
            if numbers[name] >= limit:
                raise ArgumentError(f"Generator: {name} of the state is below {limit}, got {numbers[name]}")
        with self._lock:
            self._key, self._number, self._position = numbers["key"], numbers["stream"], numbers["position"]
            self._keys = keys_of(self._key)

    def spawn(self, n_children: int) -> list[Generator]:
        """Return `n_children` generators with streams of their own, as ``numpy.random.Generator.spawn``."""
        with self._lock:
            count = whole("Generator.spawn: n_children", n_children)
            if count > _MOST_CHILDREN:
                raise ArgumentError(f"Generator.spawn: n_children is {_MOST_CHILDREN} at most, got {shortened(count)}")
            children = self._seeds.spawn(count)
        return [type(self)(child) for child in children]

    def jumped(self, jumps: int = 1) -> Self:
        """Return a generator `jumps` streams further, at the same position: each jump is as if 2⁶⁶ words were drawn."""
        result = type(self)(self._seeds)
        result.state = self.state
        result._number = (result._number + whole("Generator.jumped: jumps", jumps)) % _STREAMS
        return result

    def advance(self, delta: int) -> Self:
        """Advance by `delta` positions of four words each; a negative `delta` goes back."""
        steps = _integer("Generator.advance", "delta", delta)
        with self._lock:
            self._position = (self._position + steps) % _POSITIONS
        return self

    # ── distributions ──

    @repeated("out")
    def random(self, size: Any = None, dtype: Any = None, out: Any = None, *, stream: Any = None) -> Any:
        """out[k] uniform in [0, 1): `uniform` with its defaults."""
        return self._filled("random", (uniform, 0.0, 1.0), size, dtype, out, stream)

    @repeated("out")
    def uniform(
        self,
        low: float = 0.0,
        high: float = 1.0,
        size: Any = None,
        dtype: Any = None,
        *,
        out: Any = None,
        stream: Any = None,
    ) -> Any:
        """out[k] uniform in [low, high).

        Parameters
        ----------
        low, high : float
            Bounds of the numbers, as numbers of the dtype. The upper bound is excluded.
        size : int or tuple of int, optional
            Shape of the result. None: the shape of `out`, else one number.
        dtype : dtype, optional
            float16, bfloat16, float32 or float64. Default: dtype of `out`, else float64.
        out : array, optional
            Output array of any strides, to fill.
        stream : stream, optional
            Stream to run on. Default: CuPy's current stream, or the emulator.

        Returns
        -------
        array
            `out`, or a new array.

        Raises
        ------
        ArgumentError
            The dtype is not supported, the bounds do not fit the dtype, or `out` does not fit.

        Notes
        -----
        The number is low + u · (high − low), rounded toward −∞ and never `high`. The random u is a multiple of 2⁻²⁴
        (float32), 2⁻⁵³ (float64) or 2⁻¹⁶ (float16, bfloat16).
        """
        bounds = _number("uniform", "low", low), _number("uniform", "high", high)
        return self._filled("uniform", (uniform, *bounds), size, dtype, out, stream)

    @repeated("out")
    def standard_normal(self, size: Any = None, dtype: Any = None, out: Any = None, *, stream: Any = None) -> Any:
        """out[k] of the normal distribution of mean 0 and variance 1: `normal` with its defaults."""
        return self._filled("standard_normal", (normal, 0.0, 1.0), size, dtype, out, stream)

    @repeated("out")
    def normal(
        self,
        loc: float = 0.0,
        scale: float = 1.0,
        size: Any = None,
        dtype: Any = None,
        *,
        out: Any = None,
        stream: Any = None,
    ) -> Any:
        """out[k] of the normal distribution of mean `loc` and standard deviation `scale`.

        Parameters and errors are as for `uniform`. The method is Box and Muller's. Each operation is rounded by
        itself, so the bits are the same everywhere.

        A number is within 4 ulp of the exact functions of its words. It is at most 6.8 standard deviations from the
        mean (9.5 in float64). float16 and bfloat16 are rounded float32 numbers.
        """
        of = _number("normal", "loc", loc), _number("normal", "scale", scale)
        return self._filled("normal", (normal, *of), size, dtype, out, stream)

    @repeated("out")
    def exponential(
        self, scale: float = 1.0, size: Any = None, dtype: Any = None, *, out: Any = None, stream: Any = None
    ) -> Any:
        """out[k] of the exponential distribution of mean `scale`: −scale · ln u.

        Parameters and errors are as for `normal`.
        """
        of = 0.0, _number("exponential", "scale", scale), True
        return self._filled("exponential", (normal, *of), size, dtype, out, stream)

    @repeated("out")
    def integers(
        self,
        low: int,
        high: int | None = None,
        size: Any = None,
        dtype: Any = None,
        endpoint: bool = False,
        *,
        out: Any = None,
        stream: Any = None,
    ) -> Any:
        """out[k] uniform among the integers from `low` to `high`, without `high` unless `endpoint`.

        Parameters
        ----------
        low, high : int
            Bounds. A single argument is `high`, and `low` is 0.
        size : int or tuple of int, optional
            Shape of the result. None: the shape of `out`, else one number.
        dtype : dtype, optional
            Integer dtype or bool. Default: dtype of `out`, else int64.
        endpoint : bool
            Whether `high` is included.
        out : array, optional
            Output array of any strides, to fill.
        stream : stream, optional
            Stream to run on. Default: CuPy's current stream, or the emulator.

        Returns
        -------
        array
            `out`, or a new array.

        Raises
        ------
        ArgumentError
            The dtype is no integer dtype, the bounds do not fit the dtype, or `out` does not fit.

        Notes
        -----
        The method is Lemire's: a word that would favour some integers is replaced by another word of the same position.
        At most 2⁻²⁵⁵ of the numbers are not corrected.
        """
        op = "integers"
        first, end = (0, low) if high is None else (low, high)
        least, last = _integer(op, "low", first), _integer(op, "high", end) - (not flag(f"{op}: endpoint", endpoint))
        return self._filled(op, (integers, least, last), size, dtype, out, stream, _INT64)

    @repeated("out")
    def bernoulli(
        self, p: float = 0.5, size: Any = None, dtype: Any = None, *, out: Any = None, stream: Any = None
    ) -> Any:
        """out[k] = 1, or True, with probability p, else 0: NumPy's ``binomial(1, p)``.

        Parameters and errors are as for `uniform`. The dtype is any integer or floating-point dtype. Default: dtype
        of `out`, else bool. p is exact to 2⁻⁶⁵.
        """
        chance = _number("bernoulli", "p", p)
        return self._filled("bernoulli", (bernoulli, chance), size, dtype, out, stream, _BOOL)

    # ── orders and choices ──

    @repeated("out")
    def permutation(self, x: Any, axis: int = 0, *, out: Any = None, stream: Any = None) -> Any:
        """Return the slices of `x` along an axis in a random order; for an int x, the numbers 0 … x − 1 as int64.

        Every order has the same probability. Up to 4096 slices are sorted by random keys of 64 bits. Equal keys, which
        n slices have with a chance of n²/2⁶⁵, keep their order. More slices are sorted by keys of 32 bits; slices with
        equal keys are shuffled.

        Raises
        ------
        ArgumentError
            The axis is out of range, or `x` or `out` does not fit.
        """
        op = "permutation"
        if isinstance(x, int | np.integer) and not isinstance(x, bool):
            place = _place(op, stream, out)
            (count,) = _shape(op, whole(f"{op}: x", x))
            _check_out(op, place, out, (count,), _INT64, "no")
            return self._order(op, place, count, out=out)
        place, (array,) = place_for(op, stream, [("x", x)])
        along = axis_of(op, axis, array.ndim)
        _check_out(op, place, out, array.shape, array.dtype)
        return take(array, self._order(op, place, array.shape[along]), along, out=out, stream=place.stream)

    def shuffle(self, x: Any, axis: int = 0, *, stream: Any = None) -> None:
        """Shuffle the slices of `x` along an axis in place, as `permutation`."""
        if as_array("shuffle", "x", x)[0].ndim == 0:
            raise ArgumentError("shuffle: x has no dimensions; give an array that has an axis")
        copy(self.permutation(x, axis, stream=stream), out=x, stream=stream)

    def choice(
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        *,
        out: Any = None,
        stream: Any = None,
    ) -> Any:
        """Draw slices of `a` along an axis at random; for an int a, integers of 0 … a − 1.

        Parameters
        ----------
        a : array or int
            Array whose slices are drawn, or a number of integers.
        size : int or tuple of int, optional
            Shape of the drawn slices. None: one slice.
        replace : bool
            Whether a slice may be drawn several times.
        p : sequence of float, optional
            Probabilities, with the sum 1. They are read on the host, which waits for an array on a GPU. Default: equal
            probabilities.
        axis : int
            Axis of `a` along which slices are drawn.
        out : array, optional
            Output array of any strides, to fill.
        stream : stream, optional
            Stream to run on. Default: CuPy's current stream, or the emulator.

        Returns
        -------
        array
            Drawn slices. For an int `a`: integers of int64.

        Raises
        ------
        ArgumentError
            There are not enough slices to draw from, the probabilities do not fit, or `out` does not fit.

        Notes
        -----
        Without `replace` the slices come in random order. With `p` each slice is drawn by the weights of the slices
        that are left. For this, the slices are sorted by exponential numbers over the weights (Efraimidis and Spirakis,
        2006).
        """
        op = "choice"
        is_count = isinstance(a, int | np.integer) and not isinstance(a, bool)
        if is_count:
            place, array, count = _place(op, stream, out), None, whole(f"{op}: a", a)
        else:
            place, (array,) = place_for(op, stream, [("a", a)])
            axis = axis_of(op, axis, array.ndim)
            count = array.shape[axis]
        shape = _shape(op, size)
        number = prod(shape)
        if count == 0 and number:
            raise ArgumentError(f"{op}: a is empty, and {number} cannot be drawn of it")
        weights = None if p is None else _weights(op, place, p, count)
        if array is None:
            _check_out(op, place, out, shape, _INT64, "no")
        else:
            _check_out(op, place, out, (*array.shape[:axis], *shape, *array.shape[axis + 1 :]), array.dtype)
        if flag(f"{op}: replace", replace):
            indices = self._chosen(op, place, shape, weights, count)
        else:
            most = count if weights is None else int(np.count_nonzero(weights))
            if number > most:
                raise ArgumentError(f"{op}: {number} cannot be drawn of {most} without replacement")
            indices = self._order(op, place, count, weights)[:number].reshape(shape)
        if array is not None:
            return take(array, indices, axis, out=out, stream=place.stream)
        return indices if out is None else copy(indices, out=out, stream=place.stream)

    # ── how ──

    def _filled(
        self, op: str, how: tuple[Any, ...], size: Any, dtype: Any, out: Any, stream: Any, default: np.dtype = _FLOAT64
    ) -> Any:
        """Return `out` or a new array, filled with numbers of a distribution.

        ``how[0](op, dtype, *how[1:])`` makes the `Fill`. `default` is the dtype if neither `dtype` nor `out` decides
        it.
        """
        place = _place(op, stream, out)
        own = None if out is None else as_array(op, "out", out)[0]
        shape = own.shape if own is not None and size is None else _shape(op, size)
        result_dtype = as_dtype(op, dtype) if dtype is not None else default if own is None else own.dtype
        fill = how[0](op, result_dtype, *how[1:])
        if own is None:
            return self._run(place, fill, place.empty(shape, result_dtype))
        to = target(op, place, own, shape, result_dtype, casting="no", contiguous=True)
        self._run(place, fill, to.written)
        delivered(place, to)
        return out

    def _run(self, place: ArrayPlace, how: Fill, result: Any, *arrays: Any) -> Any:
        count = how.positions(result.size)
        how.run(place, result, (self._keys, self._number, self._reserve(count)), _sources(count), *arrays)
        return result

    def _reserve(self, count: int) -> int:
        """Advance the generator by `count` positions, and return the position before."""
        with self._lock:
            position = self._position
            self._position = (position + count) % _POSITIONS
        return position

    def _chosen(self, op: str, place: ArrayPlace, shape: tuple[int, ...], weights: Any, count: int) -> Any:
        """Return an int64 array of `shape` with random indices below `count`. An index may occur several times.

        `weights` are the probabilities of the indices. None: all are equal.
        """
        result = place.empty(shape, _INT64)
        if weights is None:
            return self._run(place, integers(op, _INT64, 0, max(count, 1) - 1), result)
        edges = np.cumsum(weights)
        edges /= edges[-1]
        return self._run(place, chosen(), result, place.upload(edges), count)

    def _order(self, op: str, place: ArrayPlace, count: int, weights: Any = None, out: Any = None) -> Any:
        """Return the indices 0 … `count` − 1 in a random order, as int64, in `out` or a new array.

        With `weights`, each next index is drawn by the weights of the indices that are left.
        """
        if weights is None and count > LONGEST_ROW:
            # Half of the bytes that wide keys have, which would be sorted twice as often.
            keys = self._run(place, integers(op, _UINT32, 0, 2**32 - 1), place.empty((count,), _UINT32))
            index = _UINT32 if count <= 2**32 else _UINT64
            ordered, order = place.empty((count,), _UINT32), place.empty((count,), index)
            lines = lines_of(op, (count,), 0)
            by = order_of(op, _UINT32)
            sort_rows(op, place, by, lines, Sorting(True, index, is_index=True), (keys, None, ordered, order))
            to = target(op, place, out, (count,), _INT64, casting="no", contiguous=True)
            self._run(place, ties(index), to.written, ordered, order)
            return delivered(place, to)
        if weights is None:
            keys = self._run(place, integers(op, _UINT64, 0, 2**64 - 1), place.empty((count,), _UINT64))
        else:
            keys = self._run(place, normal(op, _FLOAT64, 0.0, 1.0, True), place.empty((count,), _FLOAT64))
            keys = _RACE(keys, place.upload(weights), out=keys, stream=place.stream)
        return argsort(keys, out=out, stream=place.stream)


@functools.lru_cache(1024)
def _sources(count: int) -> tuple[Source, ...]:
    """Return three expressions for replayed calls of a generator's method: its keys, its stream number, its position.

    The expression of the position also advances the generator by `count` positions.
    """
    return "self._keys", "self._number", Drawn("self._position", f"self._reserve({count})")


def _place(op: str, stream: Any, out: Any) -> ArrayPlace:
    return place_for(op, stream, [] if out is None else [("out", out)])[0]


def _check_out(
    op: str, place: ArrayPlace, out: Any, shape: tuple[int, ...], dtype: np.dtype, casting: Casting = "same_kind"
) -> None:
    """Raise, before numbers are drawn, if `out` does not fit a result of `shape` and `dtype`."""
    if out is not None:
        checked_output(op, place, out, shape, dtype, casting)


def _shape(op: str, size: Any) -> tuple[int, ...]:
    if size is None:
        return ()
    sizes: Sequence[Any] = size if isinstance(size, tuple | list) else (size,)
    shape = tuple(whole(f"{op}: size", extent) for extent in sizes)
    if prod(shape) >= 2**62 or len(shape) > _MOST_DIMENSIONS:
        raise ArgumentError(f"{op}: size {shortened(size)} is not the shape of an array")
    return shape


def _number(op: str, name: str, value: Any) -> float:
    if isinstance(value, str | bytes | list | tuple | dict) or np.ndim(value):
        raise ArgumentError(f"{op}: {name} is one number, got {type(value).__name__}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"{op}: {name} is a number, got {shortened(value)}: {error}") from None


def _integer(op: str, name: str, value: Any) -> int:
    try:
        return index(value)
    except TypeError:
        raise ArgumentError(f"{op}: {name} is an int, got {type(value).__name__}") from None


def _weights(op: str, place: ArrayPlace, p: Any, count: int) -> np.ndarray:
    """Return the probabilities `p` as a float64 array in host memory. For a device array, wait for the device.

    Raises
    ------
    ArgumentError
        There are not `count` numbers, a number is negative or not finite, or the sum is not 1.
    """
    try:
        there, on_host = as_array(op, "p", np.asarray(p) if isinstance(p, Sequence) else p)
        weights = np.array(there if on_host else place.download(there), np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{op}: p is a sequence of numbers: {error}") from None
    if weights.shape != (count,):
        raise ArgumentError(f"{op}: p has shape {weights.shape}, and a has {count} to choose of; give as many")
    if count and (not (weights >= 0).all() or not isfinite(weights.sum())):
        raise ArgumentError(f"{op}: p has numbers that are no probabilities: negative, infinite or NaN")
    if count and abs(weights.sum() - 1) > np.sqrt(np.finfo(np.float64).eps):
        raise ArgumentError(f"{op}: p sums up to {weights.sum()}, not to 1")
    return weights
