"""Write the tables of other libraries' names in run-*.md: ``python docs/name_tables.py``.

tests/adapters/names_*.txt have the public names of each library. The modules of cudakit are asked for each name. A name
that is there and differs has a note here. ``python docs/name_tables.py cuda_core numba`` first writes their files anew,
from the installed libraries.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from cudakit.adapters import pycuda
from cudakit.adapters.cuda_core import stand_ins

HERE = Path(__file__).parent
START, END = "<!-- table: python docs/name_tables.py -->\n", "<!-- end of table -->\n"


@functools.cache
def _source(owner: type) -> str:
    """Return the text of a class of cudakit, with those that it derives from."""
    text = ""
    for base in owner.__mro__:
        if base.__module__.startswith("cudakit."):
            with contextlib.suppress(OSError):  # a class that a call has made
                text += inspect.getsource(base)
    return text


def has(owner: Any, name: str) -> bool:
    """Return whether a module or class has a name; also an attribute that a class's methods set."""
    if hasattr(owner, name):
        return True
    sets = rf"\bself\.{name}\b[^=]*=|\.{name} = |^    {name}:"
    return inspect.isclass(owner) and re.search(sets, _source(owner), re.MULTILINE) is not None


class Peer:
    """A library whose programs run on cudakit, and the state of its public names.

    A state is a word and a note: ``("differs", "one device")``. The names of a state have a row.
    """

    #: Name in those of its files.
    file: str
    #: First line of the file of names, before the version.
    head: str
    module: str
    #: Word for names that are there and do not differ.
    plain = "there"
    #: Words of states whose names cannot be used.
    LACKING: ClassVar[tuple[str, ...]] = ("missing", "raises")
    #: Names that are there and differ, and how.
    differs: Mapping[str, str]
    #: Names whose use raises, and the reason.
    raises: Mapping[str, str] = {}

    @property
    def page_path(self) -> Path:
        """The page with the tables."""
        return HERE / f"run-{self.file.replace('_', '-')}.md"

    @property
    def names_path(self) -> Path:
        """The file of names."""
        return HERE.parent / "tests" / "adapters" / f"names_{self.file}.txt"

    def stored(self) -> tuple[str, list[str]]:
        """Return the version and the names in the file."""
        first, *names = self.names_path.read_text(encoding="utf-8").split("\n")
        return first.rpartition(" ")[2], [name for name in names if name]

    def version(self) -> str:
        """Return the version of the installed library."""
        raise NotImplementedError

    def installed(self) -> Iterator[str]:
        """Yield the public names of the installed library."""
        raise NotImplementedError

    def section(self, name: str) -> str:
        """Return the module of a name, as the tables' heading has it."""
        return self.module

    def in_row(self, name: str) -> str:
        """Return a name as its row has it."""
        return f"{self.module}.{name}".removeprefix(f"{self.section(name)}.")

    def state(self, name: str) -> tuple[str, str]:
        """Return the word and the note of a name.

        Raises
        ------
        LookupError
            A name is missing, and nothing says what to use.
        """
        if name in self.raises:
            return "raises", self.raises[name]
        return ("differs", self.differs[name]) if name in self.differs else (self.plain, "")

    def tables(self) -> str:
        """Return the tables: one for each module."""
        names = self.stored()[1]
        states = {name: self.state(name) for name in names}
        sections: dict[str, dict[tuple[str, str], list[str]]] = {}
        for name, state in states.items():
            groups = sections.setdefault(self.section(name), {})
            row = self.in_row(name)
            # A class stands for its members, but where one of these is missing.
            is_lacking = state[0] in self.LACKING and states.get(name.rpartition(".")[0], ("",))[0] not in self.LACKING
            if ("." not in row or is_lacking) and row not in groups.setdefault(state, []):
                groups[state].append(row)
        count = sum(word not in self.LACKING for word, _ in states.values())
        text = f"\n{count} of {len(names)} names are there{', members of classes included' * ('.' in str(names))}.\n"
        return text + "".join(
            _section(heading if len(sections) > 1 else "", groups) for heading, groups in sections.items()
        )

    def page(self, text: str) -> str:
        """Return the text of the page with the tables written anew."""
        before, rest = text.split(START)
        return f"{before}{START}{self.tables()}\n{END}{rest.split(END)[1]}"


