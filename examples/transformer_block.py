"""A block of a transformer: layernorm, attention, layernorm, a network of two layers; checked against NumPy.

Run: ``python examples/transformer_block.py``. Without a GPU it runs on the emulator, on a few tokens.

    x = x + attention(layernorm(x) · Wqkv + bqkv) · Wout + bout
    x = x + gelu(layernorm(x) · Wup + bup) · Wdown + bdown

Each product is one kernel, with its bias, activation and sum. Look at ``block``: it is the whole computation. Products
and attention are tile kernels if CUDA's tile compiler is installed, and kernels of threads if not; ``--by`` forces
either.

Prints::

    64 × 128 × 64, 4 warps, 1 CTAs: the greatest that is filled
    a: read as it lies
    b: read as it lies
    by tile kernels
    48 tokens of 64, 2 heads: at most 0.0026 from NumPy in float64; values up to 4.7
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import cudakit as ck


def main(arguments: Sequence[str] | None = None) -> float:
    """Run a block, check it, time it on a GPU, and return the largest difference from NumPy in float64."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, help="default: 2048 on a GPU, 48 on the emulator")
    parser.add_argument("--width", type=int, help="numbers in a token; default: 1024 on a GPU, 64 on the emulator")
    parser.add_argument("--heads", type=int, help="default: 16 on a GPU, 2 on the emulator")
    parser.add_argument("--by", choices=("tiles", "threads"), help="default: tiles if their compiler is installed")
    parser.add_argument("--emulator", action="store_true", help="run on the emulator even if there is a GPU")
    options = parser.parse_args(arguments)

    is_gpu = ck.has_gpu() and not options.emulator
    sizes = options.tokens, options.width, options.heads
    tokens, width, heads = (n or own for n, own in zip(sizes, (2048, 1024, 16) if is_gpu else (48, 64, 2), strict=True))
    if width % heads or width // heads % 8:
        parser.error(f"a width of {width} is not {heads} heads of a multiple of 8")
    stream = ck.stream() if is_gpu else ck.emulator.stream()
    x, weights = random_block(tokens, width)
    with ck.using(stream) as xp:
        on_device = {name: xp.asarray(value) for name, value in weights.items()}
        tokens_on_device = xp.asarray(x)
        print(vars(ck.ops.matmul)["explain"](tokens_on_device, on_device["qkv"], by=options.by, stream=stream))
        output = block(tokens_on_device, on_device, heads, options.by, stream)
        result = ck.to_host(output, stream).astype(np.float64)
    expected = by_numpy(x, weights, heads)
    difference = float(np.abs(result - expected).max())
    print(
        f"{tokens} tokens of {width}, {heads} heads: at most {difference:.4f} "
        f"from NumPy in float64; values up to {np.abs(expected).max():.1f}"
    )
    if is_gpu:
        print(f"{milliseconds(lambda: block(tokens_on_device, on_device, heads, options.by, stream), stream):.3f} ms")
    return difference


def block(x: Any, weights: dict[str, Any], heads: int, by: Any, stream: Any) -> Any:
    """Return the result of the block for tokens × width, float16: nine kernels and three copies."""
    w, (tokens, width) = weights, x.shape

    def product(a: Any, name: str, **options: Any) -> Any:
        return ck.ops.matmul(a, w[name], bias=w[f"{name}_bias"], by=by, stream=stream, **options)

    normalized = ck.ops.layernorm(x, w["gain"], w["shift"], stream=stream)
    q, k, v = product(normalized, "qkv").reshape(tokens, 3, heads, width // heads).transpose(1, 2, 0, 3)
    attended = ck.ops.attention(q, k, v, causal=True, by=by, stream=stream)
    together = ck.ops.transpose(attended, (1, 0, 2), stream=stream).reshape(tokens, width)
    x = product(together, "out", residual=x)
    normalized = ck.ops.layernorm(x, w["gain"], w["shift"], stream=stream)
    return product(product(normalized, "up", activation="gelu"), "down", residual=x)


def random_block(tokens: int, width: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return random tokens, and random weights that keep the size of the numbers."""
    rng = np.random.default_rng(0)
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    weights = {name: rng.normal(size=shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}
    weights |= {f"{name}_bias": rng.normal(size=shape[1]) / 10 for name, shape in shapes.items()}
    weights |= {"gain": np.ones(width), "shift": np.zeros(width)}
    x = rng.normal(size=(tokens, width)).astype(np.float16)
    return x, {name: value.astype(np.float16) for name, value in weights.items()}


def by_numpy(x: np.ndarray, weights: dict[str, np.ndarray], heads: int) -> np.ndarray:
    """Return the result of the block, by NumPy in float64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    x, (tokens, width) = x.astype(np.float64), x.shape

    def product(a: np.ndarray, name: str) -> np.ndarray:
        result: np.ndarray = a @ w[name] + w[f"{name}_bias"]
        return result

    def normalize(a: np.ndarray) -> np.ndarray:
        centered = a - a.mean(-1, keepdims=True)
        result: np.ndarray = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
        return result

    q, k, v = product(normalize(x), "qkv").reshape(tokens, 3, heads, width // heads).transpose(1, 2, 0, 3)
    scores = q @ k.swapaxes(1, 2) / np.sqrt(width // heads)
    scores[:, np.triu(np.ones((tokens, tokens), bool), 1)] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    attended = shares / shares.sum(-1, keepdims=True) @ v
    x = x + product(attended.transpose(1, 0, 2).reshape(tokens, width), "out")
    up = product(normalize(x), "up")
    gelu = up / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
    return np.asarray(x + product(gelu, "down"))


def milliseconds(call: Callable[[], Any], stream: Any, repeats: int = 20) -> float:
    """Return the time of a call, as a mean of many in a row."""
    for _ in range(3):
        call()
    stream.sync()
    with ck.Timer(stream) as timer:
        for _ in range(repeats):
            call()
    return timer.elapsed_ms / repeats


if __name__ == "__main__":
    main()
