"""What messages call places in shared memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cudakit.emulator.checks.check import _Reruns
from cudakit.emulator.checks.shadow import in_shared
from cudakit.emulator.machine.kernel_memory import SharedLayout
from cudakit.emulator.ptx.program import Function, Instruction, Source, Variable


def launch(text: str, inside: int = 0, **sizes: int) -> Any:
    """A launch whose shared variables lie one behind the other; the first `inside` are a function's own."""
    starts, variables, at = {}, {}, 0
    for name, size in sizes.items():
        starts[name], variables[name] = at, Variable(name, "shared", "b8", size, 4)
        at += size
    own = dict(list(variables.items())[:inside])
    others = {name: each for name, each in variables.items() if name not in own}
    functions = [SimpleNamespace(variables={}), SimpleNamespace(variables=own)]
    module = SimpleNamespace(functions=functions, program=SimpleNamespace(variables=others))
    return SimpleNamespace(module=module, source=("k.cu", text), shared=SharedLayout(starts, at, at))


@pytest.mark.parametrize("inside", [0, 2])
@pytest.mark.parametrize(
    ("text", "offset", "size", "name"),
    [
        ("__shared__ float tile[16];", 0, 4, "tile[0]"),
        ("__shared__ float tile[16];", 63, 1, "tile[15]"),
        ("__shared__ float tile[16];", 12, 4, "tile[3]"),
        ("__shared__ float tile[4][4];", 24, 4, "tile[1][2]"),
        ("__shared__ float tile[2][2][4];", 44, 4, "tile[1][0][3]"),
        ("__shared__ float tile[N][4];", 24, 4, "tile[1][2]"),
        ("__shared__ float tile[4][N];", 24, 4, "tile[1]"),
        ("__shared__ float tile[N];", 24, 8, "tile[3]"),
        ("constexpr int N = 4; __shared__ float tile[N][N];", 24, 4, "tile[1][2]"),
        ("#define N (8)\n__shared__ short tile[N - 4][N];", 24, 2, "tile[1][4]"),
        ("__shared__ float tile[2 * 4 - 4][1 + 3];", 24, 4, "tile[1][2]"),
        ("__shared__ float tile[4 - 4];", 24, 4, "tile[6]"),
        ("__shared__ float tile[4 - 4][4];", 24, 4, "tile[1][2]"),
        ("__shared__ float tile[4][4 - 4];", 24, 4, "tile[1]"),
        ("__shared__ float other[3], tile[16];", 24, 4, "tile[6]"),
        ("int N = 4; int M; M = 5; N = 7; __shared__ float tile[4][N];", 24, 4, "tile[1]"),
        ("__shared__ Part tile;", 24, 4, "byte 24 of tile"),
        ("float tile[16];", 24, 4, "byte 24 of tile"),
        ("__shared__ float tile[16];", 68, 4, "byte 4 of last"),
    ],
)
def test_elements_of_shared_arrays(text: str, offset: int, size: int, name: str, inside: int) -> None:
    given = launch(text, inside, tile=64, last=8)
    assert in_shared(given, offset, size) == f"{name} in shared memory"


def test_other_places_in_shared_memory() -> None:
    assert in_shared(launch("__shared__ int count;", count=4), 0, 4) == "count in shared memory"
    assert in_shared(launch("__shared__ int count;", count=4), 2, 1) == "byte 2 of count in shared memory"
    assert in_shared(launch("__shared__ int count;"), 12, 4) == "byte 12 of shared memory"
    assert in_shared(launch("extern __shared__ int held[];", held=0), 12, 4) == "held[3] in shared memory"


@pytest.mark.parametrize(
    ("symbol", "name"),
    [("_ZZ1kPfE4tile", "tile[1][2]"), ("_ZZ5otherPfE4tile", "tile[6]"), ("_ZZ1hPfE4tile", "tile[6]")],
)
def test_arrays_of_one_name_in_several_functions(symbol: str, name: str) -> None:
    text = (
        "f(); other(float* y) { __shared__ float tile[16]; k(y); }\nk(float* y) {\n__shared__ float tile[4][4]; k(y); }"
    )
    assert in_shared(launch(text, **{symbol: 64}), 24, 4) == f"{name} in shared memory"


def test_a_finding_is_at_an_instruction_or_at_the_kernels_own_first_line() -> None:
    library = Instruction("add", (), (), None, 3, Source("lib.cuh", 9, Source("k.cu", 5)))
    own, bare = Instruction("ld", (), (), None, 4, Source("k.cu", 7)), Instruction("st", (), (), None, 8, None)

    def found(code: list[Instruction], at: Instruction | None = None) -> tuple[str, int, str]:
        given: Any = SimpleNamespace(
            entry=Function("k", True, code=code), title="k", placed=lambda file, line: f"app.py:{file}:{line + 100}"
        )
        tries = _Reruns.__new__(_Reruns)
        tries._launch = given
        finding = tries._finding("order", "text", at)
        assert (finding.kind, finding.kernel, finding.text) == ("order", "k", "text")
        return finding.file, finding.line, finding.other

    assert found([bare, library, own]) == ("app.py:k.cu", 107, "")
    assert found([bare, library]) == ("PTX of k", 8, "")
    assert found([bare, own], library) == ("app.py:k.cu", 105, "")
    assert found([own], bare) == ("PTX of k", 8, "")
