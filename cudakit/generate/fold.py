"""Common parts of reductions and scans from expressions: declarations, calls, kernels, and the check of an identity."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np

from cudakit.arrays.output import Target
from cudakit.arrays.place import ArrayPlace, device_limits
from cudakit.errors import ArgumentError, CompileError, TemplateError, shortened
from cudakit.generate.call import CallArguments, GeneratedFunction, checked, common_shape, dtype_of, is_array
from cudakit.generate.declarations import (
    NAMESPACES,
    Declared,
    Parameter,
    check_distinct,
    check_kernel_name,
    cpp_text,
    parse,
    placed,
    template_arguments,
    template_head,
)
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.options import CompileOptions
from cudakit.kernel.kernel import Kernel, of_source
from cudakit.places import emulator
from cudakit.streams.witnesses import doing
from cudakit.types.checked import whole
from cudakit.types.cpp import scalar

#: Two bits of an int say how each of them lies.
_MOST_ARGUMENTS = 15
_WARP = 32
#: Kinds of numbers, of which each holds those before it; bfloat16 is of kind V.
_RANKS = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}
#: Kernel whose parameter has the size of what is combined.
SIZE_PROBE = "cudakit_bytes"
#: The kernel's parameter for an initial value, which is a number as some inputs are.
INITIAL = "initial_"


def declared(
    name: str, inputs: str, outputs: str, preamble: str, before: tuple[str, ...], after: tuple[str, ...]
) -> Declared:
    """Return the arguments that the declarations `inputs` and `outputs` declare.

    `before` are the names that an input must not have, `after` the names that an output must not have.

    Raises
    ------
    TemplateError
        A declaration cannot be read or has no argument or too many, or a name is used already.
    """
    check_kernel_name("a kernel", name)
    result = Declared(
        name,
        parse(name, inputs, (*before, *NAMESPACES), preamble),
        parse(name, outputs, (*after, *NAMESPACES), preamble),
        preamble,
    )
    if not result.inputs or not result.outputs:
        raise TemplateError(f"{name}: it has no {'output' if result.inputs else 'input'}; declare one, as in 'T x'")
    if len(result.inputs) > _MOST_ARGUMENTS or len(result.outputs) > _MOST_ARGUMENTS:
        raise TemplateError(f"{name}: it has more than {_MOST_ARGUMENTS} inputs or outputs; put several into a struct")
    check_distinct(name, result.inputs, result.outputs)
    return result


@dataclass(frozen=True)
class FoldRecipe(Declared):
    """The declarations of a reduction or a scan, with the C++ expressions `map`, `reduce` and `identity`.

    `acc` is the type in which values are combined. None: the type follows from the map.
    """

    map: str
    reduce: str
    identity: str | None
    acc: str | None

    @property
    def adds_values(self) -> bool:
        """True for sums of the one input itself, for which there are faster ways than an addition for each element."""
        is_sum = "".join(self.reduce.split()) in ("a+b", "b+a") and "#define" not in self.preamble
        return is_sum and [(p.name, p.raw) for p in self.inputs] == [(self.map, False)]

    @property
    def initial_type(self) -> str:
        """Type of an initial value: a struct of the preamble, or a template parameter for numbers."""
        return self.acc if self.acc in self.structs and self.acc is not None else "Initial_"

    @cached_property
    def acc_type(self) -> str:
        """`acc` as a C++ type: NumPy's names (``float16``) are translated."""
        try:
            return parse(self.name, f"{self.acc} value", (), self.preamble)[0].type
        except TemplateError:
            return str(self.acc)

    def heads(self, header: str, *texts: str | None) -> str:
        """Return the beginning of the source: ``#include`` lines, then the preamble.

        The includes are for arguments, accumulator, expressions and `texts` (further C++ of the user), and for
        `header`.
        """
        types = () if self.acc is None else (self.acc_type,)
        texts = (self.map, self.reduce, self.identity, self.acc, *texts)
        return self.includes(header, texts, *types) + self.placed_preamble

    def accumulator_dtype(self, types: Mapping[str, np.dtype]) -> np.dtype | None:
        """Return the dtype in which values are combined, if it is known without the compiler."""
        if self.acc is not None:
            return scalar(self.acc_type)
        dtypes = [types.get(p.type, p.dtype) for p in self.inputs if p.name == self.map and not p.raw]
        if not dtypes or dtypes[0] is None or dtypes[0].names is not None:
            return None
        if dtypes[0].kind in "biu":
            return np.dtype(np.int64)
        return np.dtype(np.float32) if dtypes[0].itemsize == 2 else dtypes[0]


