"""Loading of `Compiled` code: a kernel that a device can run, and its limits."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Final

from cudakit.errors import ArgumentError, LaunchError
from cudakit.jit.cache.stages import bundled_code_of
from cudakit.jit.compile import elf
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.elf import LaunchBounds
from cudakit.jit.load.config import Config, Cover, as_launch_config, spread, tiled
from cudakit.jit.load.limits import PORTABLE_CLUSTER, bounded, check_cooperative, check_grid, check_launch
from cudakit.jit.specialise.specialise import BoundParameter, Specialization
from cudakit.records import NamedTuple
from cudakit.streams import devices, process

if TYPE_CHECKING:
    from cuda.core import Kernel as CoreKernel
    from cuda.core import LaunchConfig, ObjectCode


#: The version of Tile IR that NVRTC writes; a driver reads those up to its own CUDA version.
_WRITTEN: Final = 13, 5


def loadable(specialization: Specialization) -> Specialization:
    """Return the specialization whose output the driver can load: for a GPU, machine code.

    If this machine cannot make a tile kernel's machine code, and the driver accepts Tile IR, the target becomes Tile
    IR.
    """
    from cudakit.jit.compile import assemble  # starts programs: most never load it

    if specialization.target != "cubin" or assemble.is_here() or bundled_code_of(specialization) is not None:
        return specialization
    return specialization._replace(target="tileir") if driver_version() >= _WRITTEN else specialization


@cache
def driver_version() -> tuple[int, int]:
    """Return the CUDA version of the driver; (0, 0) if it is unknown."""
    from cuda.bindings import driver

    status, version = driver.cuDriverGetVersion()
    return (version // 1000, version % 1000 // 10) if int(status) == 0 else (0, 0)


_DEFAULT_DYNAMIC_BYTES = 48 * 1024
#: The CUDA of the first driver that loads machine code of tile kernels.
_TILE_DRIVER = 13, 0


class Attributes(NamedTuple):
    """The resources of a specialization on a device.

    Attributes
    ----------
    registers : int
        Registers of a thread.
    spill_bytes : int
        Local memory of a thread, in bytes: spilled registers, and arrays that are indexed at run time.
    shared_bytes : int
        Static shared memory of a block, in bytes.
    constant_bytes : int
        ``__constant__`` memory, in bytes.
    max_threads_per_block : int
        Maximum of threads in a block.
    block : int
        Block size for `blocks_per_multiprocessor` and `occupancy`, in threads.
    blocks_per_multiprocessor : int
        Resident blocks of a multiprocessor.
    occupancy : float
        Resident threads divided by the maximum of a multiprocessor, 0 to 1.
    """

    registers: int
    spill_bytes: int
    shared_bytes: int
    constant_bytes: int
    max_threads_per_block: int
    block: int
    blocks_per_multiprocessor: int
    occupancy: float


class EmulatedAttributes(NamedTuple):
    """The back-end and resources of a specialization's last launch on the emulator.

    Attributes
    ----------
    machine : str
        Back-end of the launch: ``"compiled"``, machine code of the processor, or ``"numpy"``.
    why : str
        Reason why the kernel was not compiled, if compiling was requested.
    shared_bytes : int
        Static shared memory of a block, in bytes.
    """

    machine: str
    why: str
    shared_bytes: int


class Loaded:
    """A loaded specialization: cuda.core's kernel, and the checked configurations of its launches.

    Parameters
    ----------
    specialization : Specialization
        Specialization that is loaded.
    compiled : Compiled
        Compiled code of the specialization.
    code : cuda.core.ObjectCode
        Loaded code, which may have other kernels too.
    kernel : cuda.core.Kernel
        Kernel in the loaded code.
    parameters : tuple of BoundParameter
        Parameters of the kernel.
    sizes : tuple of int
        Size of each parameter in the compiled kernel, in bytes.

    Attributes
    ----------
    holders : weakref.WeakSet
        Objects that launch the kernel without a call to the module.
    """

    def __init__(
        self,
        specialization: Specialization,
        compiled: Compiled,
        code: ObjectCode,
        kernel: CoreKernel,
        parameters: tuple[BoundParameter, ...],
        sizes: tuple[int, ...],
    ) -> None:
        self.specialization = specialization
        self.compiled = compiled
        self.code = code
        self.kernel = kernel
        self.parameters = parameters
        self.sizes = sizes
        self._configs: dict[tuple[Config | Cover, int], LaunchConfig] = {}
        self._dynamic_bytes: dict[int, int] = {}  # dynamic shared memory that the kernel may use, by device
        self._lock = process.renewed(self, "_lock", threading.Lock)
        self.holders: weakref.WeakSet[Any] = weakref.WeakSet()

    def launch_config(self, config: Config | Cover, device_id: int) -> LaunchConfig:
        """Return a configuration for cuda.core, checked against this kernel and a device.

        A `Cover` is resolved by occupancy, once.

        Raises
        ------
        LaunchError
            If `config` exceeds a limit. The message names the limit.
        """
        key = (config, device_id)
        resolved = self._configs.get(key)
        if resolved is None:
            with self._lock:
                resolved = self._configs[key] = self._resolve(config, device_id)
        return resolved

    def _resolve(self, config: Config | Cover, device_id: int) -> LaunchConfig:
        if self.specialization.is_tile:
            name = self.specialization.name_expression
            config = tiled(name, config)
            check_grid(name, config, devices.limits(device_id))
            return as_launch_config(config)
        if isinstance(config, Cover):
            threads = 0
            if config.block is None:
                threads = int(self.kernel.occupancy.max_potential_block_size(0, 0).max_block_size)
            config = spread(config, threads, self.bounds)
        self._check(bounded(self.specialization.name_expression, config, self.bounds), device_id)
        # The driver knows the source's cluster.
        return as_launch_config(config)

    @cached_property
    def bounds(self) -> LaunchBounds:
        """Launch bounds of the kernel's source."""
        symbol = self.compiled.lowered[self.specialization.name_expression]
        return elf.launch_bounds(self.compiled.code, symbol)

    def _check(self, config: Config, device_id: int) -> None:
        limits = devices.limits(device_id)
        name, attributes = self.specialization.name_expression, self.kernel.attributes[device_id]
        own, static = attributes.max_threads_per_block, attributes.shared_size_bytes
        why = f"set by its __launch_bounds__ or its {attributes.num_regs} registers a thread"
        check_launch(name, config, limits, own, why, static)
        if config.cluster and prod(config.cluster) > PORTABLE_CLUSTER:
            self._set_attribute("CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1, device_id)
        # The limit is only raised: configurations that were checked before stay valid.
        allowed = self._dynamic_bytes.get(device_id, _DEFAULT_DYNAMIC_BYTES - static)
        if config.shared_bytes > allowed:
            self._set_attribute("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", config.shared_bytes, device_id)
            self._dynamic_bytes[device_id] = config.shared_bytes
        if config.cooperative:
            threads = prod(config.block)
            resident = self.kernel.occupancy.max_active_blocks_per_multiprocessor(threads, config.shared_bytes)
            check_cooperative(name, config, limits, resident)

    def _set_attribute(self, attribute: str, value: int, device_id: int) -> None:
        from cuda.bindings import driver

        code = getattr(driver.CUfunction_attribute, attribute)
        (status,) = driver.cuKernelSetAttribute(code, value, driver.CUkernel(int(self.kernel.handle)), device_id)
        if int(status) != 0:
            raise LaunchError(
                f"{self.specialization.name_expression}: the driver refused {attribute} = {value}: {status}"
            )

    def attributes(self, device_id: int, block: int | None, shared_bytes: int) -> Attributes:
        """Return the kernel's resources on a device, and its occupancy.

        The occupancy is for blocks of `block` threads with `shared_bytes` of dynamic shared memory. `block` None: the
        block size with the best occupancy.
        """
        own = self.kernel.attributes[device_id]
        occupancy = self.kernel.occupancy
        block = block or int(occupancy.max_potential_block_size(shared_bytes, 0).max_block_size)
        resident = occupancy.max_active_blocks_per_multiprocessor(block, shared_bytes)
        from cuda.core import Device

        most = Device(device_id).properties.max_threads_per_multiprocessor
        return Attributes(
            registers=own.num_regs,
            spill_bytes=own.local_size_bytes,
            shared_bytes=own.shared_size_bytes,
            constant_bytes=own.const_size_bytes,
            max_threads_per_block=own.max_threads_per_block,
            block=block,
            blocks_per_multiprocessor=resident,
            occupancy=resident * block / most,
        )


def object_code(compiled: Compiled, name: str) -> ObjectCode:
    """Return `compiled` as cuda.core's code, which is loaded when a kernel or a variable is requested."""
    from cuda.core import ObjectCode

    mapping: Any = {name: symbol.encode() for name, symbol in compiled.lowered.items()}
    return ObjectCode.from_cubin(compiled.code, symbol_mapping=mapping, name=name)


def load(
    specialization: Specialization, compiled: Compiled, code: ObjectCode, parameters: tuple[BoundParameter, ...]
) -> Loaded:
    """Find a kernel in loaded code, and check its parameters' sizes against `parameters`.

    Raises
    ------
    LaunchError
        If the driver cannot load code for this arch.
    ArgumentError
        If the code's parameters differ from the signature's.
    """
    try:
        kernel = code.get_kernel(specialization.name_expression)
    except Exception as error:
        raise LaunchError(_load_failure(specialization, compiled, str(error))) from error
    try:
        info = kernel.arguments_info
    except Exception:
        # cuFuncGetParamInfo exists since driver 12.4; with an older driver the sizes are the signature's.
        sizes = tuple(parameter_size(parameter) or 8 for parameter in parameters)
    else:
        sizes = check_sizes(specialization, parameters, tuple(parameter.size for parameter in info))
    return Loaded(specialization, compiled, code, kernel, parameters, sizes)


def check_sizes(
    specialization: Specialization, parameters: tuple[BoundParameter, ...], compiled: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the size of each parameter in bytes, checked against the signature.

    `compiled` has the compiled kernel's sizes.

    A tensor is several parameters in the compiled kernel, but has one size in the result.

    Raises
    ------
    ArgumentError
        If the number of parameters or a size differs.
    """
    sizes = tuple(_joined(parameters, compiled))
    if len(sizes) != len(parameters):
        count = sum(parameter.parts for parameter in parameters)
        raise ArgumentError(
            f"{specialization.name_expression}: the compiled kernel has {len(compiled)} parameters, its signature "
            f"{count}; give the template arguments in brackets, or simplify the kernel's head"
        )
    for parameter, size in zip(parameters, sizes, strict=True):
        expected = parameter_size(parameter)
        if expected is not None and expected != size:
            raise ArgumentError(
                f"{specialization.name_expression}: parameter {parameter.name} ({parameter.cpp}) takes {size} bytes in "
                f"the compiled kernel, but {expected} by its signature"
            )
    return sizes


def _joined(parameters: Iterable[BoundParameter], compiled: Iterable[int]) -> Iterator[int]:
    """Yield the size of each parameter in bytes, from the sizes in the compiled kernel.

    The sizes of a tensor's parts become one size, if they are the expected ones. Surplus sizes are yielded last.
    """
    left = iter(compiled)
    for parameter in parameters:
        parts = tuple(itertools.islice(left, parameter.parts))
        if parameter.layout is None or parts != parameter.layout.sizes(parameter.count):
            yield from parts
        else:
            yield parameter.layout.size(parameter.count)
    yield from left


def parameter_size(parameter: BoundParameter) -> int | None:
    """Return the size of a parameter in bytes, or None if only the compiler knows it."""
    match parameter.category:
        case "pointer":
            return 8
        case "scalar" | "struct" if parameter.dtype is not None:
            return parameter.dtype.itemsize
        case "vector" if parameter.dtype is not None:
            return parameter.dtype.itemsize * parameter.count
        case "strided":
            return 8 + 16 * parameter.count
        case "tensor" if parameter.layout is not None:
            return parameter.layout.size(parameter.count)
        case "functor":
            return 1
        case "tensor_map":
            return 128
    return None


def _load_failure(specialization: Specialization, compiled: Compiled, reason: str) -> str:
    limits = devices.limits(devices.current_device().device_id)
    version = driver_version()
    cuda_version = "unknown" if version == (0, 0) else ".".join(map(str, version))
    if specialization.is_tile and (0, 0) < version < _TILE_DRIVER:
        return (
            f"cannot load {specialization.name_expression}: tile kernels need driver r580 or newer (CUDA 13.0), and "
            f"{limits.name} has one for CUDA {cuda_version}: update it, or write the kernel for threads"
        )
    if compiled.target == "tileir":
        return (
            f"the driver, for CUDA {cuda_version}, does not make machine code of {specialization.name_expression}: "
            f"{reason.splitlines()[0]}. Let CUDA's assembler do it: pip install 'cudakit[cu13,tile]'; the driver needs "
            "libnvidia-tileiras of its own version beside it"
        )
    return (
        f"cannot load {specialization.name_expression}, compiled for {specialization.arch}, on {limits.name} "
        f"({limits.arch}) with a driver for CUDA {cuda_version}: {reason.splitlines()[0]}. Compile for "
        f"{limits.arch}; if that is the arch already, the driver is older than the compiler: update it, or install "
        "the cudakit extra for its CUDA major (cu12, cu13)"
    )
