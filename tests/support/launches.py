"""Launches of the ops for kinds of calls; ``PYTHONPATH=tests python -m support.launches`` writes them down."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cudakit.arrays.place import device_limits
from cudakit.jit.load.config import Config
from cudakit.kernel.kernel import Kernel
from cudakit.ops import arithmetic, arrange, copies, count, filters, images, matmul_tiles, rows
from cudakit.ops.count import Values
from cudakit.ops.epilogue import Activation
from cudakit.ops.filters import Images, Pixels
from cudakit.ops.matmul import Batch, Side
from cudakit.ops.matmul_tiles import MatrixLayout
from cudakit.ops.sort import Sorting
from cudakit.streams import devices

FILE = Path(__file__).parents[1] / "ops" / "launches.txt"
#: A number that no device has, which stands for an H200; and the emulator.
H200, EMULATOR = 4711, "sm_90"
U1, U2, I4, I8, F2, F4, F8 = (np.dtype(name) for name in ("u1", "u2", "i4", "i8", "f2", "f4", "f8"))
WIDE = np.dtype("V16")
BF16, FP8 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)
#: Modules by whose names the package has their functions.
attention, matmul, sort, take, unique = (
    import_module(f"cudakit.ops.{name}") for name in ("attention", "matmul", "sort", "take", "unique")
)


@contextlib.contextmanager
def of_h200() -> Iterator[None]:
    """Lets `H200` be asked about. The launches are those of the defaults, not of measured tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDAKIT_TUNE", "off")
        limits = devices.limits
        card = device_limits("sm_90")._replace(multiprocessors=132)
        patch.setattr(devices, "limits", lambda device: card if device == H200 else limits(device))
        yield


def dense(*shape: int, itemsize: int = 1) -> tuple[int, ...]:
    """Steps of contiguous memory, or strides."""
    return tuple(int(step) * itemsize for step in np.empty(shape, "i1").strides)


def text_of(value: Any) -> str:
    """A launch, or a part of one, in words."""
    if isinstance(value, Kernel):
        return repr(value).removeprefix("<cudakit.Kernel ").partition(" from ")[0]
    if isinstance(value, Config):
        cluster = f" cluster {value.cluster}" if value.cluster else ""
        return f"{value.grid} {value.block} {value.shared_bytes}{cluster}"
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, np.ndarray | np.generic):
        return text_of(value.tolist())
    if isinstance(value, tuple | list):
        return f"({', '.join(map(text_of, value))})"
    # Exponentials differ in their last bits from machine to machine.
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def steps_of(shape: tuple[int, ...], order: Iterable[int]) -> tuple[int, ...]:
    """Steps of an array whose axes lie in `order` in memory, from the slowest."""
    steps, count = [0] * len(shape), 1
    for axis in reversed([*order]):
        steps[axis], count = count, count * shape[axis]
    return tuple(steps)


