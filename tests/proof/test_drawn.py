"""Kernels drawn by chance: those that are proved have no fault at any size that is tried."""

from __future__ import annotations

import random

import numpy as np
import pytest
from support.tiers import in_tiers

import cudakit as ck
from cudakit.errors import EmulationError

pytestmark = [pytest.mark.emulator, pytest.mark.slow]
pytest.importorskip("z3", reason="the extra prove is not installed")

_THREADS, _BUDGET = 64, 100_000


class Drawn:
    """Statements of a kernel with an array of 64 in shared memory, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def index(self, names: list[str], depth: int = 2) -> str:
        if not depth or self.random.random() < 0.3:
            return self.random.choice(names)
        one, number = self.index(names, depth - 1), self.random.choice([1, 2, 3, 4, 7, 16, 31, 32, 63])
        operator = self.random.choice(["+", "-", "*", "/", "%", "&", "^", "+ i +"])
        return f"({one} {operator} {number})"

    def condition(self, names: list[str]) -> str:
        operator = self.random.choice(["<", "<=", ">", ">=", "==", "!="])
        return f"{self.index(names, 1)} {operator} {self.random.choice([*names, 'n', 'n - 1', '32', '8', '0'])}"

    def statements(self, names: list[str], depth: int = 2) -> str:
        return " ".join(self.statement(names, depth) for _ in range(self.random.randint(1, 3)))

    def statement(self, names: list[str], depth: int) -> str:
        shared = self.random.choice(["t", "t", "63 - t", "(t + 1) % 64", self.index(names, 1)])
        element = self.random.choice(["i", "i", "n - 1 - i", self.index(names)])
        kind = self.random.randrange(5 if not depth else 9)
        if kind < 4:
            stored = f"s[{shared}] = x[{element}] + t;", f"y[{element}] = s[{shared}] + i;", f"y[{element}] += i;"
            return (*stored, "__syncthreads();")[kind]
        if kind == 4:
            return f"atomicAdd(&y[{element}], 1);"
        if kind < 7:
            return f"if ({self.condition(names)}) {{ {self.statements(names, depth - 1)} }}"
        name = "abcd"[len(names) - 2]
        first, last = self.random.choice(["0", "t", "i"]), self.random.choice(["n", "8", "t", "64"])
        change = self.random.choice(["+= 1", "+= 2", "+= 64", "+= 64 * gridDim.x"])
        body = self.statements([*names, name], depth - 1)
        return f"\n#pragma unroll 1\nfor (int {name} = {first}; {name} < {last}; {name} {change}) {{ {body} }}"


@in_tiers("seed", range(24), whole=lambda seed: seed < 12, strength=None)
@pytest.mark.usefixtures("kept_outcomes")
def test_a_drawn_kernel_that_is_proved_has_no_fault(seed: int) -> None:
    drawn = Drawn(seed)
    body = drawn.statements(["t", "i"])
    kernel = ck.Kernel(
        "__global__ void drawn(int n, const int* x, int* y) {\n__shared__ int s[64];\n"
        f"int t = threadIdx.x, i = blockIdx.x * 64 + t;\ns[t] = 0;\n__syncthreads();\nif (i < n) {{ {body} }}\n}}"
    )
    stated = ("0 <= n <= 300", "len(x) >= n + 64", "len(y) == 4 * n + 1000")
    proof = ck.prove(kernel, *stated, block=_THREADS, grid="(n + 63) // 64", timeout_s=1.0)
    if not proof:
        assert proof.findings
        return
    for n in (1, 5, 31, 63, 64, 65, 128, 200, 300):
        x, y = np.ones(n + 64, np.int32), np.zeros(4 * n + 1000, np.int32)
        stream = ck.emulator.stream(step_budget=_BUDGET)
        ended = ""
        with ck.check() as report:
            try:
                kernel(stream, ck.config(-(-n // _THREADS), _THREADS), n, x, y)
            except EmulationError as error:
                ended = str(error)
        assert not ended or "budget" in ended, (ended, body)
        assert not [each for each in report.findings if each.kind in ("race", "barrier")], (report, body)
