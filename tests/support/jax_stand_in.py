"""A stand-in for JAX: NumPy's arrays, calls that go straight to the handler's work, and gradients as defined."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudakit.bridges import jax_call
from cudakit.bridges.jax_call import Buffer, Call


class Tracer:
    """What a number is while JAX traces."""


@dataclass(frozen=True)
class Struct:
    """Shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: Any


class Array(np.ndarray):
    """An array of JAX's."""

    __module__ = "jax"

    def sum(self, axis: Any = None, **more: Any) -> Any:  # type: ignore[override]
        return super().sum(tuple(axis) if isinstance(axis, list) else axis, **more)


def array(values: Any, dtype: Any = np.float32) -> Any:
    return np.array(values, dtype).view(Array)


def buffer(value: np.ndarray) -> Buffer:
    return Buffer(value.ctypes.data, value.shape, value.dtype, value.nbytes)


class Differentiable:
    """A function with gradients of its own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.forward: Any = None
        self.backward: Any = None

    def __call__(self, *arrays: Any) -> Any:
        return self.function(*arrays)

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        self.forward, self.backward = forward, backward

    def gradients(self, *arrays: Any, given: Any) -> tuple[Any, ...]:
        found, kept = self.forward(*arrays)
        assert found is not None
        return self.backward(kept, given)  # type: ignore[no-any-return]


class Ffi:
    """JAX's foreign function interface."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.targets: list[Any] = []

    def pycapsule(self, function: Any) -> Any:
        return ("capsule", function)

    def register_ffi_target(self, name: str, capsule: Any, platform: str, api_version: int) -> None:
        self.targets.append((name, capsule, platform, api_version))

    def ffi_call(self, name: str, results: Any, vmap_method: Any, input_output_aliases: Mapping[int, int]) -> Any:
        def call(*arrays: Any, call: Any) -> list[Any]:
            self.calls.append((name, results, vmap_method, dict(input_output_aliases), [x.shape for x in arrays], call))
            made = [np.full(each.shape, 99, each.dtype) for each in results]
            given = [np.ascontiguousarray(each) for each in arrays]
            jax_call._on_host(Call(int(call), [*map(buffer, given)], [*map(buffer, made)], None))
            return [each.view(Array) for each in made]

        return call


def stand_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a module jax in the place of the real one."""
    jax: Any = ModuleType("jax")
    jax.Array, jax.ShapeDtypeStruct, jax.core = Array, Struct, SimpleNamespace(Tracer=Tracer)
    jax.numpy = SimpleNamespace(asarray=lambda x: np.asarray(x).view(Array), issubdtype=np.issubdtype)
    jax.ffi, jax.custom_vjp = Ffi(), Differentiable
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setattr(jax_call, "_records", {})
    monkeypatch.setattr(jax_call, "_numbers", itertools.count(2**61))
    return jax