class _Recorded:
    """Stands for the place that rows are launched at."""

    class xp:
        class lib:
            class stride_tricks:
                @staticmethod
                def as_strided(x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
                    return shape, strides

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.count = 0

    device = H200

    def launch(self, *given: Any) -> None:
        self.lines.append(given)

    def empty(self, shape: Any, dtype: Any) -> _Named:
        self.count += 1
        self.lines.append(("new", self.count, f"{np.dtype(dtype)} {shape}"))
        return _Named(f"new {self.count}", np.dtype(dtype))

    def clear(self, array: Any) -> None:
        self.lines.append(("clear", array))

    def workspace(self, size: int) -> str:
        return f"{size} bytes"


class _Named(str):
    """An array of which only name and dtype are known."""

    dtype: np.dtype

    def __new__(cls, name: str, dtype: np.dtype) -> _Named:
        made = super().__new__(cls, name)
        made.dtype = dtype
        return made


class _Turned(str):
    """An array that says how it was transposed."""

    def transpose(self, order: tuple[int, ...]) -> str:
        return f"{self} turned {order}"


# --- rows of arrays ---------------------------------------------------------------------------------------------------


def _of_rows() -> Iterator[Any]:
    ops = rows.SOFTMAX, rows.LOGSUMEXP, rows.LAYERNORM
    lengths = (1, 3, 8, 21, 64, 65, 128, 511, 1000, 2048, 4096, 8192, 16_384, 16_388, 65_536, 262_144, 2**20)
    kinds: list[Any] = [(ops[0], dtype, (9, n), None, 16) for dtype in (F2, F8) for n in lengths]
    kinds += [(ops[1], F4, (9, n), None, 16) for n in (21, 40, 4096, 2**20)]
    kinds += [(ops[0], F4, shape, None, 16) for shape in ((2, 600_000), (1, 2**21), (500, 2**19))]
    kinds += [(ops[2], F4, (9, n), None, align) for n in (12, 4000, 4100, 70_000) for align in (16, 8, 4)]
    for shape, order in (
        ((300, 400), (1, 0)),
        ((40, 300), (1, 0)),
        ((1000, 7), (1, 0)),
        ((4, 5, 600), (1, 0, 2)),
        ((2**20, 256), (1, 0)),
        ((4, 300, 50), (0, 2, 1)),
    ):
        kinds += [(op, dtype, shape, order, 16) for op, dtype in zip(ops, (F2, F8, F4), strict=True)]
    for op, dtype, shape, order, alignment in kinds:
        strides = tuple(dtype.itemsize * step for step in steps_of(shape, order or range(len(shape))))
        for axis in (-1, 0) if order else (-1,):
            to = None if op.per_row else strides
            place = _Recorded()
            rows.job_of(op, dtype, shape, strides, axis, False, H200, to, alignment).launch(
                place, _Turned("x"), _Turned("out")
            )
            yield from place.lines


def _of_rows_apart() -> Iterator[Any]:
    """Rows that lie apart, in x or in the result."""
    for high, length in ((5, 96), (1, 96), (5, 1), (5, 8), (3, 40_000)):
        for x_step, out_step in (
            (length, length),
            (length + 8, length),
            (length, length + 8),
            (length + 8, length + 8),
        ):
            for op in (rows.SOFTMAX, rows.LAYERNORM):
                key = op, F4, (high, length), (4 * x_step, 4), -1, False, H200, (4 * out_step, 4), 16
                place = _Recorded()
                rows.job_of(*key).launch(place, _Turned("x"), _Turned("out"))
                yield from place.lines
    for high, length in ((5, 96), (1, 96)):
        for out_step in (1, 2):
            key = rows.LOGSUMEXP, F4, (high, length), (4 * length, 4), -1, False, H200, (4 * out_step,), 16
            place = _Recorded()
            rows.job_of(*key).launch(place, _Turned("x"), _Turned("out"))
            yield from place.lines


def _of_row_jobs() -> Iterator[Any]:
    for shape, order in (
        ((3, 4), (1, 0)),
        ((3, 1, 4), (2, 0, 1)),
        ((2, 3, 4), (1, 0, 2)),
        ((5,), (0,)),
        ((0, 3), (1, 0)),
    ):
        steps = steps_of(shape, order)
        for op, keepdims in ((rows.SOFTMAX, False), (rows.LOGSUMEXP, False), (rows.LOGSUMEXP, True)):
            strides = tuple(4 * step for step in steps)
            made = rows.job_of(op, F4, shape, strides, 0, keepdims, EMULATOR, None, 16)
            yield made.shape, made.dtype, made.order, made.copies


# --- moves ------------------------------------------------------------------------------------------------------------


def _of_copies() -> Iterator[Any]:
    for dtype in (U1, F4, WIDE):
        for shape, order in (
            ((1000,), (0,)),
            ((70, 300), (1, 0)),
            ((3, 4000), (1, 0)),
            ((4000, 3), (1, 0)),
            ((9, 4000), (1, 0)),
            ((4, 70, 300), (0, 2, 1)),
            ((4, 5, 70, 300), (0, 1, 3, 2)),
            ((4, 70, 5, 300), (2, 0, 3, 1)),
            ((5, 6, 7), (1, 0, 2)),
            ((0, 3), (1, 0)),
        ):
            strides = tuple(dtype.itemsize * step for step in steps_of(shape, order))
            yield copies.copy_job("copy", dtype, shape, strides, None, None)
    yield copies.copy_job("copy", F8, (70, 300), (2400, 8), (1, 0), None)
    yield copies.copy_job("copy", U2, (4, 70, 300), (42_000, 600, 2), (0, 2, 1), (42_000, 2, 600))
    yield copies.copy_job("copy", U2, (4, 70, 5), (700, 10, 2), (2, 0, 1), (2, 10, 40))
    yield copies.copy_job("copy", F4, (70, 300), (-4, 280), None, None)
    yield copies.copy_job("copy", F4, (4, 3), (16, 4), None, None)
    yield copies.copy_job("copy", U1, (2**16, 2**15), (2**16, 2), None, None)


def _of_maps() -> Iterator[Any]:
    for mode in ("constant", "edge", "reflect", "wrap"):
        for width in (0, 2, ((1, 0), (0, 3)), ((0, 0), (2, 2))):
            yield arrange.pad_job(F4, (5, 7), (28, 4), width, mode, b"\1\2\3\4", None)
        yield arrange.pad_job(U2, (5, 1, 7), (14, 14, 2), ((0, 1), (0, 0), (1, 1)), mode, b"\1\2", (16, 16, 2))
    yield arrange._roll_job(F4, (5, 7), (28, 4), 2, 0, None)
    yield arrange._roll_job(F4, (5, 7), (28, 4), (2, -3, 4), (0, 1, 0), None)
    yield arrange._roll_job(F4, (5, 7), (28, 4), 36, None, None)
    yield arrange._roll_job(F4, (5, 7), (28, 4), (1, 2), 0, None)
    yield arrange._flip_job(F4, (5, 7), (28, 4), 0, None)
    yield arrange._flip_job(F4, (5, 7), (28, 4), None, (4, 20))
    yield arrange._flip_job(U1, (2**16, 2**15 - 1), (2**15 - 1, 1), 1, None)
    yield arrange._flip_job(U1, (2**16, 2**15), (2**15, 1), 1, None)


def _of_casts() -> Iterator[Any]:
    for source, target, saturate in ((F4, F8, False), (F8, U1, True), (U1, F4, True), (F4, I4, False)):
        for shape in ((1000,), (513, 3), (1,), (0, 4)):
            size = source.itemsize
            yield copies.cast_job(source, shape, dense(*shape, itemsize=size), target, saturate, None)
            turned = tuple(reversed(dense(*reversed(shape), itemsize=size)))
            yield copies.cast_job(source, shape, turned, target, saturate, None)
    yield copies.cast_job(F4, (2, 3), (-12, 4), F8, False, (8, -16))
    yield copies.cast_job(U1, (2**16, 2**15 - 1), (2**15, 1), F4, False, None)
    yield copies.cast_job(U1, (2**16, 2**15), (2**15 + 1, 1), F4, False, None)


def _of_takes() -> Iterator[Any]:
    for shape, steps, axis in (
        ((30, 8), (8, 1), 0),
        ((30, 8), (8, 1), 1),
        ((30, 8), (16, 1), 0),
        ((30, 8), (1, 30), 0),
        ((30, 8), (8, 1), None),
        ((30, 8), (16, 1), None),
        ((3, 30, 8), (240, 8, 1), 1),
        ((3, 30, 8), (-240, 8, 1), 1),
        ((3, 4, 5, 6), (120, 30, 6, 1), 2),
        ((4, 3, 5, 6), (30, 120, 6, 1), 2),
        ((0, 3), (3, 1), 1),
    ):
        for dtype, alignment, mode in ((U1, 16, "raise"), (F4, 8, "wrap"), (F8, 16, "clip")):
            strides = tuple(dtype.itemsize * step for step in steps)
            yield take._job(dtype, shape, strides, I4, (5, 2), axis, mode, alignment)
    yield take._job(U1, (4, 2**16), (2**16, 1), I8, (2**16,), 0, "wrap", 1)


def _of_joins() -> Iterator[Any]:
    kind = F4, (5, 7), (28, 4)
    yield arrange._job((kind, kind), 0, None, "same_kind")
    yield arrange._job((kind, (F4, (5, 2), (40, 4)), (F4, (5, 1), (-4, 4))), 1, None, "same_kind")
    yield arrange._job((kind, (F8, (5, 7), (56, 8))), None, None, "same_kind")
    yield arrange._job((kind, (F4, (7, 5), (4, 28))), None, None, "same_kind")
    yield arrange._job(((F4, (0, 7), (28, 4)), kind), 0, F8, "safe")
    yield arrange._job(((U1, (3, 4, 5), (20, 5, 1)), (U1, (3, 4, 5), (40, 10, 1))), 2, None, "no")
    yield arrange._job((kind,) * 67, 1, None, "same_kind")


# --- orders and choices -----------------------------------------------------------------------------------------------


def _of_sorts() -> Iterator[Any]:
    sortings = Sorting(True), Sorting(True, F8), Sorting(False, I8, True), Sorting(True, F4)
    for size in (1, 2, 3, 32, 33, 128, 129, 1000, 2048, 4096, 8192, 16384):
        for sorting in sortings[:3] if size in (3, 1000) else sortings[:1]:
            if size <= sort.LONGEST_ROW:
                yield sort._row_pass("sort", sort.order_of("sort", F4), sorting, 77, size)
    kinds = [(dtype, sorting, 3, 100_000) for dtype in (U1, F2, F4, F8) for sorting in sortings]
    kinds += [
        (F4, sortings[2], 1, size)
        for size in (9000, 30_000, 33_000, 50_000, 2**22 - 1, 2**22, 2**30 - 1, 2**30, 2**32, 2**32 + 1)
    ]
    kinds += [(F8, sortings[0], 5, 2**20), (U1, sortings[0], 400, 40_000), (U1, Sorting(True, U1), 3, 100_000)]
    kinds += [(dtype, Sorting(True, F2), 3, 100_000) for dtype in (U1, F2, F4)]
    for dtype, sorting, high, size in kinds:
        order = sort.order_of("sort", dtype, dtype == F2)
        plan = sort._plan("sort", order, dtype, sorting, high, size, H200)
        yield len(plan.passes), plan._replace(passes=(plan.passes[0], plan.passes[-1]))
    yield sort._plan("sort", "order", U1, sortings[2], 3, 9000, EMULATOR)
    for number in range(4):
        yield [sort._turn([*range(number)], last) for last in range(6)]


def _of_sorted_rows() -> Iterator[Any]:
    dtypes = {"keys": F4, "values": F8, "index": I8, "narrow": np.dtype("u4"), "wide": WIDE, "byte": U1}
    sortings = {
        "values": Sorting(True, F8),
        "wide": Sorting(True, WIDE),
        "index": Sorting(True, I8, True),
        "narrow": Sorting(False, np.dtype("u4"), True),
        "": Sorting(True),
    }
    for of_keys in ("keys", "byte"):
        for of_values, sorting in sortings.items():
            place: Any = _Recorded()
            keys, out = _Named(of_keys, dtypes[of_keys]), _Named("keys out", dtypes[of_keys])
            values = values_out = None
            if of_values:
                values_out = _Named(f"{of_values} out", dtypes[of_values])
                values = None if sorting.is_index else _Named(of_values, dtypes[of_values])
            lines = sort.lines_of("sort", (3, sort.LONGEST_ROW + 1), -1)
            arrays = keys, values, out if sorting.keys else None, values_out
            sort.sort_rows("sort", place, "order", lines, sorting, arrays)
            yield from place.lines


def _of_selections() -> Iterator[Any]:
    order = sort.order_of("topk", F4)
    for high, size, k in (
        (1, 10**6, 5),
        (1, 10**6, 3000),
        (500, 10**6, 5),
        (9, 8191, 5),
        (9, 16_384, 5),
        (3, 10**5, 1),
    ):
        yield sort._segments(high, size, k, H200)
    for high, size, k in ((1, 10**6, 5), (2, 10**6, 3000), (9, 8191, 5)):
        place: Any = _Recorded()
        x, keys, index = (_Named(name, dtype) for name, dtype in (("x", F4), ("keys", F4), ("index", I8)))
        sort._select(place, order, high, size, k, x, keys, index)
        yield from place.lines
    for length in (129, 1024, 1025, 2049, 4097, 8192, 8193, 16_384, 16_385):
        yield sort._launch(order, 4, 7, length)
        yield sort._launch(order, 8 if length < 5000 else 1, 7, length)
    for dtype in (U1, U2, F4, F8, WIDE):
        for size in (0, 16_385, 2**32):
            yield take._launch(dtype, size, H200)
    for size in (1, 2048, 2049, 10**7, 2**32):
        yield unique._launch(order, size, size == 2049, H200)


def _of_counts() -> Iterator[Any]:
    for size, rank in ((0, None), (1025, None), (16_385, None), (100_000, 2), (10**8, None)):
        yield count.byte_pass(Values(U1, rank, size, H200), "even", F8)
        yield count.value_pass(Values(I4, rank, size, H200), "even", F8, 255)
        yield count.range_pass(Values(F2, rank, size, H200), F4)
        yield count.weighing_passes(Values(F8, rank, size, H200), F4, "whole", F8, 255, F4)
    yield count.byte_pass(Values(U1, None, 100, H200), "whole", F8)
    for bins in (1, 256, 257, 4095, 4096, 4097, 16_384, 16_385, 200_000, 900_000, 10**7):
        for dtype, edge, policy in ((I4, F8, "even"), (F2, F2, "any"), (I8, F8, "whole")):
            yield count.value_pass(Values(dtype, None, 10**8, H200), policy, edge, bins)
    for bins in (1, 255, 2048, 4096, 4097, 8192, 8193):
        for weight, out, policy in ((I4, I8, "any"), (F4, F4, "even")):
            yield count.weighing_passes(Values(F8, None, 10**8, H200), weight, policy, F8, bins, out)


# --- images -----------------------------------------------------------------------------------------------------------


def _of_images() -> Iterator[Any]:
    for of in (Images(1, 64, 96, 1), Images(2, 101, 37, 3), Images(1, 2000, 2048, 1), Images(3, 64, 64, 4)):
        for dtype in (U1, F2, F4, F8):
            for scale in (0.5, 2, 0.7):
                rows, columns = round(of.height * scale), round(of.width * scale)
                yield images._resized(of, dtype, rows, columns, True, True)
            if dtype == U1:
                yield images._resized(of, dtype, rows, columns, False, True)
                yield images._resized(of, dtype, rows, columns, True, False)
                yield images._resized(of, dtype, 1, 1, True, True)
        yield images._warped(of, dtype, 50, 70, True, (2, 0.5), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
    yield images._warped(Images(1, 1, (1 << 26) - 1, 1), F4, 5, 7, False, (0, 0.0), (1.0,) * 6)
    yield images._warped(Images(1, 1, 1 << 26, 1), F4, 5, 7, False, (0, 0.0), (1.0,) * 6)


def _of_windows() -> Iterator[Any]:
    for of in (Images(1, 64, 96, 1), Images(2, 101, 37, 3), Images(1, 2000, 2048, 1), Images(1, 2**17, 2**15, 1)):
        for dtypes in ((U1, U1), (U1, np.dtype("i2")), (F4, F4), (F8, F8)):
            for alignment, high, most in ((16, 3, 8), (4, 7, 8), (16, 5, 4)):
                pixels = Pixels(of, dtypes[0], (alignment % 3, 0.5), alignment, H200)
                yield filters.near_pass(pixels, dtypes[1], "w", np.int32(0), high, most)
            weights, size = np.ones(3, "f4"), ((1, 9) if dtypes[0] == U1 else (9, 3))
            yield filters.far_pass(Pixels(of, dtypes[0], (2, 0.5), 16, H200), dtypes[1], "fold", weights, size, 0.25)
        for window, mode in (((3, 3), 2), ((7, 7), 2), ((9, 1), 2), ((1, 9), 0), ((3, 3), 5)):
            yield filters.is_near(of, window, mode)


def _of_filters() -> Iterator[Any]:
    plain, wide, pixels = Images(1, 64, 96, 1), Images(1, 2000, 2048, 1), Images(2, 64, 96, 3)
    for of in (plain, wide, pixels):
        for dtype in (U1, F4, F8):
            pixels = Pixels(of, dtype, (2, 1.5), 16, H200)
            for size in ((3, 5), (7, 1), (9, 3)):
                weights = tuple(filters._gaussian(n, None, dtype == U1) for n in size)
                yield filters._smoothing("op", weights, 0.5, pixels)
            yield filters._sobel(1, pixels)
            for size in ((3, 5), (9, 1)):
                elements = tuple(float(each) for each in range(size[0] * size[1]))
                yield filters._weighed(elements, size, pixels)
    for length in (1, 3, 5, 7, 9, 31):
        for sigma in (None, 0.4, 2.5):
            yield filters._gaussian(length, sigma, False), filters._gaussian(length, sigma, True)


# --- products ---------------------------------------------------------------------------------------------------------


def _of_vectors() -> Iterator[Any]:
    for dtype in (U1, F2, F4, F8):
        for shape in ((2112, 256), (2111, 256), (2112, 255), (3000, 1001), (31, 64), (32, 63), (32, 64), (5000, 4000)):
            for steps in (dense(*shape), (shape[1] + 4, 1), (1, shape[0]), (1, shape[0] + 2), (2, 1), (1, 2)):
                if dtype == F4 or steps[0] in (1, shape[1]):
                    yield arithmetic._plan(dtype, shape, steps, 16, H200)
        yield arithmetic._plan(dtype, (2112, 256), (256, 1), 4, H200)
        yield arithmetic._plan(dtype, (64, 256), (1, 64), 1, EMULATOR)
        yield arithmetic._outer_of(dtype, 4), arithmetic._adding(dtype, "float")


def _of_products() -> Iterator[Any]:
    dtypes: list[tuple[np.dtype, np.dtype, str | None]]
    dtypes = [(dtype, dtype, None) for dtype in (U1, I8, F2, F4, F8, np.dtype("i1"), np.dtype("?"))]
    dtypes += [(F4, F4, "tf32"), (np.dtype("i1"), I4, None), (np.dtype("i1"), F4, None), (FP8, F2, None)]
    dtypes += [(np.dtype("c8"), np.dtype("c8"), None), (np.dtype("c16"), np.dtype("c16"), None), (BF16, BF16, None)]
    for dtype, made, precision in dtypes:
        for capability in ((7, 5), (8, 0), (8, 9), (9, 0)):
            yield matmul.multiplier_of(dtype, made, precision, capability)
    for row in matmul.TABLE:
        for sizes in ((1, 64, 64, 64), (1, 1000, 1000, 8), (64, 512, 512, 64), (1, 2048, 2048, 9), (3, 4096, 4000, 9)):
            yield matmul.choose(row, *sizes, H200)
        yield matmul.choose(row, 1, 64, 64, 64, EMULATOR)
    sides = [
        Side(line, depth, batch, begin, 16)
        for line, depth in ((64, 1), (1, 64), (68, 1), (2, 3))
        for batch, begin in (
            ((), 0),
            ((4096,), 0),
            ((4098,), 0),
            ((), 3),
        )
    ]
    sides += [Side(64, 1, (), 0, 4), Side(1, 1, (), 0, 16), Side(-1, 5, (), 0, 16)]
    for side in sides:
        yield [
            matmul.reading(side, 64, 64, itemsize, is_mma) for itemsize, is_mma in ((1, True), (4, True), (4, False))
        ]
        yield matmul.reading(side, 1, 64, 4, True), matmul.reading(side, 64, 1, 4, True)
    for shape, a, b in (
        ((2, 3), (12, 4), (12, 4)),
        ((2, 3), (12, 4), (0, 4)),
        ((2, 3, 4, 5), (1, 2, 3, 4), (4, 3, 2, 1)),
        ((2, 3, 4), (1, 2, 3), (4, 3, 2)),
        ((0, 3), (3, 1), (3, 1)),
        ((), (), ()),
    ):
        yield matmul.batch_of(shape, a, b)
    for dtype, made, precision in (dtypes[2], dtypes[3], dtypes[4], dtypes[7], dtypes[8], dtypes[-3], dtypes[6]):
        by = matmul.multiplier_of(dtype, made, precision, (9, 0))
        for tile in matmul.TABLE[by.row]:
            for left, right in (
                (Side(96, 1, (9600,), 0, 16), Side(1, 80, (0,), 0, 16)),
                (Side(1, 100, (7,), 2, 16),) * 2,
            ):
                for extras, aligned, extents in (
                    ((False, True), 16, (100, 80, 96)),
                    ((True, False), 8, (100, 80, 96)),
                    ((False, False), 16, (100, 1, 96)),
                    ((False, False), 16, (1, 80, 96)),
                    ((False, False), 16, (100, 80, 1)),
                ):
                    if tile == matmul.TABLE[by.row][0] or extents == (100, 80, 96):
                        batch = Batch((5,), (9600,), (7,))
                        yield matmul.product(
                            *(dtype, made, Activation("cudakit::same"), (left, right), batch, extents, extras),
                            *(aligned, by, tile),
                        )


def _of_tiles() -> Iterator[Any]:
    for itemsize in (1, 2, 4):
        yield [matmul_tiles.table_row(itemsize, a, b) for a in (False, True) for b in (False, True)]
    for row in matmul_tiles.TABLE:
        for sizes in (
            (1, 512, 512, 512),
            (1, 1, 4096, 4096),
            (1, 4096, 64, 0),
            (64, 1024, 1000, 64),
            (1, 8192, 8192, 8192),
        ):
            yield matmul_tiles.choose(row, *sizes, H200), matmul_tiles.choose(row, *sizes, EMULATOR)
    for shape, strides in (
        ((6, 8), (16, 2)),
        ((6, 8), (18, 2)),
        ((6, 8), (14, 2)),
        ((6, 8), (2, 12)),
        ((6, 8), (2, 10)),
        ((6, 8), (3, 2)),
        ((6, 8), (32, 4)),
        ((1, 8), (2, 2)),
        ((6, 1), (16, 6)),
        ((6, 1), (16, 16)),
        ((3, 6, 8), (96, 16, 2)),
        ((3, 6, 8), (0, 16, 2)),
        ((3, 6, 8), (8, 48, 2)),
        ((3, 6, 8), (16, 48, 2)),
        ((1, 6, 8), (4, 16, 2)),
        ((2, 3, 6, 8), (288, 96, 16, 2)),
        ((2, 3, 6, 8), (300, 96, 16, 2)),
        ((1, 1, 6, 8), (300, 96, 16, 2)),
        ((3, 6, 8), (96, 2, 12)),
    ):
        yield matmul_tiles.matrix_layout(shape, strides, 2)
    flat, turned = MatrixLayout(False, 128, 8192), MatrixLayout(True, 136, 0)
    for tiles in (*matmul_tiles.TABLE["half"], *matmul_tiles.TABLE["TF32"]):
        for stored, made, sides, batches, addresses in (
            (F2, F2, (flat, turned, flat), 3, (16, 16)),
            (F4, F4, (turned, flat, MatrixLayout(False, 100, 0)), 1, (16, 8)),
            (FP8, F2, (MatrixLayout(False, 1 << 20, 1 << 30), turned, flat), 2, (4, 16)),
        ):
            yield matmul_tiles.product(
                *(stored, made, Activation("cudakit::same"), sides, (batches, 1000, 90, 2048), addresses),
                *((batches == 1, batches == 2), tiles, H200),
            )


def _of_attention() -> Iterator[Any]:
    heads = ((8, 1, 100, 100), (132, 4, 128, 2048), (131, 1, 128, 2048), (132, 1, 128, 2047), (66_000, 1, 200, 5000))
    kinds = [(d, True, heads[0]) for d in (8, 16, 24, 64, 72, 128, 136, 256)]
    kinds += [(128, causal, sizes) for sizes in heads for causal in (False, True)]
    kinds += [(64, True, (32, 1, 9, 4096)), (64, True, (64, 1, 9, 2049)), (64, True, (65_536, 1, 64 * 65_536, 9))]
    kinds += [(64, True, (64, 1, 9, 2048)), (64, False, (65_535, 1, 9, 9)), (64, False, (65_536, 1, 9, 9))]
    for d, causal, sizes in kinds:
        choice = attention.choose(d, causal, sizes, H200)
        yield choice, attention.attention_of(F2, d, causal, 0.5, sizes, choice)
        yield attention.threaded_attention(
            F2, d, causal, 0.5, sizes, choice.heads_first, attention.block_of(d, causal, sizes, H200)
        )


CALLS: dict[str, Callable[[], Iterator[Any]]] = {
    "rows": _of_rows,
    "rows apart": _of_rows_apart,
    "jobs of rows": _of_row_jobs,
    "copies": _of_copies,
    "maps": _of_maps,
    "casts": _of_casts,
    "takes": _of_takes,
    "joins": _of_joins,
    "sorts": _of_sorts,
    "sorted rows": _of_sorted_rows,
    "selections": _of_selections,
    "counts": _of_counts,
    "images": _of_images,
    "windows": _of_windows,
    "filters": _of_filters,
    "vectors": _of_vectors,
    "products": _of_products,
    "tiles": _of_tiles,
    "attention": _of_attention,
}


def shown(name: str) -> list[str]:
    """The launches of calls of one kind."""
    return [text_of(launch) for launch in CALLS[name]()]


def written() -> dict[str, list[str]]:
    """The launches of `FILE`, by kind."""
    found: dict[str, list[str]] = {}
    for line in FILE.read_text().splitlines():
        if line.startswith("# "):
            found[line.removeprefix("# ")] = []
        else:
            found[[*found][-1]].append(line)
    return found


if __name__ == "__main__":
    with of_h200():
        FILE.write_text("".join(f"{line}\n" for name in CALLS for line in (f"# {name}", *shown(name))))
