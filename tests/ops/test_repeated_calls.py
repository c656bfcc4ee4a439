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
    ("add", lambda x: (x, x[0]), {}),
]


def check_all() -> None:
    """All of `CALLS` on one stream, the only one of the process: with several, only known arrays go straight."""
    random, stream = np.random.default_rng(7), ck.stream()
    with ck.using(stream) as xp:
        for name, make, options in CALLS:
            check(xp, stream, random, name, make, options)
            print(name, "ok", flush=True)


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
def test_repeated_calls() -> None:
    """In a process of its own."""
    code = "from ops.test_repeated_calls import check_all; check_all()"
    tests = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=tests, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok") == len(CALLS)
