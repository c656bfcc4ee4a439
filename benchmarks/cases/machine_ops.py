"""The library's calls on the emulator, as machine code, beside NumPy's and SciPy's for the same work."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.ndimage as images
from scipy import special
from tables import table_head

import cudakit as ck
from cudakit import ops, system
from cudakit.emulator.compiled import machine

TITLE = "The library on the emulator beside NumPy"


def pairs() -> dict[str, tuple[Callable[..., Any], Callable[[], Any]]]:
    """By name: what the library is asked for, without its stream, and NumPy's or SciPy's way."""
    rng = np.random.default_rng(0)
    x, y = rng.random(1 << 20, np.float32), rng.random(1 << 20, np.float32)
    a, b = x.reshape(1024, 1024), y.reshape(1024, 1024)
    octets, whole = rng.integers(0, 256, 1 << 20).astype(np.uint8), rng.integers(0, 999, 1 << 20).astype(np.int32)
    photo, colours = octets.reshape(1024, 1024), rng.random((1024, 1024, 3), np.float32)
    v, chosen, sorted_ = rng.random(1024, np.float32), x > 0.5, np.sort(x)
    places = rng.integers(0, 1 << 20, 1 << 20)
    runs = np.repeat(np.arange(1 << 18, dtype=np.int32), 4)
    q, k, w = (rng.random((1, 512, 64)).astype(np.float16) for _ in range(3))
    left, right = a[:512, :512].copy(), b[:512, :512].copy()
    sharpen, turn = np.full((3, 3), 0.1, np.float32), np.array([[0.9, 0.1, 5], [-0.1, 0.9, 9]], np.float32)

    def attended() -> np.ndarray:
        scores = q.astype(np.float32) @ k.swapaxes(-1, -2).astype(np.float32) / 8
        return (special.softmax(scores, axis=-1) @ w.astype(np.float32)).astype(np.float16)

    def equalised() -> np.ndarray:
        running = np.cumsum(np.bincount(photo.ravel(), minlength=256))
        return np.rint((running - running[0]) * (255 / (running[-1] - running[0]))).astype(np.uint8)[photo]

    def warped() -> np.ndarray:
        return images.affine_transform(a, turn[::-1, 1::-1], turn[::-1, 2], order=1)

    def normal(scaled: np.ndarray) -> np.ndarray:
        return (scaled - scaled.mean(-1, keepdims=True)) / np.sqrt(scaled.var(-1, keepdims=True) + 1e-5)

    def run_lengths() -> tuple[np.ndarray, np.ndarray]:
        starts = np.flatnonzero(np.r_[True, runs[1:] != runs[:-1]])
        return runs[starts], np.diff(np.r_[starts, runs.size])

    def largest() -> np.ndarray:
        top = np.argpartition(x, -64)[-64:]
        return top[np.argsort(-x[top])]

    def by_key() -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(x, kind="stable")
        return x[order], whole[order]

    return {
        "add": (partial(ops.add, x, y), lambda: x + y),
        "all": (partial(ops.all, x), lambda: np.all(x)),
        "any": (partial(ops.any, x * 0), partial(np.any, x * 0)),
        "argmax": (partial(ops.argmax, x), lambda: np.argmax(x)),
        "argmin": (partial(ops.argmin, x), lambda: np.argmin(x)),
        "argpartition": (partial(ops.argpartition, x, 1000), lambda: np.argpartition(x, 1000)),
        "argsort": (partial(ops.argsort, x), lambda: np.argsort(x, kind="stable")),
        "attention, 512 × 64": (partial(ops.attention, q, k, w), attended),
        "bincount": (partial(ops.bincount, whole, length=999), lambda: np.bincount(whole, minlength=999)),
        "box_blur, 5 × 5": (partial(ops.box_blur, a, 5), lambda: images.uniform_filter(a, 5)),
        "cast": (partial(ops.cast, x, np.float64), lambda: x.astype(np.float64)),
        "compact": (partial(ops.compact, x, chosen), lambda: x[chosen]),
        "concatenate": (partial(ops.concatenate, [x, y]), lambda: np.concatenate([x, y])),
        "convolve2d, 3 × 3": (partial(ops.convolve2d, a, sharpen), lambda: images.convolve(a, sharpen)),
        "copy": (partial(ops.copy, x), lambda: x.copy()),
        "count_nonzero": (partial(ops.count_nonzero, x), lambda: np.count_nonzero(x)),
        "cummax": (partial(ops.cummax, x), lambda: np.maximum.accumulate(x)),
        "cummin": (partial(ops.cummin, x), lambda: np.minimum.accumulate(x)),
        "cumprod": (partial(ops.cumprod, x), lambda: np.cumprod(x)),
        "cumsum": (partial(ops.cumsum, x), lambda: np.cumsum(x)),
        "dilate, 3 × 3": (partial(ops.dilate, a), lambda: images.grey_dilation(a, 3)),
        "dot": (partial(ops.dot, x, y), lambda: np.dot(x, y)),
        "equalize": (partial(ops.equalize, photo), equalised),
        "erode, 3 × 3": (partial(ops.erode, a), lambda: images.grey_erosion(a, 3)),
        "flip": (partial(ops.flip, a, 1), lambda: np.flip(a, 1).copy()),
        "gaussian_blur": (partial(ops.gaussian_blur, a, sigma=1.0), lambda: images.gaussian_filter(a, 1.0)),
        "histogram": (partial(ops.histogram, x, 100, (0, 1)), lambda: np.histogram(x, 100, (0, 1))),
        "layernorm": (partial(ops.layernorm, a), lambda: normal(a)),
        "log_softmax": (partial(ops.log_softmax, a), lambda: special.log_softmax(a, axis=-1)),
        "logsumexp": (partial(ops.logsumexp, a, -1), lambda: special.logsumexp(a, axis=-1)),
        "matmul, 512³": (partial(ops.matmul, left, right), lambda: left @ right),
        "matvec": (partial(ops.matvec, a, v), lambda: a @ v),
        "max": (partial(ops.max, x), lambda: np.max(x)),
        "mean": (partial(ops.mean, x), lambda: np.mean(x)),
        "median3": (partial(ops.median3, a), lambda: images.median_filter(a, 3)),
        "min": (partial(ops.min, x), lambda: np.min(x)),
        "norm": (partial(ops.norm, x), lambda: np.linalg.norm(x)),
        "outer": (partial(ops.outer, v, v), lambda: np.outer(v, v)),
        "pad": (partial(ops.pad, a, 8), lambda: np.pad(a, 8)),
        "partition": (partial(ops.partition, x, 1000), lambda: np.partition(x, 1000)),
        "prod": (partial(ops.prod, x), lambda: np.prod(x)),
        "resize, ¾": (partial(ops.resize, a, (768, 768)), lambda: images.zoom(a, 0.75, order=1)),
        "rgb_to_gray": (partial(ops.rgb_to_gray, colours), lambda: colours @ np.float32([0.299, 0.587, 0.114])),
        "rmsnorm": (partial(ops.rmsnorm, a), lambda: a / np.sqrt(np.mean(a * a, -1, keepdims=True) + 1e-6)),
        "roll": (partial(ops.roll, x, 1000), lambda: np.roll(x, 1000)),
        "run_length": (partial(ops.run_length, runs), run_lengths),
        "searchsorted": (partial(ops.searchsorted, sorted_, y), lambda: np.searchsorted(sorted_, y)),
        "sobel": (partial(ops.sobel, a, 0), lambda: images.sobel(a, 0)),
        "softmax": (partial(ops.softmax, a), lambda: special.softmax(a, axis=-1)),
        "sort": (partial(ops.sort, x), lambda: np.sort(x, kind="stable")),
        "sort_by_key": (partial(ops.sort_by_key, x, whole), by_key),
        "std": (partial(ops.std, x), lambda: np.std(x)),
        "sum": (partial(ops.sum, x), lambda: np.sum(x)),
        "take": (partial(ops.take, x, places), lambda: np.take(x, places)),
        "topk, 64": (partial(ops.topk, x, 64), largest),
        "transpose": (partial(ops.transpose, a), lambda: a.T.copy()),
        "unique": (partial(ops.unique, whole), lambda: np.unique(whole)),
        "var": (partial(ops.var, x), lambda: np.var(x)),
        "warp_affine": (partial(ops.warp_affine, a, turn, inverse=True), warped),
    }  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", default="", help="names, by commas")


def lines(options: argparse.Namespace) -> Iterator[str]:
    yield "1 Mi elements of float32, or 1024², where the name says nothing else; one core; NumPy's or SciPy's time over"
    yield "ours, in the processor's time, once all is optimised."
    yield ""
    yield from table_head(("call", "NumPy / ours"))
    system.cores = lambda: 1
    machine._OPTIMISING = 0  # at the second call, as all find it in the cache later
    stream = ck.emulator.stream(machine="compiled")
    found = []
    for name, (ours, theirs) in pairs().items():
        if options.only and name.split(",")[0] not in options.only.split(","):
            continue
        for _ in range(3):
            ours(stream=stream), theirs()
        taken: dict[str, list[float]] = {"ours": [], "theirs": []}
        for _ in range(options.repeats):
            for which, act in (("ours", partial(ours, stream=stream)), ("theirs", theirs)):
                start = time.process_time()
                act()
                taken[which].append(time.process_time() - start)
        ratio = statistics.median(taken["theirs"]) / statistics.median(taken["ours"])
        found.append(ratio)
        yield f"| {name} | {ratio:.2f} |"
    yield ""
    yield f"Median of {len(found)}: {statistics.median(found):.2f}."


__all__ = ["TITLE", "add_options", "lines"]
