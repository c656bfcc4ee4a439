"""Stand-in for ``pycuda.curandom``: PyCUDA's generators, on Philox4x32-10 and on Sobol's sequences.

The distributions are those of cuRAND, the numbers are not. A generator gives the same uniform numbers on every GPU and
on the emulator. Numbers of other distributions may differ in their last bits.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import numpy as np

from cudakit.adapters.pycuda import gpuarray
from cudakit.adapters.pycuda.absent import missing
from cudakit.adapters.pycuda.allocations import array_at
from cudakit.adapters.pycuda.errors import translated
from cudakit.adapters.pycuda.sobol import DIMENSIONS, direction_vectors
from cudakit.adapters.pycuda.streams import stream_of
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.load.config import cover
from cudakit.kernel.kernel import Kernel
from cudakit.random.generator import default_rng

#: Columns of the states.
_KEY, _NUMBER, _POSITION = range(3)
_UNIFORM, _NORMAL, _LOG_NORMAL, _POISSON, _POISSON_OF_OUT = range(5)
_FLOATS = tuple(map(np.dtype, ("float32", "float64")))


def get_curand_version() -> tuple[int, int, int]:
    """Return the version of cuRAND whose distributions this module has. cuRAND itself is not used."""
    return 5, 0, 0


def rand(shape: Any, dtype: Any = np.float32, stream: Any = None) -> gpuarray.GPUArray:
    """Return an array of random numbers: uniform in [0, 1), or all integers of a dtype.

    The seed is a number of ``numpy.random``, so ``numpy.random.seed`` repeats the result.

    Raises
    ------
    ArgumentError
        The dtype is not float32, float64, int32 or uint32.
    """
    dtype = np.dtype(dtype)
    rng = default_rng(np.random.randint(2**31 - 1))
    result = gpuarray.empty(shape, dtype)
    with translated():
        if dtype in _FLOATS:
            rng.random(out=result.device_array(), stream=stream_of(stream))
        elif dtype in (np.int32, np.uint32):
            limits = np.iinfo(dtype)
            rng.integers(
                int(limits.min), int(limits.max), endpoint=True, out=result.device_array(), stream=stream_of(stream)
            )
        else:
            raise ArgumentError(f"rand: expected float32, float64, int32 or uint32, got {dtype}")
    return result


def seed_getter_uniform(n: int) -> gpuarray.GPUArray:
    """Return `n` equal seeds, an array of int32."""
    return gpuarray.empty([n], np.int32).fill(random.randint(0, 2**31 - 1))


def seed_getter_unique(n: int) -> gpuarray.GPUArray:
    """Return `n` random seeds, an array of int32."""
    return gpuarray.to_gpu(np.random.randint(0, 2**31 - 1, n).astype(np.int32))


class direction_vector_set(enum.IntEnum):
    """Sets of direction vectors, by their bits."""

    VECTOR_32 = 101
    SCRAMBLED_VECTOR_32 = 102
    VECTOR_64 = 103
    SCRAMBLED_VECTOR_64 = 104


def generate_direction_vectors(count: int, direction: Any = direction_vector_set.VECTOR_32) -> gpuarray.GPUArray:
    """Return direction vectors of Sobol's sequences.

    Parameters
    ----------
    count : int
        Number of dimensions. They repeat after 5 000.
    direction : direction_vector_set
        Set of vectors. Scrambled sets have the same vectors.

    Returns
    -------
    GPUArray
        Array of shape (count, 32) of uint32, or (count, 64) of uint64.
    """
    is_wide = direction in (direction_vector_set.VECTOR_64, direction_vector_set.SCRAMBLED_VECTOR_64)
    return gpuarray.to_gpu(direction_vectors(64 if is_wide else 32)[np.arange(count) % DIMENSIONS])


def _scrambles(bits: int) -> Callable[[int], gpuarray.GPUArray]:
    def generate(count: int) -> gpuarray.GPUArray:
        dtype = np.dtype(f"u{bits // 8}")
        numbers = np.random.default_rng(bits).integers(0, np.iinfo(dtype).max, count, dtype, endpoint=True)
        return gpuarray.to_gpu(numbers)

    generate.__doc__ = f"Return `count` numbers of {bits} bits that scramble Sobol's sequences, the same at each call."
    return generate


generate_scramble_constants32: Callable[[int], gpuarray.GPUArray] = _scrambles(32)
generate_scramble_constants64: Callable[[int], gpuarray.GPUArray] = _scrambles(64)


class _Generators:
    """Generators of random numbers, each with a state of its own. Generator t draws elements t, t + count, ….

    Attributes
    ----------
    block_count, generators_per_block : int
        Their product is the number of generators, the same on every device.
    state : GPUArray
        States of the generators: keys, numbers of streams and positions, an array of shape (count, 3) of uint64.
    generator_bits : int
        Bits of a word.
    """

    block_count: int = 128
    generators_per_block: int = 256
    generator_bits: ClassVar[int] = 32
    has_box_muller: ClassVar[bool] = False
    #: Bits of Sobol's direction vectors; 0 for pseudorandom numbers.
    _bits: ClassVar[int] = 0

    def __init__(self, states: np.ndarray, directions: Any = None) -> None:
        self.state: gpuarray.GPUArray = gpuarray.to_gpu(states)
        self._directions = directions

    @property
    def _count(self) -> int:
        return self.block_count * self.generators_per_block

    def _draw(
        self, call: str, data: gpuarray.GPUArray, dtypes: tuple[Any, ...], law: int, stream: Any, *numbers: Any
    ) -> None:
        if data.dtype not in dtypes:
            names = ", ".join(np.dtype(dtype).name for dtype in dtypes)
            raise ArgumentError(f"{type(self).__name__}.{call}: expected an array of {names}, got one of {data.dtype}")
        if not data.flags.forc:
            raise ArgumentError(f"{type(self).__name__}.{call}: the array is not contiguous; use x.copy()")
        first, second = (*map(float, numbers), 0.0, 0.0)[:2]
        if data.size:
            kernel = Kernel.from_template("pycuda_random/draw")[self._bits, law, data.dtype]
            used = cover(min(data.size, self._count), self.generators_per_block)
            directions = None if self._directions is None else self._directions.device_array()
            with translated():
                kernel(
                    stream_of(stream), used, self.state.device_array(), directions, self._count,
                    array_at(data.gpudata, (data.size,), data.dtype), data.size, first, second,
                )  # fmt: skip

    def _skip(self, counts: Any, positions: int, streams: int, stream: Any) -> None:
        if isinstance(counts, gpuarray.GPUArray):
            if counts.size != self._count or counts.dtype.kind not in "iu":
                raise ArgumentError(
                    f"{type(self).__name__}: expected an array of {self._count} integers, one for each generator; got "
                    f"{counts.size} of {counts.dtype}"
                )
            array = counts.astype(np.uint64).device_array()
        else:
            positions, streams, array = positions * int(counts) % 2**64, streams * int(counts) % 2**64, None
        kernel = Kernel.from_template("pycuda_random/skip")[int(array is not None)]
        with translated():
            kernel(
                stream_of(stream), cover(self._count), self.state.device_array(), array, self._count, positions, streams
            )

    def _new(self, fill: Callable[..., None], shape: Any, dtype: Any, *arguments: Any) -> gpuarray.GPUArray:
        result = gpuarray.empty(shape, dtype)
        fill(result, *arguments)
        return result

    def fill_uniform(self, data: gpuarray.GPUArray, stream: Any = None) -> None:
        """Fill an array: floating point uniform in (0, 1), integers of all values.

        Raises
        ------
        ArgumentError
            The array is not contiguous, or its dtype is not float32, float64, int32 or uint32. 64-bit integers need a
            generator of 64 bits.
        """
        longs = (np.int64, np.uint64) if self.generator_bits == 64 else ()
        self._draw("fill_uniform", data, (*_FLOATS, np.int32, np.uint32, *longs), _UNIFORM, stream)

    def fill_normal(self, data: gpuarray.GPUArray, stream: Any = None) -> None:
        """Fill an array of float32 or float64 with numbers of the standard normal distribution.

        Raises
        ------
        ArgumentError
            The array has another dtype, or is not contiguous.
        """
        self._draw("fill_normal", data, _FLOATS, _NORMAL, stream, 0.0, 1.0)

    def fill_log_normal(self, data: gpuarray.GPUArray, mean: float, stddev: float, stream: Any = None) -> None:
        """Fill an array of float32 or float64 with eᶻ, where z is normal with this mean and standard deviation.

        Raises
        ------
        ArgumentError
            The array has another dtype, or is not contiguous.
        """
        self._draw("fill_log_normal", data, _FLOATS, _LOG_NORMAL, stream, mean, stddev)

    def fill_poisson(self, data: gpuarray.GPUArray, lambda_value: float | None = None, stream: Any = None) -> None:
        """Fill an array with numbers of the Poisson distribution.

        Parameters
        ----------
        data : GPUArray
            Array of uint32; without `lambda_value` of uint32, float32 or float64.
        lambda_value : float, optional
            Mean. Default: each element is the mean of its number.
        stream : Stream, optional
            Stream to run on.

        Raises
        ------
        ArgumentError
            The array has another dtype, or is not contiguous.
        """
        if lambda_value is None:
            self._draw("fill_poisson", data, (*_FLOATS, np.uint32), _POISSON_OF_OUT, stream)
        else:
            self._draw("fill_poisson", data, (np.uint32,), _POISSON, stream, lambda_value)

    def gen_uniform(self, shape: Any, dtype: Any, stream: Any = None) -> gpuarray.GPUArray:
        """Return a new array, filled by `fill_uniform`."""
        return self._new(self.fill_uniform, shape, dtype, stream)

    def gen_normal(self, shape: Any, dtype: Any, stream: Any = None) -> gpuarray.GPUArray:
        """Return a new array, filled by `fill_normal`."""
        return self._new(self.fill_normal, shape, dtype, stream)

    def gen_log_normal(
        self, shape: Any, dtype: Any, mean: float, stddev: float, stream: Any = None
    ) -> gpuarray.GPUArray:
        """Return a new array, filled by `fill_log_normal`."""
        return self._new(self.fill_log_normal, shape, dtype, mean, stddev, stream)

    def gen_poisson(self, shape: Any, dtype: Any, lambda_value: float, stream: Any = None) -> gpuarray.GPUArray:
        """Return a new array, filled by `fill_poisson`."""
        return self._new(self.fill_poisson, shape, dtype, lambda_value, stream)

    def call_skip_ahead(self, i: int, stream: Any = None) -> None:
        """Let each generator skip `i` numbers."""
        self._skip(i, 1, 0, stream)

    def call_skip_ahead_array(self, i: gpuarray.GPUArray, stream: Any = None) -> None:
        """Let generator t skip ``i[t]`` numbers."""
        self._skip(i, 1, 0, stream)


class _Pseudorandom(_Generators):
    """Generators of pseudorandom numbers: streams of Philox4x32-10, whose key is the seed.

    Parameters
    ----------
    seed_getter : callable, optional
        Function of a count that returns as many seeds, an array of int32. Default: random seeds of ``numpy.random``.
    offset : int
        Numbers that each generator skips at first.
    """

    has_box_muller = True
    _tag: ClassVar[int]

    def __init__(self, seed_getter: Callable[[int], Any] | None = None, offset: int = 0) -> None:
        seeds = (seed_getter or seed_getter_unique)(self._count)
        if not isinstance(seeds, gpuarray.GPUArray) or seeds.dtype != np.int32 or seeds.size != self._count:
            raise ArgumentError(
                f"{type(self).__name__}: seed_getter: expected a GPUArray of {self._count} int32, got "
                f"{shortened(seeds)}"
            )
        states = np.zeros((self._count, 3), np.uint64)
        states[:, _KEY] = seeds.get().ravel().astype(np.uint32) + (np.uint64(self._tag) << np.uint64(32))
        states[:, _NUMBER], states[:, _POSITION] = np.arange(self._count), offset
        super().__init__(states)

    def call_skip_ahead_sequence(self, i: int, stream: Any = None) -> None:
        """Let each generator skip `i` sequences: generator t goes on as generator t + i with its seed."""
        self._skip(i, 0, 1, stream)

    def call_skip_ahead_sequence_array(self, i: gpuarray.GPUArray, stream: Any = None) -> None:
        """Let generator t skip ``i[t]`` sequences."""
        self._skip(i, 0, 1, stream)


class XORWOWRandomNumberGenerator(_Pseudorandom):
    """Generators with the interface of PyCUDA's XORWOW generators; the numbers are Philox4x32-10's."""

    _tag = 1


class MRG32k3aRandomNumberGenerator(_Pseudorandom):
    """Generators with the interface of PyCUDA's MRG32k3a generators; the numbers are Philox4x32-10's."""

    _tag = 2

    def call_skip_ahead_subsequence(self, i: int, stream: Any = None) -> None:
        """Let each generator skip `i` subsequences of 2⁴⁸ numbers."""
        self._skip(i, 2**48, 0, stream)

    def call_skip_ahead_subsequence_array(self, i: gpuarray.GPUArray, stream: Any = None) -> None:
        """Let generator t skip ``i[t]`` subsequences of 2⁴⁸ numbers."""
        self._skip(i, 2**48, 0, stream)


class _Quasirandom(_Generators):
    """Generators of quasirandom numbers: generator t is dimension t of Sobol's sequence."""

    _is_scrambled: ClassVar[bool] = False

    def _begin(self, dir_vector: Any, scramble_vector: Any, offset: int) -> None:
        bits, dtype = self._bits, np.dtype(f"u{self._bits // 8}")
        if dir_vector is None:
            members = direction_vector_set
            dir_vector = generate_direction_vectors(self._count, members.VECTOR_64 if bits == 64 else members.VECTOR_32)
        if scramble_vector is None and self._is_scrambled:
            scramble_vector = _scrambles(bits)(self._count)
        expected: dict[str, tuple[Any, tuple[int, ...]]] = {"dir_vector": (dir_vector, (self._count, bits))}
        if scramble_vector is not None:
            expected["scramble_vector"] = scramble_vector, (self._count,)
        for name, (value, shape) in expected.items():
            if not isinstance(value, gpuarray.GPUArray) or value.dtype != dtype or value.shape != shape:
                raise ArgumentError(
                    f"{type(self).__name__}: {name}: expected a GPUArray of {dtype} with shape {shape}, got "
                    f"{shortened(value)}"
                )
        states = np.zeros((self._count, 3), np.uint64)
        # Words of 32 bits are the upper halves of words of 64.
        shift = np.uint64(64 - bits)
        states[:, _POSITION] = offset
        if scramble_vector is not None:
            states[:, _NUMBER] = scramble_vector.get().astype(np.uint64) << shift
        _Generators.__init__(self, states, gpuarray.to_gpu(dir_vector.get().astype(np.uint64) << shift))


