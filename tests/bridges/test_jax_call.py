"""Kernels as functions of JAX's arrays: with the real JAX, on the CPU by the emulator, under --gpu on XLA's stream."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from support.bridges import SOURCE

import cudakit as ck

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or JAX takes most of a GPU's memory
jax = pytest.importorskip("jax")
pytestmark = [pytest.mark.bridges, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _place(request: pytest.FixtureRequest) -> Any:
    on_gpu = request.config.getoption("--gpu")
    if on_gpu and jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU")
    with jax.default_device(jax.devices("gpu" if on_gpu else "cpu")[0]):
        yield


def kernel(which: str) -> ck.Kernel:
    return ck.Kernel(SOURCE, which)


def axpy(**more: Any) -> Any:
    return ck.jax.call(kernel("axpy"), lambda x: x, **more)


def arrays(*shape: int) -> tuple[Any, Any]:
    first, second = jax.random.normal(jax.random.key(7), (2, *shape))
    return first, second


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found, np.float64), np.asarray(expected, np.float64), rtol=2e-5, atol=1e-6)


def test_a_kernel_is_a_function() -> None:
    f = axpy()
    for dtype in (np.float32, np.int32, jax.numpy.bfloat16, np.float16):
        x, y = jax.numpy.arange(100).astype(dtype), jax.numpy.ones(100, dtype)
        found = f(2, x, y)
        assert found.dtype == dtype
        close(found, 2 * x + y)
    assert f(2.0, x[:0], y[:0]).shape == (0,)
    assert repr(f) == "<cudakit.jax.call axpy(a, x, y)>"


def test_inside_of_jit() -> None:
    x, y = arrays(300)
    f = axpy()
    program = jax.jit(lambda x, y: jax.numpy.sum(f(2.0, f(3.0, x.T, y), jax.numpy.cos(y))))
    close(program(x, y), jax.numpy.sum(2 * (3 * x + y) + jax.numpy.cos(y)))
    loop = jax.jit(lambda x, y: jax.lax.fori_loop(0, 5, lambda k, z: f(0.5, z, y), x))
    expected = x
    for _ in range(5):
        expected = 0.5 * expected + y
    close(loop(x, y), expected)


def test_a_matrix_that_is_transposed_is_given_row_by_row() -> None:
    x, _ = arrays(3, 4)
    f = ck.jax.call(kernel("transposed"), lambda x: x, lambda x: ck.cover(x.shape))
    close(jax.jit(lambda x: f(x.T))(x), x.T)


def test_several_results_and_shapes() -> None:
    f = ck.jax.call(
        kernel("both"),
        lambda x: (jax.ShapeDtypeStruct(x.shape[:1], x.dtype), x),
        lambda x: ck.cover(x.shape[0], block=32),
        values={"rows": lambda x: x.shape[0], "columns": lambda x: x.shape[1]},
        backward=lambda x, dtotal, dy: dtotal[:, None] + jax.numpy.flip(jax.numpy.cumsum(jax.numpy.flip(dy, 1), 1), 1),
        vmap_method="sequential",
    )
    x = arrays(5, 7)[0]
    for found, expected in zip(f(x), (x.sum(1), x.cumsum(1)), strict=True):
        close(found, expected)
    batch = arrays(2, 5, 7)[0]
    close(jax.jit(jax.vmap(f))(batch)[1], batch.cumsum(2))
    ours = jax.grad(lambda x: (f(x)[0] ** 2).sum() + jax.numpy.sin(f(x)[1]).sum())(x)
    close(ours, jax.grad(lambda x: (x.sum(1) ** 2).sum() + jax.numpy.sin(x.cumsum(1)).sum())(x))
    fixed = ck.jax.call(kernel("axpy"), jax.ShapeDtypeStruct((3,), np.float32), ck.config(1, 32), values={"n": 3})
    close(fixed(1.0, x[0], x[1]), (x[0] + x[1])[:3])


def test_an_argument_that_is_written_is_a_result() -> None:
    f = ck.jax.call(kernel("scale"), values={"n": lambda x: x.size}, aliases=["x"])
    x = arrays(20)[0]
    kept = np.asarray(x).copy()
    close(f(x, 3.0), 3 * kept)
    close(x, kept)  # JAX copied it
    g = ck.jax.call(kernel("scale"), values={"n": lambda x: x.size}, aliases=["x"], backward=lambda by, dx: by * dx)
    close(jax.grad(lambda x: (g(x, 3.0) * kept).sum())(x), 3 * kept)
    close(jax.jit(lambda x: f(f(x + 1, 3.0), 2.0) - x)(x), 6 * (kept + 1) - kept)
    close(jax.jit(lambda x: f(x, 3.0), donate_argnums=0)(x), 3 * kept)


def test_vmap_by_a_rule() -> None:
    x, y = arrays(4, 10)
    f = axpy(vmap_method="broadcast_all")
    for places, given in (((0, 0), (x, y)), ((0, None), (x, y[0])), ((None, 1), (x[0], y.T))):
        close(jax.vmap(lambda x, y: f(2.0, x, y), places)(*given), jax.vmap(lambda x, y: 2 * x + y, places)(*given))
    with pytest.raises(NotImplementedError, match="vmap_method"):
        jax.vmap(lambda x: axpy()(2.0, x, x))(x)


def test_gradients_by_a_kernel_and_by_others() -> None:
    x, y = arrays(50)
    expected = jax.grad(lambda x, y: (2.5 * x + y).sum() ** 2, (0, 1))(x, y)
    back = ck.elementwise("T a, T dz", "T dx, T dy", "dx = a * dz; dy = dz", "back")
    for backward in (kernel("axpy_back"), back, lambda a, dz: (a * dz, dz)):
        f = axpy(backward=backward, vmap_method="broadcast_all")
        found = jax.jit(jax.grad(lambda x, y, f=f: f(2.5, x, y).sum() ** 2, (0, 1)))(x, y)
        for ours, theirs in zip(found, expected, strict=True):
            close(ours, theirs)
        each = jax.vmap(jax.grad(lambda x, f=f: f(2.5, x, y).sum()))(jax.numpy.stack([x, y]))
        close(each, np.full((2, 50), 2.5))


def test_gradients_of_an_expression_are_derived() -> None:
    pytest.importorskip("sympy")
    f = ck.jax.call(ck.elementwise("T a, T x, T y", "T z", "z = a * x * sin(y) + exp(-x * x)", "made"), numbers=["a"])
    x, y = arrays(6, 5)[0][:, :1], arrays(5)[1]

    def plain(x: Any, y: Any) -> Any:
        return 3 * x * jax.numpy.sin(y) + jax.numpy.exp(-x * x)

    close(f(3.0, x, y), plain(x, y))
    found = jax.grad(lambda x, y: (f(3.0, x, y) ** 2).sum(), (0, 1))(x, y)
    for ours, theirs in zip(found, jax.grad(lambda x, y: (plain(x, y) ** 2).sum(), (0, 1))(x, y), strict=True):
        close(ours, theirs)
    close(jax.vmap(lambda x: f(3.0, x, y))(x[:, None, :]), jax.vmap(lambda x: plain(x, y))(x[:, None, :]))
    mixed = ck.jax.call(ck.elementwise("T x, int k", "T z", "z = x * k", "counted"))
    k = jax.numpy.arange(6, dtype=np.int32)[:, None]
    close(jax.grad(lambda x: mixed(x, k).sum())(x), k)
    whole = ck.jax.call(ck.elementwise("T x", "T y", "y = x * x", "square"))
    with pytest.raises(ck.ArgumentError, match="complex numbers"):
        jax.grad(lambda x: jax.numpy.abs(whole(x * 1j)).sum())(x)


def test_a_function_of_arrays() -> None:
    f = ck.jax.call(lambda x: ck.ops.cumsum(x), lambda x: x)
    g = ck.jax.call(lambda x, out, stream: ck.ops.cumsum(x, out=out, stream=stream), lambda x: x)
    x = arrays(30)[0]
    close(f(x), x.cumsum())
    close(jax.jit(g)(x), x.cumsum())
    wrong = ck.jax.call(lambda x: ck.ops.sum(x), lambda x: x)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"ArgumentError: .* returned float32 with shape \(\)"):
        wrong(x).block_until_ready()


def test_what_a_kernel_refuses_is_xlas_error() -> None:
    x = jax.numpy.ones(4)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"axpy: template .* T is float from x .* but int from y"):
        axpy()(2.0, x, x.astype(np.int32)).block_until_ready()
    close(axpy()(2.0, x, x), 3 * x)  # and the next call works


def test_what_does_not_fit_is_refused_by_name() -> None:
    x = jax.numpy.ones(4)
    with pytest.raises(ck.ArgumentError, match="axpy takes 3 arguments: a, x, y; got 2"):
        axpy()(x, x)
    with pytest.raises(ck.ArgumentError, match=r"axpy: a is a number .*static_argnames='a'"):
        jax.jit(axpy())(2.0, x, x)
    with pytest.raises(ck.ArgumentError, match="axpy: a is a number, got str"):
        axpy()("2", x, x)
    close(axpy()(jax.numpy.float32(2), x, x), 3 * x)
    with pytest.raises(ck.ArgumentError, match="shapes and dtypes of z are not known; give out="):
        ck.jax.call(kernel("axpy"))
    with pytest.raises(ck.ArgumentError, match=r"aliases names parameters T\*, z; got \['x'\]"):
        axpy(aliases=["x"])
    with pytest.raises(ck.ArgumentError, match=r"out is a jax.ShapeDtypeStruct for each of z"):
        ck.jax.call(kernel("axpy"), lambda x: (x, x))(1.0, x, x)
    with pytest.raises(ck.ArgumentError, match="vmap_method is one of"):
        axpy(vmap_method="all")
    with pytest.raises(ck.ArgumentError, match="backward takes dq"):
        jax.grad(lambda x: axpy(backward=lambda dq: dq)(1.0, x, x).sum())(x)
    half = ck.elementwise("T dz", "T dx", "dx = dz", "half")
    with pytest.raises(ck.ArgumentError, match=r"axpy: backward writes no dy; .* returns None for it"):
        jax.grad(lambda x: axpy(backward=half)(1.0, x, x).sum())(x)
    with pytest.raises(ck.ArgumentError, match="dq is no gradient of an argument; it writes dx, dy"):
        jax.grad(lambda x: axpy(backward=ck.elementwise("T dz", "T dq", "dq = dz"))(1.0, x, x).sum())(x)
    with pytest.raises(ck.ArgumentError, match="with aliases dx is the gradient of an argument and of a result"):
        ck.jax.call(kernel("scale"), aliases=["x"], backward=half)
    with pytest.raises(ck.ArgumentError, match="config= is not for Ufunc"):
        ck.jax.call(ck.math.sin, None, ck.config(1, 32))


def test_no_derivative_is_said() -> None:
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(lambda x: axpy()(2.0, x, x).sum())(jax.numpy.ones(3))


def test_programs_do_not_leave_the_process() -> None:
    """Another process lacks the kernel: JAX will not export it unasked, and numbers of calls are of this process."""
    f, x = axpy(), jax.numpy.ones(3)
    program = jax.jit(lambda x: f(2.0, x, x))
    with pytest.raises(ValueError, match="cudakit"):
        jax.export.export(program)(x)
    checks = [jax.export.DisabledSafetyCheck.custom_call("cudakit")]
    exported = jax.export.export(program, disabled_checks=checks)(x)
    close(exported.call(x), 3 * x)
    from cudakit.bridges import jax_call

    kept = dict(jax_call._records)
    jax_call._records.clear()
    try:
        # JAX 0.10 makes a ValueError of it on the CPU, and 0.11 XLA's own error on a GPU.
        with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="this process has no such call of cudakit"):
            exported.call(x).block_until_ready()
    finally:
        jax_call._records.update(kept)


@pytest.mark.gpu
def test_arrays_of_a_second_gpu_are_worked_on_there() -> None:
    if len(jax.devices()) < 2:
        pytest.skip("needs two GPUs")
    program = jax.jit(lambda x: axpy()(2.0, x, jax.numpy.cos(x)))
    for k in (1, 0, 1):
        x = jax.device_put(np.arange(300, dtype=np.float32), jax.devices()[k])
        found = program(x)
        assert found.devices() == {jax.devices()[k]}
        close(found, 2 * np.arange(300) + np.cos(np.arange(300)))
