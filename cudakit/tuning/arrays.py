"""Arrays of tuned launches: copies of what the kernel writes, poison before each run, comparison of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.jit.launch.report import accesses
from cudakit.jit.load.config import cover
from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.memory.host_arrays import HostArray
from cudakit.memory.memory import to_device, to_host
from cudakit.places import DEVICES, place_of
from cudakit.types.arguments import is_on_device

#: Bytes of poison: NaN for floating-point numbers, a large negative number for integers.
_NAN_BYTE, _BYTE = 0xFF, 0xA5


class Difference(NamedTuple):
    """The first element of an output that is not as expected."""

    argument: str
    position: tuple[int, ...]
    expected: Any
    result: Any
    number: int

    def __str__(self) -> str:
        place = ", ".join(map(str, self.position))
        others = f"; {self.number:,} elements differ" if self.number > 1 else ""
        return f"{self.argument}[{place}]: expected {self.expected}, got {self.result}{others}"


def on_place(arguments: Sequence[Any], stream: Any) -> tuple[list[Any], dict[int, bool]]:
    """Return arguments with arrays of `ck.In` and its kin copied to the stream's place, and what they say.

    The second result has, by the number of the argument, whether a former content may be poisoned.
    """
    copies, is_poisoned = list(arguments), dict[int, bool]()
    for number, value in enumerate(arguments):
        if isinstance(value, HostArray):
            is_poisoned[number] = not value.copied_in
            copies[number] = to_device(value.array, stream)
    return copies, is_poisoned


class Outputs:
    """The arguments of a launch, with copies of the arrays that the kernel may write.

    Parameters
    ----------
    stream : stream
        Stream of all launches.
    arguments : sequence
        Arguments of the kernel, as in a call. They are never written.
    parameters : sequence of BoundParameter
        Parameters of a specialization.
    is_poisoned : dict of int to bool
        Whether an argument may be poisoned, where the caller says so.
    compare : Kernel
        The kernel ``compare/differences``.
    """

    def __init__(
        self,
        stream: Any,
        arguments: Sequence[Any],
        parameters: Sequence[BoundParameter],
        is_poisoned: Mapping[int, bool],
        compare: Any,
    ) -> None:
        self.stream = stream
        self._compare = compare
        self._scales: dict[int, tuple[Any, float]] = {}
        self._place = place_of(stream)
        self._is_poisoned = is_poisoned
        # The last parameters may be left to their defaults.
        pairs = zip(parameters, arguments, strict=False)
        numbers = [number for number, (parameter, value) in enumerate(pairs) if accesses([parameter], [value])[1]]
        self.names = {number: parameters[number].name for number in numbers}
        with self._place.using(stream) as xp:
            self._originals = {number: arguments[number] for number in numbers}
            # An array that is passed twice stays one array.
            copies = {id(array): xp.array(array, copy=True) for array in self._originals.values()}
            self.arguments = [copies.get(id(value), value) for value in arguments]

    @property
    def bytes_moved(self) -> int:
        """Bytes of all arrays, and again of those that the kernel may write."""
        arrays = [value for value in self.arguments if getattr(value, "shape", ())]
        return sum(value.nbytes for value in (*arrays, *self._originals.values()))

    def restore(self) -> None:
        """Write the original contents into the copies."""
        with self._place.using(self.stream):
            for number, original in self._originals.items():
                self.arguments[number][...] = original

    def poison(self) -> None:
        """Write contents into the copies that no kernel would compute. An array of `ck.InOut` has its own."""
        self.restore()
        with self._place.using(self.stream) as xp:
            for number in self._originals:
                if not self._is_poisoned.get(number, True):
                    continue
                array = self.arguments[number]
                byte = _NAN_BYTE if array.dtype.kind in "fcV" else _BYTE
                if array.flags.c_contiguous:
                    xp.ravel(array).view(xp.uint8)[...] = byte
                else:
                    array[...] = np.frombuffer(bytes([byte] * array.itemsize), array.dtype)[0]

    def results(self) -> dict[int, Any]:
        """Return copies of the arrays that the kernel may write, by the number of the argument."""
        with self._place.using(self.stream) as xp:
            return {number: xp.array(self.arguments[number], copy=True) for number in self._originals}

    def first_difference(
        self, expected: Mapping[int, Any], results: Mapping[int, Any] | None = None, tolerance: float | None = None
    ) -> Difference | None:
        """Return the first element that is not as expected, by argument and position; None if all are.

        Without `results`, the original contents are compared.
        """
        results = self._originals if results is None else results
        for number, reference in expected.items():
            count, first = self._differing(reference, results[number], tolerance)
            if count:
                position = tuple(int(i) for i in np.unravel_index(first, reference.shape))
                with self._place.using(self.stream):
                    element, obtained = reference[position].item(), results[number][position].item()
                return Difference(self.names[number], position, element, obtained, count)
        return None

    def _differing(self, reference: Any, result: Any, tolerance: float | None) -> tuple[int, int]:
        """Return the number of elements that differ, and the number of the first in C order."""
        dtype = reference.dtype
        is_exact = dtype.kind not in "fcV" or bool(dtype.fields)
        # What is exact is compared by its bits; complex numbers are two real ones each.
        part = np.dtype(f"u{dtype.itemsize}") if is_exact and dtype.itemsize in (1, 2, 4, 8) else dtype
        part = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else part
        is_plain = reference.flags.c_contiguous and result.flags.c_contiguous and not part.fields
        if self._place is DEVICES and is_plain:
            size = reference.size * dtype.itemsize // part.itemsize
            with self._place.using(self.stream) as xp:
                pair = [xp.ndarray((size,), part, array.data) for array in (reference, result)]
                outcome = to_device(np.array([0, size], np.uint64), self.stream)
            bound = -1.0 if is_exact else tolerance_of(dtype) if tolerance is None else tolerance
            scale = 0.0 if is_exact else self._scale_of(reference)
            self._compare(self.stream, cover(max(1, size)), *pair, size, bound, scale, outcome)
            count, first = map(int, to_host(outcome, self.stream))
            if part.itemsize == dtype.itemsize or not count:
                return count, first
        right = close(to_host(reference, self.stream), to_host(result, self.stream), tolerance)
        return int((~right).sum()), int(np.argmin(right)) if right.size else 0

    def _scale_of(self, reference: Any) -> float:
        """Return the root mean square of an expected array's finite elements, computed once."""
        if id(reference) not in self._scales:
            self._scales[id(reference)] = reference, scale_of(to_host(reference, self.stream))
        return self._scales[id(reference)][1]

    def like(self, number: int, array: Any) -> Any:
        """Return an array of the caller for comparison with an output: at its place, with its dtype."""
        host = to_host(array, self.stream) if is_on_device(array) else np.asarray(array)
        target = self.arguments[number]
        if host.shape != target.shape:
            raise ArgumentError(
                f"check: {self.names[number]} has shape {tuple(target.shape)}, the expected array {host.shape}"
            )
        return to_device(host.astype(target.dtype), self.stream)

    def host_arguments(self) -> list[Any]:
        """Return the original arguments, arrays as host copies."""
        originals = {id(self.arguments[number]): array for number, array in self._originals.items()}
        values = [originals.get(id(value), value) for value in self.arguments]
        copies = {id(value): np.array(to_host(value, self.stream)) for value in values if getattr(value, "shape", ())}
        return [copies.get(id(value), value) for value in values]

    def refill(self, seed: int) -> None:
        """Put the elements of floating-point arrays in another order, in copies: data that no candidate has seen."""
        rng = np.random.default_rng(seed)
        copies = [id(self.arguments[number]) for number in self._originals]
        for number, value in enumerate(self.host_arguments()):
            if number not in self._originals and id(self.arguments[number]) in copies:
                continue  # it is one of the outputs too
            if isinstance(value, np.ndarray) and value.dtype.kind in "fcV" and not value.dtype.fields:
                fresh = to_device(rng.permutation(value.ravel()).reshape(value.shape), self.stream)
                if number in self._originals:
                    self._originals[number] = fresh
                else:
                    self.arguments[number] = fresh


