"""CUDA's device runtime, as far as a kernel that launches kernels calls it."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.emulator.instructions.system import CALLS, Call
from cudakit.emulator.machine.geometry import Geometry
from cudakit.emulator.machine.state import Machine

_FIRST_STREAM = 0x1000


def _numbers(rows: np.ndarray, dtype: str, count: int = 1) -> list[Any]:
    """An argument of numbers, one or a tuple a lane."""
    size = np.dtype(dtype).itemsize * count
    found = rows[:, :size].copy().view(dtype)
    return found[:, 0].tolist() if count == 1 else list(map(tuple, found.tolist()))


def get_parameter_buffer(machine: Machine, lanes: np.ndarray, given: list[np.ndarray]) -> Any:
    """``void* cudaGetParameterBufferV2(void* function, dim3 grid, dim3 block, unsigned shared)``."""
    pointers, shared = _numbers(given[0], "u8"), _numbers(given[3], "u4")
    rows = zip(pointers, _numbers(given[1], "u4", 3), _numbers(given[2], "u4", 3), shared, strict=True)
    made = [machine.make_child(pointer, Geometry(grid, block, dynamic)) for pointer, grid, block, dynamic in rows]
    return np.array(made, np.uint64)


def launch_device(machine: Machine, lanes: np.ndarray, given: list[np.ndarray]) -> Any:
    """``cudaError_t cudaLaunchDeviceV2(void* parameters, cudaStream_t stream)``."""
    for address, stream in zip(_numbers(given[0], "u8"), _numbers(given[1], "u8"), strict=True):
        machine.launch_child(address, stream)
    return np.uint32(0)


def create_stream(machine: Machine, lanes: np.ndarray, given: list[np.ndarray]) -> Any:
    """``cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags)``; what runs is in one order."""
    handles = np.arange(_FIRST_STREAM, _FIRST_STREAM + lanes.size, dtype=np.uint64)
    machine.memory.store("generic", given[0][:, :8].copy().view(np.uint64)[:, 0], handles, lanes)
    return np.uint32(0)


def succeed(machine: Machine, lanes: np.ndarray, given: list[np.ndarray]) -> Any:
    """What gives ``cudaSuccess``: no call of those above fails without a word."""
    return np.uint32(0)


_CALLS: dict[str, Call] = {
    "GetParameterBufferV2": get_parameter_buffer, "LaunchDeviceV2": launch_device,
    "StreamCreateWithFlags": create_stream, "StreamDestroy": succeed,
    "GetLastError": succeed, "PeekAtLastError": succeed,
}  # fmt: skip
CALLS.update({f"{prefix}{name}": function for prefix in ("cuda", "__cudaCDP2") for name, function in _CALLS.items()})
