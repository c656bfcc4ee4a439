"""What `inspect.signature` and `help` say of kernels and of functions of arrays."""

from __future__ import annotations

import inspect
import pydoc
import sys
from typing import Any

import pytest

import cudakit as ck

NUMPYS = ", *, out=None, stream=None, where=None, size=None, block_size=None"


def kernel(parameters: str) -> ck.Kernel:
    return ck.Kernel(f"template <typename T, typename... Ts> __global__ void f({parameters}) {{}}")


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ("", "(stream, config, /)"),
        ("const T* x, float by = 2.5f, int n = 3", "x: 'const T*', by: 'float' = 2.5, n: 'int' = 3"),
        ("T* x, int a = 1, int b = sizeof(T)", "x: 'T*', a: 'int', b: 'int'"),
        ("T* in, T*, T* stream", "parameter0: 'T*'"),
        ("T* x, Ts... more", "x: 'T*', *more: 'Ts'"),
        ("T* x, Ts... stream", "(stream, config, /, x: 'T*', *stream_: 'Ts'"),
        ("T* arguments, Ts... in", "arguments: 'T*', *arguments_: 'Ts'"),
    ],
)
def test_kernels_take_the_parameters_of_cpp(parameters: str, shown: str) -> None:
    signature = inspect.signature(kernel(parameters))
    assert list(signature.parameters)[1] == "config"
    assert shown in str(signature)


def test_a_signature_binds_what_a_call_takes() -> None:
    signature = inspect.signature(kernel("T* x, float by, int n = 3"))
    bound = signature.bind("stream", "config", [1], by=2.0)
    bound.apply_defaults()
    assert bound.arguments == {"stream": "stream", "config": "config", "x": [1], "by": 2.0, "n": 3}
    with pytest.raises(TypeError, match="missing a required argument: 'by'"):
        signature.bind("stream", "config", [1])


def test_overloads_take_any_arguments() -> None:
    both = ck.Kernel("__global__ void f(int* x) {} __global__ void f(float* x) {}")
    assert str(inspect.signature(both)) == "(stream, config, /, *arguments)"


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (ck.math.sqrt, f"(x, z=None, /{NUMPYS}, dtype=None, casting='same_kind')"),
        (ck.math.divmod, f"(x, y, z=None, w=None, /{NUMPYS}, dtype=None, casting='same_kind')"),
        (ck.elementwise("T out, T x", "T y", "y = x + out"), f"(out_, x, y=None, /{NUMPYS})"),
        (
            ck.reduction("T x, T y", "T z", "x * y", "a + b", "0"),
            "(x, y, /, *, out=None, stream=None, axis=None, keepdims=False, segments=None, size=None, initial=None, "
            "block_size=None)",
        ),
        (
            ck.scan("T x", "T y", "x", "a + b", "0"),
            "(x, /, *, out=None, stream=None, axis=None, size=None, initial=None, block_size=None)",
        ),
        (ck.fuse(lambda x, y=2: x + y), "(x, y=2)"),
    ],
)
def test_functions_of_arrays(function: Any, shown: str) -> None:
    assert str(inspect.signature(function)) == shown


@pytest.mark.parametrize("kind", [ck.Kernel, ck.generate.Elementwise, ck.generate.Fused, ck.math.Ufunc])
def test_classes_have_the_signature_of_their_constructor(kind: type) -> None:
    assert "stream" not in inspect.signature(kind).parameters
    assert str(kind.__doc__).partition("\n")[0] in pydoc.render_doc(kind, renderer=pydoc.plaintext)


def test_help_of_a_ufunc() -> None:
    text = pydoc.render_doc(ck.math.sqrt, renderer=pydoc.plaintext)
    # From Python 3.13 on pydoc shows no signature of a partial.
    shown = text if sys.version_info < (3, 13) else f"sqrt{inspect.signature(ck.math.sqrt)}"
    assert "sqrt(x, z=None, /, *, out=None" in shown
    assert "z = sqrt(x) of each element" in text
    assert "correctly rounded" in text
    assert "within 2 ulps in float32, 2 in float64" in pydoc.render_doc(ck.math.sin)
