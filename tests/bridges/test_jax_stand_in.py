"""Kernels as functions of JAX's arrays, without JAX: what XLA is asked for and calls, and the gradients."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import jax_stand_in
from support.bridges import SOURCE
from support.jax_stand_in import Struct, Tracer, array, buffer

import cudakit as ck
from cudakit.bridges import jax_call
from cudakit.bridges.jax_call import Buffer, Call

pytestmark = pytest.mark.emulator
AXPY = ck.Kernel(SOURCE, "axpy")


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> Any:
    return jax_stand_in.stand_in(monkeypatch)


def axpy(**more: Any) -> Any:
    return ck.jax.call(AXPY, lambda x: x, **more)


def gradients(function: Any, *arguments: Any, given: Any) -> Any:
    """Gradients of a call, as lists."""
    function(*arguments)
    made = list(function._functions.values())[-1]
    arrays = [each for each in arguments if isinstance(each, np.ndarray)]
    return [None if each is None else each.tolist() for each in made.gradients(*arrays, given=given)]


def test_a_kernel_is_called_with_arrays_and_a_number(jax: Any) -> None:
    f = axpy()
    x, y = array([1, 2, 3]), array([4, 5, 6])
    assert f(2, x, y).tolist() == [6, 9, 12]
    assert repr(f) == "<cudakit.jax.call axpy(a, x, y)>"
    name, results, method, aliases, shapes, number = jax.ffi.calls[0]
    assert (name, results, method, aliases) == ("cudakit", [Struct((3,), np.float32)], None, {})
    assert (shapes, number, number.dtype) == ([(3,), (3,)], 2**61, np.int64)
    assert f(2, y, x).tolist() == [9, 12, 15]
    assert f(3, x, y).tolist() == [7, 11, 15]
    assert f(3.0, x, y).tolist() == [7, 11, 15]
    assert [call[-1] - 2**61 for call in jax.ffi.calls] == [0, 0, 1, 2]
    assert f(2, x[:0], y[:0]).shape == (0,)
    assert f(jax.numpy.asarray(np.float32(2)), x, y).tolist() == [6, 9, 12]
    assert not hasattr(next(iter(f._functions.values())), "gradients")


def test_handlers_are_registered_once(jax: Any) -> None:
    axpy()
    axpy()
    assert [(name, capsule[0], platform, version) for name, capsule, platform, version in jax.ffi.targets] == [
        ("cudakit", "capsule", "cpu", 1),
        ("cudakit", "capsule", "CUDA", 1),
    ]
    assert jax_call._register(jax) == [capsule[1] for _, capsule, *_ in jax.ffi.targets]


def test_several_results_and_shapes(jax: Any) -> None:
    given: dict[str, Any] = {"values": {"rows": lambda x: x.shape[0], "columns": lambda x: x.shape[1]}}
    kernel, x = ck.Kernel(SOURCE, "both"), array([[1, 2], [3, 4]])
    f = ck.jax.call(
        kernel, lambda x: (Struct(x.shape[:1], x.dtype), x), lambda x: ck.cover(x.shape[0], block=32), **given
    )
    total, y = f(x)
    assert (total.tolist(), y.tolist()) == ([3, 7], [[1, 3], [3, 7]])
    fixed = ck.jax.call(AXPY, Struct((2,), np.float32), ck.config(1, 32), values={"n": 2}, vmap_method="sequential")
    assert fixed(1.0, x[0], x[1]).tolist() == [4, 6]
    assert jax.ffi.calls[-1][2] == "sequential"
    for out in (lambda x: (x, x), lambda x: [], lambda x: 3, lambda x: x.shape):
        with pytest.raises(ck.ArgumentError, match=r"axpy: out is a jax.ShapeDtypeStruct for each of z, got"):
            ck.jax.call(AXPY, out)(1.0, x, x)
    none = ck.jax.call(ck.Kernel(SOURCE, "scale"), lambda x: x, values={"n": lambda x: x.size}, aliases=["x"])
    with pytest.raises(ck.ArgumentError, match=r"scale: out is a jax.ShapeDtypeStruct for each of no results, got"):
        none(x, 2.0)


def test_an_argument_that_is_written_is_a_result(jax: Any) -> None:
    f = ck.jax.call(ck.Kernel(SOURCE, "scale"), values={"n": lambda x: x.size}, aliases=["x"])
    x = array([1, 2])
    assert f(x, 3.0).tolist() == [3, 6]
    assert x.tolist() == [1, 2]
    assert jax.ffi.calls[-1][3] == {0: 0}

    def function(x: Any, stream: Any, out: Any) -> None:
        out[...] = x * 2

    g = ck.jax.call(
        ck.Kernel(SOURCE, "scale"), values={"n": lambda x: x.size}, aliases=["x"], backward=lambda x, by, dx: by * dx
    )
    assert gradients(g, x, 3.0, given=array([1, 10])) == [[3, 30]]
    assert ck.jax.call(function, lambda x: x)(x).tolist() == [2, 4]


def test_which_aliases_there_are(jax: Any) -> None:
    head = "__global__ void f(const float* a, float by, float* x, float* y, float* z)"
    text = f"{head} {{ x[0] = a[0]; y[0] = by; z[0] = 2; }}"
    f = ck.jax.call(ck.Kernel(text), lambda a: a, ck.config(1, 1), aliases=["x", "z"])
    found = f(array([5]), 3.0, array([7]), array([8]))
    assert [each.tolist() for each in found] == [[5], [2], [3]]
    assert jax.ffi.calls[-1][3] == {1: 0, 2: 1}
    for wrong in (["a"], "x", ["q"], ["x", "by"]):
        with pytest.raises(ck.ArgumentError, match=r"f: aliases names parameters T\*, x, y, z; got"):
            ck.jax.call(ck.Kernel(text), lambda a: a, ck.config(1, 1), aliases=wrong)


def test_a_call_of_another_process_is_refused(jax: Any) -> None:
    with pytest.raises(ck.ArgumentError, match="this process has no such call of cudakit: a program that was exported"):
        jax_call._on_host(Call(17, [], [], None))


def test_an_argument_and_its_result_may_be_one_array(jax: Any) -> None:
    f = ck.jax.call(ck.Kernel(SOURCE, "scale"), values={"n": lambda x: x.size}, aliases=["x"])
    x = array([1, 2])
    f(x, 3.0)
    (number,) = jax_call._records
    apart, same = array([5, 5]), array([4, 5])
    jax_call._on_host(Call(number, [buffer(same)], [buffer(same)], None))
    assert same.tolist() == [12, 15]
    jax_call._on_host(Call(number, [buffer(same)], [buffer(apart)], None))
    assert (same.tolist(), apart.tolist()) == ([12, 15], [36, 45])


def test_arrays_of_the_host_are_xlas_memory(jax: Any) -> None:
    x = np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3)
    found = jax_call._numpy_array(buffer(x), True)
    found[1, 2] = 9
    assert (x[1, 2], found.dtype, found.shape) == (9, x.dtype, (2, 3))
    assert not jax_call._numpy_array(buffer(x), False).flags.writeable
    for is_result in (False, True):
        assert jax_call._numpy_array(Buffer(0, (0, 3), np.dtype("f4"), 0), is_result).shape == (0, 3)


def test_on_a_gpu_it_works_on_xlas_stream(jax: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    current: list[Any] = []

    monkeypatch.setattr(jax_call, "_streams", {})
    monkeypatch.setattr(jax_call, "of_handle", lambda handle: SimpleNamespace(handle=handle))
    monkeypatch.setattr(jax_call, "device_stream", lambda core: SimpleNamespace(device_id=3))
    monkeypatch.setattr("cupy.ndarray", lambda *given: given)
    monkeypatch.setattr("cupy.cuda.UnownedMemory", lambda *given: given)
    monkeypatch.setattr("cupy.cuda.MemoryPointer", lambda *given: given)

    class Current(contextlib.ExitStack):
        def __init__(self, core: Any) -> None:
            super().__init__()
            current.append(core)
            self.callback(lambda: current.append(None))

    monkeypatch.setattr(jax_call, "cupy_stream", Current)
    jax_call._records[5] = jax_call._Record(lambda *given: calls.append((given, current[-1])), (None, 2.0), (0,), ())
    argument, result = Buffer(64, (2, 3), np.dtype("f4"), 24), Buffer(128, (4,), np.dtype("f8"), 32)
    for _ in range(2):
        jax_call._on_gpu(Call(5, [argument], [result], 77))
    (stream, *given), within = calls[0]
    assert (stream.handle, within) == (77, stream)
    assert given == [
        ((2, 3), np.dtype("f4"), ((64, 24, None, 3), 0)),
        2.0,
        ((4,), np.dtype("f8"), ((128, 32, None, 3), 0)),
    ]
    assert calls[1][0][0] is stream
    assert current[0] is stream


def test_an_elementwise_function_broadcasts_and_has_its_gradients(jax: Any) -> None:
    pytest.importorskip("sympy")
    f = ck.jax.call(ck.elementwise("T a, T x, T y", "T z", "z = a * x * x * y", "made"), numbers=["a"])
    x, y = array([[1], [2]]), array([3, 4])
    assert f(2.0, x, y).tolist() == [[6, 8], [24, 32]]
    assert jax.ffi.calls[-1][2:5] == ("broadcast_all", {}, [(2, 1), (1, 2)])
    assert gradients(f, 2.0, x, y, given=array([[1, 1], [1, 2]])) == [[[28], [88]], [10, 18]]
    counted = ck.jax.call(ck.elementwise("T x, int k", "T z", "z = x * k", "counted"))
    k = array([2, 3], np.int32)
    assert gradients(counted, array([5, 6]), k, given=array([1, 10])) == [[2, 30], None]
    square = ck.jax.call(ck.elementwise("T x", "T y", "y = x * x", "square"))
    z = array([1], np.complex64)
    with pytest.raises(ck.ArgumentError, match="square: gradients of complex numbers are not derived; give backward="):
        gradients(square, z, given=z)
    two = ck.jax.call(ck.elementwise("T x", "T y, double z", "y = 2 * x; z = 3 * x", "two"))
    first, second = two(array([1, 2]))
    assert (first.dtype, second.dtype, second.tolist()) == (np.float32, np.float64, [3, 6])
    assert gradients(two, array([1, 2]), given=(array([1, 1]), array([10, 20], np.float64))) == [[32, 62]]
    by_rule = ck.jax.call(ck.elementwise("T x", "T y", "y = x * x", "square"), vmap_method="sequential")
    assert by_rule(array([3])).tolist() == [9]
    assert jax.ffi.calls[-1][2] == "sequential"
    assert ck.jax.call(ck.math.add)(array([1, 2]), array([[1], [3]])).tolist() == [[2, 3], [4, 5]]


def test_gradients_by_a_kernel_and_by_others(jax: Any) -> None:
    x, y, dz = array([1, 2]), array([3, 4]), array([1, 10])
    back = ck.elementwise("T a, T dz", "T dx, T dy", "dx = a * dz; dy = dz", "back")
    for backward in (ck.Kernel(SOURCE, "axpy_back"), back, lambda a, dz: (a * dz, dz)):
        f = axpy(backward=backward, vmap_method="sequential")
        assert gradients(f, 2.5, x, y, given=dz) == [[2.5, 25], [1, 10]]
        if isinstance(backward, ck.Kernel):
            assert jax.ffi.calls[-1][2] == "sequential"
    order = axpy(backward=lambda z, y, dz, x: [x + 10 * z + 100 * dz, None])
    assert gradients(order, 1.0, x, y, given=dz) == [[141, 1062], None]
    wide = axpy(backward=lambda dz: (array([[3, 3], [3, 3]]), dz.astype("f8")))
    assert gradients(wide, 1.0, x, y, given=dz) == [[6, 6], [1, 10]]
    with pytest.raises(ck.ArgumentError, match="axpy: backward takes dq, b; there are a, x, y, z, dz"):
        gradients(axpy(backward=lambda dq, a, b: dq), 1.0, x, y, given=dz)
    with pytest.raises(ck.ArgumentError, match="backward returned 1 gradients; it is one for each of x, y, None where"):
        gradients(axpy(backward=lambda dz: dz), 1.0, x, y, given=dz)
    half = ck.elementwise("T dz", "T dx", "dx = dz", "half")
    with pytest.raises(ck.ArgumentError, match=r"axpy: backward writes no dy; .* returns None for it"):
        gradients(axpy(backward=half), 1.0, x, y, given=dz)
    with pytest.raises(ck.ArgumentError, match="dq is no gradient of an argument; it writes dx, dy"):
        gradients(axpy(backward=ck.elementwise("T dz", "T dq", "dq = dz")), 1.0, x, y, given=dz)
    mixed = ck.jax.call(lambda x, k: x * k, lambda x: x, backward=ck.elementwise("T dout", "T dx", "dx = dout", "own"))
    assert gradients(mixed, x, array([1, 2], np.int16), given=dz) == [[1, 10], None]


def test_gradients_are_summed_over_what_was_broadcast(jax: Any) -> None:
    gradient = array(np.arange(24).reshape(2, 3, 4))
    for shape, axes in (
        ((2, 3, 4), ()),
        ((3, 4), (0,)),
        ((4,), (0, 1)),
        ((3, 1), (0, 2)),
        ((2, 1, 4), (1,)),
        ((), (0, 1, 2)),
    ):
        found = jax_call._summed_to(jax, gradient, array(np.zeros(shape), np.float64))
        assert (found.shape, found.dtype) == (shape, np.float64)
        assert (found == gradient.sum(axes, keepdims=True).reshape(shape)).all()
    assert jax_call._summed_to(jax, None, gradient) is None


def test_a_function_of_arrays(jax: Any) -> None:
    x = array([1, 2])
    assert ck.jax.call(lambda x: x + 1, lambda x: x)(x).tolist() == [2, 3]
    several = ck.jax.call(lambda x: (x + 1, x * 2), [Struct((2,), np.float32)] * 2, backward=lambda dout1, out0: dout1)
    assert [each.tolist() for each in several(x)] == [[2, 3], [2, 4]]
    assert gradients(several, x, given=(x, 3 * x)) == [[3, 6]]
    one = ck.jax.call(lambda x: x + 1, [Struct((2,), np.float32)], backward=lambda dout: dout)
    assert one(x).tolist() == [2, 3]
    by = ck.jax.call(lambda x, by=3: x * by, lambda x: x, numbers=["by"])
    assert by(x, 5).tolist() == [5, 10]
    assert repr(by) == "<cudakit.jax.call <lambda>(x, by)>"


def test_what_does_not_fit_is_refused_by_name(jax: Any) -> None:
    x = array([1, 2])
    f = axpy()
    with pytest.raises(ck.ArgumentError, match="axpy takes 3 arguments: a, x, y; got 2"):
        f(x, x)
    with pytest.raises(ck.ArgumentError, match=r"axpy: a is a number .*static_argnames='a'"):
        f(Tracer(), x, x)
    for wrong in ("2", None, [2]):
        with pytest.raises(ck.ArgumentError, match=f"axpy: a is a number, got {type(wrong).__name__}"):
            f(wrong, x, x)
    with pytest.raises(ck.ArgumentError, match="axpy: shapes and dtypes of z are not known; give out="):
        ck.jax.call(AXPY)
    with pytest.raises(ck.ArgumentError, match="shapes and dtypes of out are not known; give out="):
        ck.jax.call(lambda x: x)
    for method in ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all"):
        axpy(vmap_method=method)(1.0, x, x)
        assert jax.ffi.calls[-1][2] == method
    with pytest.raises(ck.ArgumentError, match=r"vmap_method is one of 'sequential', .*, None, got 'all'"):
        axpy(vmap_method="all")
    half = ck.elementwise("T dz", "T dx", "dx = dz", "half")
    for backward in (half, ck.Kernel(SOURCE, "axpy_back")):
        with pytest.raises(
            ck.ArgumentError, match="scale: with aliases dx is the gradient of an argument and of a res"
        ):
            ck.jax.call(ck.Kernel(SOURCE, "scale"), aliases=["x"], backward=backward)
    given: dict[str, Any] = {"numbers": ["a"], "config": ck.config(1, 32), "values": {"n": 3}, "aliases": ["x"]}
    plain = ck.elementwise("T x, T a", "T z", "z = x", "plain")
    for function, refused in (
        (AXPY, ["numbers"]),
        (plain, ["config", "values", "aliases"]),
        (lambda a, x: x, ["config", "values", "aliases"]),
    ):
        for each in refused:
            with pytest.raises(ck.ArgumentError, match=f"{each}= is not for {type(function).__name__}"):
                ck.jax.call(function, lambda x: x, **{each: given[each]})
