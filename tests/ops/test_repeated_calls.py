"""Each op called again and again with other arrays of a kind: the short way gives what the ordinary way gives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.places import to_host

import cudakit as ck
from cudakit import ops

#: Name, what makes the arguments of an op from x (float32, 24 × 32), and its keywords.
CALLS: list[tuple[str, Callable[[Any], tuple[Any, ...]], dict[str, Any]]] = [
    *(
        (name, lambda x: (x,), {})
        for name in ("copy", "transpose", "flip", "sum", "mean", "max", "argmax", "var", "any")
    ),
    *((name, lambda x: (x,), {"axis": 0}) for name in ("sum", "min", "argmin", "std", "cumsum", "cummax", "softmax")),
    *((name, lambda x: (x,), {}) for name in ("softmax", "log_softmax", "logsumexp", "rmsnorm", "cumprod", "norm")),
    ("layernorm", lambda x: (x, x[0].copy(), x[1].copy()), {}),
    ("copy", lambda x: (x[::2, ::-1],), {}),
    ("cumsum", lambda x: (x[:, 3],), {"reverse": True}),
    ("cast", lambda x: (x, "int8"), {"saturate": True}),
    ("roll", lambda x: (x,), {"shift": (1, 2), "axis": (0, 1)}),
    ("pad", lambda x: (x, 2), {"mode": "reflect"}),
    ("concatenate", lambda x: ([x, x[:5]],), {}),
    ("take", lambda x: (x, (x[0] * 8).astype("int32")), {"axis": 0, "mode": "raise"}),
    ("compact", lambda x: (x, x > 0.5), {}),
    ("histogram", lambda x: (x,), {"bins": 600}),
    ("histogram", lambda x: (x,), {"bins": 10, "range": (0.0, 1.0)}),
    ("histogram", lambda x: (x, 10), {"weights": None, "density": True}),
    ("bincount", lambda x: ((x * 8).astype("int32"),), {}),
    ("bincount", lambda x: ((x * 8).astype("int32"), x), {"length": 9}),
    ("dot", lambda x: (x[0], x[1]), {}),
    ("sort", lambda x: (x,), {}),
    ("sort", lambda x: (x.repeat(200),), {"descending": True}),
    ("argsort", lambda x: (x, 0), {}),
    ("argsort", lambda x: (x.repeat(200),), {"dtype": "int32"}),
    ("sort_by_key", lambda x: (x.repeat(200), x.repeat(200)), {}),
    ("topk", lambda x: (x, 3), {"largest": False}),
    ("topk", lambda x: (x.repeat(200), 20), {}),
    ("unique", lambda x: (x,), {"return_counts": True}),
    ("run_length", lambda x: (x > 0.5,), {}),
    ("searchsorted", lambda x: (x[0], x), {}),
    ("add", lambda x: (x, x[0]), {}),
]


def check_all(streams: int) -> None:
    """All of `CALLS` on the first of so many streams; with several, known addresses go straight."""
    random, stream, *others = np.random.default_rng(7), *(ck.stream() for _ in range(streams))
    for other in others:
        for each in (stream, other):
            with ck.using(each) as xp:
                ops.copy(xp.zeros(8, "float32"))
    with ck.using(stream) as xp:
        for name, make, options in CALLS:
            check(xp, stream, random, name, make, options)
            print(name, "ok", flush=True)


def check_turns() -> None:
    """A result that is new each time goes straight until another stream uses it, and is right whoever uses it."""
    one, two = ck.stream(), ck.stream()
    ordinary = ops.copy.__globals__["ordinary"]  # type: ignore[attr-defined]
    calls = []
    ops.copy.__globals__["ordinary"] = lambda *given, **named: calls.append(1) or ordinary(*given, **named)  # type: ignore[attr-defined]
    with ck.using(two) as xp:
        ops.copy(xp.zeros(8, "float32"))
    with ck.using(one) as xp:
        xs = [xp.full((1 << 20,), k, "float32") for k in range(4)]
        for _ in range(40):
            ops.copy(xs[0])
        calls.clear()
        for _ in range(20):
            assert float(ops.copy(xs[0])[-1]) == 0
        assert not calls
    for k in range(200):
        with ck.using(one):
            y = ops.copy(xs[k % 4])
        if k % 3 == 0:
            with ck.using(two):
                z = ops.copy(y)
                del y
            with ck.using(one):
                ops.copy(xs[(k + 1) % 4])  # must not go where `y` is still read
            with ck.using(two):
                assert float(z.min()) == float(z.max()) == k % 4
    print("ok")


def check(
    xp: Any, stream: Any, random: Any, name: str, make: Callable[[Any], tuple[Any, ...]], options: dict[str, Any]
) -> None:
    op = getattr(ops, name)
    for _ in range(8):
        args = make(xp.asarray(random.random((24, 32), np.float32)))
        found = op(*args, **options)
        # A stream that is named takes the ordinary way.
        want = op(*args, **options, stream=stream)
        pairs = zip(found, want, strict=True) if isinstance(want, tuple) else [(found, want)]
        for one, other in pairs:
            np.testing.assert_array_equal(to_host(one), to_host(other))
        if not isinstance(want, tuple) and name not in ("compact", "bincount"):
            out = xp.empty_like(want)
            for _ in range(5):
                out[...] = 0
                assert op(*args, **options, out=out) is out
                np.testing.assert_array_equal(to_host(out), to_host(want))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("call", "count"), [("check_all(1)", len(CALLS)), ("check_all(3)", len(CALLS)), ("check_turns()", 1)]
)
def test_repeated_calls(call: str, count: int) -> None:
    """In a process of its own."""
    code = f"import ops.test_repeated_calls as test; test.{call}"
    tests = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=tests, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok") == count


@pytest.mark.parametrize("name", ["rgb_to_gray", "equalize", "outer", "matvec"])
def test_kernels_are_made_once(name: str, stream: Any, xp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A packaged kernel is read and looked up at the first call of a kind, not at each."""
    x = xp.arange(48 * 64 * 3).reshape(48, 64, 3) % 251
    calls: dict[str, Callable[[], Any]] = {
        "rgb_to_gray": lambda: ops.rgb_to_gray(x.astype("uint8"), stream=stream),
        "equalize": lambda: ops.equalize(x[:, :, 0].astype("uint8"), stream=stream),
        "outer": lambda: ops.outer(x[0, :, 0].astype("float32"), x[1, :, 0].astype("float32"), stream=stream),
        "matvec": lambda: ops.matvec(xp.ones((4096, 64), "float32").T, xp.ones(4096, "float32"), stream=stream),
    }
    calls[name]()
    monkeypatch.setattr(ck.Kernel, "from_template", lambda *_: pytest.fail("a kernel was made again"))
    calls[name]()