def _section(heading: str, groups: Mapping[tuple[str, str], list[str]]) -> str:
    """Return the lines about a module: names by state, those without a note first."""
    rows = sorted(
        (note != "", word, ", ".join(f"`{name}`" for name in sorted(names)), note)
        for (word, note), names in groups.items()
        if names
    )
    lines = [f"| {names} | {f'{word}: {note}' if note else word} |\n" for _, word, names, note in rows]
    return (f"\n### {heading}\n" if heading else "") + "\n| name | |\n|---|---|\n" + "".join(lines)


class PyCuda(Peer):
    """PyCUDA 2026.1."""

    file, module = "pycuda", "pycuda"
    #: Methods that an object gets by another one of its methods.
    LATER = ("driver.Function.prepared_call", "driver.Function.prepared_async_call")
    #: Members of classes that are missing, and what to use.
    MEMBERS: ClassVar[dict[str, str]] = {
        **{f"jit_target.COMPUTE_{number}": "CUDA 12 has no such device" for number in (10, 11, 12, 13, 20, 21)},
        "InclusiveScanKernel.final_update_tp": "cudakit generates its own kernels",
        "ExclusiveScanKernel.final_update_tp": "cudakit generates its own kernels",
    }
    _NO_EFFECT = "a hint, without effect"
    differs: ClassVar[dict[str, str]] = {
        "autoinit.context": "the device's primary context",
        "characterize.has_stack": "always True",
        "characterize.has_double_support": "always True",
        "compiler.SourceModule": "NVRTC compiles; `nvcc`, `cache_dir` and `code` have no effect; unknown options raise",
        "compiler.DynamicSourceModule": "as `SourceModule`; no toolkit is searched for libraries",
        "compiler.compile": "returns a cubin or PTX, on the emulator PTX; there is no fatbin",
        "compiler.get_nvcc_version": "the version of NVRTC",
        **{f"cumath.{name}": "float64 is not rounded to float32" for name in ("fmod", "frexp", "ldexp", "modf")},
        "curandom.rand": "other numbers; `numpy.random.seed` repeats them",
        "curandom.get_curand_version": "the version whose functions are here; cuRAND is not used",
        "curandom.XORWOWRandomNumberGenerator": "other numbers: Philox4x32-10; 128 × 256 generators on every device",
        "curandom.MRG32k3aRandomNumberGenerator": "other numbers: Philox4x32-10; a subsequence has 2⁴⁸ numbers",
        "curandom.Sobol32RandomNumberGenerator": "other direction vectors; they repeat after 5 000 dimensions",
        "curandom.Sobol64RandomNumberGenerator": "as `Sobol32RandomNumberGenerator`",
        "curandom.ScrambledSobol32RandomNumberGenerator": "other vectors and constants; scrambled by XOR only",
        "curandom.ScrambledSobol64RandomNumberGenerator": "as `ScrambledSobol32RandomNumberGenerator`",
        "curandom.generate_direction_vectors": "other vectors than cuRAND's",
        "curandom.generate_scramble_constants32": "other constants than cuRAND's",
        "curandom.generate_scramble_constants64": "other constants than cuRAND's",
        "driver.AlignedHostAllocation": "registered memory only is reached by kernels",
        "driver.CompileError": "also a `ck.CompileError`",
        "driver.Context": "the device's primary context, made with a warning if need be; no limit of sync depth",
        "driver.Error": "also a `ck.CudakitError`",
        "driver.Event": "on the emulator a microsecond is a step; no `ipc_handle`",
        "driver.Function": "arguments are checked against the kernel's parameters",
        "driver.LaunchError": "also a `ck.LaunchError`; on the emulator with line and access",
        "driver.LogicError": "also a `ck.LaunchError`",
        "driver.MemoryError": "also a `ck.LaunchError`",
        "driver.Out": "the memory is new and not cleared: elements that the kernel leaves out are arbitrary",
        "driver.RuntimeError": "also a `ck.LaunchError`",
        "driver.SurfaceReference": "a surface object in a variable, since CUDA 12 has no references",
        "driver.TextureReference": "a texture object in a variable, since CUDA 12 has no references",
        "driver.ctx_flags": _NO_EFFECT,
        "driver.func_cache": _NO_EFFECT,
        "driver.have_gl_ext": "always False",
        "driver.init": "nothing to do",
        "driver.mem_attach_flags": _NO_EFFECT + " on the emulator",
        "driver.mem_get_info": "on the emulator the host's memory",
        "driver.set_debugging": "no effect; `cudakit debug` steps through kernels",
        "driver.shared_config": _NO_EFFECT,
        "driver.start_profiler": "no effect on the emulator",
        "driver.stop_profiler": "no effect on the emulator",
        "elementwise.ElementwiseKernel": "arrays must have the declared dtype; integers may differ in sign",
        "gpuarray.GPUArray": "operands must have one memory order; `mul_add(add_timer=)` raises",
        "gpuarray.multi_take": "no textures, so any dtype",
        "gpuarray.multi_take_put": "no textures, so any dtype",
        "gpuarray.take": "no textures, so any dtype",
        "reduction.ReductionKernel": "arrays are read only; `kernel_wrapper=` raises; an empty array gives `neutral`",
        "tools.DeviceData": "`warps_per_mp` and `thread_blocks_per_mp` are the device's, not those of older devices",
        "tools.OccupancyRecord": "computed from the device's limits",
        "tools.PooledDeviceAllocation": "`int` after `free` raises",
        "tools.get_default_device": "the number alone decides, no environment variable",
        "tools.mark_cuda_test": "no pytest mark is set",
    }

    def section(self, name: str) -> str:
        part = name.partition(".")[0]
        return f"pycuda.{part}" if part in pycuda.MODULES else "pycuda"

    def in_row(self, name: str) -> str:
        part = name.partition(".")[0]
        return part if part in pycuda.ABSENT else super().in_row(name)

    def state(self, name: str) -> tuple[str, str]:
        part, _, rest = name.partition(".")
        if part in pycuda.ABSENT:
            return "missing", pycuda.ABSENT[part]
        if part not in pycuda.MODULES:
            part, rest = "", name
        module: Any = importlib.import_module(f"{pycuda.__name__}.{part}".rstrip("."))
        owner = module
        for word in rest.split("."):
            if not has(owner, word) and name not in self.LATER:
                uses = {**getattr(module, "ABSENT", {}), **self.MEMBERS}
                missing = rest if rest in uses else rest.partition(".")[0]
                if missing not in uses:
                    raise LookupError(f"pycuda.{name} is not there, and ABSENT of its module does not say what to use")
                return "missing", uses[missing]
            owner = getattr(owner, word, None)
        return super().state(name)


