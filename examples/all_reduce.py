"""Sum arrays over several GPUs in one process, by NCCL, while kernels compute the next arrays.

Run: ``python examples/all_reduce.py``. The program uses all GPUs. NCCL is called by CuPy (``pip install
nvidia-nccl-cu13``) or by torch; ``--nccl`` chooses one. Without NCCL the devices copy each other's parts. Without a
GPU two streams of the emulator stand for each of two devices, and NumPy for NCCL.

Each device has a stream for kernels and a stream for NCCL. A kernel computes part k. NCCL adds the part over all
devices, while the kernels of part k + 1 run. Another kernel uses the total. The program contains no wait: NCCL's
calls are inside ``ck.hazards.foreign(stream, reads=…, writes=…)``, so cudakit orders them with the kernels.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import cudakit as ck

TEXT = """
// The share of a device in part `k`: element i is (i + k) % 1000 · (rank + 1).
__global__ void make(float* part, int k, int rank, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x)
        part[i] = (float)((i + k) % 1000) * (rank + 1);
}
__global__ void use(const float* total, float* result, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x)
        result[i] += total[i];
}
"""
make, use = ck.Kernel(TEXT, "make"), ck.Kernel(TEXT, "use")


class Member(NamedTuple):
    """A device with its streams, two parts, two totals, and the sum of all totals."""

    kernels: Any
    sums: Any
    parts: list[Any]
    totals: list[Any]
    result: Any


def member(device: int, size: int) -> Member:
    """Create the streams and arrays of a device."""
    if ck.has_gpu():
        from cuda.core import Device

        Device(device).set_current()
    kernels, sums = (ck.stream() if ck.has_gpu() else ck.emulator.stream() for _ in range(2))
    parts, totals, results = (
        [ck.to_device(np.zeros(size, np.float32), kernels) for _ in range(count)] for count in (2, 2, 1)
    )
    return Member(kernels, sums, parts, totals, *results)


#: Function that adds the parts of all members into their totals, on their streams for NCCL.
Adder = Callable[[Sequence[Member], int], None]


def adder(name: str | None, devices: list[int]) -> Adder:
    """Return the function that adds the parts: by ``"cupy"``, ``"torch"`` or ``"copies"``. None chooses."""
    if not ck.has_gpu():
        return add_in_numpy
    if name in (None, "cupy"):
        from cupy.cuda import nccl

        if nccl.available:
            return functools.partial(add_by_cupy, nccl, nccl.NcclCommunicator.initAll(devices))
    if name in (None, "torch"):
        with contextlib.suppress(ImportError):
            import torch

            return functools.partial(add_by_torch, torch)
    if name in (None, "copies"):
        return add_copies
    raise SystemExit(f"{name} has no NCCL here")


@contextlib.contextmanager
def ordered(members: Sequence[Member], turn: int) -> Iterator[None]:
    """Return a block for calls of NCCL, which read all parts and write all totals."""
    with contextlib.ExitStack() as blocks:
        for each in members:
            reads, writes = [each.parts[turn]], [each.totals[turn]]
            blocks.enter_context(ck.hazards.foreign(each.sums, reads=reads, writes=writes, name="all-reduce"))
        yield


def add_by_cupy(nccl: Any, communicators: Sequence[Any], members: Sequence[Member], turn: int) -> None:
    """Return a function that adds by CuPy's interface to NCCL."""
    with ordered(members, turn):
        nccl.groupStart()
        for each, communicator in zip(members, communicators, strict=True):
            part, total = each.parts[turn], each.totals[turn]
            communicator.allReduce(
                part.data.ptr, total.data.ptr, part.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, int(each.sums.handle)
            )
        nccl.groupEnd()


def add_by_torch(torch: Any, members: Sequence[Member], turn: int) -> None:
    """Return a function that adds by torch's NCCL, on tensors of the same memory."""
    parts = [torch.as_tensor(each.parts[turn]) for each in members]
    totals = [torch.as_tensor(each.totals[turn]) for each in members]
    streams = [
        torch.cuda.ExternalStream(int(each.sums.handle), part.device) for each, part in zip(members, parts, strict=True)
    ]
    with ordered(members, turn):
        torch.cuda.nccl.all_reduce(parts, totals, streams=streams)


def add_in_numpy(members: Sequence[Member], turn: int) -> None:
    """Return a function that adds on the emulator, in host memory."""
    with ordered(members, turn):
        total = sum(each.parts[turn] for each in members)
        for each in members:
            each.totals[turn][...] = total


def add_copies(members: Sequence[Member], turn: int) -> None:
    """Return a function that copies and adds all parts. cudakit orders its own calls."""
    for one in members:
        total = one.totals[turn]
        ck.to_device(members[0].parts[turn], one.sums, out=total)
        for other in members[1:]:
            ck.ops.add(total, ck.to_device(other.parts[turn], one.sums), out=total, stream=one.sums)


def run(members: Sequence[Member], add: Adder, count: int) -> list[np.ndarray]:
    """Compute and add `count` parts; return the result of each member."""
    for k in range(count):
        turn = k % 2
        for rank, each in enumerate(members):
            # The kernel waits only for the last all-reduce that read this part.
            make(each.kernels, ck.cover(each.result.size), each.parts[turn], k, rank, each.result.size)
        add(members, turn)
        if k:
            for each in members:  # the previous total, while NCCL adds this one
                use(each.kernels, ck.cover(each.result.size), each.totals[1 - turn], each.result, each.result.size)
    for each in members:
        use(each.kernels, ck.cover(each.result.size), each.totals[(count - 1) % 2], each.result, each.result.size)
    return [ck.to_host(each.result, each.kernels) for each in members]


def main(arguments: Sequence[str] | None = None) -> list[np.ndarray]:
    """Return the sum of all parts, the same for each member."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=float, help="of a part; default: 64 MiB on GPUs, 4 KiB without")
    parser.add_argument("--parts", type=int, default=8, help="how many")
    parser.add_argument("--nccl", choices=("cupy", "torch", "copies"), help="who calls NCCL; copies: nobody")
    options = parser.parse_args(arguments)

    size = int((options.mib or (64 if ck.has_gpu() else 2**-8)) * 2**20) // 4
    devices = [0, 1]
    if ck.has_gpu():
        from cuda.core import system

        devices = list(range(system.get_num_devices()))
    add = adder(options.nccl, devices)
    members = [member(device, size) for device in devices]
    run(members, add, 2)  # compiles
    members = [member(device, size) for device in devices]
    start = time.perf_counter()
    found = run(members, add, options.parts)
    print(f"{options.parts} parts over {len(devices)} devices: {(time.perf_counter() - start) * 1e3:.1f} ms")
    ranks = sum(range(1, len(devices) + 1))
    wanted = sum(((np.arange(size) + k) % 1000).astype(np.float32) * np.float32(ranks) for k in range(options.parts))
    for result in found:
        np.testing.assert_array_equal(result, wanted)
    print("checked against NumPy")
    return found


if __name__ == "__main__":
    main()
