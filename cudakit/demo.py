"""``cudakit demo``: a photograph through three packaged templates, every stage checked against NumPy.

RGB → gray → 5×5 blur → 256-bin histogram, for ``uint8`` and for ``float32``, on one explicit stream.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from cuda.core import Stream

import cudakit as ck
from cudakit.jit.compile import nvrtc
from cudakit.jit.load.load import EmulatedAttributes
from cudakit.jit.specialise.options import check_target, unknown_arch
from cudakit.pipeline.sinks import replacing
from cudakit.types.shown import Table, text

_TEMPLATES: Final = ("image/gray", "image/blur", "histogram/even")
_DTYPES: Final = (np.dtype(np.uint8), np.dtype(np.float32))
_BINS: Final = 256
_REPEATS: Final = 9
_PICTURE: Final = "cudakit-demo.png"
#: Words for what runs kernels.
_ON_GPU: Final = "GPU"
_COMPILED: Final = "emulator, compiled for this CPU"
_INTERPRETED: Final = "emulator, interpreted with NumPy"
#: Pixels that the emulator is given at a time, so that it can say how far it is.
_STRIP_PIXELS: Final = 1 << 20
#: Pixels across the detail in which the blur is seen, and, about, across a picture as it is drawn.
_DETAIL: Final = 48
_DRAWN: Final = 1200

#: 65536 × (0.299, 0.587, 0.114), the luma weights of ITU-R BT.601-7, rounded so that they add up to 65536.
_FIXED_POINT_WEIGHTS: Final = (19595, 38470, 7471)


@dataclass(frozen=True)
class Stage:
    """Result of one template for one dtype.

    Attributes
    ----------
    name : str
        Name of the template.
    dtype : numpy.dtype
        Dtype of the input image.
    output : numpy.ndarray
        Output of the kernel, copied to the host.
    elapsed_ms : float or None
        Median time of one launch, in milliseconds; None on the emulator.
    machine : str
        Name of the processor or emulator that ran the kernel.
    difference : float
        Largest absolute difference from the NumPy reference.
    tolerance : float
        Largest difference that counts as right.
    """

    name: str
    dtype: np.dtype[Any]
    output: np.ndarray
    elapsed_ms: float | None
    machine: str
    difference: float
    tolerance: float

    @property
    def is_right(self) -> bool:
        """Whether the output agrees with NumPy's. An output with a NaN does not."""
        return self.difference <= self.tolerance

    @property
    def verdict(self) -> str:
        """Result of the comparison with NumPy, in words."""
        if not self.is_right:
            return f"WRONG: off by {self.difference:g}, at most {self.tolerance:g} allowed"
        return "exact" if self.tolerance == 0 else f"within {self.difference:.1e} (allowed {self.tolerance:.1e})"


def main(photo: Path | None, arch: str | None, output: Path) -> int:
    """Run the demo, on the emulator where there is no GPU; print what was done.

    Parameters
    ----------
    photo : Path or None
        An image file; None takes the portrait that matplotlib ships.
    arch : str or None
        Architecture to compile for besides, such as ``sm_90``.
    output : Path
        Folder of the picture, or its file if the name ends with ``.png``.

    Returns
    -------
    int
        0 where all that could be done was done and is right, else 1.
    """
    if arch is not None and not compile_all(arch):
        return 1
    stream: Any = ck.stream() if ck.has_gpu() else ck.emulator.stream()
    print("\n".join(_introduction()))
    pixels = read_photo(photo)
    strips = strips_of(pixels.shape[0], pixels.shape[1], emulated=not ck.has_gpu())
    bar = Bar(len(strips) * len(_TEMPLATES) * len(_DTYPES))
    stages = {dtype: run_stages(stream, from_uint8(pixels, dtype), strips, bar) for dtype in _DTYPES}
    flat = [stage for of_dtype in stages.values() for stage in of_dtype]
    print(f"{photo or 'grace_hopper.jpg, as matplotlib ships it'}: {pixels.shape[1]} × {pixels.shape[0]} pixels")
    rows = [(stage.name, stage.dtype, stage.machine, _shown(stage.elapsed_ms), stage.verdict) for stage in flat]
    print(text(Table(("kernel", "dtype", "ran on", "ms", "compared with a NumPy reference"), rows)))
    print(f"picture: {save_picture(pixels, stages, output)}")
    return 0 if all(stage.is_right for stage in flat) else 1


