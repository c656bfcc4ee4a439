"""A first launch in a fresh process, with stand-ins of the driver and cuda.core; lists what it loads.

Run as a program: ``cold_launch.py BUNDLE``; an empty text for the cache on disk. It prints a JSON document: the modules
of cudakit that were loaded with the bytes of their sources, the other modules, the launch that the driver got, and the
milliseconds of loading and of the launch.
"""

from __future__ import annotations

import enum
import json
import os
import sys
import time
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

TEXT = "template <typename T> __global__ void scale(T* x, T by, size_t n) { if (n) x[0] *= by; }"


class Status(enum.IntEnum):
    CUDA_SUCCESS = 0


class Device:
    """cuda.core's device, an H100."""

    device_id = 0
    name = "NVIDIA H100"
    compute_capability = 9, 0
    properties = SimpleNamespace(
        max_threads_per_block=1024, max_block_dim_x=1024, max_block_dim_y=1024, max_block_dim_z=64,
        max_grid_dim_x=2**31 - 1, max_grid_dim_y=65535, max_grid_dim_z=65535, multiprocessor_count=132,
        max_shared_memory_per_block_optin=227 * 1024, cooperative_launch=1,
    )  # fmt: skip

    def __init__(self, device_id: int | None = None) -> None:
        pass

    def set_current(self) -> None:
        pass


class Stream:
    """cuda.core's stream."""

    is_closed, handle, device = False, 77, Device()

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def sync(self) -> None:
        pass


class Buffer:
    """cuda.core's device memory."""

    is_closed, is_device_accessible, is_host_accessible = False, True, False
    handle, device_id, size = 0x7F0000000000, 0, 4096


class LaunchConfig:
    """cuda.core's configuration."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class ObjectCode:
    """cuda.core's code, of kernels with the parameters of `TEXT`."""

    @classmethod
    def from_cubin(cls, code: bytes, *, symbol_mapping: Any, name: str = "") -> Any:
        result = cls()
        result.symbols = {name: symbol for name, symbol in symbol_mapping.items() if symbol in code}
        return result

    def get_kernel(self, name: str) -> Any:
        attributes = SimpleNamespace(max_threads_per_block=1024, shared_size_bytes=0, num_regs=16)
        arguments = [SimpleNamespace(size=size) for size in (8, 4, 8)]
        return SimpleNamespace(name=self.symbols[name].decode(), arguments_info=arguments, attributes=[attributes])


class Launches:
    """What the driver was given."""

    made: ClassVar[list[Any]] = []

    @classmethod
    def launch(cls, stream: Any, config: Any, kernel: Any, *values: Any) -> None:
        cls.made.append([config.grid, config.block, kernel.name, *[int(value) for value in values]])


#: Modules that cuda.core has loaded, beside those of NumPy.
LOADED = ("bisect", "dataclasses", "errno", "hashlib", "numpy", "pathlib", "signal", "string", "threading")


def install() -> None:
    """Put the stand-ins in the place of cuda.core and of the driver's bindings."""
    driver = ModuleType("cuda.bindings.driver")
    success = Status.CUDA_SUCCESS
    driver.__dict__.update(
        cuInit=lambda flags: (success,),
        cuDeviceGetCount=lambda: (success, 1),
        cuCtxGetCurrent=lambda: (success, 1),
        cuDriverGetVersion=lambda: (success, 13000),
    )
    core = ModuleType("cuda.core")
    names = (Device, Stream, Buffer, LaunchConfig, ObjectCode)
    core.__dict__.update({thing.__name__: thing for thing in names}, launch=Launches.launch, TensorMapDescriptor=Status)
    bindings, cuda = ModuleType("cuda.bindings"), ModuleType("cuda")
    bindings.driver, cuda.core, cuda.bindings = driver, core, bindings  # type: ignore[attr-defined]
    sys.modules |= {"cuda": cuda, "cuda.core": core, "cuda.bindings": bindings, "cuda.bindings.driver": driver}


def main(bundle: str) -> None:
    for name in LOADED:
        import_module(name)
    install()
    stream, x = Stream(), Buffer()
    before, start = set(sys.modules), time.perf_counter()
    import cudakit as ck

    _ = ck.Kernel, ck.config, ck.use_bundle
    loaded = time.perf_counter()
    if bundle:
        ck.use_bundle(bundle, compile="never")
    ck.Kernel(TEXT)["float"](stream, ck.config(4, 256), x, 2.0, 1024)
    end = time.perf_counter()
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items() if name not in before}
    document = {
        "cudakit": {name: os.path.getsize(str(file)) for name, file in files.items() if name.startswith("cudakit")},
        "others": sorted(name for name in files if not name.startswith("cudakit")),
        "launches": Launches.made,
        "ms": [(loaded - start) * 1e3, (end - loaded) * 1e3],
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main(sys.argv[1])