def combination(
    name: str, map: str, reduce: str, identity: str | None, acc: str | None
) -> tuple[str, str, str | None, str | None]:
    """Check the expressions that combine elements, and return them as fields of a `FoldRecipe`.

    Raises
    ------
    TemplateError
        An expression is no string or is empty, or the identity changes a value.
    """
    mapped, reduced = expression(name, "map", map), expression(name, "reduce", reduce)
    neutral = None if identity is None else expression(name, "identity", identity)
    check_identity(name, reduced, neutral)
    return mapped, reduced, neutral, None if acc is None else expression(name, "acc", acc)


def expression(op: str, part: str, text: Any) -> str:
    """Return `text` after checking that it is an expression.

    Raises
    ------
    TemplateError
        The value is no string, or is empty.
    """
    return cpp_text(op, part, text).strip().rstrip(";")


def shape_of(of: Declared, layouts: Sequence[Any], size: int | None) -> tuple[int, ...]:
    """Return the common shape of the inputs.

    Raises
    ------
    ArgumentError
        As for `common_shape`, or all inputs are numbers and there is no `size`.
    """
    arrays = [(p, layout[1]) for p, layout in zip(of.inputs, layouts, strict=False) if type(layout) is tuple]
    if not arrays and size is None:
        raise ArgumentError(f"{of.name}: none of its inputs is an array; say how many elements there are: size=")
    return common_shape(of.name, arrays, size)


def whole_warps(of: Declared, block_size: Any, place: ArrayPlace) -> int:
    """Return the threads of a block that a call sets, checked to be whole warps.

    Raises
    ------
    ArgumentError
        The number of threads is no multiple of a warp, or more than a block can have.
    """
    most = device_limits(place.device).threads_per_block
    if isinstance(block_size, int | np.integer) and block_size in range(_WARP, most + 1, _WARP):
        return int(block_size)
    raise ArgumentError(
        f"{of.name}: block_size must be whole warps, a multiple of {_WARP} up to {most} threads, got "
        f"{shortened(block_size)}"
    )


def output_dtypes(of: Declared, types: Mapping[str, np.dtype]) -> tuple[np.dtype, ...]:
    """Return the dtype of each output for known type variables."""
    dtypes = [types.get(p.type, p.dtype) for p in of.outputs]
    return tuple([dtype for dtype in dtypes if dtype is not None])


def new_target(place: ArrayPlace, shape: tuple[int, ...], dtype: np.dtype) -> Target:
    """Return the `Target` of a new array: the kernel writes the array that the call returns."""
    result = place.empty(shape, dtype)
    return Target(result, result)


def target(
    of: Declared,
    p: Parameter,
    place: ArrayPlace,
    out: Any,
    shape: tuple[int, ...],
    dtype: np.dtype,
    any_strides: bool = False,
) -> Target:
    """Return the `Target` of an output: the array that the kernel writes, and the array that the call returns.

    They differ if the kernel cannot write `out` directly. `settled` copies the result then. `out` None: a new array.

    Parameters
    ----------
    any_strides : bool
        Whether the kernel writes an array of any strides.

    Raises
    ------
    ArgumentError
        `out` has another shape, or its dtype would lose values of the result.
    """
    if out is None:
        return new_target(place, shape, dtype)
    if _is_as_new(place, out, shape, dtype):
        return Target(out, out)
    result = checked(f"{of.name}, output {p.name}", p, place, out, shape, dtype)
    if result.dtype == dtype and (any_strides or result.flags.c_contiguous):
        return Target(result, result)
    return Target(place.empty(shape, dtype), result)


