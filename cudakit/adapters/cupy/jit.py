"""A stand-in for ``cupyx.jit``: kernels of Python functions, translated to CUDA C++ for each set of argument types."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import operator
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np

from cudakit.adapters.cupy.arrays import ndarray, refuse_host_arrays, ufunc
from cudakit.adapters.cupy.capture import CAPTURE
from cudakit.adapters.cupy.device import current_stream
from cudakit.adapters.cupy.modules import Module
from cudakit.errors import TemplateError
from cudakit.jit.load.config import config
from cudakit.jit.source.source import from_text
from cudakit.kernel.kernel import Kernel, of_source
from cudakit.types.cpp import spelling

_HEAD = """
#include <cooperative_groups.h>
#include <cuda/std/type_traits>
#include <cudakit/ufunc/all.cuh>

namespace cupyx_jit {
template <class T> using value = cuda::std::remove_cv_t<cuda::std::remove_reference_t<T>>;
template <class T, int N> struct Array {
    T* first;
    long long extent[N < 1 ? 1 : N], step[N < 1 ? 1 : N];
    static constexpr int ndim = N;
    template <class... I> __device__ T& operator()(I... index) const {
        const long long at[] = {static_cast<long long>(index)..., 0};
        long long offset = 0;
        for (int k = 0; k < N; ++k) offset += at[k] * step[k];
        return first[offset];
    }
    __device__ long long size() const {
        long long count = 1;
        for (int k = 0; k < N; ++k) count *= extent[k];
        return count;
    }
};
// A number of Python's beside a T: of T if both are floating, as NumPy has it.
template <class T> __device__ auto weak(double number) {
    if constexpr (cuda::std::is_arithmetic_v<value<T>> && !cuda::std::is_floating_point_v<value<T>>) return number;
    else return value<T>(number);
}
template <class A, class B> __device__ auto divide(A a, B b) {
    if constexpr (cuda::std::is_integral_v<A> && cuda::std::is_integral_v<B>) return double(a) / double(b);
    else return a / b;
}
template <class F, class A, class B> __device__ auto both(F function, A a, B b) {
    using T = cuda::std::common_type_t<A, B>;
    return function(static_cast<T>(a), static_cast<T>(b));
}
using ::atomicAdd;
__device__ inline long long atomicAdd(long long* at, long long x) {
    return ::atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(x));
}
}  // namespace cupyx_jit
"""
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|",
    ast.BitXor: "^", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.USub: "-", ast.UAdd: "+", ast.Not: "!", ast.Invert: "~", ast.And: "&&", ast.Or: "||",
}  # fmt: skip
_FUNCTIONS: dict[type[ast.AST], str] = {
    ast.FloorDiv: "floor_divide", ast.Mod: "remainder", ast.Pow: "power",
}  # fmt: skip
_PYTHON: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Invert: operator.invert,
}  # fmt: skip
_TWO = re.compile(r"cupyx_two_(\w+)\{\}")
_FUNCTOR = """struct cupyx_two_@ {
    template <class T> __device__ auto operator()(T x, T y) const { return cudakit::ufunc::@(x, y); }
};
"""
_CASTS = {int: "long long", float: "double", bool: "bool"}


@dataclass(frozen=True)
class Code:
    """An expression in C++."""

    text: str


class Part(NamedTuple):
    """A part of ``cupyx.jit`` that kernels use: a function of arguments in C++, or its expression."""

    name: str
    code: Callable[..., Any]

    def __call__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        raise TemplateError(f"cupyx.jit.{self.name} is called in a kernel only")


class _Axes:
    """A built-in variable of three axes, such as ``threadIdx``."""

    def __init__(self, name: str) -> None:
        self.x, self.y, self.z = (Code(f"static_cast<int>({name}.{axis})") for axis in "xyz")


def _grid(expression: str, ndim: Any) -> Any:
    parts = tuple(Code(f"static_cast<int>({expression.replace('@', axis)})") for axis in "xyz"[: int(ndim)])
    return parts if len(parts) > 1 else parts[0]


def _atomic(function: str) -> Callable[..., Code]:
    def code(array: Any, index: Any, *values: Any) -> Code:
        element = _element(array, index)
        casts = ", ".join(f"(cupyx_jit::value<decltype({element})>)({text_of(value)})" for value in values)
        space = "cupyx_jit::" if function == "atomicAdd" else ""
        return Code(f"{space}{function}(&{element}, {casts})")

    return code


def _element(array: Any, index: Any) -> str:
    indices = index if isinstance(index, tuple) else (index,)
    return f"{text_of(array)}({', '.join(map(text_of, indices))})"


def _call(function: str) -> Callable[..., Code]:
    return lambda *arguments: Code(f"{function}({', '.join(map(text_of, arguments))})")


class Shared(NamedTuple):
    """Shared memory of a block: C++ type and number of elements; None: what the launch has."""

    type_name: str
    size: int | None


class Range(NamedTuple):
    """A loop's range, and how often it is unrolled."""

    start: Any
    stop: Any
    step: Any
    unroll: Any = None


