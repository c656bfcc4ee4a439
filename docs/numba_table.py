"""Write the table of numba.cuda's names in run-numba.md: ``python docs/numba_table.py``.

tests/adapters/names_numba.txt has all public names of ``numba.cuda`` but modules. ``python docs/numba_table.py names``
writes that file anew, from the installed numba-cuda.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
PAGE = HERE / "run-numba.md"
NAMES = HERE.parent / "tests" / "adapters" / "names_numba.txt"
START, END = "<!-- table: python docs/numba_table.py -->\n", "<!-- end of table -->\n"

#: Names whose use raises, and the reason.
RAISES = {
    "IpcHandle": "memory of one process: `get_ipc_handle` raises",
    "open_ipc_array": "memory of one process",
}
#: Names that are there and differ, and how.
NOTES = {
    "Archive": "the emulator links sources and PTX only",
    "Cubin": "the emulator links sources and PTX only",
    "Fatbin": "the emulator links sources and PTX only",
    "LTOIR": "the emulator links sources and PTX only",
    "Object": "the emulator links sources and PTX only",
    "KernelRuntimeError": "an access out of bounds is a `CudaAPIError` with the line",
    "cuda_error": "None",
    "current_context": "one context; `get_memory_info` is of 80 GiB",
    "detect": "lists the emulator as a device",
    "event": "all work is done when it is recorded",
    "event_elapsed_time": "NaN: the emulator's time is not a GPU's",
    "external_stream": "any number is accepted",
    "get_current_device": "the emulator's device",
    "gpus": "one device",
    "is_available": "True",
    "list_devices": "one device",
    "managed_array": "the host sees what a kernel wrote after `synchronize`",
    "mapped": "the host sees what a kernel wrote after `synchronize`",
    "mapped_array": "the host sees what a kernel wrote after `synchronize`",
    "mapped_array_like": "the host sees what a kernel wrote after `synchronize`",
    "profile_start": "no effect",
    "profile_stop": "no effect",
    "profiling": "no effect",
    "select_device": "0 only",
    "set_memory_manager": "a plug-in's own calls of a driver fail",
    "stream": "all streams are one: a missing synchronisation is not found",
}


def installed() -> list[str]:
    """Return the public names of the installed ``numba.cuda`` but modules."""
    cuda = importlib.import_module("numba.cuda")
    return [name for name in dir(cuda) if name[0] != "_" and not isinstance(getattr(cuda, name), ModuleType)]


def version() -> str:
    """Return the version of the installed numba-cuda."""
    return str(importlib.import_module("numba_cuda").__version__)


def stored() -> tuple[str, list[str]]:
    """Return the version and the names in the file."""
    first, *names = NAMES.read_text(encoding="utf-8").split("\n")
    return first.rpartition(" ")[2], [name for name in names if name]


def rows() -> str:
    """Return the tables: of names that differ, and of names that are Numba's own code."""
    text = "\n| name | without a GPU |\n|---|---|\n"
    for name in stored()[1]:
        if name in RAISES:
            text += f"| `{name}` | raises: {RAISES[name]} |\n"
        elif name in NOTES:
            text += f"| `{name}` | {NOTES[name]} |\n"
    same = [f"`{name}`" for name in stored()[1] if name not in RAISES and name not in NOTES]
    text += "\n| as with a GPU |\n|---|\n"
    return text + "".join(
        f"| {', '.join(row)} |\n" for row in (same[start : start + 8] for start in range(0, len(same), 8))
    )


def page(text: str) -> str:
    """Return a page's text with the table written anew."""
    before, _, rest = text.partition(START)
    return f"{before}{START}{rows()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    if sys.argv[1:] == ["names"]:
        head = f"# Public names of numba.cuda but modules. Version {version()}"
        NAMES.write_text("\n".join([head, *installed(), ""]), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