def _is_as_new(place: ArrayPlace, out: Any, shape: tuple[int, ...], dtype: np.dtype) -> bool:
    """Return True if `out` is CuPy's own array, C-contiguous, of this shape and dtype.

    The check is quick. It is False for every NumPy array.
    """
    if place.xp is np or out.__class__ is not place.xp.ndarray or out.dtype != dtype or out.shape != shape:
        return False
    return bool(out._c_contiguous)


def settled(of: Declared, place: ArrayPlace, targets: Sequence[Target]) -> Any:
    """Copy results that the kernel wrote to other memory to their outputs. Return the outputs.

    One output is returned as an array, several as a tuple.
    """
    for written, result in targets:
        if written is not result:
            with doing("copy", of.name, place.stream, (written,), (result,), result.nbytes):
                place.copy(written, result)
    return targets[0].result if len(targets) == 1 else tuple(target.result for target in targets)


def initial_types(of: FoldRecipe, initial: Any, sum_dtype: np.dtype | None) -> dict[str, np.dtype]:
    """Return ``{"Initial_": dtype}`` for an initial value, or an empty dict if the kernel needs no dtype for it.

    `sum_dtype` is the accumulator's dtype, or None if it is unknown.

    Raises
    ------
    ArgumentError
        The value is no number, or it loses in the accumulator: a float in an integer, a complex number in a
        float. An integer for a float accumulator is accepted.
    """
    if initial is None or of.initial_type != "Initial_":
        return {}
    initial_type = dtype_of(of.name, "initial", initial)
    dtype = np.dtype(initial_type)
    if not is_array(of.name, of.inputs[0]._replace(name="initial", raw=False), initial) and dtype.names is None:
        if sum_dtype is not None and _RANKS.get(dtype.kind, 0) > _RANKS.get(sum_dtype.kind, 0):
            raise ArgumentError(
                f"{of.name}: initial {shortened(initial)} would lose as {sum_dtype}, which elements are combined in"
            )
        return {"Initial_": dtype}
    raise ArgumentError(f"{of.name}: initial must be a number, got {type(initial).__name__}")


def returned(of: Declared, part: str, text: str) -> str:
    """Return C++ of a function body ``{ return text; }``. Errors in the text are reported as lines of this `part`."""
    return f" {{\n        return\n{placed(text, f'<{of.name} {part}>')}        ;\n    }}\n"


def seen_inputs(of: Declared) -> list[str]:
    """Return the C++ parameter declarations of the inputs, for a function that computes an expression."""
    return [f"const {p.stored}* {p.name}" if p.raw else f"const {p.type} {p.name}" for p in of.inputs]


def mapped_text(of: FoldRecipe, index: Sequence[str]) -> tuple[str, str]:
    """Return C++ of the struct that contains the user's map, and C++ of the accumulator's type.

    `index` are the C++ declarations of further parameters of the map, such as the element's number.
    """
    head, mapped = template_head(of.variables), f"cudakit_mapped{template_arguments(of.variables)}"
    if of.acc is None:
        # The map's own type is known once its function is: outside of its struct.
        types = (f"const {p.stored}*" if p.raw else p.type for p in of.inputs)
        values = ", ".join([*(f"cudakit::unevaluated<{type}>()" for type in types), *("0" for _ in index)])
        own, result = "", "auto"
        state = f"cudakit::accumulator_t<decltype({mapped}::cudakit_map({values}))>"
    else:
        own = f"    using cudakit_state =\n{placed(of.acc_type, f'<{of.name} acc>')}    ;\n"
        result, state = "cudakit_state", f"{'typename ' * bool(of.variables)}{mapped}::cudakit_state"
    parameters = ", ".join([*seen_inputs(of), *index])
    function = f"    static __device__ {result} cudakit_map({parameters}){returned(of, 'map', of.map)}"
    return f"{head}struct cudakit_mapped {{\n{own}{function}}};\n\n", state


