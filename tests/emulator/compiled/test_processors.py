"""Machine code for processors with narrower registers, and without masks of lanes, gives what NumPy's machine gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.instructions.answers import FOLDER, Answers, differing
from support.instructions.catalogue import catalogue
from support.instructions.places import as_machine_code
from support.machines import agreed

import cudakit as ck

pytest.importorskip("llvmlite", reason="the compiled machine needs llvmlite: pip install 'cudakit[cpu]'")
#: The tests decide how kernels are compiled.
pytestmark = [pytest.mark.emulator, pytest.mark.parametrize("code", ["best"], indirect=True)]

SOURCE = Path(__file__).with_name("kernels.cuh")


@pytest.fixture(params=["gathers", "plain"], autouse=True)
def narrow(request: pytest.FixtureRequest, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor with AVX2, or one with neither gathers nor masks; its code runs on any that has more."""
    from cudakit.emulator.compiled import machine, native

    here = native.processor()
    gathers = request.param == "gathers"
    if gathers and not (here.masks or here.gathers):
        pytest.skip("the processor has no AVX2")
    monkeypatch.setattr(native, "processor", lambda: here._replace(native=8, masks=False, gathers=gathers))
    monkeypatch.setattr(machine, "_SHORT", 0)


def ran(name: str, config: Any, *arguments: Any) -> list[np.ndarray]:
    return agreed(lambda: ck.Kernel.from_file(SOURCE, name), config, *arguments)


@pytest.mark.parametrize("count", [40, 128])
def test_vectors_of_elements(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimised: only there whole vectors have code of their own."""
    from cudakit.emulator.compiled import machine

    monkeypatch.setattr(machine, "_SHORT", 1 << 40)
    values = np.arange(512, dtype=np.int32).reshape(128, 4)
    octets = np.random.default_rng(3).integers(0, 256, 512).astype(np.uint8)
    ran("by_fours", ck.config(2, 64), np.zeros((128, 4), np.int32), values, octets, np.int32(count))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_loads_from_anywhere(dtype: Any) -> None:
    rng, n = np.random.default_rng(64), 256
    given, where = rng.integers(0, 99, n).astype(dtype), rng.integers(-n, n, n).astype(np.int32)
    (out, *_) = ran("fetched", ck.config(4, 64), np.zeros(n, dtype), given, where, np.int32(n))
    i = np.arange(n)
    expected = given[n - 1 - i] + given[i * 37 % n] + np.where(where < 0, 0, given[where]).astype(dtype)
    expected += np.where(i % 3 != 1, given[i * 5 % n], 0).astype(dtype)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.slow
def test_forms_of_memory_give_what_a_gpu_gave() -> None:
    answers = Answers.load(FOLDER / "sm_90.xz").results
    interpreted = (FOLDER / "interpreted.txt").read_text().splitlines()
    forms = [form for form in catalogue().values() if form.family == "memory" and form.name not in interpreted]
    for start in range(0, len(forms), 24):
        ours = as_machine_code(forms[start : start + 24])
        assert not isinstance(ours, str), ours
        for form in forms[start : start + 24]:
            assert not differing(form, ours[form.name], answers[form.name][1]).size, form.name


PLACES = """
__global__ void places(const int* x, const unsigned char* b, const long long* w, const int* at, int* y,
                       unsigned char* c, long long* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int k = at[i];
    y[k] = x[k] + x[i] + x[n - 1 - i];
    c[k] = b[k] + b[i];
    v[k] = w[k] - w[i];
    if (k & 1) { y[i + n] = x[i] * 3; c[i + n] = b[i] + 1; v[i + n] = w[k] * 5; }
}"""


def test_lanes_store_where_each_of_them_will() -> None:
    n, drawn = 100, np.random.default_rng(5)
    x, w = drawn.integers(-99, 99, n).astype("i4"), drawn.integers(-(2**40), 2**40, n)
    b, at = drawn.integers(0, 99, n).astype("u1"), drawn.permutation(n).astype("i4")
    y, c, v = np.zeros(2 * n, "i4"), np.zeros(2 * n, "u1"), np.zeros(2 * n, "i8")
    *_, y, c, v = agreed(lambda: ck.Kernel(PLACES), ck.config(2, 64), x, b, w, at, y, c, v, np.int32(n))
    i = np.arange(n)
    np.testing.assert_array_equal(y[at], x[at] + x + x[n - 1 - i])
    np.testing.assert_array_equal(c[at], b[at] + b)
    np.testing.assert_array_equal(v[at], w[at] - w)
    odd = at % 2 == 1
    np.testing.assert_array_equal(y[n:], np.where(odd, x * 3, 0))
    np.testing.assert_array_equal(c[n:], np.where(odd, b + 1, 0))
    np.testing.assert_array_equal(v[n:], np.where(odd, w[at] * 5, 0))


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({"avx512f": True, "avx2": True}, (16, True, False)),
        ({"avx512f": False, "avx2": True}, (8, False, True)),
        ({"avx2": False}, (8, False, False)),
        ({}, (8, False, False)),
    ],
)
def test_what_a_processor_has_is_told_by_its_features(
    features: dict[str, bool], expected: tuple[int, bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cudakit.emulator.compiled import native

    class Features(dict[str, bool]):
        def flatten(self) -> str:
            return "+all"

    monkeypatch.undo()
    monkeypatch.setattr(native.llvm, "get_host_cpu_features", lambda: Features(features))
    monkeypatch.setattr(native.llvm, "get_host_cpu_name", lambda: "a processor")
    found = native.processor.__wrapped__()
    assert (found.name, found.features) == ("a processor", "+all")
    assert found[2:] == expected
