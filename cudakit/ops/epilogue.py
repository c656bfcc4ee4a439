"""What follows a product before it is stored: an activation by name, as C++ of one element, or as a Python function."""

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

#: What the templates call the functions that a product goes through before it is stored.
ACTIVATIONS = {None: "identity", "relu": "relu", "gelu": "gelu", "silu": "silu"}
#: Of a traced function's calls those that `<cudakit/product/tile_functions.cuh>` has for tiles.
_OF_TILES = frozenset(
    (
        *("add", "subtract", "multiply", "divide", "true_divide", "power", "maximum", "minimum", "fmax", "fmin"),
        *("negative", "positive", "absolute", "fabs", "square", "reciprocal", "sqrt", "floor", "ceil"),
        *("exp", "exp2", "log", "log2", "tanh", "sin", "cos"),
    )
)
_UFUNC = re.compile(r"cudakit::ufunc::(\w+)")


class Activation(NamedTuple):
    """A function of one element.

    Attributes
    ----------
    name : str
        Its type in C++.
    text : str
        What declares that, for kernels of threads; empty where the template does.
    tile_text : str or None
        The same for tile kernels; None where they cannot have it.
    shown : str
        What messages call it.
    """

    name: str
    text: str = ""
    tile_text: str | None = ""
    shown: str = "none"

    @property
    def is_own(self) -> bool:
        """Whether the caller wrote it."""
        return bool(self.text)


def activation_of(op: str, given: Any, dtype: np.dtype) -> Activation:
    """The function that an argument names or is, of values of `dtype`.

    Raises
    ------
    ArgumentError
        For a name that is not known.
    TemplateError
        For a function that cannot be traced.
    """
    if callable(given):
        return _traced(op, given, dtype, tuple(Outside(given).values().items()))
    if is_one_of(given, ACTIVATIONS):
        return Activation(f"cudakit::{ACTIVATIONS[given]}", shown=given or "none")
    if not isinstance(given, str) or not re.search(r"(?<![\w.])x\b", given):
        raise ArgumentError(
            f"{op}: activation {shortened(given)} is none of {[*filter(None, ACTIVATIONS)]}, C++ of x such as "
            "'x * x', or a function of one value"
        )
    return _written(op, given)


@functools.lru_cache(256)
def _written(op: str, text: str) -> Activation:
    """C++ of x: for threads of an element, for tiles of a tile of them, where it takes functions of cuda::tiles."""
    returns = "" if re.search(r"\breturn\b", text) else "return\n"
    body = f"{returns}{placed(statement(op, 'activation', text), f'<{op} activation>')}"
    name = f"activation_{sha256(text.encode()).hexdigest()[:16]}"
    of_tiles = "namespace ct = cuda::tiles;\n" + _struct(name, "__tile__", body)
    return Activation(name, _struct(name, "__device__", body), of_tiles, text)


@functools.lru_cache(256)
def _traced(op: str, function: Callable[[Any], Any], dtype: np.dtype, _outside: Any) -> Activation:
    """What a Python function does with one value, and with values from outside."""
    trace = Trace(op, {})
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise TemplateError(f"{op}: activation is a function of one value: {error}") from None
    except ValueError:  # Python does not know its arguments
        pass
    made = function(Traced(trace, dtype, "x0", argument="x", is_number=True))
    if not isinstance(made, Traced) or trace.folds or trace.views:
        raise TemplateError(f"{op}: activation returns {type(made).__name__}; it is a function of one value")
    made = trace.cast(made, dtype)
    lines = [*trace.lines(made.name), f"return {made.name};"]
    body = re.sub(r"\bx0\b", "x", "\n".join(lines)) + "\n"
    name = f"activation_{sha256(body.encode()).hexdigest()[:16]}"
    text = "#include <cudakit/ufunc/all.cuh>\n" + _struct(name, "__device__", body)
    shown = getattr(function, "__name__", "a function")
    own = f"const {cpp_of(np.dtype('f4'))} "
    calls = set(_UFUNC.findall(body))
    on_tiles = calls <= _OF_TILES and "?" not in body and body.count("const ") == body.count(own)
    if dtype != np.float32 or not on_tiles:
        return Activation(name, text, None, shown)
    of_tiles = body.replace(own, "auto ").replace("cudakit::ufunc::", "cudakit::tile_functions::")
    of_tiles = re.sub(r"cudakit::as<float>\((\w+)\)", r"\1", of_tiles)
    head = "#include <cudakit/product/tile_functions.cuh>\n"
    return Activation(name, text, head + _struct(name, "__tile__", of_tiles), shown)


def _struct(name: str, where: str, body: str) -> str:
    head = f"template <typename Out, typename V>\n    static {where} V of(V x)"
    return f"struct {name} {{\n    {head} {{\n{body}    }}\n}};\n"


@functools.lru_cache(256)
def kernel_with(concept: str, name: str, text: str) -> Kernel:
    """The kernel `name` of a packaged template, with a declaration of the caller's beside it."""
    if not text:
        return Kernel.from_template(f"{concept}/{name}")
    return Kernel(numbered(f"{source.from_template(concept).text}\n{text}", f"<{name}>"), name)
