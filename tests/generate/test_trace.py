"""What expressions are traced as: without a kernel, by the lines of C++ that are written down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import traces

import cudakit as ck
from cudakit.generate.traced import Trace, Traced, literal

WRITTEN = traces.written()


@pytest.mark.emulator
@pytest.mark.parametrize("kinds", dict.fromkeys(kinds for kinds, _, _ in WRITTEN))
def test_what_is_traced(kinds: str) -> None:
    """`support.traces` writes `traces.txt` anew, where a change is meant."""
    of_kinds = {text: want for each, text, want in WRITTEN if each == kinds}
    assert {text: traces.traced(kinds, text) for text in of_kinds} == of_kinds


@pytest.mark.emulator
def test_every_line_is_read() -> None:
    assert len(WRITTEN) == len(traces.FILE.read_text().splitlines())


@pytest.mark.emulator
def test_values_of_another_call_are_refused() -> None:
    one, other = Trace("one", {}), Trace("other", {})
    x, y = (Traced(trace, np.dtype("f4"), "x0", argument="x") for trace in (one, other))
    with pytest.raises(ck.TemplateError, match=r"^one: .*test_trace\.py:\d+: a value of another call is used"):
        x + y


@pytest.mark.emulator
def test_kernels_of_cupy() -> None:
    """CuPy passes its own functions on, by kernels that are called as NumPy's functions are, or by its own names."""

    def called(name: str, *args: Any, **named: Any) -> list[str]:
        trace = Trace("f", {})
        x = Traced(trace, np.dtype("f4"), "x0", argument="x")
        result = x.__cupy_override_elementwise_kernel__(SimpleNamespace(name=name), x, *args, **named)
        return trace.lines(result.name)

    assert called("cupy_sqrt") == ["const float t0 = cudakit::ufunc::sqrt(x0);"]
    assert called("cupy_add", 1, out=None, dtype=None) == [
        "const float t0 = cudakit::ufunc::add(x0, static_cast<float>(0x1.0000000000000p+0));"
    ]
    assert called("cupy_clip", 0, None) == called("clip", 0) != []
    assert called("cupy_angle") == called("angle") != []
    with pytest.raises(ck.TemplateError, match="cupy_unknown cannot be fused"):
        called("cupy_unknown")
    with pytest.raises(ck.TemplateError, match="cupy_clip cannot be fused"):
        called("cupy_clip", 0, out=1)
    with pytest.raises(ck.TemplateError, match=r"numpy.add\(dtype=\) cannot be fused"):
        called("cupy_add", 1, dtype="f8")
    with pytest.raises(ck.TemplateError, match="writes into something that is no array"):
        called("cupy_add", 1, out=np.zeros(3))


@pytest.mark.emulator
def test_a_kernel_of_cupy_that_writes() -> None:
    trace = Trace("f", {})
    x, y = (Traced(trace, np.dtype("f4"), name, argument=name) for name in ("x0", "x1"))
    kernel = SimpleNamespace(name="cupy_add")
    for k, out in enumerate((y, (y,)), 1):
        assert x.__cupy_override_elementwise_kernel__(kernel, x, 1, out=out) is y
        assert y.name == f"t{2 * k - 1}"
    assert trace.written == [y]


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("value", "dtype", "want"),
    [
        (True, "?", "true"),
        (0, "?", "false"),
        (-1, "i8", "static_cast<long long>((0ll - 1))"),
        (-(2**63), "i8", "static_cast<long long>((-9223372036854775807ll - 1))"),
        (2**64 - 1, "u8", "static_cast<unsigned long long>(18446744073709551615ull)"),
        (7, "i1", "static_cast<signed char>(7ll)"),
        (1.1, "f4", f"static_cast<float>({float(np.float32(1.1)).hex()})"),
        (-np.inf, "f8", f"static_cast<double>(__longlong_as_double({np.float64(-np.inf).view('i8')}ll))"),
        (1e300, "f4", f"static_cast<float>(__longlong_as_double({np.float64(np.inf).view('i8')}ll))"),
        (
            1 - 2j,
            "c8",
            "cuda::std::complex<float>(static_cast<float>(0x1.0000000000000p+0), "
            "static_cast<float>(-0x1.0000000000000p+1))",
        ),
    ],
)
def test_literals(value: object, dtype: str, want: str) -> None:
    assert literal(value, np.dtype(dtype)) == want
