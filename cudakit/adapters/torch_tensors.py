"""Parts of torch that programs of Triton's use with a GPU, replaced where there is none.

Tensors "on cuda" are tensors of the host. Events have no time: it is NaN.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from cudakit.adapters.emulated_device import NAME, TOTAL_BYTES, numbers
from cudakit.adapters.stand_ins import Put, nothing, unchanged
from cudakit.emulator.face import EmulatorPlace, room

#: Functions of torch that make a tensor on a device.
_MAKERS = (
    "arange", "as_tensor", "asarray", "empty", "empty_like", "empty_strided", "eye", "full", "full_like",
    "hann_window", "linspace", "logspace", "normal", "ones", "ones_like", "rand", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "randperm", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like",
)  # fmt: skip
_METHODS = ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")


def _is_gpu(value: Any) -> bool:
    """Return whether a value is a device, or a device's name, and a GPU."""
    if isinstance(value, str):
        return value.partition(":")[0] == "cuda"
    return type(value).__name__ == "device" and value.type == "cuda"


def _is_host(value: Any) -> bool:
    """Return whether a value is a device, or a device's name, and the host."""
    return value == "cpu" if isinstance(value, str) else type(value).__name__ == "device" and value.type == "cpu"


def _hosted(function: Callable[..., Any], copies: bool = False) -> Callable[..., Any]:
    """Wrap a function of torch so that a GPU among its arguments is the host.

    Tensors that it returns remember where the program has put them. With `copies`, a tensor that comes from elsewhere
    is copied, as it is between a host and a GPU.
    """

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        options.pop("pin_memory", None)
        if isinstance(number := options.get("device"), int) and not isinstance(number, bool):
            options["device"] = f"cuda:{number}"
        named = [*arguments[copies:], options.get("device")]
        place = "cuda" if any(map(_is_gpu, named)) else "cpu" if any(map(_is_host, named)) else None
        if place == "cuda":
            arguments = tuple("cpu" if _is_gpu(value) else value for value in arguments)
            options = {name: "cpu" if _is_gpu(value) else value for name, value in options.items()}
        result = function(*arguments, **options)
        if place is not None and hasattr(result, "data_ptr"):
            if copies and result is arguments[0] and _place(result) != place:
                result = result.clone()
            result.cudakit_place = place
        return result

    return call


def _place(tensor: Any) -> str | None:
    """Return where the program has put a tensor, ``cpu`` or ``cuda``, or None if it has not said."""
    place: str | None = getattr(tensor, "cudakit_place", None)
    return place


class _Done:
    """A base of streams and events whose work is all done at its call."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        pass

    def query(self) -> bool:
        """Return True."""
        return True

    synchronize = wait_stream = wait_event = wait = record = nothing


class _Stream(_Done):
    """A stand-in for ``torch.cuda.Stream``."""

    cuda_stream = device_index = 0

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        """Return an event."""
        return event or _Event()


class _Event(_Done):
    """A stand-in for ``torch.cuda.Event``."""

    def elapsed_time(self, end_event: Any) -> float:
        """Return NaN: the emulator's time is not a GPU's."""
        return math.nan


def _generator_class(real: Any) -> Any:
    """Return a class in place of ``torch.Generator``, whose objects for a GPU are the host's."""

    class Meta(type(real)):  # type: ignore[misc]  # known when torch is there
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real)

    class Generator(real, metaclass=Meta):  # type: ignore[misc]
        def __new__(cls, device: Any = "cpu") -> Any:
            return real("cpu" if _is_gpu(device) else device)

    return Generator


class _Generator:
    """A stand-in for a GPU's generator in ``torch.cuda.default_generators``: a seed, and the numbers drawn so far."""

    def __init__(self, torch: Any) -> None:
        self._torch, self._seed, self._offset = torch, 0, 0

    def manual_seed(self, seed: int) -> _Generator:
        """Begin anew with a seed."""
        self._seed, self._offset = seed, 0
        return self

    def initial_seed(self) -> int:
        """Return the seed."""
        return self._seed

    def get_state(self) -> Any:
        """Return seed and offset, as a tensor of 16 bytes."""
        return self._torch.tensor([self._seed, self._offset], dtype=self._torch.int64).view(self._torch.uint8)

    def set_state(self, state: Any) -> None:
        """Take seed and offset from a tensor of 16 bytes."""
        self._seed, self._offset = state.view(self._torch.int64).tolist()


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it computes with float32 for tensors of 16-bit floats, as it does on a GPU."""

    @functools.wraps(function)
    def call(values: Any, *arguments: Any, **options: Any) -> Any:
        if not values.is_floating_point() or values.element_size() != 2:
            return function(values, *arguments, **options)
        wide = [value.float() if hasattr(value, "data_ptr") else value for value in arguments]
        options = {name: value.float() if hasattr(value, "data_ptr") else value for name, value in options.items()}
        return function(values.float(), *wide, **options).to(values.dtype)

    return call


def _properties(device: Any = None) -> SimpleNamespace:
    """Return the properties of the emulated device, by torch's names."""
    facts = numbers()
    return SimpleNamespace(
        name=NAME, total_memory=TOTAL_BYTES, is_integrated=False, gcnArchName="", L2_cache_size=facts["l2_cache_size"],
        **{name: facts[attribute] for name, attribute in _PROPERTIES.items()},
    )  # fmt: skip


