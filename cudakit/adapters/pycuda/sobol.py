"""Direction vectors of Sobol's sequences, from primitive polynomials over GF(2)."""

from __future__ import annotations

import functools

import numpy as np

#: Dimensions before the vectors repeat; cuRAND has 20 000.
DIMENSIONS = 5_000
_DEGREES = 16
_FACTORS = {degree: [] for degree in range(_DEGREES + 1)}  # type: dict[int, list[int]]
for _degree in range(2, _DEGREES + 1):
    _rest, _prime = 2**_degree - 1, 3
    while _rest > 1:
        if _rest % _prime == 0:
            _FACTORS[_degree].append(_prime)
            while _rest % _prime == 0:
                _rest //= _prime
        _prime += 2


def _square(a: np.ndarray, polynomials: np.ndarray, degree: int) -> np.ndarray:
    """Return the squares of polynomials over GF(2), each modulo its own polynomial of a degree."""
    result = np.zeros_like(a)
    for bit in reversed(range(degree)):
        # Bit k of the number becomes bit 2 k: shift by two, and reduce twice.
        for _ in range(2):
            result <<= 1
            result ^= (result >> degree) * polynomials
        result ^= a >> bit & 1
    return result


def _power_of_x(exponent: int, polynomials: np.ndarray, degree: int) -> np.ndarray:
    result = np.ones_like(polynomials)
    for bit in f"{exponent:b}":
        result = _square(result, polynomials, degree)
        if bit == "1":
            result <<= 1
            result ^= (result >> degree) * polynomials
    return result


def primitive_polynomials(degree: int) -> np.ndarray:
    """Return the primitive polynomials of a degree over GF(2), as bits: x³ + x + 1 is 0b1011."""
    polynomials = np.arange(2**degree + 1, 2 ** (degree + 1), 2, dtype=np.uint32)
    polynomials = polynomials[_power_of_x(2**degree, polynomials, degree) == _power_of_x(1, polynomials, degree)]
    for factor in _FACTORS[degree]:
        polynomials = polynomials[_power_of_x((2**degree - 1) // factor, polynomials, degree) != 1]
    return np.asarray(polynomials)


@functools.cache
def direction_vectors(bits: int) -> np.ndarray:
    """Return the direction vectors of all dimensions, as integers of `bits` bits.

    The first vector of a dimension has the highest bit. The initial numbers are drawn once and for all, so the
    vectors differ from Joe and Kuo's, which cuRAND has.

    Returns
    -------
    numpy.ndarray
        Array of shape (`DIMENSIONS`, `bits`), uint32 or uint64.
    """
    draw = np.random.default_rng(1967).integers
    first = np.uint64(1) << np.arange(bits - 1, -1, -1, dtype=np.uint64)
    parts = [first[None]]
    for degree in range(1, _DEGREES + 1):
        polynomials = primitive_polynomials(degree).astype(np.uint64)
        vectors = np.zeros((len(polynomials), bits), np.uint64)
        for k in range(bits):
            if k < degree:
                odd = draw(0, 2**k, len(polynomials), np.uint64) * np.uint64(2) + np.uint64(1) & np.uint64(
                    2 ** (k + 1) - 1
                )
                vectors[:, k] = odd << np.uint64(bits - 1 - k)
                continue
            vectors[:, k] = vectors[:, k - degree] ^ vectors[:, k - degree] >> np.uint64(degree)
            for step in range(1, degree):
                coefficient = polynomials >> np.uint64(degree - step) & np.uint64(1)
                vectors[:, k] ^= coefficient * vectors[:, k - step]
        parts.append(vectors)
    return np.concatenate(parts)[:DIMENSIONS].astype(f"u{bits // 8}")