def _introduction() -> Iterator[str]:
    """Yield lines that say what runs the kernels."""
    if ck.has_gpu():
        yield f"The kernels run on the GPU, {ck.device_limits().name}."
        return
    yield "There is no GPU here: cudakit's emulator runs the CUDA kernels on this CPU."
    yield "It computes what a GPU computes. Its times say nothing about a GPU, so none are shown."
    if importlib.util.find_spec("llvmlite") is None:
        yield "It interprets the kernels with NumPy. To compile long ones for this CPU: pip install 'cudakit[cpu]'"
    else:
        yield "It interprets short kernels with NumPy, and compiles long ones for this CPU."


def _shown(elapsed_ms: float | None) -> str:
    return "–" if elapsed_ms is None else f"{elapsed_ms:.4f}"


def _machine_of(kernel: ck.Kernel) -> str:
    """Return what ran the last launch of a kernel, in words."""
    ran = kernel.attributes()
    if not isinstance(ran, EmulatedAttributes):
        return _ON_GPU
    return _COMPILED if ran.machine == "compiled" else _INTERPRETED


def compile_all(arch: str) -> bool:
    """Compile every kernel of the demo for `arch`, without a GPU, and print a table. Return whether all compiled."""
    check_target("demo", arch, "cubin")
    if not nvrtc.is_supported(arch):
        raise ck.CompileError(unknown_arch("demo", arch, nvrtc.supported_archs()))
    rows, good = [], True
    for template in _TEMPLATES:
        for dtype in _DTYPES:
            try:
                compiled = ck.Kernel.from_template(template)[dtype].compile(arch=arch)
            except ck.CompileError as error:
                good = False
                rows.append((template, str(dtype), "", f"failed: {error}"))
            else:
                rows.append((template, str(dtype), str(len(compiled.code)), "compiled"))
    print(text(Table(("kernel", "dtype", "cubin bytes", f"for {arch}"), rows)))
    return good


class Bar:
    """Progress bar of the demo, on one line of standard error. It stays empty where there are few strips.

    Parameters
    ----------
    total : int
        Number of strips.
    """

    def __init__(self, total: int) -> None:
        self._total, self._finished = total, 0

    def add(self, template: str) -> None:
        """Count one more strip as done."""
        self._finished += 1
        if self._total > len(_TEMPLATES) * len(_DTYPES):
            filled = 20 * self._finished // self._total
            end = "\n" if self._finished == self._total else ""
            print(f"\r{'█' * filled}{'·' * (20 - filled)} {template:<24}", end=end, file=sys.stderr, flush=True)