#: Properties of a device that are attributes: torch's names and the driver's.
_PROPERTIES = {
    "major": "compute_capability_major", "minor": "compute_capability_minor", "warp_size": "warp_size",
    "multi_processor_count": "multiprocessor_count", "regs_per_multiprocessor": "max_registers_per_multiprocessor",
    "max_threads_per_multi_processor": "max_threads_per_multiprocessor",
    "shared_memory_per_block": "max_shared_memory_per_block",
    "shared_memory_per_block_optin": "max_shared_memory_per_block_optin",
    "shared_memory_per_multiprocessor": "max_shared_memory_per_multiprocessor",
}  # fmt: skip


def _reaching(data_ptr: Callable[[Any], int]) -> Callable[[Any], int]:
    """Wrap ``torch.Tensor.data_ptr`` so that kernels reach a tensor by its address, until it is freed."""
    reached = dict[int, np.ndarray]()

    @functools.wraps(data_ptr)
    def address(tensor: Any) -> int:
        if not sys._getframe(1).f_globals.get("__name__", "").startswith("triton."):  # Triton asks for alignment only
            storage = tensor.untyped_storage()
            start, size = storage.data_ptr(), storage.nbytes()
            if size and (start not in reached or reached[start].nbytes != size):
                reached[start] = np.frombuffer((ctypes.c_ubyte * size).from_address(start), np.uint8)
                room().register(reached[start], of_the_host=False)
                weakref.finalize(storage, reached.pop, start, None).atexit = False
        return data_ptr(tensor)

    return address


def replace(torch: Any, put: Put) -> None:
    """Replace the parts of torch that need a GPU."""
    for name in _MAKERS:
        if hasattr(torch, name):
            put(torch, name, _hosted(getattr(torch, name)))
    for name in _METHODS:
        put(torch.Tensor, name, _hosted(getattr(torch.Tensor, name)))
    move = _hosted(torch.Tensor.to, copies=True)
    put(torch.Tensor, "to", move)
    put(torch.Tensor, "cuda", lambda tensor, *arguments, **options: move(tensor, "cuda"))
    put(torch.Tensor, "cpu", lambda tensor, *arguments, **options: move(tensor, "cpu"))
    device, host = torch.device("cuda", 0), torch.device("cpu")
    put(torch.Tensor, "device", property(lambda tensor: host if _place(tensor) == "cpu" else device))
    put(torch.Tensor, "is_cuda", property(lambda tensor: _place(tensor) != "cpu"))
    put(torch.Tensor, "get_device", lambda tensor: -1 if _place(tensor) == "cpu" else 0)
    put(torch.nn.Module, "to", _hosted(torch.nn.Module.to))
    put(torch.nn.Module, "cuda", lambda module, *arguments, **keywords: module)
    put(torch, "Generator", _generator_class(torch.Generator))
    put(torch.Tensor, "pin_memory", lambda tensor, *arguments: tensor)
    put(torch.Tensor, "data_ptr", _reaching(torch.Tensor.data_ptr))
    put(torch.Tensor, "record_stream", nothing)
    put(torch, "set_default_device", nothing)
    for name in ("group_norm", "layer_norm", "rms_norm"):
        put(torch.nn.functional, name, _in_float32(getattr(torch.nn.functional, name)))
    stream, generator = _Stream(), _Generator(torch)

    def seed(value: int) -> None:
        torch.default_generator.manual_seed(value)
        generator.manual_seed(value)

    replaced: dict[str, Any] = {
        "is_available": lambda: True, "is_initialized": lambda: True, "init": nothing, "synchronize": nothing,
        "device_count": lambda: 1, "current_device": lambda: 0, "set_device": nothing, "device": unchanged,
        "empty_cache": nothing, "ipc_collect": nothing, "Stream": _Stream, "Event": _Event, "stream": unchanged,
        "set_stream": nothing,
        "current_stream": lambda device=None: stream, "default_stream": lambda device=None: stream,
        "get_device_capability": lambda device=None: EmulatorPlace().limits().compute_capability,
        "get_device_name": lambda device=None: NAME, "get_device_properties": _properties,
        "is_current_stream_capturing": lambda: False, "manual_seed": seed, "manual_seed_all": seed,
        "default_generators": (generator,), "_DeviceGuard": unchanged, "device_of": unchanged,
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0, "reset_peak_memory_stats": nothing,
        "is_bf16_supported": lambda including_emulation=True: True,
        "mem_get_info": lambda device=None: (TOTAL_BYTES, TOTAL_BYTES), "memory_reserved": lambda device=None: 0,
    }  # fmt: skip
    for name, value in replaced.items():
        put(torch.cuda, name, value)