def kernel_inputs(of: Declared, numbers: frozenset[str]) -> tuple[list[str], list[str], list[str]]:
    """Return three lists of C++ for a kernel's inputs. `numbers` are the names of the inputs that are numbers.

    The lists are: names of template parameters for the arrays' types, parameter declarations, and the arguments that
    the kernel passes to the packaged templates.
    """
    types, parameters, several = [], [], []
    for p in of.inputs:
        if p.name in numbers:
            parameters.append(f"const {p.type} {p.name}")
            several.append(f"cudakit::value_of<{p.type}>({p.name})")
        elif p.raw:
            parameters.append(f"const {p.type}* {p.name}")
            several.append(f"cudakit::value_of(cudakit::stored({p.name}))")
        else:
            stored = p.type if p.type in of.structs else f"{p.name}_type_"
            types += [stored] if stored != p.type else []
            parameters.append(f"const {stored}* {p.name}")
            several.append(f"cudakit::array_of<{p.type}>({p.name})")
    return types, parameters, several


def initial_parameter(of: FoldRecipe) -> tuple[list[str], str]:
    """Return C++ for an initial value: names of template parameters, and the parameter declaration.

    There is no template parameter for a struct.
    """
    return [of.initial_type] * (of.initial_type not in of.structs), f"const {of.initial_type} {INITIAL}"


class Folded(GeneratedFunction):
    """A function of arrays that combines their elements.

    A derived class has a method `_ordinary`, which calls `_run_planned`. The latter plans calls with new layouts
    by `_job`, and runs them by `_run`.
    """

    _TAKES_OUTPUTS = False

    #: By which of the inputs are numbers.
    _kernels: dict[frozenset[str], Kernel]
    #: Sizes of what is combined, by types.
    _sizes: dict[tuple[tuple[str, np.dtype], ...], int]

    def __new__(cls, recipe: Any, options: CompileOptions | None = None) -> Self:
        return super().__new__(cls, recipe, options, _kernels={}, _sizes={})

    @property
    def source(self) -> str:
        """CUDA C++ of the kernel, for inputs that are arrays."""
        return self._text(self.recipe, frozenset())

    def _options_of(
        self, call: CallArguments, size: Any, initial: Any, block_size: Any
    ) -> tuple[CallArguments, tuple[Any, ...]]:
        """Return the call with its initial value, and the checked options: size, initial dtype, block and device.

        Raises
        ------
        ArgumentError
        """
        of = self.recipe
        if size is not None:
            size = whole(f"{of.name}: size", size)
        dtype = None
        if initial is not None:
            call, dtype = call._replace(initial=initial), dtype_of(of.name, "initial", initial)
        block = block_size if block_size is None else whole_warps(of, block_size, call.place)
        return call, (size, dtype, block, call.place.device)

    def _run_planned(self, key: Any, call: CallArguments, outs: Any, *options: Any) -> Any:
        """Run a call by the job for `key`, which is planned at its first use.

        Raises
        ------
        CompileError
            Placed in the expression.
        """
        try:
            job = self._job_of(key, call, *options)
            return settled(self.recipe, call.place, self._run(job, call, outs))
        except CompileError as error:
            raise self._explained(error) from None

    def _state_bytes(self, types: dict[str, np.dtype], flags: int) -> int:
        """Return the size in bytes of an accumulator together with `flags` flags beside it.

        If the accumulator's dtype is not known, the compiler says the size of the accumulator's struct.
        """
        dtype = self.recipe.accumulator_dtype(types)
        if dtype is not None:
            return int(dtype.itemsize) * (1 + flags)
        key = tuple(types.items())
        size = self._sizes.get(key)
        if size is None:
            probe = self._make_kernel(SIZE_PROBE, frozenset())
            compiled = (probe[types] if types else probe).compile(arch=emulator().limits().arch, target="ptx")
            parameter = re.search(r"\.param [^\n]*_param_0\[(\d+)\]", compiled.code.decode())
            assert parameter is not None  # the probe's only one
            size = self._sizes[key] = int(parameter[1])
        return size

    def _kernel(
        self, call: CallArguments, types: dict[str, np.dtype], arguments: dict[str, Any]
    ) -> tuple[Kernel, dict[str, Any]]:
        """Return the kernel of a call and its template arguments: `arguments`, and the type of an initial value."""
        recipe, first = self.recipe, () if call.initial is None else (INITIAL,)
        number_inputs = [
            p.name for p, layout in zip(recipe.inputs, call.layouts, strict=False) if type(layout) is not tuple
        ]
        numbers = frozenset((*number_inputs, *first))
        kernel = self._kernels.get(numbers)
        if kernel is None:
            kernel = self._kernels[numbers] = self._make_kernel(recipe.name, numbers)
        return kernel, arguments | initial_types(recipe, call.initial, recipe.accumulator_dtype(types))

    def _make_kernel(self, name: str, numbers: frozenset[str]) -> Kernel:
        return of_source(Source(self._text(self.recipe, numbers), f"<{self.recipe.name}>"), name, self.options)

    @staticmethod
    def _text(recipe: Any, numbers: frozenset[str]) -> str:
        """Return CUDA C++ of the kernel for which the inputs `numbers` are numbers."""
        raise NotImplementedError

    def _run(self, job: Any, call: CallArguments, outs: Any) -> list[Target]:
        """Launch a planned call, and return the `Target` of each output. Derived classes implement it."""
        raise NotImplementedError