def close(expected: np.ndarray, result: np.ndarray, tolerance: float | None = None) -> np.ndarray:
    """Return where two arrays agree: exactly, or for floating-point numbers within a tolerance.

    The default tolerance is ε^⅔ of the dtype, relative to the expected element and to the root mean square of all:
    results of sums depend on their order. NaN agrees with NaN. ``templates/compare.cuh`` is the same for a GPU.
    """
    if expected.dtype.fields:
        # NaN in a field equals nothing, and padding may differ.
        pair = [np.ascontiguousarray(array).view(f"V{array.dtype.itemsize}") for array in (expected, result)]
        return np.asarray((expected == result) | (pair[0] == pair[1]))
    if expected.dtype.kind not in "fcV":
        # Of bool every byte but 0 is true, poison too.
        return np.asarray(expected == result if expected.dtype != bool else expected.view("u1") == result.view("u1"))
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    reference, obtained = expected.astype(wide), result.astype(wide)
    bound = tolerance_of(expected.dtype) if tolerance is None else tolerance
    with np.errstate(invalid="ignore"):
        near = np.abs(obtained - reference) <= bound * (np.abs(reference) + scale_of(expected))
    return np.asarray(near | (reference == obtained) | (np.isnan(reference) & np.isnan(obtained)))


def scale_of(expected: np.ndarray) -> float:
    """Return the root mean square of the finite elements; of complex numbers, of their parts."""
    wide = expected.astype(np.complex128 if expected.dtype.kind == "c" else np.float64)
    parts = np.ascontiguousarray(wide).view(np.float64)
    finite = parts[np.isfinite(parts)]
    return float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0


def tolerance_of(dtype: np.dtype) -> float:
    """Return the default tolerance of a dtype."""
    return float(_epsilon(dtype) ** (2 / 3))


def _epsilon(dtype: np.dtype) -> float:
    """Return the distance from 1 to the next number of a dtype."""
    if dtype.kind in "fc":
        return float(np.finfo(dtype).eps)
    import ml_dtypes  # NumPy does not know these

    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