class CudaCore(Peer):
    """cuda.core, without a GPU."""

    file, module, plain = "cuda_core", "cuda.core", "stand-in"
    head = "# Public names of cuda.core, and of its classes that cudakit stands in for. Version"
    MODULES = ("cuda.core", "cuda.core.graph", "cuda.core.texture", "cuda.core.utils", "cuda.core.system")
    #: Classes whose missing members raise an AttributeError that says so.
    PARTLY = ("system.Device", "graph.Graph")
    raises: ClassVar[dict[str, str]] = {
        "GraphicsResource": "shares memory with OpenGL",
        "ManagedBuffer": "`ManagedMemoryResource` gives a `Buffer`",
        "VirtualMemoryResource": "use `DeviceMemoryResource`",
        "WorkqueueResource": "no work queues",
        "graph.GraphDefinition": "use `device.create_graph_builder()`",
        "texture.MipmappedArray": "use `OpaqueArray`",
        "system.get_driver_branch": "no driver",
        "system.get_kernel_mode_driver_version": "no driver",
        "system.get_nvml_version": "no driver",
        "system.get_p2p_status": "no driver",
        "system.get_process_name": "no driver",
        "system.get_topology_common_ancestor": "no driver",
        "system.register_events": "no driver",
    }
    differs: ClassVar[dict[str, str]] = {
        "Buffer": "no IPC; `close` frees at once",
        "Context": "the device's own; green contexts raise",
        "Device": "one device, an H100's properties; `create_context` and `create_mipmapped_array` raise",
        "DeviceMemoryResource": "no pool: memory is freed with its last array; no IPC",
        "DeviceResources": "`workqueue` raises",
        "Event": "`end - begin` is NaN; no IPC",
        "GraphMemoryResource": "memory is allocated while the graph is built, and stays",
        "Kernel": "handles are the emulator's",
        "Linker": "joins PTX; the code of the result is PTX",
        "ManagedMemoryResource": "no advice",
        "ObjectCode": "machine code and LTO IR of this process only; PTX of any",
        "PinnedMemoryResource": "no pool; no IPC",
        "Program": "NVRTC compiles to PTX; `cache` is not used",
        "ProgramOptions": "arch: the emulator's if none is named",
        "LinkerOptions": "arch: the emulator's if none is named",
        "SMResource": "`split` raises",
        "Stream": "priorities have no effect",
        "TensorMapDescriptor": "no interleaved maps, no im2col, no `data_type`",
        "launch": "checks the number and the types of the arguments",
        "graph.Graph": "`graph[node]` raises",
        "graph.GraphBuilder": "`graph_definition` raises",
        "system.Device": "name, uuid, compute capability; all else raises an AttributeError",
        "system.get_num_devices": "1",
        "system.get_user_mode_driver_version": "the version of cuda.bindings",
        "system.CUDA_BINDINGS_NVML_IS_COMPATIBLE": "False",
        "texture.ResourceDescriptor": "no mipmaps; rows of `from_pitch2d` without gaps",
        "texture.TextureObject": "no sRGB, anisotropy, border colour, mipmaps",
        "utils.discard_batch": "no effect",
        "utils.discard_prefetch_batch": "no effect",
        "utils.prefetch_batch": "no effect",
    }

    def version(self) -> str:
        return str(importlib.import_module("cuda.core").__version__)

    def section(self, name: str) -> str:
        module = f"cuda.core.{name.partition('.')[0]}"
        return module if module in self.MODULES else "cuda.core"

    def installed(self) -> Iterator[str]:
        table = stand_ins.names()
        for module in self.MODULES:
            real = importlib.import_module(module)
            prefix = module.removeprefix("cuda.core").removeprefix(".")
            for name in sorted(getattr(real, "__all__", None) or dir(real)):
                full = f"{prefix}.{name}".removeprefix(".")
                if name.startswith("_"):
                    continue
                yield full
                value = getattr(real, name)
                if inspect.isclass(value) and name in table[module] and full not in self.raises:
                    yield from (f"{full}.{member}" for member in dir(value) if not member.startswith("_"))

    def state(self, name: str) -> tuple[str, str]:
        module = self.section(name)
        top, _, member = f"cuda.core.{name}".removeprefix(f"{module}.").partition(".")
        owner = name.removesuffix(f".{member}") if member else name
        if owner in self.raises:
            return super().state(owner)
        table = stand_ins.names()[module]
        is_there = has(table[top], member) if top in table and member else hasattr(importlib.import_module(module), top)
        if not is_there and owner not in self.PARTLY:
            raise LookupError(f"{name} is in cuda.core, and neither in the stand-in nor in the notes of {__file__}")
        return super().state(name) if top in table else ("of cuda.core itself", "")


