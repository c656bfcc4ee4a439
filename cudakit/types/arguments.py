"""What a Python object is to a kernel: the evidence it gives for deduction, and how its address or bytes are read."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from cudakit.errors import ArgumentError, shortened
from cudakit.types import structs
from cudakit.types.cpp import scalar
from cudakit.types.exports import described, dlpack_device, exporting
from cudakit.types.page_locked import is_page_locked
from cudakit.types.tensors import TensorLayout

Family: TypeAlias = Literal["cupy", "torch", "memory", "buffer", "none", "number", "struct", "text", "object", "tuple"]


class Evidence(NamedTuple):
    """What one argument says about its type, without its data.

    Attributes
    ----------
    kind : str
        ``array`` (memory with a dtype), ``scalar`` (a typed scalar or struct), ``weak`` (a Python number, which
        follows the other arguments), ``functor`` (C++ text of a function object), ``address`` (memory without a
        dtype, or None) or ``object`` (a texture object, a tensor map: a type of CUDA's own).
    shown : str
        The argument in words, for errors.
    dtype : numpy.dtype or None
    rank : int
        Number of dimensions of an array.
    readonly : bool
    python_type : type or None
        bool, int, float or complex, for ``weak``.
    text : str
        The C++ text of a functor or the type of an object.
    layout : TensorLayout or None
        Of an array that is taken whole.
    """

    kind: Literal["array", "scalar", "weak", "functor", "address", "object"]
    shown: str
    dtype: np.dtype | None = None
    rank: int = 0
    readonly: bool = False
    python_type: type | None = None
    text: str = ""
    layout: TensorLayout | None = None


class Argument(NamedTuple):
    """One argument, described.

    Attributes
    ----------
    value : object
        As the user gave it.
    family : str
        Which kind of object it is; decides how a launch reads it.
    evidence : Evidence
    device_id : int or None
        Device of memory.
    pointer : int
        Address of memory.
    contiguous : bool
        Whether memory is C-contiguous.
    shape, strides : tuple of int
        Of an array; strides in elements.
    base : int
        Address that names the allocation, for the order between streams.
    """

    value: Any
    family: Family
    evidence: Evidence
    device_id: int | None = None
    pointer: int = 0
    contiguous: bool = True
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    base: int = 0


_WEAK_TYPES = (bool, int, float, complex)
#: Codes of ctypes' numbers; its others are text, pointers and objects.
_CTYPES_NUMBERS = frozenset("?bBhHiIlLqQfdg")


def describe(value: Any) -> Argument:
    """Describe one kernel argument.

    Raises
    ------
    ArgumentError
        For an object that no kernel can take, with how to convert it.
    """
    kind = type(value)
    if kind in _WEAK_TYPES:
        return _number(value)
    if value is None:
        return Argument(value, "none", Evidence("address", "None"))
    root = kind.__module__.partition(".")[0]
    if root == "cupy" and hasattr(value, "__cuda_array_interface__"):
        return _cupy(value)
    if root == "torch" and hasattr(value, "data_ptr"):
        return _torch(value)
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype.names is not None:
        return _struct(value, value.dtype)
    if isinstance(value, np.ndarray):
        evidence = Evidence("array", f"numpy {_array_words(value.dtype, value.shape)}", value.dtype, value.ndim)
        if value.nbytes and is_page_locked(value):
            return _page_locked(value)
        raise ArgumentError(
            f"{evidence.shown} is in host memory and this stream is a GPU's; move it first, with cupy.asarray(x)"
        )
    if isinstance(value, np.void) and value.dtype.names is not None:
        return _struct(value, value.dtype)
    if isinstance(value, np.generic) or kind.__module__ == "ml_dtypes":
        dtype = np.dtype(kind) if not isinstance(value, np.generic) else value.dtype
        return Argument(value, "number", Evidence("scalar", f"{dtype} {value}", dtype))
    if isinstance(value, _WEAK_TYPES):
        return _number(value)
    if isinstance(value, str):
        return Argument(value, "text", Evidence("functor", shortened(value), text=value))
    if isinstance(value, tuple | list):
        return Argument(value, "tuple", Evidence("object", f"{kind.__name__} {shortened(value)}"))
    struct_type: Any = kind
    if structs.is_struct_type(struct_type):
        return _struct(value, structs.struct_dtype(struct_type))
    return _foreign(value)


def _number(value: Any) -> Argument:
    kind = next(weak for weak in _WEAK_TYPES if isinstance(value, weak))
    dtype = None
    if kind is int and not -(2**31) <= value < 2**31:
        # C++ gives a literal that int cannot hold the next type that can.
        dtype = np.dtype("i8") if value < 2**63 else np.dtype("u8")
    words = f"{shortened(value)}, a Python {kind.__name__}"
    return Argument(value, "number", Evidence("weak", words, dtype, python_type=kind))


def components(value: np.ndarray) -> Argument:
    """A host array that is passed by value, as a tuple of its elements would be."""
    return Argument(value, "tuple", Evidence("object", f"numpy {_array_words(value.dtype, value.shape)}"))


def _struct(value: Any, dtype: np.dtype) -> Argument:
    name = type(value).__name__ if not isinstance(value, np.generic | np.ndarray) else "structured scalar"
    passable(dtype, name)
    return Argument(value, "struct", Evidence("scalar", f"{name} with fields {', '.join(dtype.names or ())}", dtype))


def _page_locked(value: np.ndarray) -> Argument:
    """A host array that devices reach by its address."""
    dtype = passable(value.dtype, "numpy array")
    size = max(1, dtype.itemsize)
    if any(step % size for step in value.strides):
        raise ArgumentError(f"numpy array has strides {value.strides} in bytes, not whole elements of {dtype}; copy it")
    shown, address = f"pinned numpy {_array_words(dtype, value.shape)}", int(value.__array_interface__["data"][0])
    evidence = Evidence("array", shown, dtype, value.ndim, not value.flags.writeable)
    strides = tuple(step // size for step in value.strides)
    contiguous = bool(value.flags.c_contiguous)
    return Argument(value, "memory", evidence, None, address, contiguous, value.shape, strides, address)


def _array_words(dtype: np.dtype, shape: tuple[int, ...]) -> str:
    return f"array of {dtype} with shape {shape}"


def passable(dtype: np.dtype, what: str) -> np.dtype:
    """`dtype`, if a kernel can read its elements.

    Raises
    ------
    ArgumentError
        If they are Python objects, or in another byte order than the device's.
    """
    if dtype.hasobject:
        raise ArgumentError(
            f"{what} has dtype {dtype}: it holds references to Python objects, which a kernel can neither read nor "
            "write; convert it to numbers, as in x.astype('float64')"
        )
    if not dtype.isnative:
        shown = dtype.str if dtype.names is None else dtype
        raise ArgumentError(
            f"{what} has dtype {shown}, which is not in the device's byte order; convert it with "
            f"x.astype({str(dtype.newbyteorder('='))!r})"
        )
    return dtype


def _cupy(value: Any) -> Argument:
    dtype = passable(value.dtype, "cupy array")
    memory = value.data
    strides = tuple(step // max(1, dtype.itemsize) for step in value.strides)
    if any(step % max(1, dtype.itemsize) for step in value.strides):
        raise ArgumentError(f"cupy array has strides {value.strides} in bytes, not whole elements of {dtype}; copy it")
    return Argument(
        value,
        "cupy",
        Evidence("array", f"cupy {_array_words(dtype, value.shape)}", dtype, value.ndim),
        int(memory.device_id),
        int(memory.ptr),
        bool(value.flags.c_contiguous),
        value.shape,
        strides,
        int(memory.mem.ptr),
    )


def torch_dtype(dtype: Any) -> np.dtype | None:
    """NumPy's dtype for a torch dtype, or None where there is none."""
    name = str(dtype).removeprefix("torch.")
    if name == "bool":
        return np.dtype("?")
    alias = {"float8_e4m3fn": "__nv_fp8_e4m3", "float8_e5m2": "__nv_fp8_e5m2", "bfloat16": "__nv_bfloat16"}
    if name in alias:
        return scalar(alias[name])
    try:
        return np.dtype(name)
    except TypeError:
        return None


def _torch(value: Any) -> Argument:
    shape = tuple(value.shape)
    if not value.is_cuda:
        raise ArgumentError(
            f"torch tensor of {value.dtype} with shape {shape} is on {value.device} and this stream is a GPU's; move "
            "it first, with x.cuda()"
        )
    dtype = torch_dtype(value.dtype)
    if dtype is None:
        raise ArgumentError(f"torch tensor has dtype {value.dtype}, which has no C++ equivalent here")
    return Argument(
        value,
        "torch",
        Evidence("array", f"torch {_array_words(dtype, shape)}", dtype, value.dim()),
        value.get_device(),
        value.data_ptr(),
        value.is_contiguous(),
        shape,
        tuple(value.stride()),
        value.untyped_storage().data_ptr(),
    )


def _foreign(value: Any) -> Argument:
    """Objects of other libraries: by what they offer, not by their names."""
    if hasattr(value, "__cuda_array_interface__"):
        return _interface(value)
    core = sys.modules.get("cuda.core")
    if core is not None and isinstance(value, core.Buffer):
        return _buffer(value)
    if hasattr(value, "is_cpu") and hasattr(value, "address"):
        return _arrow(value)
    if core is not None and isinstance(value, core.TensorMapDescriptor):
        return Argument(value, "object", Evidence("object", "tensor map", text="CUtensorMap"))
    emulated = sys.modules.get("cudakit.emulator.resources.tensor_map")
    if emulated is not None and isinstance(value, emulated.EmulatedTensorMap):
        raise ArgumentError(
            "the tensor map is of a NumPy array and this stream is a GPU's; give ck.tensor_map a device array"
        )
    if hasattr(value, "__dlpack_device__"):
        return _dlpack(value)
    if isinstance(value, ctypes.c_void_p) or type(value).__name__ == "CUdeviceptr":
        pointer = (value.value or 0) if isinstance(value, ctypes.c_void_p) else int(value)
        return Argument(value, "object", Evidence("address", f"address {pointer:#x}"), None, pointer, base=pointer)
    if isinstance(value, ctypes._SimpleCData) and getattr(value, "_type_", "") in _CTYPES_NUMBERS:
        return describe(np.dtype(type(value)).type(value.value))
    handle = texture_handle(value)
    if handle is not None:
        if type(value).__module__.startswith("cudakit.emulator"):
            raise ArgumentError(
                f"{type(value).__name__} of a NumPy array is the emulator's and this stream is a GPU's; make it of a "
                "CuPy array"
            )
        return Argument(value, "object", Evidence("scalar", f"{type(value).__name__}", np.dtype("u8")))
    raise ArgumentError(
        f"{type(value).__name__} cannot be a kernel argument; give a CuPy array, a torch tensor, an object with DLPack "
        "or __cuda_array_interface__, a cuda.core Buffer, None, a number, or a struct (dataclass or structured scalar)"
    )


def texture_handle(value: Any) -> int | None:
    """The driver's number of a texture or surface object of cuda.core or CuPy, or None."""
    if type(value).__name__ not in ("TextureObject", "SurfaceObject"):
        return None
    return int(value.ptr) if hasattr(value, "ptr") else int(value.handle)


def _interface(value: Any) -> Argument:
    interface = described(value, "__cuda_array_interface__")
    pointer, readonly = interface["data"]
    shape = tuple(interface["shape"])
    typestr, fields = interface["typestr"], interface.get("descr")
    with exporting(value, "__cuda_array_interface__"):
        dtype = np.dtype(typestr) if not fields or typestr[1] != "V" else np.dtype(fields)
    passable(dtype, type(value).__name__)
    if interface.get("mask") is not None:
        raise ArgumentError(f"{type(value).__name__} is masked; fill it first")
    step = interface.get("strides")
    strides = tuple(s // max(1, dtype.itemsize) for s in step) if step else _row_major(shape)
    with exporting(value, "__cuda_array_interface__"):
        device_id = _device_of(pointer)
    return Argument(
        value,
        "memory",
        Evidence("array", f"{type(value).__name__} {_array_words(dtype, shape)}", dtype, len(shape), bool(readonly)),
        device_id,
        int(pointer or 0),
        _is_row_major(shape, strides),
        shape,
        strides,
        int(pointer or 0),
    )


def _dlpack(value: Any) -> Argument:
    from cuda.core.utils import StridedMemoryView

    kind = dlpack_device(value)
    if kind not in (2, 3, 13):
        raise ArgumentError(
            f"{type(value).__name__} is not in device memory (its DLPack device type is {kind}) and this stream is a "
            "GPU's; move it first, with cupy.asarray(x)"
        )
    with exporting(value, "__dlpack__"):
        view = StridedMemoryView.from_dlpack(value, stream_ptr=-1)
    dtype, shape = passable(np.dtype(view.dtype), type(value).__name__), tuple(view.shape)
    strides = tuple(view.strides) if view.strides is not None else _row_major(shape)
    return Argument(
        value,
        "memory",
        Evidence("array", f"{type(value).__name__} {_array_words(dtype, shape)}", dtype, len(shape), view.readonly),
        view.device_id,
        int(view.ptr),
        _is_row_major(shape, strides),
        shape,
        strides,
        int(view.ptr),
    )


def _buffer(value: Any) -> Argument:
    if value.is_closed:
        raise ArgumentError("the cuda.core Buffer is closed: its memory was freed; allocate it again")
    if not value.is_device_accessible:
        raise ArgumentError("the cuda.core Buffer is host memory that the device cannot reach; copy it first")
    pointer = int(value.handle)
    device_id = value.device_id if not value.is_host_accessible else None
    words = f"cuda.core Buffer of {value.size} bytes"
    return Argument(value, "buffer", Evidence("address", words), device_id, pointer, base=pointer)


def _arrow(value: Any) -> Argument:
    """A buffer of Arrow, which has neither DLPack nor an interface: it tells address and device, and no dtype."""
    if value.is_cpu:
        raise ArgumentError(
            f"a {type(value).__name__} of Arrow in host memory has no dtype; give numpy.frombuffer(x, dtype), and on a "
            "GPU's stream ck.In of that"
        )
    pointer = int(value.address)
    evidence = Evidence("address", f"Arrow {type(value).__name__} of {value.size} bytes", readonly=not value.is_mutable)
    return Argument(value, "buffer", evidence, int(value.device.device_id), pointer, base=pointer)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def _is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    if 0 in shape:
        return True
    pairs = zip(shape, strides, _row_major(shape), strict=True)
    return all(extent == 1 or step == expected for extent, step, expected in pairs)


def _device_of(pointer: int | None) -> int | None:
    """Device of an address, as the driver knows it; None for null and for memory that every device reaches."""
    if not pointer:
        return None
    from cuda.bindings import driver

    ordinal = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, device = driver.cuPointerGetAttribute(ordinal, driver.CUdeviceptr(pointer))
    return int(device) if int(status) == 0 else None