class _Plain(_Quasirandom):
    """Generators of Sobol's sequences.

    Parameters
    ----------
    dir_vector : GPUArray, optional
        Direction vectors. Default: `generate_direction_vectors`.
    offset : int
        Points that are skipped at first.
    """

    def __init__(self, dir_vector: Any = None, offset: int = 0) -> None:
        self._begin(dir_vector, None, offset)


class _Scrambled(_Quasirandom):
    """Generators of Sobol's sequences, each XORed with a number of its own.

    Parameters
    ----------
    dir_vector : GPUArray, optional
        Direction vectors. Default: `generate_direction_vectors`.
    scramble_vector : GPUArray, optional
        Numbers that scramble. Default: `generate_scramble_constants32` or ``…64``.
    offset : int
        Points that are skipped at first.
    """

    _is_scrambled = True

    def __init__(self, dir_vector: Any = None, scramble_vector: Any = None, offset: int = 0) -> None:
        self._begin(dir_vector, scramble_vector, offset)


class Sobol32RandomNumberGenerator(_Plain):
    """Generators of Sobol's sequences of 32 bits."""

    _bits = 32


class ScrambledSobol32RandomNumberGenerator(_Scrambled):
    """Generators of scrambled Sobol sequences of 32 bits."""

    _bits = 32


class Sobol64RandomNumberGenerator(_Plain):
    """Generators of Sobol's sequences of 64 bits."""

    _bits = generator_bits = 64


class ScrambledSobol64RandomNumberGenerator(_Scrambled):
    """Generators of scrambled Sobol sequences of 64 bits."""

    _bits = generator_bits = 64


#: Names of PyCUDA that are not here, and what to use.
ABSENT = dict.fromkeys(
    (
        "md5_code", "gen_template", "gen_log_template", "gen_poisson_template", "gen_poisson_inplace_template",
        "random_source", "random_skip_ahead32_source", "random_skip_ahead64_source", "xorwow_random_source",
        "xorwow_skip_ahead_sequence_source", "mrg32k3a_random_source", "mrg32k3a_skip_ahead_sequence_source",
        "sobol_random_source", "scrambledsobol_random_source",
    ),
    "the generators have kernels of their own",
)  # fmt: skip
__getattr__: Callable[[str], NoReturn] = missing(__name__, ABSENT)
