"""Compute a transformer block: layernorm, attention, layernorm, a two-layer network; compared with plain NumPy.

Run: ``python examples/transformer_block.py``. Without a GPU it runs on the emulator, on a few tokens.

    x = x + attention(layernorm(x) · Wqkv + bqkv) · Wout + bout
    x = x + gelu(layernorm(x) · Wup + bup) · Wdown + bdown

Each product is one kernel with bias, activation and sum. Products and attention are tile kernels if CUDA's tile
compiler is installed, and kernels of threads otherwise. ``--by`` forces one of the two.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import cudakit as ck


def main(arguments: Sequence[str] | None = None) -> float:
    """Run a block and time it on a GPU; return the largest difference from NumPy in float64."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, help="default: 2048 on a GPU, 48 on the emulator")
    parser.add_argument("--width", type=int, help="numbers of a token; default: 1024 on a GPU, 64 on the emulator")
    parser.add_argument("--heads", type=int, help="default: 16 on a GPU, 2 on the emulator")
    parser.add_argument("--by", choices=("tiles", "threads"), help="default: tiles where their compiler is")
    parser.add_argument("--emulator", action="store_true", help="run on the emulator even if there is a GPU")
    options = parser.parse_args(arguments)

    is_gpu = ck.has_gpu() and not options.emulator
    asked = options.tokens, options.width, options.heads
    tokens, width, heads = (n or own for n, own in zip(asked, (2048, 1024, 16) if is_gpu else (48, 64, 2), strict=True))
    if width % heads or width // heads % 8:
        parser.error(f"a width of {width} is not {heads} heads of a multiple of 8")
    stream = ck.stream() if is_gpu else ck.emulator.stream()
    x, weights = made(tokens, width)
    with ck.using(stream) as xp:
        on_device = {name: xp.asarray(value) for name, value in weights.items()}
        given = xp.asarray(x)
        print(vars(ck.ops.matmul)["explain"](given, on_device["qkv"], by=options.by, stream=stream))
        got = block(given, on_device, heads, options.by, stream)
        found = ck.to_host(got, stream).astype(np.float64)
    want = plain(x, weights, heads)
    off = float(np.abs(found - want).max())
    print(
        f"{tokens} tokens of {width}, {heads} heads: within {off:.4f} of float64, of {np.abs(want).max():.1f} at most"
    )
    if is_gpu:
        print(f"{milliseconds(lambda: block(given, on_device, heads, options.by, stream), stream):.3f} ms")
    return off


def block(x: Any, weights: dict[str, Any], heads: int, by: Any, stream: Any) -> Any:
    """Compute the block for an array of tokens × width, float16: nine kernels and three copies."""
    w, (tokens, width) = weights, x.shape

    def times(a: Any, name: str, **then: Any) -> Any:
        return ck.ops.matmul(a, w[name], bias=w[f"{name}_bias"], by=by, stream=stream, **then)

    seen = ck.ops.layernorm(x, w["gain"], w["shift"], stream=stream)
    q, k, v = times(seen, "qkv").reshape(tokens, 3, heads, width // heads).transpose(1, 2, 0, 3)
    attended = ck.ops.attention(q, k, v, causal=True, by=by, stream=stream)
    together = ck.ops.transpose(attended, (1, 0, 2), stream=stream).reshape(tokens, width)
    x = times(together, "out", residual=x)
    seen = ck.ops.layernorm(x, w["gain"], w["shift"], stream=stream)
    return times(times(seen, "up", activation="gelu"), "down", residual=x)


def made(tokens: int, width: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return random tokens, and weights that preserve the magnitude of values."""
    rng = np.random.default_rng(0)
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    weights = {name: rng.normal(size=shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}
    weights |= {f"{name}_bias": rng.normal(size=shape[1]) / 10 for name, shape in shapes.items()}
    weights |= {"gain": np.ones(width), "shift": np.zeros(width)}
    x = rng.normal(size=(tokens, width)).astype(np.float16)
    return x, {name: value.astype(np.float16) for name, value in weights.items()}


def plain(x: np.ndarray, weights: dict[str, np.ndarray], heads: int) -> np.ndarray:
    """Compute the block by NumPy in float64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    x, (tokens, width) = x.astype(np.float64), x.shape

    def times(a: np.ndarray, name: str) -> np.ndarray:
        found: np.ndarray = a @ w[name] + w[f"{name}_bias"]
        return found

    def normed(a: np.ndarray) -> np.ndarray:
        centred = a - a.mean(-1, keepdims=True)
        found: np.ndarray = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return found

    q, k, v = times(normed(x), "qkv").reshape(tokens, 3, heads, width // heads).transpose(1, 2, 0, 3)
    scores = q @ k.swapaxes(1, 2) / np.sqrt(width // heads)
    scores[:, np.triu(np.ones((tokens, tokens), bool), 1)] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    attended = shares / shares.sum(-1, keepdims=True) @ v
    x = x + times(attended.transpose(1, 0, 2).reshape(tokens, width), "out")
    up = times(normed(x), "up")
    gelu = up / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
    return np.asarray(x + times(gelu, "down"))


def milliseconds(call: Callable[[], Any], stream: Any, repeats: int = 20) -> float:
    """Return the time of a call, as a mean of many."""
    for _ in range(3):
        call()
    stream.sync()
    with ck.Timer(stream) as timer:
        for _ in range(repeats):
            call()
    return timer.elapsed_ms / repeats


if __name__ == "__main__":
    main()
