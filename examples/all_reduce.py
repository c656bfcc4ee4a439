"""Several GPUs in one process: each computes a part, NCCL adds the parts, and the next part is computed meanwhile.

Run: ``python examples/all_reduce.py``. It uses all GPUs. CuPy (``pip install nvidia-nccl-cu13``) or torch calls NCCL,
whichever has it, or as ``--nccl`` says. With neither of them the devices copy each other's parts. Without a GPU two of
the emulator's streams stand for each of two devices, and NumPy stands for NCCL.

Each device has a stream for kernels and a stream for NCCL. While NCCL adds part k, the kernels of part k + 1 run. Look
at what is missing: no line says which stream waits for which. The calls of NCCL are inside
``ck.hazards.foreign(stream, reads=…, writes=…)``, so cudakit adds the waits.

Prints::

    8 parts, 2 devices
    checked against NumPy
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

SOURCE = """
// Part `k` of a device: element i is (i + k) % 1000 · (rank + 1).
__global__ void make(float* part, int k, int rank, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x)
        part[i] = (float)((i + k) % 1000) * (rank + 1);
}
__global__ void use(const float* total, float* result, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x)
        result[i] += total[i];
}
"""
make, use = ck.Kernel(SOURCE, "make"), ck.Kernel(SOURCE, "use")


class Member(NamedTuple):
    """A device: its two streams, two parts and two totals that take turns, and the sum of all totals."""

    kernels: Any
    sums: Any
    parts: list[Any]
    totals: list[Any]
    result: Any


def make_member(device: int, size: int) -> Member:
    """Return the streams and arrays of a device."""
    if ck.has_gpu():
        from cuda.core import Device

        Device(device).set_current()
    kernels, sums = (ck.stream() if ck.has_gpu() else ck.emulator.stream() for _ in range(2))
    parts, totals, results = (
        [ck.to_device(np.zeros(size, np.float32), kernels) for _ in range(count)] for count in (2, 2, 1)
    )
    return Member(kernels, sums, parts, totals, *results)


#: A function that writes the sum of all members' parts to each member's total, on its stream for sums.
Adder = Callable[[Sequence[Member], int], None]


def adder(name: str | None, devices: list[int]) -> Adder:
    """Return the function that adds the parts, by ``"cupy"``, ``"torch"`` or ``"copies"``; None: the first one here."""
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
    """Tell cudakit that the calls in the block read every part and write every total, on the members' streams."""
    with contextlib.ExitStack() as blocks:
        for member in members:
            reads, writes = [member.parts[turn]], [member.totals[turn]]
            blocks.enter_context(ck.hazards.foreign(member.sums, reads=reads, writes=writes, name="all-reduce"))
        yield


def add_by_cupy(nccl: Any, communicators: Sequence[Any], members: Sequence[Member], turn: int) -> None:
    """Add the parts by NCCL, called by CuPy."""
    with ordered(members, turn):
        nccl.groupStart()
        for member, communicator in zip(members, communicators, strict=True):
            part, total = member.parts[turn], member.totals[turn]
            communicator.allReduce(
                part.data.ptr, total.data.ptr, part.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, int(member.sums.handle)
            )
        nccl.groupEnd()


def add_by_torch(torch: Any, members: Sequence[Member], turn: int) -> None:
    """Add the parts by NCCL, called by torch, on tensors of the same memory."""
    parts = [torch.as_tensor(member.parts[turn]) for member in members]
    totals = [torch.as_tensor(member.totals[turn]) for member in members]
    streams = [
        torch.cuda.ExternalStream(int(member.sums.handle), part.device)
        for member, part in zip(members, parts, strict=True)
    ]
    with ordered(members, turn):
        torch.cuda.nccl.all_reduce(parts, totals, streams=streams)


def add_in_numpy(members: Sequence[Member], turn: int) -> None:
    """Add the parts by NumPy: the emulator's memory is the host's."""
    with ordered(members, turn):
        total = sum(member.parts[turn] for member in members)
        for member in members:
            member.totals[turn][...] = total


def add_copies(members: Sequence[Member], turn: int) -> None:
    """Add copies of the parts on each member; cudakit orders its own calls."""
    for target in members:
        total = target.totals[turn]
        ck.to_device(members[0].parts[turn], target.sums, out=total)
        for other in members[1:]:
            ck.ops.add(total, ck.to_device(other.parts[turn], target.sums), out=total, stream=target.sums)


def use_total(member: Member, turn: int) -> None:
    """Add a total to the member's result."""
    size = member.result.size
    use(member.kernels, ck.cover(size), member.totals[turn], member.result, size)


def run(members: Sequence[Member], add: Adder, count: int) -> list[np.ndarray]:
    """Make and add `count` parts; return the result of each member."""
    for k in range(count):
        turn = k % 2
        for rank, member in enumerate(members):
            # Waits for the all-reduce before the last one, which read this part, and for nothing else.
            make(member.kernels, ck.cover(member.result.size), member.parts[turn], k, rank, member.result.size)
        add(members, turn)
        if k:
            for member in members:  # the total before, while NCCL adds this one
                use_total(member, 1 - turn)
    for member in members:
        use_total(member, (count - 1) % 2)
    return [ck.to_host(member.result, member.kernels) for member in members]


def main(arguments: Sequence[str] | None = None) -> list[np.ndarray]:
    """Run the program; return the sum of all parts on each member."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=float, help="size of a part; default: 64 MiB on GPUs, 4 KiB without")
    parser.add_argument("--parts", type=int, default=8, help="number of parts")
    parser.add_argument("--nccl", choices=("cupy", "torch", "copies"), help="library that calls NCCL; copies: no NCCL")
    options = parser.parse_args(arguments)

    size = int((options.mib or (64 if ck.has_gpu() else 2**-8)) * 2**20) // 4
    devices = [0, 1]
    if ck.has_gpu():
        from cuda.core import system

        devices = list(range(system.get_num_devices()))
    add = adder(options.nccl, devices)
    members = [make_member(device, size) for device in devices]
    run(members, add, 2)  # compiles the kernels
    members = [make_member(device, size) for device in devices]
    start = time.perf_counter()
    results = run(members, add, options.parts)
    elapsed_ms = (time.perf_counter() - start) * 1e3
    print(f"{options.parts} parts, {len(devices)} devices{f': {elapsed_ms:.1f} ms' if ck.has_gpu() else ''}")
    ranks = sum(range(1, len(devices) + 1))
    expected = sum(((np.arange(size) + k) % 1000).astype(np.float32) * np.float32(ranks) for k in range(options.parts))
    for result in results:
        np.testing.assert_array_equal(result, expected)
    print("checked against NumPy")
    return results


if __name__ == "__main__":
    main()
