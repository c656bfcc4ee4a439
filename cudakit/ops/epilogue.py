"""Activations, which follow a product before it is stored: by name, as C++ of one element, or as a Python function."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from cudakit.errors import ArgumentError, TemplateError, shortened
from cudakit.generate.declarations import cpp_of, numbered, placed, statement
from cudakit.generate.outside import Outside
from cudakit.generate.traced import Trace, Traced
from cudakit.jit.source import source
from cudakit.kernel.kernel import Kernel
from cudakit.types.checked import is_one_of

#: C++ names of the functions that are applied to a product before it is stored.
ACTIVATIONS = {None: "identity", "relu": "relu", "gelu": "gelu", "silu": "silu"}
#: Calls of traced functions that `<cudakit/product/tile_functions.cuh>` has for tiles.
_TILE_FUNCTIONS = frozenset(
    (
        *("add", "subtract", "multiply", "divide", "true_divide", "power", "maximum", "minimum", "fmax", "fmin"),
        *("negative", "positive", "absolute", "fabs", "square", "reciprocal", "sqrt", "floor", "ceil"),
        *("exp", "exp2", "log", "log2", "tanh", "sin", "cos"),
    )
)
_UFUNC = re.compile(r"cudakit::ufunc::(\w+)")


class Activation(NamedTuple):
    """A function of one element, applied to a product.

    Attributes
    ----------
    name : str
        Type of the function in C++.
    source : str
        C++ that declares the type, for kernels of threads. Empty if the template declares it.
    tile_source : str or None
        C++ that declares the type for tile kernels. None if tile kernels do not support the function.
    label : str
        Name of the function in messages.
    """

    name: str
    source: str = ""
    tile_source: str | None = ""
    label: str = "none"

    @property
    def is_custom(self) -> bool:
        """True if the caller wrote the function."""
        return bool(self.source)


def activation_of(op: str, activation: Any, dtype: np.dtype) -> Activation:
    """Return the activation for a name, C++ source or Python function, for values of `dtype`.

    Raises
    ------
    ArgumentError
        The name is unknown.
    TemplateError
        The function cannot be traced.
    """
    if callable(activation):
        return _traced(op, activation, dtype, tuple(Outside(activation).values().items()))
    if is_one_of(activation, ACTIVATIONS):
        return Activation(f"cudakit::{ACTIVATIONS[activation]}", label=activation or "none")
    if not isinstance(activation, str) or not re.search(r"(?<![\w.])x\b", activation):
        raise ArgumentError(
            f"{op}: activation {shortened(activation)} is none of {[*filter(None, ACTIVATIONS)]}, C++ of x such as "
            "'x * x', or a function of one value"
        )
    return _written(op, activation)


@functools.lru_cache(256)
def _written(op: str, code: str) -> Activation:
    """Return an activation from C++ of x, for threads (x is an element) and for tiles (x is a tile)."""
    returns = "" if re.search(r"\breturn\b", code) else "return\n"
    body = f"{returns}{placed(statement(op, 'activation', code), f'<{op} activation>')}"
    name = f"activation_{sha256(code.encode()).hexdigest()[:16]}"
    of_tiles = "namespace ct = cuda::tiles;\n" + _struct(name, "__tile__", body)
    return Activation(name, _struct(name, "__device__", body), of_tiles, code)


@functools.lru_cache(256)
def _traced(op: str, function: Callable[[Any], Any], dtype: np.dtype, _outside: Any) -> Activation:
    """Return an activation from a Python function of one value, by tracing it."""
    trace = Trace(op, {})
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise TemplateError(f"{op}: activation is a function of one value: {error}") from None
    except ValueError:  # Python does not know its arguments
        pass
    result = function(Traced(trace, dtype, "x0", argument="x", is_number=True))
    if not isinstance(result, Traced) or trace.folds or trace.views:
        raise TemplateError(f"{op}: activation returns {type(result).__name__}; it is a function of one value")
    result = trace.cast(result, dtype)
    lines = [*trace.lines(result.name), f"return {result.name};"]
    body = re.sub(r"\bx0\b", "x", "\n".join(lines)) + "\n"
    name = f"activation_{sha256(body.encode()).hexdigest()[:16]}"
    definition = "#include <cudakit/ufunc/all.cuh>\n" + _struct(name, "__device__", body)
    label = getattr(function, "__name__", "a function")
    own = f"const {cpp_of(np.dtype('f4'))} "
    calls = set(_UFUNC.findall(body))
    on_tiles = calls <= _TILE_FUNCTIONS and "?" not in body and body.count("const ") == body.count(own)
    if dtype != np.float32 or not on_tiles:
        return Activation(name, definition, None, label)
    of_tiles = body.replace(own, "auto ").replace("cudakit::ufunc::", "cudakit::tile_functions::")
    of_tiles = re.sub(r"cudakit::as<float>\((\w+)\)", r"\1", of_tiles)
    head = "#include <cudakit/product/tile_functions.cuh>\n"
    return Activation(name, definition, head + _struct(name, "__tile__", of_tiles), label)


def _struct(name: str, where: str, body: str) -> str:
    head = f"template <typename Out, typename V>\n    static {where} V of(V x)"
    return f"struct {name} {{\n    {head} {{\n{body}    }}\n}};\n"


@functools.lru_cache(256)
def kernel_with(concept: str, name: str, declaration: str, arch: str | None = None) -> Kernel:
    """Return the kernel `name` of the packaged template `concept`, with C++ `declaration` added to its source.

    `arch` is the arch to compile for. Default: that of the device.
    """
    if not declaration:
        return Kernel.from_template(f"{concept}/{name}", arch=arch)
    return Kernel(numbered(f"{source.from_template(concept).text}\n{declaration}", f"<{name}>"), name, arch=arch)