def _range(*arguments: Any, unroll: Any = None) -> Range:
    start, stop, step = (0, *arguments, 1) if len(arguments) == 1 else (*arguments, 1)[:3]
    return Range(start, stop, step, unroll)


def text_of(value: Any) -> str:
    """Return a value of a kernel as C++: code, or a Python constant.

    Raises
    ------
    TemplateError
        For an object that kernels cannot use.
    """
    if isinstance(value, Code):
        return value.text
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, np.generic) and spelling(value.dtype) is not None:
        return f"static_cast<{spelling(value.dtype)}>({text_of(value.item())})"
    if isinstance(value, int):
        return str(value) if -(2**31) < value < 2**31 else f"{value}LL" if value < 2**63 else f"{value}ULL"
    if isinstance(value, float):
        return repr(value) if np.isfinite(value) else "NAN" if value != value else f"{'-' * (value < 0)}INFINITY"
    raise TemplateError(f"cupyx.jit: a kernel uses {type(value).__name__} {value!r}, which has no counterpart in C++")


class _Function:
    """A Python function in C++.

    Parameters
    ----------
    function : function
        Function.
    devices : dict
        Device functions by name, to which those that this one calls are added.
    """

    def __init__(self, function: Callable[..., Any], devices: dict[str, str]) -> None:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        self.tree, self._devices = tree, devices
        self.parameters = [argument.arg for argument in tree.args.args]
        closure = inspect.getclosurevars(function)
        self._names = {**vars(builtins), **function.__globals__, **closure.nonlocals}
        self._locals, self._head = set(self.parameters), list[str]()
        self._count = 0

    def body(self) -> list[str]:
        """Return the statements, with the declarations of all variables first."""
        statements = [line for statement in self.tree.body for line in self._statement(statement)]
        return [*self._head, *statements]

    def _refuse(self, node: ast.AST) -> NoReturn:
        raise TemplateError(
            f"cupyx.jit: {self.tree.name}, line {getattr(node, 'lineno', 0)}: {ast.unparse(node)!r} is not translated; "
            "write the kernel as a cupy.RawKernel"
        )

    # ── statements ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _block(self, statements: Sequence[ast.stmt]) -> list[str]:
        return ["{", *(line for statement in statements for line in self._statement(statement)), "}"]

    def _statement(self, node: ast.stmt) -> Iterator[str]:
        match node:
            case ast.Assign(targets=[target]):
                yield from self._assign(target, self.value(node.value), node)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield from self._assign(target, self.value(value), node)
            case ast.AugAssign(target=target):
                current = self.value(target)
                yield from self._assign(target, self._binary(node.op, current, self.value(node.value)), node)
            case ast.If():
                yield f"if ({self.text(node.test)})"
                yield from self._block(node.body)
                if node.orelse:
                    yield "else"
                    yield from self._block(node.orelse)
            case ast.While(orelse=[]):
                yield f"while ({self.text(node.test)})"
                yield from self._block(node.body)
            case ast.For(orelse=[]):
                yield from self._loop(node)
            case ast.Return(value=None):
                yield "return;"
            case ast.Return(value=ast.expr() as value):
                yield f"return {self.text(value)};"
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return
            case ast.Expr():
                yield f"{self.text(node.value)};"
            case ast.Break() | ast.Continue():
                yield f"{ast.unparse(node)};"
            case _:
                self._refuse(node)

    def _assign(self, target: ast.expr, value: Any, node: ast.AST) -> Iterator[str]:
        match target:
            case ast.Name(id=name) if isinstance(value, Shared):
                size = "" if value.size is None else str(value.size)
                external = "extern " if value.size is None else ""
                self._head.append(f"{external}__shared__ {value.type_name} {name}_memory[{size}];")
                self._head.append(f"cupyx_jit::Array<{value.type_name}, 1> {name}{{{name}_memory, {{0}}, {{1}}}};")
                self._locals.add(name)
            case ast.Name(id=name):
                if name not in self._locals:
                    self._head.append(f"cupyx_jit::value<decltype({text_of(value)})> {name}{{}};")
                    self._locals.add(name)
                yield f"{name} = {text_of(value)};"
            case ast.Subscript():
                yield f"{self.text(target)} = {text_of(value)};"
            case ast.Tuple(elts=targets) if isinstance(value, tuple) and len(value) == len(targets):
                names = [f"cupyx_part_{self._count + number}" for number in range(len(targets))]
                self._count += len(targets)
                yield from (f"auto {name} = {text_of(part)};" for name, part in zip(names, value, strict=True))
                for part, name, expression in zip(targets, names, value, strict=True):
                    if isinstance(part, ast.Name) and part.id not in self._locals:
                        self._head.append(f"cupyx_jit::value<decltype({text_of(expression)})> {part.id}{{}};")
                        self._locals.add(part.id)
                    yield from self._assign(part, Code(name), node)
            case _:
                self._refuse(node)

    def _loop(self, node: ast.For) -> Iterator[str]:
        values = self.value(node.iter)
        if not isinstance(values, Range) or not isinstance(node.target, ast.Name):
            self._refuse(node.iter)
        name, number = node.target.id, self._count
        self._count += 1
        if name not in self._locals:
            self._head.append(f"long long {name}{{}};")
            self._locals.add(name)
        at, end, step = (f"cupyx_{word}_{number}" for word in ("at", "end", "step"))
        start, stop, width = map(text_of, values[:3])
        condition = f"{at} < {end}"
        if not isinstance(values.step, int) or values.step < 0:
            condition = f"{step} > 0 ? {at} < {end} : {at} > {end}"
        if values.unroll not in (None, False):
            yield "#pragma unroll" if values.unroll is True else f"#pragma unroll {values.unroll}"
        yield f"for (long long {at} = {start}, {end} = {stop}, {step} = {width}; {condition}; {at} += {step}) {{"
        yield f"{name} = {at};"
        yield from self._block(node.body)[1:]

    # ── expressions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def text(self, node: ast.expr) -> str:
        """Return an expression as C++."""
        return text_of(self.value(node))

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression: `Code`, or a Python object if it is known now."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                if name in self._locals:
                    return Code(name)
                if name not in self._names:
                    self._refuse(node)
                return self._names[name]
            case ast.Attribute():
                return self._attribute(node)
            case ast.Tuple(elts=parts):
                return tuple(map(self.value, parts))
            case ast.BinOp():
                return self._binary(node.op, self.value(node.left), self.value(node.right))
            case ast.UnaryOp():
                operand = self.value(node.operand)
                if not isinstance(operand, Code):
                    return _PYTHON[type(node.op)](operand)
                return Code(f"({_OPERATORS[type(node.op)]}{operand.text})")
            case ast.BoolOp():
                return Code(f"({f' {_OPERATORS[type(node.op)]} '.join(map(self.text, node.values))})")
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                return Code(f"({self.text(node.test)} ? {self.text(node.body)} : {self.text(node.orelse)})")
            case ast.Subscript():
                base, index = self.value(node.value), self.value(node.slice)
                if not isinstance(base, Code):
                    return base[index]
                if base.text.endswith(".extent"):
                    return Code(f"{base.text}[{text_of(index)}]")
                return Code(_element(base, index))
            case ast.Call():
                return self._called(node)
        self._refuse(node)

    def _attribute(self, node: ast.Attribute) -> Any:
        base = self.value(node.value)
        if not isinstance(base, Code):
            return getattr(base, node.attr)
        if node.attr == "shape":
            return Code(f"{base.text}.extent")
        return Code(f"{base.text}.{node.attr}{'()' * (node.attr == 'size')}")

    def _binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        if not isinstance(left, Code) and not isinstance(right, Code):
            return _PYTHON[type(op)](left, right)
        operands = _beside(left, right)
        if isinstance(op, ast.Div):
            return Code(f"cupyx_jit::divide({operands[0]}, {operands[1]})")
        if type(op) in _FUNCTIONS:
            return _ufunc(_FUNCTIONS[type(op)], operands)
        return Code(f"({operands[0]} {_OPERATORS[type(op)]} {operands[1]})")

    def _compare(self, node: ast.Compare) -> Code:
        values = list(map(self.value, (node.left, *node.comparators)))
        parts = []
        for op, left, right in zip(node.ops, values, values[1:], strict=False):
            if type(op) not in _OPERATORS:
                self._refuse(node)
            operands = _beside(left, right)
            parts.append(f"({operands[0]} {_OPERATORS[type(op)]} {operands[1]})")
        return Code(f"({' && '.join(parts)})")

    def _called(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        arguments = [self.value(argument) for argument in node.args]
        keywords = {word.arg: self.value(word.value) for word in node.keywords if word.arg is not None}
        if isinstance(function, Code):
            return Code(f"{function.text.removesuffix('()')}({', '.join(map(text_of, arguments))})")
        if isinstance(function, Part):
            return function.code(*arguments, **keywords)
        if isinstance(function, JitKernel) and function.is_device:
            self._devices.setdefault(function.__name__, "")
            self._devices[function.__name__] = function.device_code(self._devices)
            return Code(f"{function.__name__}({', '.join(map(text_of, arguments))})")
        if function is range:
            return _range(*arguments)
        if function is len:
            return Code(f"{text_of(arguments[0])}.extent[0]")
        if isinstance(function, type) and (cast := _type_name(function)):
            return Code(f"static_cast<{cast}>({', '.join(map(text_of, arguments)) or '0'})")
        name = {min: "minimum", max: "maximum", abs: "absolute"}.get(function, getattr(function, "__name__", ""))
        if function in (min, max, abs) or isinstance(function, ufunc | np.ufunc):
            texts = _beside(*arguments) if len(arguments) == 2 else tuple(map(text_of, arguments))
            return _ufunc(name, texts)
        self._refuse(node)


def _ufunc(name: str, texts: Sequence[str]) -> Code:
    """Return a call of a universal function, whose two operands get one type."""
    if len(texts) == 2:
        return Code(f"cupyx_jit::both(cupyx_two_{name}{{}}, {texts[0]}, {texts[1]})")
    return Code(f"cudakit::ufunc::{name}({', '.join(texts)})")


def _type_name(cls: type) -> str:
    """Return the C++ type of a number's class, or nothing."""
    if cls in _CASTS:
        return _CASTS[cls]
    return (spelling(np.dtype(cls)) or "") if issubclass(cls, np.generic) else ""


def _beside(left: Any, right: Any) -> tuple[str, str]:
    """Return two operands in C++, in which a float of Python's takes the other's floating type."""
    texts = text_of(left), text_of(right)
    if type(left) is float:
        return f"cupyx_jit::weak<decltype({texts[1]})>({texts[0]})", texts[1]
    if type(right) is float:
        return texts[0], f"cupyx_jit::weak<decltype({texts[0]})>({texts[1]})"
    return texts


class JitKernel:
    """A kernel of a Python function, called as ``kernel(grid, block, args)`` or ``kernel[grid, block](*args)``.

    Attributes
    ----------
    cached_codes : dict
        C++ by the types of the arguments.
    """

    is_device: bool

    def __init__(self, function: Callable[..., Any], device: bool = False) -> None:
        functools.update_wrapper(self, function)
        self.__name__: str = function.__name__
        self._function, self.is_device = function, device
        self.cached_codes: dict[Any, str] = {}
        self._kernels: dict[Any, Kernel] = {}

    @property
    def cached_code(self) -> str:
        """C++ of the types of arguments that were used last."""
        return [*self.cached_codes.values()][-1]

    def __getitem__(self, launch: Any) -> Callable[..., None]:
        grid, block, *rest = launch if isinstance(launch, tuple) else (launch,)
        return lambda *args: self(grid, block, args, *rest)

    def __call__(self, grid: Any, block: Any, args: Sequence[Any], shared_mem: int = 0, stream: Any = None) -> None:
        refuse_host_arrays(self.__name__, args)
        types = tuple(
            (value.dtype, value.ndim) if isinstance(value, ndarray) else np.dtype(getattr(value, "dtype", type(value)))
            for value in args
        )
        if types not in self._kernels:
            code = self.cached_codes[types] = self._code(types)
            self._kernels[types] = of_source(from_text(code, 2), self.__name__)
        blocks, threads = (
            tuple(map(int, size)) if isinstance(size, tuple | list) else int(size) for size in (grid, block)
        )
        is_cooperative = "this_grid" in self.cached_codes[types].partition(_HEAD)[2]
        launch = config(blocks, threads, shared_bytes=int(shared_mem), cooperative=is_cooperative)
        values = [part for value in args for part in _parameters(value)]
        CAPTURE.do(functools.partial(self._kernels[types], current_stream(), launch, *values))

    def device_code(self, devices: dict[str, str]) -> str:
        """Return the function as a device function in C++."""
        function = _Function(self._function, devices)
        names = function.parameters
        types = ", ".join(f"class Type{number}" for number in range(len(names)))
        heads = ", ".join(f"Type{number} {name}" for number, name in enumerate(names))
        template = f"template <{types}> " if names else ""
        body = "\n".join(function.body())
        return f"{template}__device__ auto {self.__name__}({heads}) {{\n{body}\n}}\n"

    def _code(self, types: tuple[Any, ...]) -> str:
        devices: dict[str, str] = {}
        function = _Function(self._function, devices)
        if len(types) != len(function.parameters):
            raise TemplateError(f"{self.__name__} takes {len(function.parameters)} arguments, got {len(types)}")
        heads, first = list[str](), list[str]()
        for name, kind_of in zip(function.parameters, types, strict=True):
            if not isinstance(kind_of, tuple):
                heads.append(f"{spelling(kind_of)} {name}")
                continue
            dtype, ndim = kind_of
            extents = [f"{name}_extent_{axis}" for axis in range(ndim)]
            steps = [f"{name}_step_{axis}" for axis in range(ndim)]
            heads += [f"{spelling(dtype)}* {name}_first", *(f"long long {word}" for word in (*extents, *steps))]
            sizes = f"{{{', '.join(extents) or '1'}}}, {{{', '.join(steps) or '1'}}}"
            first.append(f"cupyx_jit::Array<{spelling(dtype)}, {ndim}> {name}{{{name}_first, {sizes}}};")
        body = "\n".join(function.body())
        complexes = "#include <cupy/complex.cuh>\n" * any("complex" in head for head in heads)
        before = "\n".join(devices.values())
        arguments, start = ", ".join(heads), "\n".join(first)
        code = f"{before}\n__global__ void {self.__name__}({arguments}) {{\n{start}\n{body}\n}}\n"
        functors = "".join(_FUNCTOR.replace("@", name) for name in sorted({*_TWO.findall(code)}))
        return f"{complexes}{_HEAD}{functors}{code}"


def _parameters(value: Any) -> Iterator[Any]:
    """Yield the parameters of a kernel for an argument: an array's memory, its extents and its steps in elements."""
    if not isinstance(value, ndarray):
        yield value if hasattr(value, "dtype") else np.dtype(type(value)).type(value)
        return
    yield value if value.flags.c_contiguous else value.data.ptr
    yield from value.shape
    yield from (step // value.itemsize for step in value.strides)


def rawkernel(*, mode: str = "cuda", device: bool = False) -> Callable[[Callable[..., Any]], JitKernel]:
    """Return a decorator that makes a kernel of a Python function, or with `device` a function for kernels."""
    return lambda function: JitKernel(function, device)


def _shared(dtype: Any, size: Any, alignment: Any = None) -> Shared:
    return Shared(spelling(np.dtype(dtype)) or "", None if size is None else int(size))


def _shuffle(name: str) -> Callable[..., Code]:
    def code(mask: Any, var: Any, lane: Any, *, width: Any = 32) -> Code:
        return _call(f"__{name}")(mask, var, lane, width)

    return code


def module() -> Module:
    """Return the module ``cupyx.jit``."""
    place = "blockIdx.@ * blockDim.@ + threadIdx.@"
    functions: dict[str, Callable[..., Any]] = {
        "grid": functools.partial(_grid, place),
        "gridsize": functools.partial(_grid, "blockDim.@ * gridDim.@"),
        "laneid": lambda: Code("static_cast<int>(cooperative_groups::this_thread_block().thread_rank() % 32)"),
        "range": _range,
        "shared_memory": _shared,
        "syncthreads": _call("__syncthreads"),
        "syncwarp": lambda *, mask=0xFFFFFFFF: _call("__syncwarp")(mask),
        **{name: _shuffle(name) for name in ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync")},
        **{
            f"atomic_{name.lower()}": _atomic(f"atomic{name}")
            for name in ("Add", "Sub", "Exch", "Min", "Max", "Inc", "Dec", "CAS", "And", "Or", "Xor")
        },
    }
    parts: dict[str, Any] = {name: Part(name, code) for name, code in functions.items()}
    groups = {name: Part(f"cg.{name}", _call(f"cooperative_groups::{name}")) for name in ("this_grid", "sync")}
    groups["this_thread_block"] = Part("cg.this_thread_block", _call("cooperative_groups::this_thread_block"))
    parts["cg"] = Module("cupyx.jit.cg", None, **groups)
    axes: dict[str, Any] = {name: _Axes(name) for name in ("threadIdx", "blockDim", "blockIdx", "gridDim")}
    return Module("cupyx.jit", None, rawkernel=rawkernel, warpsize=32, **axes, **parts)