class Numba(Peer):
    """numba.cuda, without a GPU."""

    file, module, plain = "numba", "numba.cuda", "as with a GPU"
    head = "# Public names of numba.cuda but modules. Version"
    raises: ClassVar[dict[str, str]] = {
        "IpcHandle": "memory of one process: `get_ipc_handle` raises",
        "open_ipc_array": "memory of one process",
    }
    differs: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("Archive", "Cubin", "Fatbin", "LTOIR", "Object"), "the emulator links sources and PTX only"),
        "KernelRuntimeError": "an access out of bounds is a `CudaAPIError` with the line",
        "cuda_error": "None",
        "current_context": "one context; `get_memory_info` is of 80 GiB",
        "detect": "lists the emulator as a device",
        "event": "all work is done when it is recorded",
        "event_elapsed_time": "NaN: the emulator's time is not a GPU's",
        "external_stream": "any number is accepted",
        "get_current_device": "the emulator's device",
        **dict.fromkeys(("gpus", "list_devices"), "one device"),
        "is_available": "True",
        **dict.fromkeys(
            ("managed_array", "mapped", "mapped_array", "mapped_array_like"),
            "the host sees what a kernel wrote after `synchronize`",
        ),
        **dict.fromkeys(("profile_start", "profile_stop", "profiling"), "no effect"),
        "select_device": "0 only",
        "set_memory_manager": "a plug-in's own calls of a driver fail",
        "stream": "all streams are one: a missing synchronisation is not found",
    }

    def version(self) -> str:
        return str(importlib.import_module("numba_cuda").__version__)

    def installed(self) -> Iterator[str]:
        cuda = importlib.import_module("numba.cuda")
        yield from (name for name in dir(cuda) if name[0] != "_" and not isinstance(getattr(cuda, name), ModuleType))


PEERS: dict[str, Peer] = {peer.file: peer for peer in (PyCuda(), CudaCore(), Numba())}

if __name__ == "__main__":
    for peer in map(PEERS.__getitem__, sys.argv[1:]):
        peer.names_path.write_text(
            "\n".join([f"{peer.head} {peer.version()}", *peer.installed(), ""]), encoding="utf-8"
        )
    for peer in PEERS.values():
        peer.page_path.write_text(peer.page(peer.page_path.read_text(encoding="utf-8")), encoding="utf-8")
