"""Python objects as kernel arguments: their types for deduction, and their addresses or bytes.

Arrays of other libraries are recognized by the protocols that they export: the array interfaces and DLPack. Broken
descriptions are refused. `as_numpy` reads arrays in host memory; `is_page_locked` says which of them devices can reach.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from cudakit.errors import ArgumentError, CudakitError, error_text, shortened
from cudakit.records import NamedTuple
from cudakit.types import structs
from cudakit.types.cpp import ML_SPELLINGS, scalar
from cudakit.types.scalars import is_masked

if TYPE_CHECKING:
    from cudakit.types.tensors import TensorLayout

_MOST = 2**63 - 1


def described(value: Any, protocol: str) -> Mapping[str, Any]:
    """Return an object's ``__array_interface__`` or ``__cuda_array_interface__``, checked.

    Raises
    ------
    ArgumentError
        If a field is missing or wrong; the message names the field.
    """
    try:
        interface = getattr(value, protocol)
    except Exception as error:
        raise _broken(value, protocol, f"it raises {type(error).__name__}: {error_text(error)}") from error
    if not isinstance(interface, Mapping):
        raise _broken(value, protocol, f"it is a dict, got {shortened(interface)}")
    for field in ("shape", "typestr", *(["data"] if protocol == "__cuda_array_interface__" else [])):
        if field not in interface:
            raise _broken(value, protocol, f"{field!r} is missing")
    shape, data, strides = interface["shape"], interface.get("data"), interface.get("strides")
    if not isinstance(shape, tuple) or not all(_is_whole(extent, 0) for extent in shape):
        raise _broken(value, protocol, f"'shape' is a tuple of ints from 0 up, got {shortened(shape)}")
    if strides is not None and (
        not isinstance(strides, tuple | list)
        or len(strides) != len(shape)
        or not all(_is_whole(step, -_MOST) for step in strides)
    ):
        raise _broken(value, protocol, f"'strides' is None or an int for each axis, in bytes, got {shortened(strides)}")
    try:
        if not isinstance(interface["typestr"], str | np.dtype):
            raise TypeError("not a str")
        np.dtype(interface["typestr"])
    except Exception:
        raise _broken(value, protocol, f"'typestr' is as '<f4', got {shortened(interface['typestr'])}") from None
    # Host memory may be described by the buffer protocol instead.
    if isinstance(data, tuple) or protocol == "__cuda_array_interface__":
        if not isinstance(data, tuple) or len(data) != 2:
            raise _broken(value, protocol, f"'data' is (address, whether it is read-only), got {shortened(data)}")
        address, is_host = data[0], protocol == "__array_interface__"
        # A kernel may take a null pointer; host memory is read, and may not be null.
        least = int(is_host and 0 not in shape)
        if not ((address is None and 0 in shape) or _is_whole(address, least)):
            raise _broken(value, protocol, f"its address is a number from {least} up, got {shortened(address)}")
    return interface


@contextlib.contextmanager
def exporting(value: Any, protocol: str) -> Iterator[None]:
    """Convert exceptions that an object raises while it exports its memory to cudakit's errors."""
    try:
        yield
    except CudakitError:
        raise
    except Exception as error:
        text = error_text(error)
        if "InsufficientDriver" in text or "driver library" in text:
            raise ArgumentError(
                f"{type(value).__name__} is in device memory, and there is no CUDA driver here; give a NumPy array"
            ) from error
        if any("CUDA" in base.__name__ for base in type(error).__mro__):
            raise  # the driver's own, such as a lost context
        raise _broken(value, protocol, f"it raises {type(error).__name__}: {error_text(error)}") from error


def device_array_of(value: Any) -> Any:
    """Return a CuPy array that shares the memory of an object on a device.

    Raises
    ------
    ArgumentError
        If the object describes its memory wrongly, or fails to export it.
    """
    import cupy  # a program with such an object has mostly loaded it

    if _is_torch(value) and (dtype := _dtype_of_torch(value)).name.startswith("float8"):
        # torch exports no fp8.
        with exporting(value, "__cuda_array_interface__"):
            return cupy.asarray(value.view(sys.modules["torch"].uint8)).view(dtype)
    if is_on_device(value):
        described(value, "__cuda_array_interface__")
        with exporting(value, "__cuda_array_interface__"):
            return cupy.asarray(value)
    with exporting(value, "__dlpack__"):
        return cupy.from_dlpack(value)


def is_on_device(value: Any) -> bool:
    """Return whether an object exports device memory. A tensor of torch does so if torch exports its dtype or not."""
    return bool(value.is_cuda) if _is_torch(value) else hasattr(value, "__cuda_array_interface__")


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "data_ptr")


