"""Ops of torch around kernels, elementwise functions and others: with the real torch, on the host and under --gpu."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from support.bridges import SOURCE

import cudakit as ck

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
_number = itertools.count()


@pytest.fixture
def name() -> str:
    """Of an op that no other test has."""
    return f"cudakit_test::op{next(_number)}"


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    if not request.config.getoption("--gpu"):
        return "cpu"
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return "cuda"


def kernel(which: str) -> ck.Kernel:
    return ck.Kernel(SOURCE, which)


def axpy(name: str, **more: Any) -> Any:
    return ck.torch.op(name, kernel("axpy"), out=lambda a, x, y: ck.torch.like(x), **more)


@pytest.fixture
def pair(device: str) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(5)
    return tuple(torch.randn(300, generator=generator).to(device).requires_grad_() for _ in range(2))  # type: ignore


def test_a_kernel_is_an_op(name: str, device: str) -> None:
    op = axpy(name)
    assert str(op._opoverload._schema) == f"{name}(Scalar a, Tensor x, Tensor y) -> Tensor"
    for dtype in (torch.float32, torch.float64, torch.int32, torch.bfloat16):
        x, y = (torch.arange(k, 300 + k, device=device).to(dtype) for k in range(2))
        torch.testing.assert_close(op(2, x, y), 2 * x + y)
    assert torch.ops.cudakit_test.__getattr__(name.partition("::")[2])(2.0, x, y).dtype == torch.bfloat16
    assert op(2.0, x[:0], y[:0]).shape == (0,)


def test_all_of_opcheck(name: str, device: str, pair: Any) -> None:
    op = axpy(name, backward=kernel("axpy_back"))
    found = torch.library.opcheck(op, (2.0, *pair))
    assert set(found.values()) == {"SUCCESS"}
    assert len(found) == 4
    torch.library.opcheck(op, (3, *(x.detach().to(torch.int32) for x in pair)))


def test_gradients_by_a_kernel(name: str, pair: Any) -> None:
    op = axpy(name, backward=kernel("axpy_back"))
    x, y = pair
    op(2.5, x, y).sum().backward()  # a gradient that is one number, expanded
    torch.testing.assert_close(x.grad, torch.full_like(x, 2.5))
    torch.testing.assert_close(y.grad, torch.ones_like(y))
    (only,) = torch.autograd.grad(op(2.5, x.detach(), y).square().sum(), y)
    torch.testing.assert_close(only, 2 * (2.5 * x + y).detach())


def test_gradients_by_a_function_of_torch(name: str, pair: Any) -> None:
    op = axpy(name, backward=lambda a, dz: (a * dz, dz))
    inputs = [x.detach().double().requires_grad_() for x in pair]
    assert torch.autograd.gradcheck(lambda x, y: op(2.0, x, y), inputs)


def test_gradients_by_an_elementwise_function(name: str, pair: Any) -> None:
    forward = ck.elementwise("T x, T y", "T z", "z = x * x * y", "cube")
    back = ck.elementwise("T x, T y, T dz", "T dx, T dy", "dx = 2 * x * y * dz; dy = x * x * dz", "cube_back")
    op = ck.torch.op(name, forward, backward=back)
    x, y = (each.detach()[:12].double().requires_grad_() for each in pair)
    assert torch.autograd.gradcheck(op, (x.view(3, 4), y[:4]))  # dy is summed to the shape of y


@pytest.mark.parametrize(
    ("inputs", "body"),
    [
        ("T x, T y", "z = x * sin(y) + 2"),
        ("T x, T y", "T t = exp(-x * x); z = y > 0 ? t * y : pow(t, T(3)) / (1 + y * y)"),
        ("T x, T y", "if (x < y) z = tanh(x); else z = sqrt(x * x + 1) * 0.1; z *= y"),
        ("T x, T y", "z = fmax(x, y) - fabs(x) * log1p(y * y) + erf(x) + floor(y)"),
    ],
)
def test_gradients_of_an_expression_are_derived(name: str, device: str, inputs: str, body: str) -> None:
    pytest.importorskip("sympy")
    op = ck.torch.op(name, ck.elementwise(inputs, "T z", body, "made"))
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((5, 1), (7,)))
    x, y = (each.to(device).requires_grad_() for each in (x, y))
    assert torch.autograd.gradcheck(op, (x, y))
    assert torch.autograd.gradcheck(op, (x, y.detach()))
    torch.library.opcheck(op, (x, y))
    assert torch.autograd.grad(op(x.float(), y).sum(), x)[0].dtype == torch.float64


def test_what_an_expression_does_not_set_is_zero(name: str, device: str) -> None:
    op = ck.torch.op(name, ck.elementwise("T x", "T y", "if (x > 1) y = x", "some"))
    x = torch.arange(4.0, device=device)
    torch.full((1000,), 7.0, device=device)
    assert op(x).tolist() == [0, 0, 2, 3]
    assert op(x.expand(3, 4).t()[::2]).tolist() == [[0] * 3, [2] * 3]


def test_numbers_of_an_expression_have_no_gradient(name: str, device: str) -> None:
    pytest.importorskip("sympy")
    op = ck.torch.op(name, ck.elementwise("T a, T x", "T y", "y = a * x * x", "quadratic"), numbers=["a"])
    x = torch.arange(4.0, device=device, requires_grad=True)
    op(1.5, x).sum().backward()
    torch.testing.assert_close(x.grad, 3 * x.detach())


def test_a_universal_function_has_numpys_dtypes(name: str, device: str) -> None:
    pytest.importorskip("sympy")
    op = ck.torch.op(name, ck.math.arctan2)
    x = torch.arange(1, 5, device=device)
    y = torch.arange(1.0, 5.0, device=device, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(op(x, y), torch.atan2(x.double(), y))
    assert torch.autograd.gradcheck(lambda y: op(x, y), y)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_it_is_compiled_whole(name: str, device: str, pair: Any, backend: str) -> None:
    pytest.importorskip("sympy")
    op = axpy(name, backward=kernel("axpy_back"))
    silu = ck.torch.op(f"{name}_silu", ck.elementwise("T x", "T y", "y = x / (1 + exp(-x))", "silu"))

    def program(x: Any, y: Any) -> Any:
        return silu(op(2.0, x.sin(), y).view(3, -1).t()).sum()

    compiled = torch.compile(program, fullgraph=True, backend=backend)
    reference = torch.nn.functional.silu(2 * pair[0].sin() + pair[1]).sum()
    torch.testing.assert_close(compiled(*pair), reference)
    expected = torch.autograd.grad(reference, pair)
    torch.testing.assert_close(torch.autograd.grad(compiled(*pair), pair), expected)
    torch._dynamo.reset()


def test_shapes_may_be_symbols_and_a_program_exported(name: str, device: str) -> None:
    pytest.importorskip("sympy")
    op = axpy(name, backward=kernel("axpy_back"))
    square = ck.torch.op(f"{name}_e", ck.elementwise("T x", "T y", "y = x * x", "square"))

    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return square(op(2.0, x, x[:1].expand_as(x).contiguous()))

    compiled = torch.compile(Model(), fullgraph=True, dynamic=True, backend="aot_eager")
    for size in (5, 8, 13):
        x = torch.arange(float(size), device=device, requires_grad=True)
        (expected,) = torch.autograd.grad((2 * x + x[:1]).square().sum(), x)
        torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x)[0], expected)
    size = torch.export.Dim("size", min=2)
    exported = torch.export.export(Model(), (x.detach(),), dynamic_shapes={"x": {0: size}})
    assert name.replace("::", ".") in str(exported.graph)
    torch.testing.assert_close(exported.module()(x.detach()[:4]), 4 * x.detach()[:4] ** 2)
    torch._dynamo.reset()


def test_an_argument_that_is_written_is_changed(name: str, device: str) -> None:
    op = ck.torch.op(name, kernel("scale"), values={"n": lambda x: x.numel()})
    assert str(op._opoverload._schema) == f"{name}(Tensor(a!) x, Scalar by) -> ()"
    x = torch.ones(5, device=device)
    before = x._version
    assert op(x, 3.0) is None
    assert x.tolist() == [3.0] * 5
    assert x._version > before  # autograd knows that what it saved is stale
    torch.library.opcheck(op, (x, 3.0))
    with pytest.raises(ck.CudakitError, match=r"changes its arguments, and has no derivative.*x.detach\(\)"):
        op(torch.ones(5, device=device, requires_grad=True).clone(), 3.0)
    with torch.no_grad():
        op(torch.ones(5, device=device, requires_grad=True), 3.0)


def test_several_outputs_sizes_and_configuration(name: str, device: str) -> None:
    op = ck.torch.op(
        name,
        kernel("both"),
        out=lambda x: (ck.torch.like(x, shape=x.shape[:1]), ck.torch.like(x)),
        values={"rows": lambda x: x.shape[0], "columns": lambda x: x.shape[1]},
        config=lambda total: ck.cover(total.numel(), block=32),
        backward=lambda x, dtotal, dy: dtotal[:, None] + dy.flip(1).cumsum(1).flip(1),
    )
    x = torch.arange(12.0, device=device).view(3, 4).requires_grad_()
    total, y = op(x)
    torch.testing.assert_close((total, y), (x.sum(1), x.cumsum(1)))
    torch.library.opcheck(op, (x,))
    expected = torch.autograd.grad((x.sum(1).square().sum() + x.cumsum(1).sin().sum()), x)
    torch.testing.assert_close(torch.autograd.grad(total.square().sum() + y.sin().sum(), x), expected)


def test_views_go_where_the_kernel_takes_steps(name: str, device: str) -> None:
    op = ck.torch.op(name, kernel("transposed"), out=lambda x: ck.torch.like(x), config=lambda x: ck.cover(x.shape))
    x = torch.arange(12.0, device=device).view(3, 4)
    torch.testing.assert_close(op(x.t()), x.t().contiguous())
    with pytest.raises(ck.ArgumentError, match="contiguous"):
        axpy(f"{name}_axpy")(2.0, x.t(), x.t())


def test_a_function_of_arrays(name: str, device: str) -> None:
    op = ck.torch.op(
        name,
        lambda x: ck.ops.cumsum(x, axis=1),
        out=lambda x: ck.torch.like(x),
        backward=lambda dout: dout.flip(1).cumsum(1).flip(1),
    )
    x = torch.arange(12.0, device=device, dtype=torch.float64).view(3, 4).requires_grad_()
    torch.testing.assert_close(op(x), x.cumsum(1))
    assert torch.autograd.gradcheck(op, x)
    torch.library.opcheck(op, (x,))
    into = ck.torch.op(
        f"{name}_out", lambda x, out, stream: ck.ops.cumsum(x, out=out, stream=stream), out=lambda x: ck.torch.like(x)
    )
    y = x.detach()[0]
    torch.testing.assert_close(into(y), y.cumsum(0))
    softmax = ck.torch.op(f"{name}_s", functools.partial(ck.ops.softmax, axis=0), out=lambda x: ck.torch.like(x))
    torch.testing.assert_close(softmax(x.detach()), x.detach().softmax(0))
    wrong = ck.torch.op(f"{name}_wrong", lambda x: ck.ops.sum(x), out=lambda x: ck.torch.like(x))
    with pytest.raises(ck.ArgumentError, match=r"returned float64 with shape \(\); out says .* shape \(4,\)"):
        wrong(y)


def test_a_function_that_changes_its_argument(name: str, device: str) -> None:
    def fill(x: Any, by: float = 3, more: float = 0) -> None:
        x[...] = by + more

    op = ck.torch.op(name, fill, numbers=["by"], mutates=["x"])
    x = torch.zeros(3, device=device)
    op(x, 4.0)
    assert x.tolist() == [4.0] * 3


def test_vmap(name: str, device: str) -> None:
    op = ck.torch.op(name, ck.elementwise("T x, T y", "T z", "z = x - y * y", "less"))
    x, y = torch.randn(4, 3, 5, device=device), torch.randn(5, 3, device=device)
    for places, shapes in (((0, None), (x, y[:, 0])), ((1, 1), (x, y)), ((None, 0), (x[0, 0], y.t()))):
        expected = torch.vmap(lambda x, y: x - y * y, places)(*shapes)
        torch.testing.assert_close(torch.vmap(op, places)(*shapes), expected)


def test_no_derivative_is_said_and_no_silent_zero(name: str, pair: Any) -> None:
    bare, derived = axpy(name), ck.torch.op(f"{name}_e", ck.elementwise("T x", "T y", "y = x * x", "square"))
    with pytest.raises(ck.CudakitError, match=rf"{name} has no derivative: give ck.torch.op its backward="):
        bare(2.0, *pair).sum().backward()
    pytest.importorskip("sympy")
    (first,) = torch.autograd.grad(derived(pair[0]).sum(), pair[0], create_graph=True)
    with pytest.raises(ck.CudakitError, match="double backward"):
        first.sum().backward()
    unknown = ck.torch.op(f"{name}_u", ck.elementwise("T x", "T y", "y = x * i", "numbered"))
    with pytest.raises(ck.TemplateError, match=r"the gradient cannot be derived: i is no input.*give backward="):
        unknown(pair[0])
    with pytest.raises(ck.ArgumentError, match="complex numbers"):
        derived(torch.ones(3, dtype=torch.complex64, requires_grad=True)).abs().sum().backward()


def test_what_does_not_fit_is_refused_by_name(name: str, device: str) -> None:
    made = axpy(name)
    with pytest.raises(ck.ArgumentError, match=f"{name}: torch already has an op of this name"):
        axpy(name)
    for wrong in ("axpy", "a::b c", 3):
        with pytest.raises(ck.ArgumentError, match="library::name"):
            axpy(wrong)  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match="out takes b; there are"):
        ck.torch.op(f"{name}_0", kernel("axpy"), out=lambda a, x, y, b: x)
    with pytest.raises(ck.ArgumentError, match=r"axpy has no parameter T\* for them"):
        ck.torch.op(f"{name}_1", kernel("axpy"), out=lambda x, z: x)
    with pytest.raises(ck.ArgumentError, match="values has m, which axpy does not take"):
        axpy(f"{name}_2", values={"m": 3})
    with pytest.raises(ck.ArgumentError, match="backward takes dq; there are a, x, y, z, dz"):
        axpy(f"{name}_3", backward=lambda dq: dq)
    x = torch.ones(3, device=device, requires_grad=True)
    total = axpy(f"{name}_4", backward=lambda dz: dz)(2.0, x, x).sum()
    with pytest.raises(ck.ArgumentError, match=r"backward returned 1 gradients; it is one for each of x, y"):
        total.backward()
    with pytest.raises(ck.ArgumentError, match="mutates= is not for Kernel"):
        axpy(f"{name}_5", mutates=["x"])
    with pytest.raises(ck.ArgumentError, match="y is raw, so that"):
        ck.torch.op(f"{name}_6", ck.elementwise("T x, raw T y", "T z", "z = x + y[0]", "first"))
    with pytest.raises(ck.ArgumentError, match="shapes and dtypes of results are not known"):
        ck.torch.op(f"{name}_7", lambda x: x)
    with pytest.raises(ck.ArgumentError, match="dq is no gradient of an argument"):
        axpy(f"{name}_8", backward=ck.elementwise("T dz", "T dq", "dq = dz", "back"))
    with pytest.raises(ck.ArgumentError, match="out= makes z: a tensor for each"):
        ck.torch.op(f"{name}_9", kernel("axpy"), out=lambda x, y: (x, y))(2.0, x.detach(), x.detach())
    total = axpy(f"{name}_10", backward=ck.elementwise("T dz", "T dx", "dx = dz", "half"))(2.0, x, x).sum()
    with pytest.raises(ck.ArgumentError, match=r"backward writes no dy; .* returns None for it"):
        total.backward()
    assert made is not None


@pytest.mark.gpu
def test_a_tensor_on_another_device_is_refused(name: str) -> None:
    x = torch.ones(3, device="cuda")
    with pytest.raises(ck.ArgumentError, match="is on cpu and this stream is a GPU's"):
        axpy(name)(2.0, x, x.cpu())
    with pytest.raises(ck.ArgumentError, match="x is on the host and others are on a GPU; move one"):
        axpy(f"{name}_2")(2.0, x.cpu(), x)


@pytest.mark.gpu
def test_tensors_of_a_second_gpu_are_worked_on_there(name: str) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    pytest.importorskip("sympy")
    op = axpy(name, backward=kernel("axpy_back"))
    square = ck.torch.op(f"{name}_e", ck.elementwise("T x", "T y", "y = x * x", "square"))
    for device in ("cuda:1", "cuda:0", "cuda:1"):
        x = torch.arange(300.0, device=device, requires_grad=True)
        with torch.cuda.stream(torch.cuda.Stream(device)):
            square(op(2.0, x, x)).sum().backward()
        torch.cuda.synchronize(device)
        torch.testing.assert_close(x.grad, 18 * x.detach())
        assert torch.cuda.current_device() == 0
    with pytest.raises(ck.ArgumentError, match="the stream is of device 1"):
        op(1.0, x.detach(), torch.ones(300, device="cuda:0"))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*CUDA Graph is empty")
def test_it_works_on_torchs_stream_and_in_its_graphs(name: str) -> None:
    op = axpy(name)
    e = ck.torch.op(f"{name}_e", ck.elementwise("T x", "T y", "y = x + 1", "one_more"))
    x, y = torch.arange(1 << 20, device="cuda").float(), torch.ones(1 << 20, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.default_stream())
        torch.cuda._sleep(10_000_000)
        doubled = x * 2
        z = e(op(3.0, doubled, y))
    torch.cuda.default_stream().wait_stream(side)
    torch.testing.assert_close(z, 6 * x + 2)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = e(op(3.0, x, y))
    for k in range(3):
        x.fill_(k)
        graph.replay()
        torch.testing.assert_close(z, torch.full_like(x, 3.0 * k + 2))
    with torch.cuda.stream(side):
        op(1.0, y, y)
        made = op(0.0, x, y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # of what cudakit has seen on another stream
        z = op(1.0, made, y)
    graph.replay()
    torch.testing.assert_close(z, torch.full_like(x, 2))
    torch.testing.assert_close(op(2.0, z, y), torch.full_like(x, 5))
    with pytest.raises(ck.LaunchError, match="give it a parameter out"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        ck.torch.op(f"{name}_f", lambda x: ck.ops.cumsum(x), out=lambda x: ck.torch.like(x))(x)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # of torch's compiler
def test_compiled_for_cuda_graphs(name: str, pair: Any) -> None:
    op = axpy(name, backward=kernel("axpy_back"))
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):  # several streams: cudakit holds what crosses
        op(1.0, *pair)
    compiled = torch.compile(lambda x, y: op(2.0, x.sin(), y).cos(), fullgraph=True, mode="reduce-overhead")
    for _ in range(4):
        torch.testing.assert_close(compiled(*pair), (2 * pair[0].sin() + pair[1]).cos())
    torch._dynamo.reset()


@pytest.mark.gpu
@pytest.mark.parametrize("has_seen_others", [False, True])
def test_memory_that_only_another_stream_was_seen_to_read_is_kept_for_it(name: str, has_seen_others: bool) -> None:
    op = axpy(name)
    if has_seen_others:
        with torch.cuda.stream(torch.cuda.Stream()):
            op(1.0, torch.ones(5, device="cuda"), torch.ones(5, device="cuda"))
    op(1.0, torch.ones(5, device="cuda"), torch.ones(5, device="cuda"))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # so that no block has a history
    side, gone = torch.cuda.Stream(), torch.full((3 << 20,), 3.0, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        z = op(2.0, gone, gone)
    del gone
    torch.full((3 << 20,), -7.0, device="cuda")
    torch.cuda.synchronize()
    torch.testing.assert_close(z, torch.full_like(z, 9))


@pytest.mark.gpu
def test_memory_goes_back_when_the_other_stream_is_done_and_the_tensor_is_let_go(name: str) -> None:
    op = axpy(name)
    side, x, y = torch.cuda.Stream(), torch.ones(1 << 20, device="cuda"), torch.ones(1 << 20, device="cuda")
    op(1.0, x, y)
    side.wait_stream(torch.cuda.current_stream())
    gone = torch.full_like(x, 3)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        z = op(2.0, gone, y)
    kept = weakref.ref(gone)
    del gone
    assert kept() is None  # nobody holds the tensor,
    torch.full_like(x, -7)  # and still nobody gets its memory while the other stream reads it
    torch.cuda.synchronize()
    torch.testing.assert_close(z, torch.full_like(x, 7))


def test_torch_is_not_imported_before_it_is_needed() -> None:
    program = """
import sys, cudakit as ck
ck.torch.op, ck.jax.call
assert not {"torch", "jax", "sympy"} & {*sys.modules}
sys.modules["torch"] = sys.modules["jax"] = None
for make in (lambda: ck.torch.op("a::b", print), lambda: ck.jax.call(print)):
    try:
        make()
    except ck.CudakitError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    torch_missing, jax_missing = done.stdout.splitlines()
    assert torch_missing == "ck.torch.op needs torch, which is not installed: pip install torch"
    assert jax_missing == "ck.jax.call needs jax, which is not installed: pip install jax, or jax[cuda13] for a GPU"


def test_the_result_of_a_compiled_kernel_is_not_the_argument(name: str, device: str) -> None:
    op = axpy(name)
    x = torch.ones(3, device=device)
    z = op(1.0, x, x)
    z += 1
    np.testing.assert_array_equal(x.cpu().numpy(), np.ones(3, np.float32))
