"""Limits of launches, without a GPU and without a kernel: what is just allowed, and what is over."""

from __future__ import annotations

from typing import Any

import pytest

import cudakit as ck
from cudakit.jit.compile.elf import LaunchBounds, Resources
from cudakit.jit.load.limits import check_code, check_grid, check_launch
from cudakit.streams.devices import Limits

DEVICE = Limits("H100", "sm_90", (9, 0), 1024, (1024, 1024, 64), (2**31 - 1, 65535, 65535), 232_448, 132, True)


def test_the_largest_launch_is_allowed_and_one_more_is_not() -> None:
    def check(grid: Any, block: Any, shared_bytes: int = 0) -> None:
        check_launch("k", ck.config(grid, block, shared_bytes=shared_bytes), DEVICE, 1024, "its own", 48)

    check(1, 1024, 232_448 - 48)
    check((2**31 - 1, 65535, 65535), (2, 8, 64))
    for grid, block, shared, text in (
        (1, 1025, 0, r"k: block\.x is 1025, over the limit 1024 of H100"),
        (1, (1, 1, 65), 0, r"k: block\.z is 65, over the limit 64 of H100"),
        (1, (32, 33), 0, r"k: the number of threads in a block is 1056 \(32, 33, 1\), over the limit 1024 of H100"),
        (
            1,
            1,
            232_401,
            r"k: shared memory a block is 232449 bytes \(48 static, 232401 dynamic\), over the limit 232448",
        ),
        ((1, 65536), 1, 0, r"k: grid\.y is 65536, over the limit 65535 of H100; let each thread process several"),
    ):
        with pytest.raises(ck.LaunchError, match=text):
            check(grid, block, shared)
    with pytest.raises(ck.LaunchError) as raised:
        check_grid("k", ck.config((1, 1, 65536), 1), DEVICE)
    assert "grid.z is 65536" in str(raised.value)


@pytest.mark.parametrize(
    ("registers", "most"), [(0, 1024), (1, 1024), (40, 1024), (64, 1024), (65, 896), (128, 512), (168, 384), (255, 256)]
)
def test_registers_limit_the_threads_of_a_block(registers: int, most: int) -> None:
    """64 Ki registers of a multiprocessor, of which a warp takes multiples of 256."""

    def check(threads: int, bounds: LaunchBounds) -> None:
        check_code("k", ck.config(1, threads), DEVICE, Resources(registers, 0, 0), bounds)

    for bounds in (LaunchBounds(), LaunchBounds(threads=2048)):
        check(most, bounds)
        if most < 1024:
            with pytest.raises(ck.LaunchError, match=rf"own limit {most}, set by its {registers} registers a thread"):
                check(most + 1, bounds)
    for own in (most, most - 32):
        check(own, LaunchBounds(threads=own))
        if own < 1024:
            with pytest.raises(ck.LaunchError, match=rf"own limit {own}, set by its __launch_bounds__"):
                check(own + 1, LaunchBounds(threads=own))
    with pytest.raises(ck.LaunchError, match="shared memory a block is 232449 bytes"):
        check_code("k", ck.config(1, 1), DEVICE, Resources(registers, 0, 232_449), LaunchBounds())
    with pytest.raises(ck.LaunchError, match="no multiple of the kernel's own cluster"):
        check_code("k", ck.config(3, 1), DEVICE, Resources(registers, 0, 0), LaunchBounds(cluster=(2, 1, 1)))