def dlpack_device(value: Any) -> int:
    """Return DLPack's code for the type of device that has an object's memory: 1 for the CPU, 2 for CUDA.

    Raises
    ------
    ArgumentError
        If the object raises an error.
    """
    with exporting(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0])


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and least <= int(value) <= _MOST


def _broken(value: Any, protocol: str, why: str) -> ArgumentError:
    return ArgumentError(
        f"{type(value).__name__} cannot be used as an array, its {protocol} is broken: {why}; give a NumPy or a CuPy "
        "array in its place"
    )


#: Number of arrays that are registered with the driver. At 0, no memory that NumPy has allocated is page-locked.
_registered = [0]


def count_registered(change: int) -> None:
    """Add `change` to the number of arrays that are registered with the driver: +1 or -1."""
    _registered[0] += change


def is_page_locked(host: np.ndarray) -> bool:
    """Return whether the driver has an array's memory page-locked, so that devices reach it directly.

    True for an empty array.
    """
    if not host.nbytes:
        return True
    # Memory of NumPy's own is not page-locked; asking the driver takes some microseconds.
    owner: Any = host
    if type(host) is not np.ndarray and is_masked(host):
        return False
    while isinstance(owner, np.ndarray):
        if owner.flags.owndata and not _registered[0]:
            return False
        owner = owner.base
    if getattr(owner, "is_page_locked", False):
        return True
    from cuda.bindings import driver

    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    try:
        status, memory_type = driver.cuPointerGetAttribute(attribute, host.__array_interface__["data"][0])
    except RuntimeError:  # there is no driver
        return False
    return int(status) == 0 and int(memory_type) == int(driver.CUmemorytype.CU_MEMORYTYPE_HOST)


Family: TypeAlias = Literal["cupy", "torch", "memory", "buffer", "none", "number", "struct", "text", "object", "tuple"]


class Evidence(NamedTuple):
    """Type information of one argument, without its data.

    Attributes
    ----------
    category : str
        ``array``: memory with a dtype. ``scalar``: a typed scalar or struct. ``weak``: a Python number, which follows
        the other arguments. ``functor``: C++ source of a function object. ``address``: memory without a dtype, or None.
        ``object``: a texture object or a tensor map, which has a type of CUDA's own.
    shown : str
        Description of the argument, for errors.
    dtype : numpy.dtype or None
        Dtype of the elements or of the scalar.
    rank : int
        Number of dimensions of an array.
    readonly : bool
        Whether the memory may not be written.
    python_type : type or None
        bool, int, float or complex, for ``weak``.
    text : str
        C++ source of a functor, or C++ type of an object.
    layout : TensorLayout or None
        Layout of an array that a tile kernel takes as a tensor.
    """

    category: Literal["array", "scalar", "weak", "functor", "address", "object"]
    shown: str
    dtype: np.dtype | None = None
    rank: int = 0
    readonly: bool = False
    python_type: type | None = None
    text: str = ""
    layout: TensorLayout | None = None


class Argument(NamedTuple):
    """A kernel argument and its description.

    Attributes
    ----------
    value : object
        The user's object.
    family : str
        Family of the object; decides how a launch reads it.
    evidence : Evidence
        Type information.
    device_id : int or None
        Device of the memory.
    pointer : int
        Address of the memory.
    contiguous : bool
        Whether the memory is C-contiguous.
    shape, strides : tuple of int
        Shape and strides of an array; strides in elements.
    base : int
        Address of the allocation, for the order between streams.
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
#: Type codes of ctypes' numbers; other codes are text, pointers and objects.
_CTYPES_NUMBERS = frozenset("?bBhHiIlLqQfdg")


def describe(value: Any) -> Argument:
    """Describe a kernel argument.

    Raises
    ------
    ArgumentError
        For an object that no kernel can take; the message says how to convert it.
    """
    value_class = type(value)
    if value_class in _WEAK_TYPES:
        return _number(value)
    if value is None:
        return Argument(value, "none", Evidence("address", "None"))
    root = value_class.__module__.partition(".")[0]
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
    if isinstance(value, np.generic) or value_class.__module__ == "ml_dtypes":
        dtype = np.dtype(value_class) if not isinstance(value, np.generic) else value.dtype
        return Argument(value, "number", Evidence("scalar", f"{dtype} {value}", dtype))
    if isinstance(value, _WEAK_TYPES):
        return _number(value)
    if isinstance(value, str):
        return Argument(value, "text", Evidence("functor", shortened(value), text=value))
    if isinstance(value, tuple | list):
        return Argument(value, "tuple", Evidence("object", f"{value_class.__name__} {shortened(value)}"))
    struct_type: Any = value_class
    if structs.is_struct_type(struct_type):
        return _struct(value, structs.struct_dtype(struct_type))
    return _foreign(value)


def _number(value: Any) -> Argument:
    number_class = next(weak for weak in _WEAK_TYPES if isinstance(value, weak))
    dtype = None
    if number_class is int and not -(2**31) <= value < 2**31:
        # An int literal beyond C++'s int has the next type that can hold it.
        dtype = np.dtype("i8") if value < 2**63 else np.dtype("u8")
    words = f"{shortened(value)}, a Python {number_class.__name__}"
    return Argument(value, "number", Evidence("weak", words, dtype, python_type=number_class))


def components(value: np.ndarray) -> Argument:
    """Describe a host array whose elements are passed by value, as those of a tuple are."""
    return Argument(value, "tuple", Evidence("object", f"numpy {_array_words(value.dtype, value.shape)}"))


def _struct(value: Any, dtype: np.dtype) -> Argument:
    name = type(value).__name__ if not isinstance(value, np.generic | np.ndarray) else "structured scalar"
    passable(dtype, name)
    return Argument(value, "struct", Evidence("scalar", f"{name} with fields {', '.join(dtype.names or ())}", dtype))


def _page_locked(value: np.ndarray) -> Argument:
    """Describe a host array whose address devices can use."""
    dtype = passable(value.dtype, "numpy array")
    address, strides = pointer_of(value), _in_elements("numpy", value.shape, value.strides, dtype)
    return _memory(value, "pinned numpy", dtype, value.shape, strides, not value.flags.writeable, None, address)


def _memory(
    value: Any,
    name: str,
    dtype: np.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    readonly: bool,
    device_id: int | None,
    address: int,
) -> Argument:
    """Describe an array by its address. The API of its library is not needed.

    `name` is the library's name for such an object, for errors. `strides` are in elements.
    """
    evidence = Evidence("array", f"{name} {_array_words(dtype, shape)}", dtype, len(shape), readonly)
    contiguous = _is_row_major(shape, strides)
    return Argument(value, "memory", evidence, device_id, address, contiguous, shape, strides, address)


def _in_elements(name: str, shape: tuple[int, ...], strides: Sequence[int], dtype: np.dtype) -> tuple[int, ...]:
    """Convert strides from bytes to elements; the stride of an axis of extent 1 is not checked.

    Raises
    ------
    ArgumentError
        For strides that are not whole elements.
    """
    size = max(1, dtype.itemsize)
    if any(step % size and extent > 1 for step, extent in zip(strides, shape, strict=True)):
        shown = tuple(strides)
        raise ArgumentError(f"{name} array has strides {shown} in bytes, not whole elements of {dtype}; copy it")
    return tuple(step // size for step in strides)


def _array_words(dtype: np.dtype, shape: tuple[int, ...]) -> str:
    return f"array of {dtype} with shape {shape}"


def passable(dtype: np.dtype, name: str) -> np.dtype:
    """Return `dtype` if a kernel can read its elements.

    Raises
    ------
    ArgumentError
        If the elements are Python objects, or in another byte order than the device's.
    """
    if dtype.hasobject:
        raise ArgumentError(
            f"{name} has dtype {dtype}: it holds references to Python objects, which a kernel can neither read nor "
            "write; convert it to numbers, as in x.astype('float64')"
        )
    if not dtype.isnative:
        shown = dtype.str if dtype.names is None else dtype
        raise ArgumentError(
            f"{name} has dtype {shown}, which is not in the device's byte order; convert it with "
            f"x.astype({str(dtype.newbyteorder('='))!r})"
        )
    return dtype


def _cupy(value: Any) -> Argument:
    dtype = passable(value.dtype, "cupy array")
    memory = value.data
    return Argument(
        value,
        "cupy",
        Evidence("array", f"cupy {_array_words(dtype, value.shape)}", dtype, value.ndim),
        int(memory.device_id),
        int(memory.ptr),
        bool(value.flags.c_contiguous),
        value.shape,
        _in_elements("cupy", value.shape, value.strides, dtype),
        int(memory.mem.ptr),
    )


def _dtype_of_torch(value: Any) -> np.dtype:
    dtype = torch_dtype(value.dtype)
    if dtype is None:
        raise ArgumentError(f"torch tensor has dtype {value.dtype}, which has no C++ equivalent here")
    return dtype


def torch_dtype(dtype: Any) -> np.dtype | None:
    """Return NumPy's dtype for a torch dtype, or None if NumPy has none."""
    name = str(dtype).removeprefix("torch.")
    if name in ML_SPELLINGS:
        return scalar(ML_SPELLINGS[name])
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
    dtype = _dtype_of_torch(value)
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
    """Describe an object of another library by the protocols that it has, not by its class."""
    if hasattr(value, "__cuda_array_interface__"):
        return _interface(value)
    core = sys.modules.get("cuda.core")
    if core is not None and isinstance(value, core.Buffer):
        return _buffer(value)
    if hasattr(value, "is_cpu") and hasattr(value, "address"):
        return _arrow(value)
    if core is not None and isinstance(value, core.TensorMapDescriptor):
        return Argument(value, "object", Evidence("object", "tensor map", text="CUtensorMap"))
    emulated = sys.modules.get("cudakit.emulator.resources.texture")
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
    """Return the driver's handle of a texture or surface object of cuda.core or CuPy, or None."""
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
        strides = _in_elements(type(value).__name__, shape, step, dtype) if step else _row_major(shape)
        device_id = _device_of(pointer)
    return _memory(value, type(value).__name__, dtype, shape, strides, bool(readonly), device_id, int(pointer or 0))


def _dlpack(value: Any) -> Argument:
    from cuda.core.utils import StridedMemoryView

    device_type = dlpack_device(value)
    if device_type not in (2, 3, 13):
        raise ArgumentError(
            f"{type(value).__name__} is not in device memory (its DLPack device type is {device_type}) and this stream "
            "is a GPU's; move it first, with cupy.asarray(x)"
        )
    with exporting(value, "__dlpack__"):
        view = StridedMemoryView.from_dlpack(value, stream_ptr=-1)
    dtype, shape = passable(np.dtype(view.dtype), type(value).__name__), tuple(view.shape)
    strides = tuple(view.strides) if view.strides is not None else _row_major(shape)
    return _memory(value, type(value).__name__, dtype, shape, strides, view.readonly, view.device_id, int(view.ptr))


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
    """Describe an Arrow buffer, which has an address and a device, but no dtype, no DLPack and no array interface."""
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
    """Return the device of an address by the driver; None for null and for memory that every device reaches."""
    if not pointer:
        return None
    from cuda.bindings import driver

    ordinal = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, device = driver.cuPointerGetAttribute(ordinal, driver.CUdeviceptr(pointer))
    return int(device) if int(status) == 0 else None


#: DLPack's device types of memory that the host reaches: CPU, pinned.
_HOST_DEVICE_TYPES = (1, 3)


def as_numpy(value: Any) -> np.ndarray | None:
    """Return the host array that `value` is or exports, sharing its memory; None for any other object.

    A structured array without dimensions is a struct, not an array.

    Raises
    ------
    ArgumentError
        For a masked array.
    """
    if isinstance(value, np.ndarray):
        refuse_masked(value)
        return None if value.shape == () and value.dtype.names is not None else value
    if isinstance(value, np.generic):
        return None
    if _is_torch(value):
        return None if value.is_cuda else _of_torch(value)
    if _has(value, "__dlpack_device__") and dlpack_device(value) in _HOST_DEVICE_TYPES:
        with exporting(value, "__dlpack__"):
            return np.from_dlpack(value)
    if not _has(value, "__array_interface__"):
        return None
    described(value, "__array_interface__")
    with exporting(value, "__array_interface__"):
        return np.asarray(value)


def _has(value: Any, name: str) -> bool:
    """Return whether an object has an attribute; False if the attribute raises."""
    try:
        return hasattr(value, name)
    except Exception:
        return False


def pointer_of(array: np.ndarray) -> int:
    """Return the address of an array's first element: as ``array.ctypes.data``, in a quarter of the time.

    NumPy's ABI stores it first after the object header (``PyArrayObject_fields``, ndarraytypes.h).
    """
    return ctypes.c_void_p.from_address(id(array) + object.__basicsize__).value or 0


def refuse_masked(array: Any) -> None:
    """Raise for a masked array: a kernel ignores the mask, and would read masked elements as data.

    Raises
    ------
    ArgumentError
    """
    if type(array) is not np.ndarray and is_masked(array):
        raise ArgumentError(
            "a masked array's mask would be lost; give x.filled(value), x.compressed(), or x.data and the mask as "
            "another array"
        )


def _of_torch(value: Any) -> np.ndarray:
    """Return a host tensor of torch as a NumPy array, also of dtypes that DLPack in NumPy lacks (bfloat16, fp8)."""
    dtype = _dtype_of_torch(value)
    interface = {
        "data": (value.data_ptr(), False),
        "shape": tuple(value.shape),
        "strides": tuple(step * dtype.itemsize for step in value.stride()),
        "typestr": f"|V{dtype.itemsize}",
        "version": 3,
    }
    return np.asarray(Exported(value, interface)).view(dtype)


class Exported:
    """Host memory of an array or a tensor, exported to NumPy; keeps the owner alive."""

    def __init__(self, owner: Any, interface: dict[str, Any]) -> None:
        self.owner, self.__array_interface__ = owner, interface
