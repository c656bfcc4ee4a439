"""PyCUDA's enumerations and flags, with the driver's values."""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any

from cuda.bindings import driver

__all__ = [
    "TRSA_OVERRIDE_FORMAT", "TRSF_NORMALIZED_COORDINATES", "TRSF_READ_AS_INTEGER", "TR_DEFAULT", "address_mode",
    "array3d_flags", "array_cubemap_face", "array_format", "compute_mode", "ctx_flags", "device_attribute",
    "event_flags", "filter_mode", "func_cache", "function_attribute", "graphics_register_flags", "host_alloc_flags",
    "ipc_mem_flags", "jit_fallback", "jit_input_type", "jit_option", "jit_target", "limit", "mem_attach_flags",
    "mem_host_register_flags", "memory_type", "pointer_attribute", "profiler_output_mode", "shared_config",
]  # fmt: skip


class _Member(enum.IntEnum):
    """A member, shown by its name; ``|`` of two is an int."""

    def __str__(self) -> str:
        return self.name

    __repr__ = enum.Enum.__repr__


def _enum(name: str, drivers_name: str, prefix: str, **more: int) -> Any:
    """Return an enumeration with the members of the driver's, without their prefix; `more` are further names."""
    members = {
        member.removeprefix(prefix): int(value)
        for member, value in getattr(getattr(driver, drivers_name, None), "__members__", {}).items()
        if member.startswith(prefix)
    }
    shown = {member if member[:1].isalpha() else f"_{member}": value for member, value in (members | more).items()}
    make: Any = _Member  # the functional form, which a type checker does not know of a subclass
    return make(name, shown, module=__name__)


address_mode: Any = _enum("address_mode", "CUaddress_mode", "CU_TR_ADDRESS_MODE_")
array_cubemap_face: Any = _enum("array_cubemap_face", "CUarray_cubemap_face", "CU_CUBEMAP_FACE_")
array_format: Any = _enum("array_format", "CUarray_format", "CU_AD_FORMAT_")
compute_mode: Any = _enum("compute_mode", "CUcomputemode", "CU_COMPUTEMODE_", EXCLUSIVE=1)
ctx_flags: Any = _enum("ctx_flags", "CUctx_flags", "CU_CTX_")
device_attribute: Any = _enum(
    "device_attribute", "CUdevice_attribute", "CU_DEVICE_ATTRIBUTE_",
    MAXIMUM_TEXTURE2D_ARRAY_WIDTH=27, MAXIMUM_TEXTURE2D_ARRAY_HEIGHT=28, MAXIMUM_TEXTURE2D_ARRAY_NUMSLICES=29,
)  # fmt: skip
event_flags: Any = _enum("event_flags", "CUevent_flags", "CU_EVENT_")
filter_mode: Any = _enum("filter_mode", "CUfilter_mode", "CU_TR_FILTER_MODE_")
func_cache: Any = _enum("func_cache", "CUfunc_cache", "CU_FUNC_CACHE_")
function_attribute: Any = _enum("function_attribute", "CUfunction_attribute", "CU_FUNC_ATTRIBUTE_")
graphics_register_flags: Any = _enum(
    "graphics_register_flags", "CUgraphicsRegisterFlags", "CU_GRAPHICS_REGISTER_FLAGS_"
)
ipc_mem_flags: Any = _enum("ipc_mem_flags", "CUipcMem_flags", "CU_IPC_MEM_")
jit_fallback: Any = _enum("jit_fallback", "CUjit_fallback", "CU_")
jit_input_type: Any = _enum("jit_input_type", "CUjitInputType", "CU_JIT_INPUT_")
jit_option: Any = _enum("jit_option", "CUjit_option", "CU_JIT_")
jit_target: Any = _enum("jit_target", "CUjit_target", "CU_TARGET_")
limit: Any = _enum("limit", "CUlimit", "CU_LIMIT_")
mem_attach_flags: Any = _enum("mem_attach_flags", "CUmemAttach_flags", "CU_MEM_ATTACH_")
memory_type: Any = _enum("memory_type", "CUmemorytype", "CU_MEMORYTYPE_")
pointer_attribute: Any = _enum("pointer_attribute", "CUpointer_attribute", "CU_POINTER_ATTRIBUTE_")
profiler_output_mode: Any = _enum("profiler_output_mode", "CUoutput_mode", "CU_OUT_", KEY_VALUE_PAIR=0, CSV=1)
shared_config: Any = _enum("shared_config", "CUsharedconfig", "CU_SHARED_MEM_CONFIG_")

array3d_flags: SimpleNamespace = SimpleNamespace(
    **{"ARRAY3D_2DARRAY": 1, "ARRAY3D_LAYERED": 1, "2DARRAY": 1, "SURFACE_LDST": 2, "CUBEMAP": 4, "TEXTURE_GATHER": 8}
)
host_alloc_flags: SimpleNamespace = SimpleNamespace(PORTABLE=1, DEVICEMAP=2, WRITECOMBINED=4)
mem_host_register_flags: SimpleNamespace = SimpleNamespace(PORTABLE=1, DEVICEMAP=2)

#: Flags of texture references.
TRSA_OVERRIDE_FORMAT, TRSF_READ_AS_INTEGER, TRSF_NORMALIZED_COORDINATES, TR_DEFAULT = 1, 1, 2, -1
