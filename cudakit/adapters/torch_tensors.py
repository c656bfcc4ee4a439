"""Parts of torch that programs of Triton's use with a GPU, replaced where there is none.

Tensors "on cuda" are tensors of the host. Events have no time: it is NaN.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from cudakit.adapters.emulated_device import NAME, TOTAL_BYTES, numbers
from cudakit.adapters.stand_ins import Put, nothing
from cudakit.emulator.face import EmulatorPlace

#: Functions of torch that make a tensor or a generator on a device.
_MAKERS = (
    "arange", "as_tensor", "asarray", "empty", "empty_like", "empty_strided", "eye", "full", "full_like", "Generator",
    "hann_window", "linspace", "logspace", "normal", "ones", "ones_like", "rand", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "randperm", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like",
)  # fmt: skip
_METHODS = ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros", "to")


def _on_host(value: Any) -> Any:
    """Return a device or a device's name as torch's host, if it is a GPU; return other values unchanged."""
    return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else _device(value)


def _device(value: Any) -> Any:
    return "cpu" if type(value).__name__ == "device" and value.type == "cuda" else value


def _hosted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of torch so that a GPU among its arguments is the host."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if "device" in options:
            device = options["device"]
            options["device"] = "cpu" if isinstance(device, int) and not isinstance(device, bool) else _on_host(device)
        options.pop("pin_memory", None)
        return function(*map(_on_host, arguments), **options)

    return call


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


@contextlib.contextmanager
def _block(*arguments: Any, **keywords: Any) -> Iterator[None]:
    """Return a context that changes nothing."""
    yield


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


def replace(torch: Any, put: Put) -> None:
    """Replace the parts of torch that need a GPU."""
    for name in _MAKERS:
        if hasattr(torch, name):
            put(torch, name, _hosted(getattr(torch, name)))
    for name in _METHODS:
        put(torch.Tensor, name, _hosted(getattr(torch.Tensor, name)))
    put(torch.nn.Module, "to", _hosted(torch.nn.Module.to))
    put(torch.nn.Module, "cuda", lambda module, *arguments, **keywords: module)
    put(torch.Tensor, "cuda", lambda tensor, *arguments, **keywords: tensor)
    put(torch.Tensor, "pin_memory", lambda tensor, *arguments: tensor)
    put(torch.Tensor, "is_cuda", property(lambda tensor: True))
    put(torch.Tensor, "record_stream", nothing)
    put(torch, "set_default_device", nothing)
    stream = _Stream()
    replaced: dict[str, Any] = {
        "is_available": lambda: True, "is_initialized": lambda: True, "init": nothing, "synchronize": nothing,
        "device_count": lambda: 1, "current_device": lambda: 0, "set_device": nothing, "device": _block,
        "empty_cache": nothing, "ipc_collect": nothing, "Stream": _Stream, "Event": _Event, "stream": _block,
        "current_stream": lambda device=None: stream, "default_stream": lambda device=None: stream,
        "get_device_capability": lambda device=None: EmulatorPlace().limits().compute_capability,
        "get_device_name": lambda device=None: NAME, "get_device_properties": _properties,
        "is_current_stream_capturing": lambda: False, "manual_seed": torch.default_generator.manual_seed,
        "manual_seed_all": nothing, "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0, "reset_peak_memory_stats": nothing,
        "is_bf16_supported": lambda including_emulation=True: True,
    }  # fmt: skip
    for name, value in replaced.items():
        put(torch.cuda, name, value)