# The check of an identity, of what can be computed here.

_OPERATORS: Final[dict[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_FUNCTIONS: Final = {"min": min, "max": max, "fmin": min, "fmax": max, "fminf": min, "fmaxf": max}
#: A number of C++ with its suffix.
_NUMBER: Final = re.compile(r"(?<![\w.])(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)([fFlLuU]*)(?![\w.])")
#: Elements, of which a combination may see only those of one sign.
_SAMPLES: Final = ((1, 2, 3, 5), (-1, -2, -3, -5))


def check_identity(name: str, reduce: str, identity: str | None) -> None:
    """Raise if ``reduce(identity, x)`` or ``reduce(x, identity)`` is not x, for simple arithmetic and numbers.

    A value that is an identity for elements of one sign is accepted, such as 0 for a maximum. Expressions that are
    not simple are not checked.

    Raises
    ------
    TemplateError
    """
    number = None if identity is None else _computed(identity, {})
    if number is None:
        return
    wrong = []
    for samples in _SAMPLES:
        for x in samples:
            results = _computed(reduce, {"a": number, "b": x}), _computed(reduce, {"a": x, "b": number})
            if None in results:
                return
            if x not in results:
                wrong.append((x, results[0]))
                break
    if len(wrong) == len(_SAMPLES):
        x, made_of = wrong[0]
        raise TemplateError(
            f"{name}: {shortened(identity)} is not an identity of {shortened(reduce)}: with it {x} becomes {made_of}; "
            "give its identity, or none, and a value to begin with as initial= of the call"
        )


def _computed(text: str, names: dict[str, Any]) -> Any:
    """Return the value of a simple expression; None for other expressions."""
    try:
        return _value(ast.parse(_NUMBER.sub(r"\1", text.strip()), mode="eval").body, names)
    except (SyntaxError, ValueError, TypeError, KeyError, OverflowError, RecursionError, MemoryError):
        return None


def _value(node: ast.AST, names: dict[str, Any]) -> Any:
    match node:
        case ast.Constant(value) if type(value) in (int, float):
            return value
        case ast.Name(name):
            return names[name]
        case ast.UnaryOp(op, operand):
            return _OPERATORS[type(op)](_value(operand, names))
        case ast.BinOp(left, op, right):
            return _OPERATORS[type(op)](_value(left, names), _value(right, names))
        case ast.Call(ast.Name(function), [first, second], []):
            return _FUNCTIONS[function](_value(first, names), _value(second, names))
    raise ValueError
