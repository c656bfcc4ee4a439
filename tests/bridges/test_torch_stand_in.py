"""Ops of torch, without torch: what is registered, what an op's call does, and which gradients it has."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import torch_stand_in, without_device
from support.bridges import SOURCE
from support.torch_stand_in import DTYPES, Tensor

import cudakit as ck
from cudakit.bridges import torch_op
from cudakit.bridges.torch_op import (
    Gradient,
    Once,
    Streams,
    array_of,
    check_name,
    dtype_in_torch,
    dtype_of,
    dtype_or_class,
    layout_of,
    register,
)
from cudakit.bridges.work import Role, Work

pytestmark = pytest.mark.emulator
AXPY = ck.Kernel(SOURCE, "axpy")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(torch_op, "_dtypes", {})
    return torch_stand_in.stand_in(monkeypatch)


def tensor(*values: Any, dtype: Any = np.float32) -> Tensor:
    return Tensor(np.array(values, dtype))


def axpy(name: str = "own::axpy", **more: Any) -> Any:
    return ck.torch.op(name, AXPY, out=lambda a, x, y: ck.torch.like(x), **more)


def lists(found: Any) -> Any:
    return [None if each is None else each.array.tolist() for each in found]


def test_a_kernel_is_registered_with_its_schema_and_works_on_the_host(torch: Any) -> None:
    op = axpy()
    assert op.more == {
        "mutates_args": [],
        "device_types": "cuda",
        "schema": "(Scalar a, Tensor x, Tensor y) -> Tensor",
        "tags": ("exact",),
    }
    assert torch.ops.own.axpy is op
    found = op(2.0, tensor(1, 2, 3), tensor(4, 5, 6))
    assert (found.array.tolist(), found.dtype) == ([6, 9, 12], torch.float32)
    fake = op.fake(2.0, tensor(1, 2, 3), tensor(4, 5, 6))
    assert (fake.shape, fake.dtype, fake.array.tolist()) == ((3,), torch.float32, [99] * 3)
    assert op.batched is None


def test_like_takes_another_shape_and_dtype(torch: Any) -> None:
    x = tensor(1, 2, 3)
    assert (ck.torch.like(x).shape, ck.torch.like(x).dtype) == ((3,), torch.float32)
    found = ck.torch.like(x, shape=(2, 0), dtype=torch.int32)
    assert (found.shape, found.dtype) == ((2, 0), torch.int32)


def test_names_of_ops(torch: Any) -> None:
    for wrong in ("axpy", "a::b c", "a b::c", "::c", "a::", 3):
        with pytest.raises(ck.ArgumentError, match=r"an op of torch is called 'library::name'.*; got"):
            check_name(torch, wrong)
    check_name(torch, "a::b")
    torch.ops.a.b = 1
    with pytest.raises(ck.ArgumentError, match="a::b: torch already has an op of this name"):
        check_name(torch, "a::b")
    with pytest.raises(ck.ArgumentError, match="a::b: torch already has an op of this name"):
        axpy("a::b")
    with pytest.raises(ck.ArgumentError, match="none of its arguments is an array"):
        register(torch, "a::c", Work((Role("n", "number"),), ("z",), print), None)


def test_the_schema_names_numbers_and_what_is_written(torch: Any) -> None:
    roles = (
        *(Role(f"{kind}_", "number", kind) for kind in ("int", "float", "bool", "complex", "any", "constant")),
        *(Role("x", "written"), Role("y", "array"), Role("z", "written")),
    )
    for outputs, shown in (((), "()"), (("p",), "Tensor"), (("p", "q"), "(Tensor, Tensor)")):
        op = register(torch, f"own::op{len(outputs)}", Work(roles, outputs, print), None)
        numbers = "SymInt int_, float float_, bool bool_, complex complex_, Scalar any_, int constant_"
        assert op.more["schema"] == f"({numbers}, Tensor(a!) x, Tensor y, Tensor(b!) z) -> {shown}"
        assert op.more["mutates_args"] == ["x", "z"]


def test_a_torch_without_exact_strides_has_the_older_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_stand_in.stand_in(monkeypatch, Tag=SimpleNamespace(needs_fixed_stride_order="fixed"))
    assert axpy().more["tags"] == ("fixed",)


def work_of(outputs: tuple[str, ...], calls: list[Any]) -> Work:
    takes = (Role("a", "number"), Role("x", "array"), Role("y", "array"))
    return Work(takes, outputs, lambda *given: calls.append(given))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_outputs_are_none_a_tensor_or_a_tuple(torch: Any, count: int) -> None:
    calls: list[Any] = []
    outputs = ("p", "q")[:count]
    made = None if not count else lambda a, x, y: tuple(x.new_empty(x.shape) for _ in outputs)
    op = register(torch, "own::op", work_of(outputs, calls), made)
    x = tensor(1, 2)
    for call in (op, op.fake):
        found = call(3, x, x)
        assert (found is None) if count == 0 else isinstance(found, Tensor) if count == 1 else len(found) == 2
    assert len(calls) == 1
    assert calls[0][1:4] == (3, x, x)
    assert len(calls[0]) == 4 + count


@pytest.mark.parametrize(("count", "wrong"), [(1, (1, 1)), (1, ()), (1, 1), (2, 0), (2, (1,)), (2, (1, 1, 1))])
def test_other_outputs_than_declared_are_refused(torch: Any, count: int, wrong: Any) -> None:
    def made(a: Any, x: Any, y: Any) -> Any:
        if isinstance(wrong, tuple):
            return tuple(x for _ in wrong)
        return x if count == 2 else [x]

    op = register(torch, "own::op", work_of(("p", "q")[:count], []), made)
    with pytest.raises(ck.ArgumentError, match=r"own::op: out= makes p.*: a tensor for each, .*; got (tuple|list|T)"):
        op(1, tensor(1), tensor(1))


def test_a_plain_op_looks_its_outputs_up(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def made(a: Any, x: Any, y: Any) -> Any:
        asked.append(x.shape)
        return x.new_empty(x.shape, torch.float64), x.new_empty((1,), torch.int32)

    monkeypatch.setattr(torch_op, "_MOST_LAYOUTS", 2)
    op = register(torch, "own::op", work_of(("p", "q"), []), made, is_plain=True)
    first, second = tensor(1, 2), tensor(1, 2, 3)
    for x in (first, first, second, second, first):
        p, q = op(1, x, x)
        assert (p.shape, p.dtype, q.shape, q.dtype) == (x.shape, torch.float64, (1,), torch.int32)
    assert asked == [(2,), (3,)]
    op(1, tensor(1), tensor(1))
    op(1, tensor(1), tensor(1))
    assert asked == [(2,), (3,), (1,)]
    op(1, first, first)
    assert asked == [(2,), (3,), (1,), (2,)]
    one = register(torch, "own::one", work_of(("p",), []), lambda a, x, y: x.new_empty((4,)), is_plain=True)
    assert [one(1, first, first).shape for _ in range(2)] == [(4,), (4,)]


class Order:
    """What is asked of the order of streams."""

    def __init__(self) -> None:
        self.single = True
        self.seen: list[Any] = []

    @contextlib.contextmanager
    def capturing(self, stream: Any, begun: bool = False) -> Iterator[None]:
        self.seen.append(("capturing", stream.device, begun))
        yield

    def hand_over(self, stream: Any, still: Any) -> None:
        self.seen.append(("hand over", stream.device, still))


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> Order:
    found = Order()
    for module in (torch_op, torch_op):
        monkeypatch.setattr(module, "order", lambda: found)
    return found


def on_gpu(*values: float, device: int = 0) -> Tensor:
    return Tensor(np.array(values, np.float32), device)


@pytest.mark.parametrize("number", [0, 5])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_gpus_tensors_are_worked_on_on_torchs_stream(torch: Any, order: Order, count: int, number: int) -> None:
    calls: list[Any] = []
    torch.cuda.stream_number = number
    outputs = ("p", "q")[:count]
    made = None if not count else lambda a, x, y: tuple(x.new_empty(x.shape) for _ in outputs)
    op = register(torch, "own::op", work_of(outputs, calls), made)
    x, y = on_gpu(1, 2), on_gpu(3, 4)
    found = op(2, x, y)
    given = () if count == 0 else (found,) if count == 1 else found
    assert calls[-1][1:] == (2, x, y, *given)
    assert (calls[-1][0].device, calls[-1][0].number) == (0, number)
    op(2, x, y)
    assert calls[-1][0] is calls[-2][0]
    assert [what for what, *_ in order.seen] == ["hand over"] * (2 if number else 0)
    order.seen.clear()
    torch.cuda.captured = True
    op(2, x, y)
    assert order.seen == [("capturing", 0, True)]
    torch.cuda.captured, order.single = False, False
    order.seen.clear()
    x, y = on_gpu(1, 2), on_gpu(3, 4)
    found = op(2, x, y)
    ((what, device, still),) = order.seen
    assert (what, device) == ("hand over", 0)
    given = () if count == 0 else (found,) if count == 1 else found
    held = (*(np.zeros(1), "x"), x, y, *given)
    assert still(held) == held[:2]
    assert all(each.recorded == [calls[-1][0]] for each in (x, y, *given))


def test_a_gpu_that_is_not_torchs_current_one_is_made_current(torch: Any, order: Order) -> None:
    calls: list[Any] = []
    op = register(torch, "own::op", work_of((), calls), None)
    op(1, on_gpu(1, device=1), on_gpu(1, device=1))
    assert torch.cuda.asked == ["count", ("stream", 1)]
    other, torch.cuda.count = register(torch, "own::other", work_of((), calls), None), 2
    other(1, on_gpu(1, device=1), on_gpu(1, device=1))
    assert torch.cuda.asked[2:] == ["count", ("device", 1), ("stream", 1)]
    other(1, on_gpu(1), on_gpu(1))
    assert torch.cuda.asked[5:] == [("stream", 0)]
    assert torch.cuda.current == 0
    with pytest.raises(ck.ArgumentError, match="own::op: x is on the host and others are on a GPU; move one"):
        op(1, tensor(1), on_gpu(1))


def test_memory_that_torch_does_not_own_stays_held(torch: Any, order: Order) -> None:
    ours, foreign = on_gpu(1, 2, 3), on_gpu(1, 2)
    foreign.array.flags.writeable = False
    Streams(torch).take_over(SimpleNamespace(device=0), [ours, foreign])
    still = order.seen[0][2]
    inside = Tensor(ours.array[2:], 0)
    cupy = SimpleNamespace(data=SimpleNamespace(ptr=ours.data_ptr() + 4))
    after = SimpleNamespace(data=SimpleNamespace(ptr=ours.data_ptr() + 12))
    assert still((ours, inside, cupy, foreign, after, 3)) == (foreign, after, 3)
    assert still((after,)) == (after,)
    assert still([ours]) == [ours]
    assert (len(ours.recorded), len(foreign.recorded)) == (1, 1)  # torch passes over memory that it does not own


def test_what_tells_tensors_apart_and_their_dtypes(torch: Any) -> None:
    x = Tensor(np.zeros((2, 3), np.float32).T)
    assert layout_of(x) == (torch.float32, (3, 2), (1, 3))
    assert (layout_of(3), layout_of(2.0)) == (int, float)
    assert dtype_of(x) == np.float32
    assert dtype_of(Tensor(np.zeros(2, ml_dtypes.bfloat16))) == ml_dtypes.bfloat16
    with pytest.raises(ck.ArgumentError, match=r"torch tensor has dtype torch\.qint8, which has no C\+\+ equivalent"):
        dtype_of(Tensor(np.zeros(2, np.int8), dtype=DTYPES["qint8"]))
    assert dtype_in_torch(np.dtype("f8")) is torch.float64
    assert dtype_in_torch(np.dtype(bool)) is torch.bool
    for wrong in (np.dtype("M8[s]"), np.dtype("f4,f4")):
        with pytest.raises(ck.ArgumentError, match="torch has no dtype"):
            dtype_in_torch(wrong)
    torch.uint16 = 3
    with pytest.raises(ck.ArgumentError, match="torch has no dtype uint16"):
        dtype_in_torch(np.dtype("u2"))
    assert dtype_or_class(x) == np.float32
    for name, kind in (("SymInt", int), ("SymFloat", float), ("SymBool", bool)):
        assert dtype_or_class(type(name, (), {})()) is kind
    assert (dtype_or_class(1j), dtype_or_class("x")) == (complex, str)


def test_arrays_of_tensors_share_their_memory(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = tensor(1, 2, 3)
    found = array_of(x)
    found[1] = 7
    assert x.array.tolist() == [1, 7, 3]
    assert array_of(3) == 3
    monkeypatch.setattr("cupy.ndarray", without_device.Array)
    monkeypatch.setattr("cupy.cuda.UnownedMemory", lambda *given: given)
    monkeypatch.setattr("cupy.cuda.MemoryPointer", lambda memory, offset: (memory, offset))
    monkeypatch.setattr(without_device.Array, "__new__", lambda cls, *given: given)
    view = Tensor(np.zeros((4, 6), np.float32)[::2, 1:4], 2)
    shape, dtype, (memory, offset), strides = array_of(view)
    assert (shape, dtype, strides, offset) == ((2, 3), np.float32, (48, 4), 0)
    assert memory == (view.data_ptr(), 4 * (12 + 2 + 1), view, 2)


def test_gradients_by_a_kernel(torch: Any) -> None:
    op = axpy(backward=ck.Kernel(SOURCE, "axpy_back"))
    x, y = tensor(1, 2, 3), tensor(4, 5, 6)
    spread = Tensor(np.broadcast_to(np.float32(3), 3))
    found = op.gradients(2.5, x, y, given=[spread])
    assert lists(found) == [None, [7.5] * 3, [3] * 3]
    assert (op.context.saves, op.context.others) == (0, {0: 2.5})
    assert lists(op.gradients(2.5, x, y, given=[spread], needed=[False, False, True])) == [None, None, [3] * 3]
    inner = torch.ops.own.axpy_backward
    with pytest.raises(ck.CudakitError, match=r"own::axpy_backward has no derivative: .*double backward"):
        inner.backward(None)


def test_gradients_by_an_elementwise_function_are_summed_and_cast(torch: Any) -> None:
    forward = ck.elementwise("T x, T y", "T z", "z = x * x * y", "cube")
    back = ck.elementwise("T x, T y, T dz", "T dx, T dy", "dx = 2 * x * y * dz; dy = x * x * dz", "cube_back")
    op = ck.torch.op("own::cube", forward, backward=back)
    x, y = Tensor(np.arange(6, dtype=np.float64).reshape(2, 3)), tensor(1, 2, 3)
    dz = Tensor(np.ones((2, 3)))
    _, dy = op.gradients(x, y, given=[dz])
    assert dy.dtype is torch.float32
    assert dy.array.tolist() == [9, 17, 29]
    assert op.context.saved_tensors == (x, y)


def test_gradients_by_a_function_of_torch(torch: Any) -> None:
    def back(a: Any, z: Any, dz: Any, y: Any) -> Any:
        return [Tensor(a * dz.array + z.array), None]

    op = axpy(backward=back)
    x, y, dz = tensor(1, 2), tensor(3, 4), tensor(10, 20)
    assert lists(op.gradients(2.0, x, y, given=[dz])) == [None, [25, 48], None]
    assert [each.array.tolist() for each in op.context.saved_tensors] == [[5, 8], [3, 4]]
    other = axpy("own::other", backward=lambda dz: dz)
    with pytest.raises(ck.ArgumentError, match="backward returned 1 gradients; it is one for each of x, y, None where"):
        other.gradients(2.0, x, y, given=[dz])
    with pytest.raises(ck.ArgumentError, match="own::z: backward takes dq, b; there are a, x, y, z, dz"):
        axpy("own::z", backward=lambda dq, a, b: dq)
    with pytest.raises(ck.ArgumentError, match="dq is no gradient of an argument; it writes dx, dy"):
        axpy("own::q", backward=ck.elementwise("T dz", "T dq", "dq = dz", "back"))
    half = axpy("own::half", backward=ck.elementwise("T dz", "T dx", "dx = dz", "half"))
    assert lists(half.gradients(2.0, x, y, given=[dz], needed=[False, True, False])) == [None, [10, 20], None]
    with pytest.raises(ck.ArgumentError, match=r"own::half: backward writes no dy; .* returns None for it"):
        half.gradients(2.0, x, y, given=[dz])


def test_several_outputs_and_their_gradients(torch: Any) -> None:
    op = ck.torch.op(
        "own::both",
        ck.Kernel(SOURCE, "both"),
        out=lambda x: (ck.torch.like(x, shape=x.shape[:1]), ck.torch.like(x)),
        values={"rows": lambda x: x.shape[0], "columns": lambda x: x.shape[1]},
        config=lambda total: ck.cover(total.numel(), block=32),
        backward=lambda x, y, dy, total: Tensor(x.array + y.array + dy.array + total.array[:, None]),
    )
    x = Tensor(np.arange(4, dtype=np.float32).reshape(2, 2))
    total, y = op(x)
    assert (total.array.tolist(), y.array.tolist()) == ([1, 5], [[0, 1], [2, 5]])
    assert op.more["schema"] == "(Tensor x) -> (Tensor, Tensor)"
    (found,) = op.gradients(x, given=[total, y])
    assert found.array.tolist() == (x.array + 2 * y.array + [[1], [5]]).tolist()


def test_gradients_of_an_expression_are_derived(torch: Any) -> None:
    pytest.importorskip("sympy")
    op = ck.torch.op("own::e", ck.elementwise("T a, T x, T y", "T z", "z = a * x * x * y", "made"), numbers=["a"])
    x, y, dz = (Tensor(np.array(each, np.float32)) for each in ([[1], [2]], [3, 4], [[1, 1], [1, 2]]))
    assert lists(op.gradients(2.0, x, y, given=[dz])) == [None, [[28], [88]], [10, 18]]
    assert lists(op.gradients(2.0, x, y, given=[dz], needed=[False, False, True]))[:2] == [None, None]
    assert lists(op.gradients(2.0, x, y, given=[dz], needed=[False, True, False]))[1:] == [[[28], [88]], None]
    inner = torch.ops.own.e_gradient
    assert inner.more["schema"] == "(Scalar a, Tensor x, Tensor y, Tensor dz, int needed_) -> (Tensor, Tensor)"
    assert [each.shape for each in inner.fake(2.0, x, y, dz, 2)] == [(0,), (2, 2)]
    with pytest.raises(ck.CudakitError, match=r"own::e_gradient has no derivative: .*double backward"):
        inner.backward(None)
    square = ck.torch.op("own::s", ck.elementwise("T x", "T y", "y = x * x", "square"))
    assert lists(square.gradients(tensor(1, 2), given=[tensor(1, 1)])) == [[2, 4]]
    with pytest.raises(ck.ArgumentError, match="own::s: gradients of complex numbers are not derived; give backward="):
        square.gradients(tensor(1, dtype=np.complex64), given=[tensor(1, dtype=np.complex64)])


def test_no_derivative_is_said(torch: Any) -> None:
    with pytest.raises(
        ck.CudakitError, match=r"own::axpy has no derivative: give ck.torch.op its backward=, or the op"
    ):
        axpy().backward(None, None)
    op = ck.torch.op("own::scale", ck.Kernel(SOURCE, "scale"), values={"n": lambda x: x.numel()})
    x = tensor(1, 2)
    assert op(x, 3.0) is None
    assert x.array.tolist() == [3, 6]
    assert op.more["mutates_args"] == ["x"]
    assert op.fake(x, 3.0) is None
    assert op.backward is None
    with pytest.raises(ck.CudakitError, match=r"own::scale changes its arguments, and has no derivative: give it ten"):
        op._setup_context_fn(None, None, None)
    with pytest.raises(ck.ArgumentError, match=r"own::back changes its arguments.*; let it make outputs, by out="):
        ck.torch.op("own::back", ck.Kernel(SOURCE, "scale"), backward=lambda x: x)


def test_an_op_that_changes_an_argument_and_makes_an_output_has_no_derivative(torch: Any) -> None:
    def function(x: Any, out: Any) -> None:
        out[...] = x
        x[...] = 5

    op = ck.torch.op("own::both", function, mutates=["x"], out=lambda x: ck.torch.like(x))
    x = tensor(1, 2)
    assert (op(x).array.tolist(), x.array.tolist()) == ([1, 2], [5, 5])
    with pytest.raises(ck.CudakitError, match="own::both changes its arguments, and has no derivative"):
        op._setup_context_fn(None, None, None)


def test_outputs_of_an_expression_are_looked_up_and_others_are_made(torch: Any) -> None:
    asked: list[Any] = []

    def broadcast_shapes(*shapes: Any) -> Any:
        asked.append(shapes)
        return np.broadcast_shapes(*shapes)

    torch.broadcast_shapes = broadcast_shapes
    plain = ck.elementwise("T x, T y", "T z", "z = x - y * y", "less")
    op = ck.torch.op("own::plain", plain)
    column, row = Tensor(np.ones((2, 1), np.float32)), tensor(1, 2)
    for _ in range(2):
        found = op(column, row)
        assert found.array.tolist() == [[0, -3], [0, -3]]
    assert asked == [((2, 1), (2,))]

    def made(x: Any) -> Any:
        asked.append(x.shape)
        return ck.torch.like(x)

    given = ck.torch.op("own::given", plain, out=made)
    for _ in range(2):
        given(row, row)
    assert asked[1:] == [(2,), (2,)]
    assert (op.batched is None, given.batched is None) == (False, True)
    mixed = ck.torch.op("own::mixed", ck.elementwise("T x, double k", "double y, int m", "y = x * k; m = x", "mixed"))
    y, m = mixed.fake(row, column)
    assert (y.dtype, m.dtype, y.shape) == (torch.float64, torch.int32, (2, 2))


def test_a_function_of_arrays(torch: Any) -> None:
    op = ck.torch.op("own::f", lambda x: x * 2, out=lambda x: ck.torch.like(x), backward=lambda dout: dout)
    x = tensor(1, 2)
    assert op(x).array.tolist() == [2, 4]
    assert lists(op.gradients(x, given=[x])) == [[1, 2]]
    two = ck.torch.op(
        "own::two",
        lambda x: (x, x + 1),
        out=lambda x: (x.new_empty((2,)),) * 2,
        outputs=("p", "q"),
        backward=lambda p: p,
    )
    assert two.more["schema"] == "(Tensor x) -> (Tensor, Tensor)"

    def fill(x: Any, by: float = 3, more: float = 0) -> None:
        x[...] = by + more

    ck.torch.op("own::fill", fill, numbers=["by"], mutates=["x"])(x, 4.0)
    assert x.array.tolist() == [4, 4]


def test_a_batch_is_the_first_dimension(torch: Any) -> None:
    op = ck.torch.op("own::less", ck.elementwise("T x, T y", "T z", "z = x - y * y", "less"))
    a = np.arange(12, dtype=np.float32).reshape(4, 3)
    found, place = op.batched(None, (0, 1), Tensor(a), Tensor(a.T.copy()))
    assert (found.array.tolist(), place) == ((a - a * a).tolist(), 0)
    found, _ = op.batched(None, (0, None), Tensor(a[:, 0].copy()), Tensor(a[0]))
    assert found.array.tolist() == (a[:, :1] - a[0] ** 2).tolist()
    two = ck.torch.op("own::two", ck.elementwise("T x, T k", "T y, T z", "y = x + k; z = x - k", "two"), numbers=["k"])
    (y, z), places = two.batched(None, (1, None), Tensor(a), 2.0)
    assert (y.array.tolist(), z.array.tolist(), places) == ((a.T + 2).tolist(), (a.T - 2).tolist(), (0, 0))


def test_what_does_not_fit_is_refused_by_name(torch: Any) -> None:
    add = ck.elementwise("T x, raw T y", "T z", "z = x + y[0]", "first")
    with pytest.raises(ck.ArgumentError, match="own::a: y is raw, so that the outputs' shapes are not known; give out"):
        ck.torch.op("own::a", add)
    with pytest.raises(ck.ArgumentError, match="own::b: shapes and dtypes of results are not known; give out=lambda x"):
        ck.torch.op("own::b", lambda x: x)
    with pytest.raises(ck.ArgumentError, match=r"axpy has no parameter T\* for them, beside what out takes \(x, z\)"):
        ck.torch.op("own::c", AXPY, out=lambda x, z: x)
    with pytest.raises(ck.ArgumentError, match="own::d: out takes b; there are a, x, y"):
        ck.torch.op("own::d", AXPY, out=lambda x, b: x)
    given: dict[str, Any] = {
        "numbers": ["a"],
        "mutates": ["x"],
        "outputs": ["z"],
        "config": ck.config(1, 32),
        "values": {"n": 3},
    }
    plain = ck.elementwise("T x, T a", "T z", "z = x", "plain")
    allowed: dict[Any, tuple[str, ...]] = {
        AXPY: ("config", "values"),
        plain: ("numbers",),
        (lambda a, x, y: x): ("numbers", "mutates", "outputs"),
    }
    for function, own in allowed.items():
        for k, (each, value) in enumerate(given.items()):
            out: Any = {} if function is plain else {"out": lambda x: ck.torch.like(x)}
            name = f"own::{type(function).__name__.lower()}{k}"
            if each in own:
                ck.torch.op(name, function, **out, **{each: value})
                continue
            with pytest.raises(ck.ArgumentError, match=f"{name}: {each}= is not for {type(function).__name__}"):
                ck.torch.op(name, function, **out, **{each: value})


def test_a_gradient_is_made_once() -> None:
    made: list[int] = []
    gate = threading.Event()

    def make() -> Gradient:
        gate.wait(5)
        made.append(1)
        return Gradient((), lambda *given: ())

    once = Once(make)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(once())) for _ in range(3)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert found[0] is found[1] is found[2]
