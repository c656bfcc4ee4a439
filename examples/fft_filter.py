"""An image without its fine detail: kernels and Fourier transforms in turn, on one stream.

Run: ``python examples/fft_filter.py``. On a GPU the transforms are CuPy's, which are cuFFT's. Without a GPU the kernels
run on the emulator, and the transforms are NumPy's.

Three kernels are made by ``ck.elementwise``; look at where each one stands:

- before the transform: bytes become float32 around 0, and fade out at the edges. A transform takes the image for a
  torus, so an edge would be smeared into the opposite one;
- between the transforms: the spectrum is multiplied by exp(−2 π² σ² f²), the transfer function of a Gaussian of σ
  pixels;
- after the transform back: the mean is added, and the result is rounded and clipped to bytes.

Prints::

    128 × 192 pixels, σ = 3: at most 0 gray levels from NumPy in float64, fine detail 40.0 → 0.7
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

import cudakit as ck

BEFORE = ck.elementwise(
    "uint8 byte, float mean, float down, float across",
    "float pixel",
    "pixel = (byte - mean) * down * across",
    name="before",
)
BETWEEN = ck.elementwise(
    "complex64 spectrum, float down, float across, float spread",
    "complex64 filtered",
    "filtered = spectrum * expf(-spread * (down * down + across * across))",
    name="between",
)
AFTER = ck.elementwise(
    "float pixel, float mean", "uint8 byte", "byte = fminf(fmaxf(rintf(pixel + mean), 0), 255)", name="after"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Filter a picture and check it; return the largest difference from NumPy in float64, in gray levels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--height", type=int, default=128)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--sigma", type=float, default=3.0, help="size of the finest detail that stays, in pixels")
    parser.add_argument("--emulator", action="store_true", help="run on the emulator even where there is a GPU")
    options = parser.parse_args(arguments)
    stream = ck.stream() if ck.has_gpu() and not options.emulator else ck.emulator.stream()

    image = picture(options.height, options.width)
    result = ck.to_host(filtered(stream, ck.to_device(image, stream), options.sigma), stream)
    expected = by_numpy(image, options.sigma)
    difference = int(np.abs(result.astype(int) - expected).max())
    print(
        f"{options.height} × {options.width} pixels, σ = {options.sigma:g}: at most {difference} gray levels "
        f"from NumPy in float64, fine detail {fine_detail(image):.1f} → {fine_detail(result):.1f}"
    )
    return difference


def filtered(stream: Any, image: Any, sigma: float) -> Any:
    """Return a uint8 image (height, width) without detail finer than `sigma` pixels."""
    with ck.using(stream) as xp:
        height, width = image.shape
        mean = float(ck.ops.mean(image, dtype=np.float32))
        down, across = (xp.asarray(fade(n)) for n in image.shape)
        pixels = BEFORE(image, mean, down[:, None], across)
        spectrum = xp.fft.rfft2(pixels)  # complex64, (height, width // 2 + 1)
        down, across = (xp.asarray(n, np.float32) for n in (np.fft.fftfreq(height), np.fft.rfftfreq(width)))
        spectrum = BETWEEN(spectrum, down[:, None], across, 2 * np.pi**2 * sigma**2, out=spectrum)
        return AFTER(xp.fft.irfft2(spectrum, image.shape), mean)


def fade(size: int) -> np.ndarray:
    """Return weights that rise from 0 to 1 within an eighth of each end: (size,), float32."""
    ramp = np.clip(np.arange(1, size + 1) / (size // 8 + 1), 0, 1)
    return (np.sin(np.pi / 2 * np.minimum(ramp, ramp[::-1])) ** 2).astype(np.float32)


def picture(height: int, width: int) -> np.ndarray:
    """Return two soft hills under a fine chequered pattern: (height, width), uint8."""
    y, x = np.mgrid[:height, :width]
    hills = 60 * np.sin(3 * np.pi * y / height) * np.cos(4 * np.pi * x / width)
    return (128 + hills + np.where((x + y) % 2, 40, -40)).astype(np.uint8)


def fine_detail(image: np.ndarray) -> float:
    """Return half the mean absolute difference of neighbours, away from the edges, in gray levels."""
    inner = image[image.shape[0] // 4 : -image.shape[0] // 4, image.shape[1] // 4 : -image.shape[1] // 4].astype(float)
    return float(np.abs(np.diff(inner, axis=1)).mean() / 2)


def by_numpy(image: np.ndarray, sigma: float) -> np.ndarray:
    """Return the filtered image, by NumPy in float64, rounded: int."""
    mean = image.mean()
    pixels = (image - mean) * fade(image.shape[0]).astype(float)[:, None] * fade(image.shape[1]).astype(float)
    down, across = np.fft.fftfreq(image.shape[0])[:, None], np.fft.rfftfreq(image.shape[1])
    filtered_spectrum = np.fft.rfft2(pixels) * np.exp(-2 * np.pi**2 * sigma**2 * (down**2 + across**2))
    return np.clip(np.rint(np.fft.irfft2(filtered_spectrum, image.shape) + mean), 0, 255).astype(int)


if __name__ == "__main__":
    main()