def strips_of(height: int, width: int, emulated: bool) -> list[tuple[int, int]]:
    """Return the first row and the row after the last of each strip: the image on a GPU, a million pixels else."""
    rows = max(1, _STRIP_PIXELS // width) if emulated else height
    return [(first, min(first + rows, height)) for first in range(0, height, rows)]


def run_stages(stream: Any, rgb: np.ndarray, strips: Sequence[tuple[int, int]], bar: Bar) -> list[Stage]:
    """Run the three templates on `rgb` (height, width, 3), each on the output of the one before, and check each.

    The NumPy reference takes the same array as the kernel. An error is seen where it arises, and the histogram's counts
    are exact for both dtypes.

    Parameters
    ----------
    stream : stream
        Stream that the kernels run on.
    rgb : numpy.ndarray
        Photograph, (height, width, 3), uint8.
    strips : sequence of (int, int)
        First row and row after the last of each launch.
    bar : Bar
        Progress bar that counts the strips.
    """
    height, width, _ = rgb.shape
    dtype = rgb.dtype
    low, high = histogram_range(dtype)
    gray, blur, even = kernels = [ck.Kernel.from_template(template) for template in _TEMPLATES]
    names = dict(zip(kernels, _TEMPLATES, strict=True))

    with ck.using(stream) as xp:
        photo = xp.asarray(rgb)
        grayed, blurred = (xp.zeros((height, width), dtype) for _ in range(2))
        counts = xp.zeros(_BINS, np.uint64)

        def rows_of(array: Any, first: int, last: int) -> Any:
            return array if last - first == height else array[first:last]

        def make_gray(first: int, last: int) -> None:
            size = (last - first) * width
            over_pixels = ck.cover(-(-size // 4))  # four pixels a thread
            gray(stream, over_pixels, rows_of(photo, first, last), rows_of(grayed, first, last), size)

        def make_blur(first: int, last: int) -> None:
            # With the two rows above and below that its own need, but at the picture's edges, which are repeated.
            above, below = max(first - 2, 0), min(last + 2, height)
            rows = below - above
            over_tiles = ck.config(-(-rows // 16) * -(-width // 32), 256)  # a tile of 16 × 32 a block
            part = blurred if rows == height else xp.empty((rows, width), dtype)
            blur(stream, over_tiles, rows_of(grayed, above, below), part, rows, width)
            if part is not blurred:
                blurred[first:last] = part[first - above : last - above]

        def make_counts(first: int, last: int) -> None:
            size = (last - first) * width
            # A block ends with 256 global atomics, so it should see many more values than that.
            over_values = ck.config(min(-(-size // 4096), 1024), 256)
            even(stream, over_values, rows_of(blurred, first, last), counts, size, low, high)

        def stage(
            kernel: ck.Kernel, output: Any, launch: Callable[[int, int], None], reference: Any, terms: int
        ) -> Stage:
            name = names[kernel]
            elapsed_ms = median_ms(stream, lambda: launch(0, height)) if isinstance(stream, Stream) else None
            output.fill(0)  # the histogram adds to what is there
            for first, last in strips:
                launch(first, last)
                bar.add(f"{name}, {dtype}")
            result = _to_host(xp, output)
            expected = reference()
            difference = np.abs(result.astype(np.float64) - expected.astype(np.float64)).max()
            allowed = tolerance(result.dtype, terms, expected)
            return Stage(name, dtype, result, elapsed_ms, _machine_of(kernel), float(difference), allowed)

        def counted() -> np.ndarray:
            return histogram_reference(_to_host(xp, blurred), low, high, _BINS)

        return [
            stage(gray, grayed, make_gray, lambda: gray_reference(rgb), terms=3),
            stage(blur, blurred, make_blur, lambda: blur_reference(_to_host(xp, grayed)), terms=25),
            stage(even, counts, make_counts, counted, terms=0),
        ]


def median_ms(stream: Any, launch: Callable[[], object], repeats: int = _REPEATS) -> float:
    """Return the median time of `launch` on `stream` in ms, after a warm-up. Steps of the emulator count as µs."""
    launch()
    times: list[float] = []
    for _ in range(repeats):
        with ck.Timer(stream) as timer:
            launch()
        times.append(timer.elapsed_ms)
    return statistics.median(times)


def gray_reference(rgb: np.ndarray) -> np.ndarray:
    """Return the luma 0.299 R + 0.587 G + 0.114 B of `rgb` (…, 3): for uint8 in 16-bit fixed point, else in float64."""
    if rgb.dtype == np.uint8:
        return ((rgb.astype(np.uint32) @ np.array(_FIXED_POINT_WEIGHTS, np.uint32) + 32768) >> 16).astype(np.uint8)
    return np.asarray(rgb.astype(np.float64) @ np.array([0.299, 0.587, 0.114]))


def blur_reference(image: np.ndarray) -> np.ndarray:
    """Return `image` (height, width) under the 5×5 binomial filter (1, 4, 6, 4, 1)² / 256, with its edges repeated.

    Integers are rounded to the nearest, a half upward, in their dtype. Other dtypes stay in float64.
    """
    height, width = image.shape
    is_integer = image.dtype.kind in "iu"
    padded: Any = np.pad(image, 2, mode="edge").astype(np.int64 if is_integer else np.float64)
    weights = (1, 4, 6, 4, 1)
    rows = sum(weight * padded[:, k : k + width] for k, weight in enumerate(weights))
    sums = sum(weight * rows[k : k + height] for k, weight in enumerate(weights))
    return np.asarray((sums + 128) >> 8).astype(image.dtype) if is_integer else np.asarray(sums / 256)


def histogram_reference(values: np.ndarray, low: float, high: float, bins: int) -> np.ndarray:
    """Return uint64 counts (`bins`,) of `values` in equal bins of [low, high). NaN and values outside are left out.

    The arithmetic is the template's: float32 for integers of 8 and 16 bits and for float32, else float64.
    """
    is_small = values.dtype == np.float32 or (values.dtype.kind in "iu" and values.dtype.itemsize <= 2)
    real: Any = np.float32 if is_small else np.float64
    numbers = values.ravel().astype(real)
    inside = numbers[(numbers >= real(low)) & (numbers < real(high))]
    places = np.minimum((inside - real(low)) * real(bins / (high - low)), real(bins - 1))
    return np.bincount(places.astype(np.int64), minlength=bins).astype(np.uint64)


def tolerance(dtype: np.dtype[Any], terms: int, reference: np.ndarray) -> float:
    """Return the largest rounding error of a sum of `terms` products that is compared with `reference`; 0 for integers.

    For floating point it is eps · terms · max|reference|. No term is negative, so no partial sum exceeds the result.
    Each product, each sum and the rounded weight are off by at most eps / 2 of the result.
    """
    return float(np.finfo(dtype).eps) * terms * float(np.abs(reference).max()) if dtype.kind == "f" else 0.0


def histogram_range(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return the range whose 256 bins are centred on the 256 gray levels of an image of `dtype`."""
    return (-0.5, 255.5) if dtype.kind in "iu" else (-0.5 / 255, 255.5 / 255)


def from_uint8(pixels: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return uint8 `pixels` as an image of `dtype`. Floating-point images go from 0 to 1."""
    return pixels if dtype == np.uint8 else (pixels / 255.0).astype(dtype)


def read_photo(photo: Path | None) -> np.ndarray:
    """Return the RGB pixels (height, width, 3), uint8, of an image file, or of the portrait that matplotlib ships.

    Raises
    ------
    CudakitError
        If Pillow or matplotlib is not installed.
    OSError
        If the file cannot be read, or is not an image.
    """
    with _examples_extra():
        from PIL import Image, ImageOps

        if photo is None:
            from matplotlib import cbook

            photo = Path(str(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)))
    with Image.open(photo) as image:
        return np.ascontiguousarray(ImageOps.exif_transpose(image).convert("RGB"))


def detail_of(gray: np.ndarray, blurred: np.ndarray) -> tuple[int, int, int, int]:
    """Return top, bottom, left and right of the square of a grid in which two images differ most."""
    height, width = gray.shape
    tall, wide = min(_DETAIL, height), min(_DETAIL, width)
    down, across = height // tall, width // wide
    difference = np.abs(
        gray[: down * tall, : across * wide] - blurred[: down * tall, : across * wide].astype(np.float32)
    )
    place = int(difference.reshape(down, tall, across, wide).sum((1, 3)).argmax())
    top, left = place // across * tall, place % across * wide
    return top, top + tall, left, left + wide


def save_picture(pixels: np.ndarray, stages: dict[np.dtype[Any], list[Stage]], output: Path) -> Path:
    """Draw a PNG: for each dtype the whole picture before and after, a detail before and after the blur, the histogram.

    The titles have the times and the checks.

    Parameters
    ----------
    pixels : numpy.ndarray
        The photograph, (height, width, 3), uint8.
    stages : dict
        The stages of each dtype.
    output : Path
        Folder of the picture, or its file if the name ends with ``.png``.

    Returns
    -------
    Path
        Full path of the PNG.
    """
    with _examples_extra():
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle

    figure = Figure(figsize=(21, 4.8 * len(stages)), layout="constrained")
    panels = figure.subplots(len(stages), 5, squeeze=False)
    step = -(-max(pixels.shape) // _DRAWN)
    for (before, after, *details, plot), (dtype, (gray, blur, histogram)) in zip(panels, stages.items(), strict=True):
        levels: dict[str, Any] = {"cmap": "gray", "vmin": 0, "vmax": 255 if dtype.kind in "iu" else 1}
        top, bottom, left, right = detail_of(gray.output, blur.output)
        for axes, image, title in (
            (before, pixels, f"before: the photograph, as {dtype}"),
            (after, blur.output, "after: gray and blurred; the square is the detail"),
        ):
            axes.imshow(image[::step, ::step], extent=(0, pixels.shape[1], pixels.shape[0], 0), **levels)
            axes.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, color="red", linewidth=2))
            axes.set_title(title)
        for axes, stage in zip(details, (gray, blur), strict=True):
            axes.imshow(stage.output[top:bottom, left:right], interpolation="nearest", **levels)
            axes.set_title(f"detail, {_title(stage)}", fontsize="medium")
        for axes in (before, after, *details):
            axes.set_axis_off()
        low, high = histogram_range(dtype)
        edges = np.linspace(low, high, _BINS + 1)
        plot.stairs(histogram.output.astype(np.float64), edges, fill=True, color="0.35")
        plot.set_title(_title(histogram), fontsize="medium")
        plot.set_xlabel("gray level")
        plot.set_ylabel("pixels")
        plot.margins(x=0)
    path = (output if output.suffix.lower() == ".png" else output / _PICTURE).absolute()
    with replacing(path) as part, part.open("wb") as file:
        figure.savefig(file, format="png")
    return path


def _title(stage: Stage) -> str:
    time = "" if stage.elapsed_ms is None else f", {stage.elapsed_ms:.4f} ms"
    verdict = stage.verdict.replace(" (", "\n(")
    return f"{stage.name}{time}\non the {stage.machine}\ncompared with NumPy: {verdict}"


def _to_host(xp: Any, array: Any) -> np.ndarray:
    return np.array(array if xp is np else xp.asnumpy(array))


@contextmanager
def _examples_extra() -> Iterator[None]:
    """Turn an ImportError inside into advice on what to install."""
    try:
        yield
    except ImportError as error:
        raise ck.CudakitError(
            f"the demo reads and draws pictures with Pillow and matplotlib ({error}); "
            "install them with: pip install 'cudakit[examples]'"
        ) from error
