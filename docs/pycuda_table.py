"""Write the tables of PyCUDA's names in run-pycuda.md: ``python docs/pycuda_table.py``.

tests/adapters/names_pycuda.txt has all public names of PyCUDA. The modules of cudakit are asked for each. A name that
is there and differs has a note here. A name that is missing has its replacement in ``ABSENT`` of its module.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from cudakit.adapters import pycuda

HERE = Path(__file__).parent
PAGE = HERE / "run-pycuda.md"
NAMES = HERE.parent / "tests" / "adapters" / "names_pycuda.txt"
START, END = "<!-- table: python docs/pycuda_table.py -->\n", "<!-- end of table -->\n"

_NO_EFFECT = "a hint, without effect"
#: Names that are there and differ, and how.
NOTES = {
    "autoinit.context": "the device's primary context",
    "characterize.has_stack": "always True",
    "characterize.has_double_support": "always True",
    "compiler.SourceModule": "NVRTC compiles; `nvcc`, `cache_dir` and `code` have no effect; unknown options raise",
    "compiler.DynamicSourceModule": "as `SourceModule`; no toolkit is searched for libraries",
    "compiler.compile": "returns a cubin or PTX; there is no fatbin",
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
    "driver.Context": "the device's primary context; a program that makes none gets one, with a warning",
    "driver.Error": "also a `ck.CudakitError`",
    "driver.Event": "on the emulator a millisecond is a step of the emulator; no `ipc_handle`",
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


def names() -> list[str]:
    """Return PyCUDA's public names, such as ``driver.Context.push``."""
    return [line for line in NAMES.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]


def has(owner: Any, name: str) -> bool:
    """Return whether a module or class has a name; also an attribute that a class's ``__init__`` sets."""
    if hasattr(owner, name):
        return True
    makers = [base.__dict__["__init__"] for base in getattr(owner, "__mro__", ()) if "__init__" in base.__dict__]
    sources = [inspect.getsource(maker) for maker in makers if inspect.isfunction(maker)]
    return any(re.search(rf"\bself\.{name}\b", source) for source in sources)


def state_of(name: str) -> str | None:
    """Return None for a name that is there, else what to use.

    Raises
    ------
    LookupError
        A name is missing, and nothing says what to use.
    """
    part, _, rest = name.partition(".")
    if part not in pycuda.MODULES:
        if hasattr(pycuda, part):
            return None
        return pycuda.ABSENT[part]
    module = importlib.import_module(f"{pycuda.__name__}.{part}")
    owner: Any = module
    for word in rest.split(".") if rest else ():
        if not has(owner, word) and rest not in LATER:
            uses = {**getattr(module, "ABSENT", {}), **MEMBERS}
            missing = rest if rest in uses else rest.partition(".")[0]
            if missing not in uses:
                raise LookupError(f"pycuda.{name} is not there, and ABSENT of its module does not say what to use")
            return str(uses[missing])
        owner = getattr(owner, word, None)
    return None


#: Methods that an object gets by another one of its methods.
LATER = ("Function.prepared_call", "Function.prepared_async_call")
#: Members of classes that are missing, and what to use.
MEMBERS = {
    **{f"jit_target.COMPUTE_{number}": "CUDA 12 has no such device" for number in (10, 11, 12, 13, 20, 21)},
    "InclusiveScanKernel.final_update_tp": "cudakit generates its own kernels",
    "ExclusiveScanKernel.final_update_tp": "cudakit generates its own kernels",
}


def _section(part: str, members: list[str]) -> list[str]:
    """Return the lines about a module."""
    states = {name: state_of(name) for name in members}
    tops = {".".join(name.split(".")[:2]) for name in members if "." in name}
    there = sorted(name for name in tops if states.get(name) is None and name not in NOTES)
    rows = [(", ".join(f"`{name.partition('.')[2]}`" for name in there), "there")] if there else []
    rows += [(f"`{name.partition('.')[2]}`", f"differs: {NOTES[name]}") for name in sorted(tops & NOTES.keys())]
    uses: dict[str, list[str]] = {}
    for name, use in states.items():
        # A missing class stands for its members.
        if use is not None and states.get(name.rpartition(".")[0]) is None:
            uses.setdefault(use, []).append(f"`{name.partition('.')[2]}`")
    rows += [(", ".join(group), f"missing: {use}") for use, group in uses.items()]
    lines = ["| name | |", "|---|---|", *(f"| {group} | {text} |" for group, text in rows)]
    return [f"\n### pycuda.{part}\n", *lines]


def table() -> str:
    """Return the tables as Markdown."""
    by_module: dict[str, list[str]] = {}
    for name in names():
        by_module.setdefault(name.partition(".")[0], []).append(name)
    lines: list[str] = []
    for part, members in by_module.items():
        if part in pycuda.MODULES:
            lines += _section(part, members)
    count = len([name for name in names() if state_of(name) is None])
    absent = [part for part in by_module if part in pycuda.ABSENT]
    lines += ["\n### Missing modules\n", "| module | names | |", "|---|---|---|"]
    lines += [f"| `pycuda.{part}` | {len(by_module[part])} | {pycuda.ABSENT[part]} |" for part in absent]
    head = f"{count} of {len(names())} names are there, members of classes included."
    return f"{head}\n" + "\n".join(lines) + "\n\n"


def page(text: str) -> str:
    """Return `text` with the current tables."""
    before, rest = text.split(START)
    return before + START + "\n" + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
