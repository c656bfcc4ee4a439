"""Write the tables of cuda.core's names in run-cuda-core.md: ``python docs/core_table.py``.

tests/adapters/names_cuda_core.txt has all public names of cuda.core, and those of its classes. The stand-ins are asked
for each. ``python docs/core_table.py names`` writes that file anew, from the installed cuda.core.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from cudakit.adapters.cuda_core import stand_ins

HERE = Path(__file__).parent
PAGE = HERE / "run-cuda-core.md"
NAMES = HERE.parent / "tests" / "adapters" / "names_cuda_core.txt"
START, END = "<!-- table: python docs/core_table.py -->\n", "<!-- end of table -->\n"
MODULES = ("cuda.core", "cuda.core.graph", "cuda.core.texture", "cuda.core.utils", "cuda.core.system")

#: Names whose use raises, and what to use.
RAISES = {
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
#: Names that are there and differ, and how.
NOTES = {
    "Buffer": "no IPC; `close` frees at once",
    "Context": "the device's own; green contexts raise",
    "Device": "one device, an H100's properties; `create_context` and `create_mipmapped_array` raise",
    "DeviceMemoryResource": "no pool: memory is freed with its last array; no IPC",
    "DeviceResources": "`workqueue` raises",
    "Event": "`end - begin` is NaN; no IPC",
    "GraphMemoryResource": "memory is allocated while the graph is built, and stays",
    "Kernel": "handles are the emulator's",
    "LegacyPinnedMemoryResource": "",
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
    "utils.StridedMemoryView": "",
    "utils.discard_batch": "no effect",
    "utils.discard_prefetch_batch": "no effect",
    "utils.prefetch_batch": "no effect",
}
#: Classes whose missing members raise an AttributeError that says so.
PARTLY = ("system.Device", "graph.Graph")


def installed() -> Iterator[str]:
    """Yield the public names of the installed cuda.core, and those of its classes that have a stand-in."""
    table = stand_ins.names()
    for module in MODULES:
        real = importlib.import_module(module)
        prefix = module.removeprefix("cuda.core").removeprefix(".")
        for name in sorted(getattr(real, "__all__", None) or dir(real)):
            full = f"{prefix}.{name}".removeprefix(".")
            if name.startswith("_"):
                continue
            yield full
            value = getattr(real, name)
            if inspect.isclass(value) and name in table[module] and full not in RAISES:
                yield from (f"{full}.{member}" for member in dir(value) if not member.startswith("_"))


def version() -> str:
    """Return the version of the installed cuda.core."""
    import cuda.core

    return str(cuda.core.__version__)


def stored() -> tuple[str, list[str]]:
    """Return the version and the names in the file."""
    first, *names = NAMES.read_text(encoding="utf-8").split("\n")
    return first.rpartition(" ")[2].rstrip("."), [name for name in names if name]


def is_there(full: str) -> bool:
    """Return whether a name, or a class's member, is there; `stored` has the names.

    Raises
    ------
    LookupError
        For a name that should be there and is not.
    """
    table = stand_ins.names()
    path = full.split(".")
    module = f"cuda.core.{path.pop(0)}" if f"cuda.core.{path[0]}" in MODULES else "cuda.core"
    name, *rest = path
    owner = ".".join(full.split(".")[: len(full.split(".")) - len(rest)])
    if owner in RAISES:
        return False
    if name not in table[module]:
        return hasattr(importlib.import_module(module), name)
    value = table[module][name]
    if not rest or hasattr(value, rest[0]) or owner in PARTLY:
        return True
    source = "\n".join(inspect.getsource(base) for base in value.__mro__ if base.__module__.startswith("cudakit."))
    if re.search(rf"\bself\.{rest[0]}\b[^=]*=|\.{rest[0]} = |^    {rest[0]}:", source, re.MULTILINE) is None:
        raise LookupError(f"{full} is in cuda.core, and neither in the stand-in nor in the notes of docs/core_table.py")
    return True


def rows() -> str:
    """Return the tables: one for each module."""
    table, text = stand_ins.names(), ""
    names = [name for name in stored()[1] if name.count(".") - (f"cuda.core.{name.partition('.')[0]}" in MODULES) == 0]
    for module in MODULES:
        prefix = module.removeprefix("cuda.core").removeprefix(".")
        own = [name for name in names if (name.rpartition(".")[0] or "") == prefix]
        text += f"\n### {module}\n\n| name | without a GPU | differs |\n|---|---|---|\n"
        plain = []
        for name in own:
            last = name.rpartition(".")[2]
            if name in RAISES:
                text += f"| `{last}` | raises | {RAISES[name]} |\n"
            elif last in table[module]:
                text += f"| `{last}` | stand-in | {NOTES.get(name, '')} |\n"
            else:
                plain.append(last)
        if plain:
            text += f"\nFrom cuda.core itself: {', '.join(f'`{name}`' for name in plain)}.\n"
    return text


def page(text: str) -> str:
    """Return a page's text with the tables written anew."""
    before, _, rest = text.partition(START)
    return f"{before}{START}{rows()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    if sys.argv[1:] == ["names"]:
        head = f"# Public names of cuda.core, and of its classes that cudakit stands in for. Version {version()}"
        NAMES.write_text("\n".join([head, *installed(), ""]), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
