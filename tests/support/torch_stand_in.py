"""A stand-in for torch: tensors over NumPy's arrays, and ops that say what they were registered with."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest


class DType:
    """A dtype of torch's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_complex = name.startswith("complex")

    def __repr__(self) -> str:
        return f"torch.{self.name}"


NAMES = ("bool", "int8", "int32", "int64", "float16", "float32", "float64", "bfloat16", "complex64", "qint8")
DTYPES = {name: DType(name) for name in NAMES}


def numpys(dtype: DType) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, dtype.name, None) or dtype.name)


class Tensor:
    """A tensor on the host, or one that says it is on a GPU."""

    __module__ = "torch"

    def __init__(self, array: np.ndarray, device: int = -1, dtype: DType | None = None) -> None:
        self.array, self.device = array, device
        self.dtype = dtype or DTYPES[array.dtype.name]
        self.is_cuda, self.shape = device >= 0, array.shape
        self.recorded: list[Any] = []

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def get_device(self) -> int:
        return self.device

    def numel(self) -> int:
        return self.array.size

    def dim(self) -> int:
        return self.array.ndim

    def new_empty(self, shape: Sequence[int], dtype: DType | None = None) -> Tensor:
        found = dtype or self.dtype
        return Tensor(np.full(tuple(shape), 99, numpys(found)), self.device, found)

    def contiguous(self) -> Tensor:
        return Tensor(np.ascontiguousarray(self.array), self.device)

    def movedim(self, place: int, to: int) -> Tensor:
        return Tensor(np.moveaxis(self.array, place, to), self.device)

    def reshape(self, *shape: int) -> Tensor:
        return Tensor(self.array.reshape(shape), self.device)

    def to(self, dtype: DType) -> Tensor:
        return Tensor(self.array.astype(numpys(dtype)), self.device)

    def sum_to_size(self, shape: Sequence[int]) -> Tensor:
        ahead = self.array.ndim - len(shape)
        found = self.array.sum(axis=tuple(range(ahead)))
        axes = tuple(k for k, extent in enumerate(shape) if extent != found.shape[k])
        return Tensor(np.asarray(found.sum(axis=axes, keepdims=True)), self.device)

    def untyped_storage(self) -> Any:
        return SimpleNamespace(
            resizable=lambda: self.array.flags.writeable, data_ptr=self.data_ptr, nbytes=lambda: self.array.nbytes
        )

    def record_stream(self, stream: Any) -> None:
        self.recorded.append(stream)


class Context:
    """What an op's gradients keep from its call."""

    def __init__(self) -> None:
        self.saved_tensors: tuple[Any, ...] = ()
        self.saves = 0
        self.needs_input_grad: Sequence[bool] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors, self.saves = tensors, self.saves + 1


class Op:
    """An op; called, it works on the host, or on a GPU where a tensor is there."""

    def __init__(self, name: str, on_gpu: Callable[..., Any], **more: Any) -> None:
        self.name, self.on_gpu, self.more = name, on_gpu, more
        self.kernels: dict[str, Callable[..., Any]] = {}
        self.fake: Any = None
        self.backward: Any = None
        self.setup: Any = None
        self.batched: Any = None
        self._setup_context_fn: Any = None

    def register_kernel(self, device: str, function: Callable[..., Any]) -> None:
        self.kernels[device] = function

    def register_fake(self, function: Callable[..., Any]) -> None:
        self.fake = function

    def register_autograd(self, backward: Callable[..., Any], setup_context: Any = None) -> None:
        self.backward, self.setup = backward, setup_context

    def register_vmap(self, function: Callable[..., Any]) -> None:
        self.batched = function

    def __call__(self, *arguments: Any) -> Any:
        on_gpu = any(isinstance(each, Tensor) and each.is_cuda for each in arguments)
        return (self.on_gpu if on_gpu else self.kernels["cpu"])(*arguments)

    def gradients(self, *arguments: Any, given: Sequence[Any], needed: Sequence[bool] | None = None) -> Any:
        """Call it, and give its gradients, for gradients of its outputs."""
        self.context = Context()
        output = self(*arguments)
        if self.setup is not None:
            self.setup(self.context, arguments, output)
        self.context.needs_input_grad = needed or [isinstance(each, Tensor) for each in arguments]
        return self.backward(self.context, *given)


class Cuda:
    """The part of torch that knows GPUs."""

    def __init__(self) -> None:
        self.count, self.current, self.captured, self.stream_number = 1, 0, False, 5
        self.asked: list[Any] = []

    def is_current_stream_capturing(self) -> bool:
        return self.captured

    def device_count(self) -> int:
        self.asked.append("count")
        return self.count

    def current_device(self) -> int:
        return self.current

    def current_stream(self, device: int) -> Any:
        self.asked.append(("stream", device))
        return SimpleNamespace(device=device, number=self.stream_number)

    @contextlib.contextmanager
    def device(self, number: int) -> Iterator[None]:
        before, self.current = self.current, number
        self.asked.append(("device", number))
        yield
        self.current = before


def stand_in(monkeypatch: pytest.MonkeyPatch, **attributes: Any) -> Any:
    """Put a module torch in the place of the real one."""
    torch: Any = ModuleType("torch")
    ops: dict[str, SimpleNamespace] = {}

    class Ops:
        def __getattr__(self, space: str) -> SimpleNamespace:
            return ops.setdefault(space, SimpleNamespace())

    def custom_op(name: str, function: Callable[..., Any], **more: Any) -> Op:
        space, _, own = name.partition("::")
        op = Op(name, function, **more)
        setattr(getattr(torch.ops, space), own, op)
        return op

    torch.ops, torch.Tensor, torch.dtype, torch.cuda = Ops(), Tensor, DType, Cuda()
    torch.library = SimpleNamespace(custom_op=custom_op)
    torch.Tag = SimpleNamespace(needs_exact_strides="exact", needs_fixed_stride_order="fixed")
    torch.broadcast_shapes = np.broadcast_shapes
    torch._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: torch.cuda.stream_number)
    for name, dtype in DTYPES.items():
        setattr(torch, name, dtype)
    for name, value in attributes.items():
        setattr(torch, name, value)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch
