"""Stand-in for ``pycuda.elementwise``: kernels of C statements that run for all elements of arrays.

The kernels are `SourceModule` texts with a loop over the elements, so the statements may use and change ``i``, and use
``n``, ``tid``, ``cta_start`` and ``total_threads``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from cudakit.adapters.pycuda.c_types import (
    Argument,
    ScalarArg,
    VectorArg,
    complex_header,
    dtype_to_ctype,
    parse_c_arg,
)
from cudakit.adapters.pycuda.compiler import SourceModule
from cudakit.adapters.pycuda.driver import Function
from cudakit.adapters.pycuda.tools import context_dependent_memoize
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.launch.tracebacks import raised_from_call

_Arguments: TypeAlias = str | Sequence[VectorArg | ScalarArg]
_Maker: TypeAlias = Callable[..., Function]
_THREADS, _MOST_BLOCKS = 256, 1024
_slice = slice
_LOOPS = {
    False: ("size_t i", "for (i = cta_start + tid; i < n; i += total_threads)"),
    True: (
        "long long i",
        "for (i = start + (long long)(cta_start + tid) * step; step < 0 ? i > stop : i < stop;\n"
        "         i += (long long)total_threads * step)",
    ),
}
_TEXT = """\
{preamble}

extern "C" __global__ void {name}({arguments})
{{
    size_t tid = threadIdx.x, total_threads = (size_t)gridDim.x * blockDim.x;
    size_t cta_start = (size_t)blockDim.x * blockIdx.x;
    {counter};
    {loop_prep};
    {loop}
    {{
        {operation};
    }}
    {after_loop};
}}
"""


def get_elwise_module(
    arguments: Sequence[VectorArg | ScalarArg],
    operation: str,
    name: str = "kernel",
    keep: bool = False,
    options: Any = None,
    preamble: str = "",
    loop_prep: str = "",
    after_loop: str = "",
    is_range: bool = False,
) -> SourceModule:
    """Return a module with a kernel that runs `operation` for i from 0 to n; the last argument is ``n``."""
    counter, loop = _LOOPS[is_range]
    text = _TEXT.format(
        preamble=preamble, name=name, arguments=", ".join(argument.declarator() for argument in arguments),
        counter=counter, loop_prep=loop_prep, loop=loop, operation=operation, after_loop=after_loop,
    )  # fmt: skip
    text = complex_header(text, str(options)) + text
    return SourceModule(text, options=options, keep=keep, no_extern_c=True)


#: As `get_elwise_module`, with a kernel that runs `operation` for a range of i, its last arguments.
get_elwise_range_module: Callable[..., SourceModule] = functools.partial(get_elwise_module, is_range=True)


def get_elwise_kernel_and_types(
    arguments: _Arguments,
    operation: str,
    name: str = "kernel",
    keep: bool = False,
    options: Any = None,
    use_range: bool = False,
    **kwargs: str,
) -> tuple[SourceModule, Function, list[VectorArg | ScalarArg]]:
    """Return the module, the prepared kernel, and its arguments with those of the loop.

    `kwargs` are `preamble`, `loop_prep` and `after_loop`.
    """
    if isinstance(arguments, str):
        arguments = [parse_c_arg(argument) for argument in arguments.split(",")]
    bounds = [(np.intp, "start"), (np.intp, "stop"), (np.intp, "step")] if use_range else [(np.uintp, "n")]
    declared = [*arguments, *(ScalarArg(dtype, bound) for dtype, bound in bounds)]
    build: Callable[..., SourceModule] = get_elwise_range_module if use_range else get_elwise_module
    module = build(declared, operation, name, keep, options, **kwargs)
    function = module.get_function(name)
    function.prepare("".join(argument.struct_char for argument in declared))
    return module, function, declared


def get_elwise_kernel(
    arguments: _Arguments,
    operation: str,
    name: str = "kernel",
    keep: bool = False,
    options: Any = None,
    **kwargs: Any,
) -> Function:
    """Return the prepared kernel that runs `operation` for all elements; its last argument is ``n``."""
    return get_elwise_kernel_and_types(arguments, operation, name, keep, options, **kwargs)[1]


def checked(name: str, arguments: Sequence[Argument], args: Sequence[Any]) -> tuple[list[Any], Any]:
    """Return the arguments of a call, with numbers in their dtypes, and the first array.

    Parameters
    ----------
    name : str
        Name of the kernel.
    arguments : sequence of Argument
        Arguments of the kernel.
    args : sequence
        Arguments of the call.

    Raises
    ------
    ArgumentError
        The number of arguments, an array's dtype or a number does not fit, or there is no array.
    RuntimeError
        An array is not contiguous.
    """
    if len(args) != len(arguments):
        names = ", ".join(argument.name for argument in arguments)
        raise ArgumentError(f"{name}: expected {len(arguments)} arguments ({names}), got {len(args)}")
    values, first = [], None
    for argument, value in zip(arguments, args, strict=True):
        where = f"{name}: argument {argument.name}"
        if not isinstance(argument, VectorArg):
            values.append(_number(where, argument.dtype, value))
            continue
        if not hasattr(value, "gpudata"):
            raise ArgumentError(
                f"{where}: expected a GPUArray of {argument.dtype}, got {type(value).__name__}: {shortened(value)}; "
                "copy it by gpuarray.to_gpu"
            )
        if value.dtype != argument.dtype and not _are_integers(value.dtype, argument.dtype):
            raise ArgumentError(
                f"{where}: expected a GPUArray of {argument.dtype}, got one of {value.dtype}; convert it by "
                f"x.astype(numpy.{argument.dtype})"
            )
        if not value.flags.forc:
            raise RuntimeError(f"{where}: the array is not contiguous; use x.copy()")
        values.append(value)
        first = value if first is None else first
    if first is None:
        raise ArgumentError(f"{name}: expected at least one array among the arguments")
    return values, first


def _are_integers(dtype: np.dtype, other: np.dtype) -> bool:
    """Return whether both dtypes are integers of one size, whose bytes a kernel may read as either."""
    return dtype.itemsize == other.itemsize and {dtype.kind, other.kind} <= set("iub")


def _number(where: str, dtype: np.dtype, value: Any) -> Any:
    if dtype.kind == "V":
        return value
    number = np.asarray(value)
    if number.ndim or (not np.can_cast(number.dtype, dtype, "same_kind") and number.dtype.kind not in "iub"):
        raise ArgumentError(f"{where}: expected a number of {dtype}, got {type(value).__name__}: {shortened(value)}")
    try:
        return dtype.type(value)
    except (OverflowError, ValueError) as error:
        raise ArgumentError(f"{where}: expected a number of {dtype}, got {shortened(value)}: {error}") from None


class ElementwiseKernel:
    """A kernel of C statements that run for all elements ``i`` of its arrays.

    Parameters
    ----------
    arguments : str or sequence of VectorArg and ScalarArg
        C declarations, such as ``"float a, float *x"``.
    operation : str
        C statements, such as ``"x[i] = a * x[i]"``.
    name : str
        Name of the kernel.
    keep : bool
        Whether the compiler keeps its files.
    options : sequence of str, optional
        Options of the compiler.
    **kwargs : str
        `preamble`, `loop_prep` and `after_loop`: C++ before the kernel, before its loop and after its loop.
    """

    gen_kwargs: dict[str, Any]

    def __init__(
        self,
        arguments: _Arguments,
        operation: str,
        name: str = "kernel",
        keep: bool = False,
        options: Any = None,
        **kwargs: str,
    ) -> None:
        self.gen_kwargs = {
            **kwargs, "keep": keep, "options": options, "name": name, "operation": operation, "arguments": arguments,
        }  # fmt: skip
        self._generated: dict[bool, tuple[SourceModule, Function, list[VectorArg | ScalarArg]]] = {}

    def get_texref(self, name: str, use_range: bool = False) -> Any:
        """Return the texture reference with this name in the kernel's preamble."""
        return self.generate_stride_kernel_and_types(use_range)[0].get_texref(name)

    def generate_stride_kernel_and_types(
        self, use_range: bool
    ) -> tuple[SourceModule, Function, list[VectorArg | ScalarArg]]:
        """Return the module, the kernel and its arguments; compiled at the first call."""
        if use_range not in self._generated:
            self._generated[use_range] = get_elwise_kernel_and_types(use_range=use_range, **self.gen_kwargs)
        return self._generated[use_range]

    @raised_from_call
    def __call__(self, *args: Any, range: slice | None = None, slice: slice | None = None, stream: Any = None) -> None:
        """Run the statements for all elements of the first array, or for those of a range or a slice.

        Parameters
        ----------
        *args : GPUArray or number
            Arguments of the kernel. Arrays are contiguous.
        range : slice, optional
            Values of ``i``: start, stop and step as they are.
        slice : slice, optional
            Values of ``i``, with Python's rules for the size of the first array.
        stream : Stream, optional
            Stream to run on. Default: the default stream.

        Raises
        ------
        ArgumentError
            An argument does not fit.
        RuntimeError
            An array is not contiguous.
        """
        is_range, name = range is not None or slice is not None, self.gen_kwargs["name"]
        _, function, declared = self.generate_stride_kernel_and_types(is_range)
        values, first = checked(name, declared[: -3 if is_range else -1], args)
        if slice is not None and range is not None:
            raise TypeError(f"{name}: expected range= or slice=, got both")
        if slice is not None:
            range = _slice(*slice.indices(first.size))
        if range is not None:
            bounds = range.start or 0, range.stop, range.step or 1
            count = -((bounds[0] - bounds[1]) // bounds[2])
            values += map(np.intp, bounds)
        else:
            count = first.mem_size
            values.append(np.uintp(count))
        if count > 0:
            blocks = min(-(-count // _THREADS), _MOST_BLOCKS)
            function(*values, block=(_THREADS, 1, 1), grid=(blocks, 1), stream=stream)


def _of_dtypes(names: str, arguments: str, operation: str, name: str) -> Callable[..., Function]:
    """Return a function from dtypes to the prepared kernel.

    Parameters
    ----------
    names : str
        Parameters of the function: dtypes, or texts.
    arguments, operation, name : str
        Declarations, statements and name of the kernel. ``{dtype_x}`` is the C type of that parameter, or its text.
    """
    parameters = names.split()

    def get(*args: Any, **kwargs: Any) -> Function:
        values = {**dict(zip(parameters, args, strict=False)), **kwargs}
        if len(args) > len(parameters) or values.keys() != set(parameters):
            raise ArgumentError(f"{name}: expected {', '.join(parameters)}; got {len(args)} values and {[*kwargs]}")
        texts = {key: value if isinstance(value, str) else dtype_to_ctype(value) for key, value in values.items()}
        return get_elwise_kernel(arguments.format(**texts), operation.format(**texts), name.format(**texts))

    get.__doc__ = f"Return the prepared kernel of ``{operation}``. Parameters: {', '.join(parameters)}."
    return context_dependent_memoize(get)


_ONE = "{dtype} *y, {dtype} *z"
_REAL = "{dtype} *y, {real_dtype} *z"
_THREE = "{dtype_x} *x, {dtype_y} *y, {dtype_z} *z"
_CHOICE = "{crit_dtype} *crit, {dtype} *then_, {dtype} *else_, {dtype} *result"
get_copy_kernel: _Maker = _of_dtypes(
    "dtype_dest dtype_src", "{dtype_dest} *dest, {dtype_src} *src", "dest[i] = src[i]", "copy"
)
get_axpbz_kernel: _Maker = _of_dtypes(
    "dtype_x dtype_z", "{dtype_z} a, {dtype_x} *x, {dtype_z} b, {dtype_z} *z", "z[i] = a * x[i] + b", "axpbz"
)
get_rdivide_elwise_kernel: _Maker = _of_dtypes(
    "dtype_x dtype_z", "{dtype_x} *x, {dtype_z} y, {dtype_z} *z", "z[i] = y / x[i]", "rdivide"
)
get_binary_func_kernel: _Maker = _of_dtypes(
    "func dtype_x dtype_y dtype_z", _THREE, "z[i] = {func}(x[i], y[i])", "{func}_arrays"
)
get_binary_func_scalar_kernel: _Maker = _of_dtypes(
    "func dtype_x dtype_y dtype_z", "{dtype_x} *x, {dtype_y} y, {dtype_z} *z", "z[i] = {func}(x[i], y)", "{func}_number"
)
get_fill_kernel: _Maker = _of_dtypes("dtype", "{dtype} a, {dtype} *z", "z[i] = a", "fill")
get_reverse_kernel: _Maker = _of_dtypes("dtype", _ONE, "z[i] = y[n - 1 - i]", "reverse")
get_real_kernel: _Maker = _of_dtypes("dtype real_dtype", _REAL, "z[i] = real(y[i])", "real_part")
get_imag_kernel: _Maker = _of_dtypes("dtype real_dtype", _REAL, "z[i] = imag(y[i])", "imag_part")
get_conj_kernel: _Maker = _of_dtypes(
    "dtype conj_dtype", "{dtype} *y, {conj_dtype} *z", "z[i] = pycuda::conj(y[i])", "conjugate"
)
get_arange_kernel: _Maker = _of_dtypes(
    "dtype", "{dtype} *z, {dtype} start, {dtype} step", "z[i] = start + ({dtype})i * step", "arange"
)
get_fmod_kernel: _Maker = _of_dtypes(
    "", "float *arg, float *mod, float *z", "z[i] = fmodf(arg[i], mod[i])", "fmod_kernel"
)
get_modf_kernel: _Maker = _of_dtypes(
    "", "float *x, float *intpart, float *fracpart", "fracpart[i] = modff(x[i], &intpart[i])", "modf_kernel"
)
get_frexp_kernel: _Maker = _of_dtypes(
    "", "float *x, float *significand, float *exponent",
    "int power; significand[i] = frexpf(x[i], &power); exponent[i] = power", "frexp_kernel",
)  # fmt: skip
get_ldexp_kernel: _Maker = _of_dtypes(
    "", "float *sig, float *expt, float *z", "z[i] = ldexpf(sig[i], (int)expt[i])", "ldexp_kernel"
)
get_if_positive_kernel: _Maker = _of_dtypes(
    "crit_dtype dtype", _CHOICE, "result[i] = crit[i] > 0 ? then_[i] : else_[i]", "if_positive"
)
get_where_kernel: _Maker = _of_dtypes(
    "crit_dtype dtype", _CHOICE, "result[i] = crit[i] != 0 ? then_[i] : else_[i]", "where"
)
get_scalar_op_kernel: _Maker = _of_dtypes(
    "dtype_x dtype_a dtype_y operator", "{dtype_x} *x, {dtype_a} a, {dtype_y} *y",
    "y[i] = x[i] {operator} a", "scalar_operation",
)  # fmt: skip
get_logical_not_kernel: _Maker = _of_dtypes(
    "dtype_x dtype_out", "{dtype_x} *x, {dtype_out} *out", "out[i] = x[i] == 0", "logical_not"
)
_unary = _of_dtypes("func in_dtype out_dtype", "{in_dtype} *y, {out_dtype} *z", "z[i] = {func}(y[i])", "{func}_kernel")


def get_unary_func_kernel(func_name: str, in_dtype: Any, out_dtype: Any = None) -> Function:
    """Return the prepared kernel of ``z[i] = func_name(y[i])``."""
    return _unary(func_name, in_dtype, in_dtype if out_dtype is None else out_dtype)


def get_binary_minmax_kernel(func: str, dtype_x: Any, dtype_y: Any, dtype_z: Any, use_scalar: bool) -> Function:
    """Return the prepared kernel of the smaller or larger of x and y; `func` is ``"min"`` or ``"max"``."""
    dtypes = [np.dtype(dtype) for dtype in (dtype_x, dtype_y, dtype_z)]
    if any(dtype.kind == "f" for dtype in dtypes):
        func = f"f{func}" if np.float64 in dtypes[:2] else f"f{func}f"
    return (get_binary_func_scalar_kernel if use_scalar else get_binary_func_kernel)(func, *dtypes)


def _operand(name: str, dtype: Any, dtype_z: Any, is_scalar: bool) -> str:
    """Return x[i] as a number of the result; real where only the result is complex."""
    dtype, dtype_z = np.dtype(dtype), np.dtype(dtype_z)
    target = dtype_z.type(0).real.dtype if dtype_z.kind == "c" != dtype.kind else dtype_z
    return f"({dtype_to_ctype(target)}){name}[{0 if is_scalar else 'i'}]"


@context_dependent_memoize
def get_axpbyz_kernel(
    dtype_x: Any, dtype_y: Any, dtype_z: Any, x_is_scalar: bool = False, y_is_scalar: bool = False
) -> Function:
    """Return the prepared kernel of ``z[i] = a * x[i] + b * y[i]``; an array that is a scalar has one element."""
    types = [dtype_to_ctype(dtype) for dtype in (dtype_x, dtype_y, dtype_z)]
    x, y = _operand("x", dtype_x, dtype_z, x_is_scalar), _operand("y", dtype_y, dtype_z, y_is_scalar)
    a, b = (part.partition(")")[0] + ")" for part in (x, y))
    return get_elwise_kernel(
        "{0} a, {0} *x, {1} b, {1} *y, {2} *z".format(*types), f"z[i] = {a}a * ({x}) + {b}b * ({y})", "axpbyz"
    )


@context_dependent_memoize
def get_binary_op_kernel(
    dtype_x: Any, dtype_y: Any, dtype_z: Any, operator: str, x_is_scalar: bool = False, y_is_scalar: bool = False
) -> Function:
    """Return the prepared kernel of ``z[i] = x[i] operator y[i]``; an array that is a scalar has one element."""
    types = [dtype_to_ctype(dtype) for dtype in (dtype_x, dtype_y, dtype_z)]
    x, y = _operand("x", dtype_x, dtype_z, x_is_scalar), _operand("y", dtype_y, dtype_z, y_is_scalar)
    return get_elwise_kernel(
        f"{types[0]} *x, {types[1]} *y, {types[2]} *z", f"z[i] = ({types[2]})({x} {operator} {y})", "binary_operation"
    )


@context_dependent_memoize
def get_pow_array_kernel(dtype_x: Any, dtype_y: Any, dtype_z: Any, is_base_array: bool, is_exp_array: bool) -> Function:
    """Return the prepared kernel of ``z[i] = x ** y``, where x, y or both are arrays."""
    if not (is_base_array or is_exp_array):
        raise ArgumentError("get_pow_array_kernel: expected an array as the base or as the exponent")
    (x, of_x), (y, of_y) = (("*", "[i]") if is_array else ("", "") for is_array in (is_base_array, is_exp_array))
    types = [dtype_to_ctype(dtype) for dtype in (dtype_x, dtype_y, dtype_z)]
    power = "powf" if np.dtype(dtype_z) == np.float32 else "pow"
    declared = f"{types[0]} {x}x, {types[1]} {y}y, {types[2]} *z"
    return get_elwise_kernel(declared, f"z[i] = {power}(x{of_x}, y{of_y})", "pow_method")


@context_dependent_memoize
def get_put_kernel(dtype: Any, idx_dtype: Any, vec_count: int = 1) -> Function:
    """Return the prepared kernel of ``dest[index[i]] = src[i]``, for `vec_count` pairs of arrays."""
    pairs = range(vec_count)
    declared = [VectorArg(idx_dtype, "gmem_dest_idx"), *(VectorArg(dtype, f"dest{k}") for k in pairs)]
    declared += [VectorArg(dtype, f"src{k}") for k in pairs]
    return get_elwise_kernel(declared, ";\n".join(f"dest{k}[gmem_dest_idx[i]] = src{k}[i]" for k in pairs), "put")


def _with_textures(
    arguments: list[VectorArg | ScalarArg], operation: str, name: str, textures: Sequence[Any], loop_prep: str = ""
) -> tuple[Function, list[Any]]:
    """Return a prepared kernel that reads textures ``source0``, ``source1``, … of dtypes, and their references."""
    declared = [*arguments, ScalarArg(np.uintp, "n")]
    lines = [
        f"texture<{dtype_to_ctype(dtype, with_fp_tex_hack=True)}, 1, cudaReadModeElementType> source{k};"
        for k, dtype in enumerate(textures)
    ]
    preamble = "\n".join(["#include <pycuda-helpers.hpp>", *lines])
    module = get_elwise_module(declared, operation, name, preamble=preamble, loop_prep=loop_prep)
    function, references = module.get_function(name), [module.get_texref(f"source{k}") for k in range(len(textures))]
    function.prepare("".join(argument.struct_char for argument in declared), texrefs=references)
    return function, references


@context_dependent_memoize
def get_take_kernel(dtype: Any, idx_dtype: Any, vec_count: int = 1) -> tuple[Function, list[Any]]:
    """Return the prepared kernel of ``dest[i] = texture[idx[i]]``, for several pairs, and the textures' references."""
    arrays = range(vec_count)
    arguments = [VectorArg(idx_dtype, "idx"), *(VectorArg(dtype, f"dest{k}") for k in arrays)]
    lines = [f"dest{k}[i] = fp_tex1Dfetch(source{k}, idx[i])" for k in arrays]
    return _with_textures([*arguments], ";\n".join(lines), "take", [dtype] * vec_count)


@context_dependent_memoize
def get_take_put_kernel(
    dtype: Any, idx_dtype: Any, with_offsets: bool, vec_count: int = 1
) -> tuple[Function, list[Any]]:
    """Return the prepared kernel of ``dest[dest_idx[i]] = texture[src_idx[i] + offset]``, and the references."""
    arrays = range(vec_count)
    arguments: list[VectorArg | ScalarArg] = [VectorArg(idx_dtype, f"gmem_{end}_idx") for end in ("dest", "src")]
    arguments += [VectorArg(dtype, f"dest{k}") for k in arrays]
    arguments += [ScalarArg(idx_dtype, f"offset{k}") for k in arrays if with_offsets]
    lines = [
        f"dest{k}[gmem_dest_idx[i]] = fp_tex1Dfetch(source{k}, gmem_src_idx[i]{f' + offset{k}' * with_offsets})"
        for k in arrays
    ]
    return _with_textures(arguments, ";\n".join(lines), "take_put", [dtype] * vec_count)


@context_dependent_memoize
def get_linear_combination_kernel(
    summand_descriptors: Sequence[tuple[bool, Any, Any]], dtype_z: Any
) -> tuple[Function, list[Any]]:
    """Return the prepared kernel of ``z[i] = a0 * x0[i] + a1 * x1[i] + …``, and references of the textures.

    Parameters
    ----------
    summand_descriptors : sequence of tuple
        Whether the factor is an element of a texture, the factor's dtype, and the array's dtype.
    dtype_z : dtype
        Dtype of the result.
    """
    arguments: list[VectorArg | ScalarArg] = []
    factors: list[str] = []
    textures: list[Any] = []
    for k, (is_texture, scalar_dtype, vector_dtype) in enumerate(summand_descriptors):
        if is_texture:
            factors.append(f"{dtype_to_ctype(scalar_dtype)} a{k} = fp_tex1Dfetch(source{len(textures)}, 0)")
            textures.append(scalar_dtype)
        else:
            arguments.append(ScalarArg(scalar_dtype, f"a{k}"))
        arguments.append(VectorArg(vector_dtype, f"x{k}"))
    arguments.append(VectorArg(dtype_z, "z"))
    total = " + ".join(f"a{k} * x{k}[i]" for k in range(len(summand_descriptors)))
    return _with_textures(arguments, f"z[i] = {total}", "linear_combination", textures, ";\n".join(factors))
