"""Checks of a launch configuration against the limits of a device and a kernel."""

from __future__ import annotations

from math import prod

from cudakit.errors import LaunchError, named
from cudakit.jit.compile.elf import LaunchBounds, Resources
from cudakit.jit.load.config import NO_BLOCK, Config
from cudakit.streams.devices import Limits

#: Maximum of blocks in a cluster: on every device with clusters, and for kernels that allow larger clusters.
PORTABLE_CLUSTER, LARGEST_CLUSTER = 8, 16
#: Registers of a block on every device, and the registers that are allocated to a warp at a time.
_BLOCK_REGISTERS, _WARP_REGISTERS = 1 << 16, 256


def bounded(name: str, config: Config, bounds: LaunchBounds) -> Config:
    """Return a configuration with the cluster that the kernel's source sets, if it sets one.

    Raises
    ------
    LaunchError
        For another block or cluster than the source's, and for a grid that is no multiple of its cluster.
    """
    if bounds.counts_clusters:
        raise LaunchError(
            f"{name}: a grid would count clusters by its __block_size__, and a configuration counts blocks; write "
            f"__cluster_dims__{bounds.cluster} and __launch_bounds__ in its place"
        )
    if bounds.block is not None and config.block not in (bounds.block, NO_BLOCK):
        raise LaunchError(f"{name}: block {config.block} is not the kernel's own {bounds.block}, which its source sets")
    cluster, own = config.cluster, bounds.cluster
    if own is None:
        if cluster is None and bounds.needs_cluster:
            raise LaunchError(
                f"{name}: its __cluster_dims__() leaves the cluster to the launch: ck.config(grid, block, cluster=…)"
            )
        if bounds.most_blocks and prod(cluster or (1,)) > bounds.most_blocks:
            raise LaunchError(
                f"{name}: a cluster of {prod(cluster or (1,))} blocks {cluster} is over this kernel's own limit "
                f"{bounds.most_blocks}, set by its __launch_bounds__"
            )
        return config
    if cluster not in (None, own):
        raise LaunchError(
            f"{name}: cluster {cluster} is not the kernel's own {own}, which its __cluster_dims__ sets; leave it out"
        )
    if any(blocks % side for blocks, side in zip(config.grid, own, strict=True)):
        raise LaunchError(
            f"{name}: grid {config.grid} is no multiple of the kernel's own cluster {own}, which its __cluster_dims__ "
            "sets; a grid counts blocks"
        )
    return config._replace(cluster=own)


def check_launch(name: str, config: Config, limits: Limits, own_threads: int, own_reason: str, static: int) -> None:
    """Check a configuration against a device and a kernel.

    Parameters
    ----------
    name : str
        Name of the kernel, for messages.
    config : Config
        Configuration to check.
    limits : Limits
        Limits of the device.
    own_threads : int
        Maximum of threads in a block of this kernel.
    own_reason : str
        Reason for that maximum.
    static : int
        Static shared memory of a block, in bytes.

    Raises
    ------
    LaunchError
        Naming the limit that `config` exceeds.
    """
    if config.block == NO_BLOCK:
        raise LaunchError(f"{name}: ck.config(grid, block) needs the number of threads in a block")
    for axis, size, most in zip("xyz", config.block, limits.block, strict=True):
        if size > most:
            raise over(name, f"block.{axis}", size, most, limits)
    threads = prod(config.block)
    if threads > limits.threads_per_block:
        total = f"{threads} {config.block}"
        raise over(name, "the number of threads in a block", total, limits.threads_per_block, limits)
    if threads > own_threads:
        raise LaunchError(
            f"{name}: a block of {threads} threads {config.block} is over this kernel's own limit {own_threads}, "
            f"{own_reason}"
        )
    check_grid(name, config, limits)
    if static + config.shared_bytes > limits.shared_bytes:
        total = f"{static + config.shared_bytes} bytes ({static} static, {config.shared_bytes} dynamic)"
        raise over(name, "shared memory a block", total, f"{limits.shared_bytes} bytes", limits)
    if config.cluster:
        _check_cluster(name, config, config.cluster, limits)
    if config.cooperative and not limits.cooperative:
        raise LaunchError(f"{name}: {limits.name} has no cooperative launch")


def check_code(name: str, config: Config, limits: Limits, resources: Resources, bounds: LaunchBounds) -> None:
    """Check a configuration against a device and a kernel's compiled code, which need not be loaded.

    The driver may refuse more: its limits of a kernel are checked after the load.

    Raises
    ------
    LaunchError
        Naming the limit that `config` exceeds.
    """
    of_warp = -(-32 * resources.registers // _WARP_REGISTERS) * _WARP_REGISTERS
    most = 32 * (_BLOCK_REGISTERS // of_warp) if of_warp else limits.threads_per_block
    reason = f"set by its {resources.registers} registers a thread"
    if bounds.threads is not None and bounds.threads <= most:
        most, reason = bounds.threads, "set by its __launch_bounds__"
    check_launch(name, bounded(name, config, bounds), limits, most, reason, resources.shared_bytes)


def check_grid(name: str, config: Config, limits: Limits) -> None:
    """Check the number of blocks, or of tiles, against the limits of a device.

    Raises
    ------
    LaunchError
        If the grid exceeds a limit.
    """
    for axis, size, most in zip("xyz", config.grid, limits.grid, strict=True):
        if size > most:
            error = over(name, f"grid.{axis}", size, most, limits)
            raise LaunchError(f"{error}; let each thread process several elements")


def check_cooperative(name: str, config: Config, limits: Limits, resident: int) -> None:
    """Check that all blocks of a cooperative grid run at once.

    `resident` is the number of blocks that fit a multiprocessor.

    Raises
    ------
    LaunchError
    """
    most = resident * limits.multiprocessors
    if prod(config.grid) > most:
        total = f"{prod(config.grid)} blocks"
        raise over(name, "a cooperative grid", total, f"{most} blocks that can run at once on it", limits)


def over(name: str, quantity: str, value: object, most: object, limits: Limits) -> LaunchError:
    """Return the error for a configuration whose `quantity`, in words, has the `value` above the limit `most`."""
    error = LaunchError(f"{name}: {quantity} is {value}, over the limit {most} of {limits.name}")
    return error.detailed(**named(name), parameter=quantity, expected=f"at most {most}", got=str(value))


def _check_cluster(name: str, config: Config, cluster: tuple[int, int, int], limits: Limits) -> None:
    if limits.compute_capability < (9, 0):
        raise LaunchError(
            f"{name}: clusters need compute capability 9.0, {limits.name} has "
            f"{'.'.join(map(str, limits.compute_capability))}"
        )
    blocks = prod(cluster)
    if blocks > LARGEST_CLUSTER:
        raise LaunchError(
            f"{name}: a cluster of {blocks} blocks {cluster} is over the limit {LARGEST_CLUSTER} of {limits.name}"
        )
    if any(g % c for g, c in zip(config.grid, cluster, strict=True)):
        raise LaunchError(f"{name}: cluster {cluster} does not divide grid {config.grid}")
