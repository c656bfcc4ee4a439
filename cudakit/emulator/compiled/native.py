"""Machine code of IR, by LLVM: made once, and loaded into the process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm


class Processor(NamedTuple):
    """What code is made for."""

    name: str
    features: str
    #: Lanes of 32 bits in its widest registers.
    native: int


@cache
def processor() -> Processor:
    """The processor at hand."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    native = 16 if features.get("avx512f") else 8
    return Processor(llvm.get_host_cpu_name(), features.flatten(), native)


@cache
def _target() -> Any:
    name, features, _ = processor()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=name, features=features, opt=2, reloc="pic", codemodel="default", jit=True)


def compiled(text: str, level: int = 2) -> bytes:
    """The object code of a module."""
    machine = _target()
    module = llvm.parse_assembly(text)
    module.verify()
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    made: bytes = machine.emit_object(module)
    return made


class Code:
    """Object code in the process, for as long as this lives."""

    def __init__(self, made: bytes, name: str) -> None:
        self._jit = _jit()
        library = llvm.JITLibraryBuilder().add_object_img(made).add_current_process().export_symbol("kernel")
        self._held = library.link(self._jit, name)
        self.run: Callable[..., int] = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
            self._held["kernel"]
        )


@cache
def _jit() -> Any:
    return llvm.create_lljit_compiler(_target())
