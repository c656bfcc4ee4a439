"""Images, and what OpenCV makes of them: stored, for it is larger than all else that tests need.

PYTHONPATH=tests python -m support.opencv  # with opencv-python-headless installed: writes them anew
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

_FILE = Path(__file__).with_suffix(".npz")


def image(dtype: Any = np.uint8, shape: tuple[int, ...] = (24, 40)) -> np.ndarray:
    """Noise over a slope, so that neither edges nor flat parts are missing."""
    rng = np.random.default_rng(len(shape))
    slope = np.linspace(0, 128, shape[1])[:, None] if len(shape) == 3 else np.linspace(0, 128, shape[1])
    return (slope + rng.integers(0, 128, shape)).astype(dtype)


def answers() -> dict[str, np.ndarray]:
    """What OpenCV gave, by the names of `record`."""
    with np.load(_FILE) as stored:
        return {name: stored[name] for name in stored.files}


KERNEL = np.random.default_rng(3).normal(0, 0.4, (3, 5)).astype(np.float32)
MATRIX = np.array([[0.9, 0.25, 1.5], [-0.2, 1.1, 2.25]])


def record() -> None:
    """Ask OpenCV."""
    import cv2

    gray, rgb = image(), image(shape=(24, 40, 3))
    found: dict[str, Any] = {"version": np.array(cv2.__version__)}
    for size in (3, 5, 7, 9):
        found[f"gaussian_{size}"] = cv2.GaussianBlur(gray, (size, size), 0)
    for size, sigma in ((5, 1.3), (7, 0.8), (11, 3.0)):
        found[f"gaussian_{size}_{sigma}"] = cv2.GaussianBlur(gray, (size, size), sigma)
    found["gaussian_rgb"] = cv2.GaussianBlur(rgb, (5, 3), 1.0, sigmaY=1.5, borderType=cv2.BORDER_REPLICATE)
    found["box"] = cv2.blur(gray, (5, 3), borderType=cv2.BORDER_REFLECT)
    found["sobel_down"] = cv2.Sobel(gray, cv2.CV_16S, 0, 1)
    found["sobel_right"] = cv2.Sobel(gray, cv2.CV_16S, 1, 0)
    found["filter"] = cv2.filter2D(gray, -1, KERNEL, borderType=cv2.BORDER_REFLECT_101)
    found["median"] = cv2.medianBlur(gray, 3)
    for name, call in (("erode", cv2.erode), ("dilate", cv2.dilate)):
        found[name] = call(gray, np.ones((3, 5), np.uint8))
    found["gray"] = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    found["equalize"] = cv2.equalizeHist(gray)
    for shape in ((12, 20), (48, 80), (17, 33), (31, 50)):
        for method, flag in (("linear", cv2.INTER_LINEAR), ("nearest", cv2.INTER_NEAREST)):
            for dtype in (np.uint8, np.float32):
                name = f"resize_{method}_{np.dtype(dtype)}_{shape[0]}"
                found[name] = cv2.resize(image(dtype), shape[::-1], interpolation=flag)
    for dtype in (np.uint8, np.float32):
        found[f"warp_{np.dtype(dtype)}"] = cv2.warpAffine(
            image(dtype), MATRIX, (40, 24), borderMode=cv2.BORDER_REPLICATE
        )
    np.savez_compressed(_FILE, **found)


if __name__ == "__main__":
    record()
