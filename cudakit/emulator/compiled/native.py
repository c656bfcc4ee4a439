"""Machine code of IR, by LLVM: made once, and loaded into the process."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import llvmlite
import llvmlite.binding as llvm

from cudakit.emulator.compiled.helpers import helpers
from cudakit.jit.cache.cache import default_cache
from cudakit.streams import process

# Each call of LLVM's holds llvmlite's lock, and LLVM's own state is whole between two of them. A child that was forked
# during a call would wait for the lock for ever.
process.held(getattr(llvm.ffi.lib, "_lock", contextlib.nullcontext()))


class Processor(NamedTuple):
    """What code is made for."""

    name: str
    features: str
    #: Lanes of 32 bits in its widest registers.
    native: int
    #: Whether it takes masks of lanes in all that it does to memory.
    masks: bool
    #: Whether it has an instruction that loads from four places, but none with such masks.
    gathers: bool


@cache
def processor() -> Processor:
    """The processor at hand."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    native = 16 if features.get("avx512f") else 8
    return Processor(
        llvm.get_host_cpu_name(), features.flatten(), native, native == 16, native == 8 and features.get("avx2", False)
    )


@cache
def _target(optimised: bool = True) -> Any:
    name, features, *_ = processor()
    target = llvm.Target.from_default_triple()
    opt = 2 if optimised else 0
    return target.create_target_machine(
        cpu=name, features=features, opt=opt, reloc="pic", codemodel="default", jit=True
    )


def compiled(text: str, optimised: bool) -> bytes:
    """The object code of a module: optimised, a long one by less; or quickly, to run half as long again."""
    machine = _target(optimised)
    module = llvm.parse_assembly(text)
    module.verify()
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    if optimised and text.count("\n") <= _LONG:
        passes = builder.getModulePassManager()
    else:
        passes = llvm.create_new_module_pass_manager()
        for name in _QUICK + _QUICKER * optimised:
            getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)
    made: bytes = machine.emit_object(module)
    return made


#: Lines of a module from which on some of LLVM's passes take longer than they gain: those that know loops.
_LONG = 10_000
#: What takes little time for a module of any length; and what saves more in making code of it than it takes.
_QUICK = ("sroa", "simplify_cfg")
_QUICKER = ("instruction_combine", "new_gvn", "simplify_cfg", "dead_store_elimination")


def stored_code(digest: str) -> bytes | None:
    """The object code with a digest, if it is on disk."""
    return default_cache().stored("native", digest)


def object_code(text: str, optimised: bool) -> bytes:
    """The object code of a module, from disk or made now."""
    digest = digest_of(text, optimised)
    return default_cache().blob("native", digest, lambda: compiled(text, optimised))


@cache
def _helpers() -> bytes:
    """What kernels call, which is the same for all."""
    return object_code(helpers(), True)


class Code:
    """Object code in the process, for as long as this lives."""

    def __init__(self, code: bytes) -> None:
        library = llvm.JITLibraryBuilder().add_object_img(code).add_object_img(_helpers())
        library.add_current_process().export_symbol("kernel")
        self._held = library.link(_jit(), f"kernel{next(_numbers)}")
        #: run(words, first block, last block): 0, or what it stopped for.
        self.run: Callable[[Any, int, int], int] = _Run(self._held["kernel"])


_Run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_numbers = count()


def made_by() -> tuple[str, ...]:
    """All beside its text that decides what object code a module becomes."""
    name, features, *_ = processor()
    return (llvmlite.__version__, *map(str, llvm.llvm_version_info), name, features, str(_LONG), *_QUICK, *_QUICKER)


def digest_of(text: str, optimised: bool) -> str:
    """Digest of what the object code of a module depends on."""
    return hashlib.sha256("\0".join((*made_by(), str(optimised), text)).encode()).hexdigest()


@cache
def _jit() -> Any:
    # JITLink lays an object's sections next to each other. The older linker takes what the system has left, and aborts
    # the process where two lie further apart than 32 bits reach: beside CUDA's reservations of addresses, for one.
    return llvm.create_lljit_compiler(_target(), use_jit_link=True)
