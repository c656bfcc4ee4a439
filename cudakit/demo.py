"""``cudakit demo``: a photograph through three packaged templates, every stage checked against NumPy.

RGB → gray → 5×5 blur → 256-bin histogram, for ``uint8`` and for ``float32``, on one explicit stream.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import numpy as np
from cuda.core import Stream

import cudakit as ck

_TEMPLATES: Final = ("image/gray", "image/blur", "histogram/even")
_DTYPES: Final = (np.dtype(np.uint8), np.dtype(np.float32))
_BINS: Final = 256
_REPEATS: Final = 9
_PICTURE: Final = "cudakit-demo.png"

#: 65536 × (0.299, 0.587, 0.114), the luma weights of ITU-R BT.601-7, rounded so that they add up to 65536.
_FIXED_POINT_WEIGHTS: Final = (19595, 38470, 7471)


@dataclass(frozen=True)
class Stage:
    """One template's result for one dtype.

    Attributes
    ----------
    name : str
        The template.
    dtype : numpy.dtype
        Of the image that goes in.
    output : numpy.ndarray
        What the kernel wrote, on the host.
    elapsed_ms : float or None
        Median time of one launch, in milliseconds; None on the emulator.
    difference : float
        Largest absolute difference from the NumPy reference.
    tolerance : float
        What that may be.
    """

    name: str
    dtype: np.dtype[Any]
    output: np.ndarray
    elapsed_ms: float | None
    difference: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the output agrees with NumPy's (a NaN does not)."""
        return self.difference <= self.tolerance

    @property
    def verdict(self) -> str:
        """The check in words."""
        if not self.passed:
            return f"WRONG: off by {self.difference:g}, at most {self.tolerance:g} allowed"
        return "exact" if self.tolerance == 0 else f"within {self.difference:.1e} (allowed {self.tolerance:.1e})"


def main(photo: Path | None, arch: str | None, folder: Path) -> int:
    """Run the demo, on the emulator where there is no GPU; print what was done.

    Parameters
    ----------
    photo : Path or None
        An image file; None takes the portrait that matplotlib ships.
    arch : str or None
        Architecture to compile for besides, such as ``sm_90``.
    folder : Path
        Where the picture is put.

    Returns
    -------
    int
        0 where all that could be done was done and is right, else 1.
    """
    if arch is not None and not compile_all(arch):
        return 1
    stream: Any = ck.stream() if ck.has_gpu() else ck.emulator.stream()
    if not ck.has_gpu():
        print(
            "There is no GPU here: the kernels run on the emulator, whose results are a GPU's and whose times are not."
        )
    pixels = read_photo(photo)
    stages = {dtype: run_stages(stream, from_uint8(pixels, dtype)) for dtype in _DTYPES}
    flat = [stage for of_dtype in stages.values() for stage in of_dtype]
    print(f"{photo or 'grace_hopper.jpg, as matplotlib ships it'}: {pixels.shape[1]} × {pixels.shape[0]} pixels")
    print_table(
        ("stage", "dtype", "ms", "against NumPy"),
        [(stage.name, str(stage.dtype), _shown(stage.elapsed_ms), stage.verdict) for stage in flat],
    )
    print(f"picture: {save_picture(pixels, stages, folder)}")
    return 0 if all(stage.passed for stage in flat) else 1


def _shown(elapsed_ms: float | None) -> str:
    return "–" if elapsed_ms is None else f"{elapsed_ms:.4f}"


def compile_all(arch: str) -> bool:
    """Compile every kernel of the demo for `arch`, which takes no GPU; print a table; say whether all compiled."""
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
    print_table(("kernel", "dtype", "cubin bytes", f"for {arch}"), rows)
    return good


def run_stages(stream: Any, rgb: np.ndarray) -> list[Stage]:
    """Run the three templates on `rgb` (height, width, 3), each on the one before's output, and check each.

    A stage is checked against NumPy on the very array that its kernel was given, so that an error is seen where it
    arises and the histogram's counts have to be exact for both dtypes.
    """
    height, width, _ = rgb.shape
    size, dtype = height * width, rgb.dtype
    low, high = histogram_range(dtype)
    gray, blur, even = (ck.Kernel.from_template(template) for template in _TEMPLATES)
    # gray does four pixels a thread; blur a tile of 16 × 32 a block; a block of even ends with 256 global atomics, so
    # it should see many more values than that.
    over_pixels = ck.cover(-(-size // 4))
    over_tiles = ck.config(-(-height // 16) * -(-width // 32), 256)
    over_values = ck.config(min(-(-size // 4096), 1024), 256)

    with ck.using(stream) as xp:
        photo = xp.asarray(rgb)
        grayed, blurred = (xp.zeros((height, width), dtype) for _ in range(2))
        counts = xp.zeros(_BINS, np.uint64)

        def stage(name: str, output: Any, launch: Callable[[], object], reference: np.ndarray, terms: int) -> Stage:
            elapsed_ms = median_ms(stream, launch) if isinstance(stream, Stream) else None
            output.fill(0)  # the histogram adds to what is there
            launch()
            result = _to_host(xp, output)
            difference = np.abs(result.astype(np.float64) - reference.astype(np.float64)).max()
            allowed = tolerance(result.dtype, terms, reference)
            return Stage(name, dtype, result, elapsed_ms, float(difference), allowed)

        return [
            stage(
                _TEMPLATES[0],
                grayed,
                lambda: gray(stream, over_pixels, photo, grayed, size),
                gray_reference(rgb),
                terms=3,
            ),
            stage(
                _TEMPLATES[1],
                blurred,
                lambda: blur(stream, over_tiles, grayed, blurred, height, width),
                blur_reference(_to_host(xp, grayed)),
                terms=25,
            ),
            stage(
                _TEMPLATES[2],
                counts,
                lambda: even(stream, over_values, blurred, counts, size, low, high),
                histogram_reference(_to_host(xp, blurred), low, high, _BINS),
                terms=0,
            ),
        ]


def median_ms(stream: Any, launch: Callable[[], object], repeats: int = _REPEATS) -> float:
    """Median time of `launch`'s work on `stream` in ms, after one that warms up; the emulator's steps count as µs."""
    launch()
    times: list[float] = []
    for _ in range(repeats):
        with ck.Timer(stream) as timer:
            launch()
        times.append(timer.elapsed_ms)
    return statistics.median(times)


def gray_reference(rgb: np.ndarray) -> np.ndarray:
    """Luma 0.299 R + 0.587 G + 0.114 B of `rgb` (…, 3): for uint8 in 16-bit fixed point, else in float64."""
    if rgb.dtype == np.uint8:
        return ((rgb.astype(np.uint32) @ np.array(_FIXED_POINT_WEIGHTS, np.uint32) + 32768) >> 16).astype(np.uint8)
    return np.asarray(rgb.astype(np.float64) @ np.array([0.299, 0.587, 0.114]))


def blur_reference(image: np.ndarray) -> np.ndarray:
    """`image` (height, width) under the 5×5 binomial filter (1, 4, 6, 4, 1)² / 256, its edges repeated.

    Integers are rounded to the nearest, a half upward, in their dtype; other dtypes stay in float64.
    """
    height, width = image.shape
    is_integer = image.dtype.kind in "iu"
    padded: Any = np.pad(image, 2, mode="edge").astype(np.int64 if is_integer else np.float64)
    weights = (1, 4, 6, 4, 1)
    rows = sum(weight * padded[:, k : k + width] for k, weight in enumerate(weights))
    sums = sum(weight * rows[k : k + height] for k, weight in enumerate(weights))
    return np.asarray((sums + 128) >> 8).astype(image.dtype) if is_integer else np.asarray(sums / 256)


def histogram_reference(values: np.ndarray, low: float, high: float, bins: int) -> np.ndarray:
    """Counts (`bins`,), uint64, of `values` in equal bins of [low, high); NaN and what lies outside count nowhere.

    The arithmetic is the template's: float32 for integers of 8 and 16 bits and for float32, else float64.
    """
    is_small = values.dtype == np.float32 or (values.dtype.kind in "iu" and values.dtype.itemsize <= 2)
    real: Any = np.float32 if is_small else np.float64
    numbers = values.ravel().astype(real)
    inside = numbers[(numbers >= real(low)) & (numbers < real(high))]
    places = np.minimum((inside - real(low)) * real(bins / (high - low)), real(bins - 1))
    return np.bincount(places.astype(np.int64), minlength=bins).astype(np.uint64)


def tolerance(dtype: np.dtype[Any], terms: int, reference: np.ndarray) -> float:
    """What a sum of `terms` products may differ from `reference`: nothing for integers, which round in one way.

    For floating point eps · terms · max|reference|: no term is negative, so no partial sum exceeds the result, and each
    of the `terms` products and sums, and the rounded weight, is off by at most eps / 2 of that.
    """
    return float(np.finfo(dtype).eps) * terms * float(np.abs(reference).max()) if dtype.kind == "f" else 0.0


def histogram_range(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Range whose 256 bins are centred on the 256 gray levels of an image of `dtype`."""
    return (-0.5, 255.5) if dtype.kind in "iu" else (-0.5 / 255, 255.5 / 255)


def from_uint8(pixels: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """`pixels` (uint8) as an image of `dtype`; floating-point images go from 0 to 1."""
    return pixels if dtype == np.uint8 else (pixels / 255.0).astype(dtype)


def read_photo(photo: Path | None) -> np.ndarray:
    """RGB pixels (height, width, 3), uint8, of an image file, or of the portrait that matplotlib ships.

    Raises
    ------
    CudakitError
        Pillow or matplotlib is not installed.
    OSError
        The file cannot be read, or is not an image.
    """
    with _examples_extra():
        from PIL import Image, ImageOps

        if photo is None:
            from matplotlib import cbook

            photo = Path(str(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)))
    with Image.open(photo) as image:
        return np.ascontiguousarray(ImageOps.exif_transpose(image).convert("RGB"))


def save_picture(pixels: np.ndarray, stages: dict[np.dtype[Any], list[Stage]], folder: Path) -> Path:
    """Draw the photograph and the stages of each dtype side by side into a PNG in `folder`; return its path."""
    with _examples_extra():
        from matplotlib.figure import Figure

    figure = Figure(figsize=(16, 4.6 * len(stages)), layout="constrained")
    panels = figure.subplots(len(stages), 4, squeeze=False)
    for row, (dtype, (gray, blur, histogram)) in zip(panels, stages.items(), strict=True):
        row[0].imshow(pixels)
        row[0].set_title(f"photograph, as {dtype}")
        for axes, stage in zip(row[1:3], (gray, blur), strict=True):
            axes.imshow(stage.output, cmap="gray", vmin=0, vmax=255 if dtype.kind in "iu" else 1)
            axes.set_title(_title(stage))
        for axes in row[:3]:
            axes.set_axis_off()
        low, high = histogram_range(dtype)
        edges = np.linspace(low, high, _BINS + 1)
        row[3].stairs(histogram.output.astype(np.float64), edges, fill=True, color="0.35")
        row[3].set_title(_title(histogram))
        row[3].set_xlabel("gray level")
        row[3].set_ylabel("pixels")
        row[3].margins(x=0)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _PICTURE
    # Written beside its place and moved there: whoever looks sees the old picture or the new one, whole.
    with NamedTemporaryFile(dir=folder, prefix=_PICTURE, suffix=".part", delete=False) as part:
        try:
            figure.savefig(part, format="png")
            part.close()
            os.replace(part.name, path)
        except BaseException:
            part.close()
            os.unlink(part.name)
            raise
    return path


def _title(stage: Stage) -> str:
    return stage.name if stage.elapsed_ms is None else f"{stage.name}  {stage.elapsed_ms:.4f} ms"


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print `rows` under `head`, in columns."""
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


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
