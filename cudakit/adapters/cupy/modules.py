"""Modules that stand in for CuPy's: NumPy's and SciPy's functions under CuPy's names, on device arrays."""

from __future__ import annotations

import functools
import importlib
import inspect
import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from cudakit.adapters.cupy.arrays import computed, function_of, plain, ufunc, wrapped

#: Names of NumPy that CuPy 14.2 has no function for.
LACKING = (
    "False_", "True_", "ScalarType", "asmatrix", "block", "bmat", "busday_count", "busday_offset",
    "busdaycalendar", "bytes_", "char", "character", "clongdouble", "complex256", "core", "ctypeslib",
    "datetime64", "datetime_as_string", "datetime_data", "dtypes", "einsum_path", "emath", "errstate", "f2py",
    "flexible", "float128", "frompyfunc", "fromregex", "geomspace", "get_include", "getbufsize", "geterr",
    "geterrcall", "histogram_bin_edges", "info", "insert", "is_busday", "isnat", "little_endian", "longdouble",
    "ma", "matrix", "matrixlib", "matvec", "memmap", "nanpercentile", "nanquantile", "ndenumerate", "nditer",
    "nested_iters", "object_", "polyder", "polydiv", "polyint", "rec", "recarray", "record", "sctypeDict",
    "setbufsize", "seterr", "seterrcall", "show_runtime", "spacing", "str_", "strings", "test", "timedelta64",
    "typecodes", "unstack", "vecdot", "vecmat", "void", "linalg.diagonal", "linalg.matrix_norm",
    "linalg.multi_dot", "linalg.outer", "linalg.svdvals", "linalg.tensordot", "linalg.trace", "linalg.vecdot",
    "linalg.vector_norm", "random.MT19937", "random.PCG64", "random.PCG64DXSM", "random.Philox", "random.SFC64",
    "random.SeedSequence", "random.get_state", "random.set_state",
)  # fmt: skip
#: Names that NumPy had and CuPy has.
_FORMER: dict[str, Any] = {
    "NAN": np.nan, "NaN": np.nan, "Inf": np.inf, "Infinity": np.inf, "PINF": np.inf, "NINF": -np.inf, "infty": np.inf,
    "NZERO": -0.0, "PZERO": 0.0, "float_": np.float64, "complex_": np.complex128, "cfloat": np.complex128,
    "singlecomplex": np.complex64, "alltrue": np.all, "sometrue": np.any, "product": np.prod,
    "cumproduct": np.cumprod, "round_": np.round,
    "in1d": lambda ar1, ar2, **options: np.isin(ar1, ar2, **options).ravel(),
    "trapz": np.trapezoid, "msort": lambda a: np.sort(a, 0),
    "asfarray": lambda a, dtype=np.float64: np.asarray(a, dtype), "byte_bounds": np.lib.array_utils.byte_bounds,
    "AxisError": np.exceptions.AxisError, "ComplexWarning": np.exceptions.ComplexWarning,
    "VisibleDeprecationWarning": np.exceptions.VisibleDeprecationWarning, "RankWarning": np.exceptions.RankWarning,
    "TooHardError": np.exceptions.TooHardError,
}  # fmt: skip
#: CuPy's bit generators: NumPy draws other numbers.
_BIT_GENERATORS = frozenset(("MRG32k3a", "Philox4x3210", "XORWOW"))
_NUMBERS = (np.generic, bool, int, float, complex)


class Module(ModuleType):
    """A module of CuPy's: its own names, then functions of another library's module.

    Parameters
    ----------
    name : str
        Name of the module.
    of : module or str, optional
        Module with the functions, or its name, to import it at the first use.
    **own : object
        Names of the module's own.
    """

    def __init__(self, name: str, of: ModuleType | str | None = None, **own: Any) -> None:
        super().__init__(name)
        self.__dict__.update(own, _of=of, __path__=[])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        part = self._part(name)
        self.__dict__[name] = part
        return part

    def __dir__(self) -> list[str]:
        of = self._library()
        own = {name for name in self.__dict__ if not name.startswith("_")}
        return sorted(own | {name for name in dir(of) if not name.startswith("_") and self._has(name)})

    def _library(self) -> ModuleType | None:
        of = self.__dict__["_of"]
        if not isinstance(of, str):
            return of  # type: ignore[no-any-return]
        try:
            self.__dict__["_of"] = importlib.import_module(of)
        except ImportError as error:
            package = of.partition(".")[0]
            text = f"{self.__name__} needs {package} on a machine without a GPU: pip install {package}"
            raise ImportError(text) from error
        return self.__dict__["_of"]  # type: ignore[no-any-return]

    def _short(self, name: str) -> str:
        return f"{self.__name__}.{name}".partition(".")[2]

    def _has(self, name: str) -> bool:
        return self._short(name) not in LACKING

    def _part(self, name: str) -> Any:
        library = self._library()
        if library is np and name in _FORMER:
            value = _FORMER[name]
        elif library is np.random and name in _BIT_GENERATORS:
            value = np.random.Philox
        elif library is None or not self._has(name) or not hasattr(library, name):
            noun = "the stand-in" if library is None else library.__name__
            where = f"CuPy has no {name}" if not self._has(name) else f"and {noun} has no {name}"
            raise AttributeError(
                f"{self.__name__}.{name} is not here: without a GPU cudakit puts NumPy in CuPy's place, {where}",
                name=name,
                obj=self,
            )
        else:
            value = getattr(library, name)
        return adapted(f"{self.__name__}.{name}", value)


def adapted(name: str, value: Any) -> Any:
    """Return a part of NumPy or SciPy under a name of CuPy's."""
    cls: Any = value
    if inspect.ismodule(value):
        return Module(name, value)
    if inspect.isclass(value):
        is_kept = issubclass(value, np.generic | BaseException | np.dtype) or not _is_holder(value)
        return value if is_kept else holder(cls)
    if isinstance(value, np.ufunc):
        return ufunc(value)
    if isinstance(value, type(np.r_) | type(np.c_) | type(np.mgrid) | type(np.ogrid)):
        return _Indexed(value)
    if not callable(value):
        return wrapped(value)
    if ".random." in name:
        return functools.partial(_drawn, value)
    if ".testing." in name:
        return functools.wraps(value)(lambda *arguments, **options: value(*plain(arguments), **plain(options)))
    return function_of(name, value)


class _Indexed:
    """A maker of arrays by an index, as ``cupy.r_`` and ``cupy.mgrid``."""

    def __init__(self, maker: Any) -> None:
        self._maker = maker

    def __getitem__(self, key: Any) -> Any:
        return wrapped(self._maker[plain(key)])


def _drawn(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function of ``numpy.random``, which converts to `dtype` if it cannot draw it itself."""
    arguments, options = plain(arguments), plain(options)
    try:
        result = function(*arguments, **options)
    except TypeError as error:
        if "dtype" not in str(error) or "dtype" not in options:
            raise
        dtype = options.pop("dtype")
        return _result(np.asarray(function(*arguments, **options), dtype), _NUMBERS)
    return _result(result, _NUMBERS)


# ── objects of other classes ─────────────────────────────────────────────────────────────────────────────────────────


def _is_holder(cls: Any) -> bool:
    module = cls.__module__
    return module.startswith(("scipy.sparse", "scipy.interpolate", "scipy.spatial", "numpy.random", "scipy.stats")) or (
        cls is np.poly1d or cls.__name__ in ("Generator", "RandomState")
    )


class Holder:
    """An object of NumPy's or SciPy's, whose methods take and return device arrays."""

    _class: type

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._own = self._class(*_bare(arguments), **_bare(options))

    def __repr__(self) -> str:
        return repr(self._own)

    def __getattr__(self, name: str) -> Any:
        if name == "_own":
            raise AttributeError(name)
        if name == "get":
            return lambda stream=None: self._own
        part = getattr(self._own, name)
        if not callable(part) or isinstance(part, type):
            return _result(part)
        if self._class.__module__.startswith("numpy.random"):
            return functools.partial(_drawn, part)
        return lambda *arguments, **options: _result(part(*_bare(arguments), **_bare(options)))

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return _result(self._own(*_bare(arguments), **_bare(options)))

    def __getitem__(self, key: Any) -> Any:
        return _result(self._own[_bare(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._own[_bare(key)] = _bare(value)

    def __len__(self) -> int:
        return len(self._own)

    def __neg__(self) -> Any:
        return _result(-self._own)

    __array_ufunc__ = None


def _operator(function: Callable[..., Any], is_reflected: bool) -> Callable[..., Any]:
    def operate(self: Holder, other: Any = None) -> Any:
        operands = (_bare(self), _bare(other))
        return _result(function(*(reversed(operands) if is_reflected else operands)))

    return operate


for _name in ("add", "sub", "mul", "matmul", "truediv", "pow", "eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Holder, f"__{_name}__", _operator(getattr(operator, f"__{_name}__"), False))
    setattr(Holder, f"__r{_name}__", _operator(getattr(operator, f"__{_name}__"), True))
Holder.__hash__ = object.__hash__  # type: ignore[method-assign]


@functools.cache
def holder(cls: Any) -> type[Holder]:
    """Return the class of `Holder`s for the objects of a class."""
    return type(cls.__name__, (Holder,), {"_class": cls, "__module__": cls.__module__, "__doc__": cls.__doc__})


def _bare(value: Any) -> Any:
    """Return a value, or values in a tuple, list or dict, as NumPy's and SciPy's own objects."""
    if isinstance(value, Holder):
        return value._own
    if type(value) in (tuple, list):
        return type(value)(map(_bare, value))
    if isinstance(value, dict):
        return {name: _bare(part) for name, part in value.items()}
    return plain(value)


def _result(value: Any, scalars: tuple[type, ...] = (np.generic,)) -> Any:
    """Return a result: arrays as device arrays, and objects of SciPy's and NumPy's classes as `Holder`s."""
    if _is_holder(type(value)):
        cls: Any = type(value)
        result = holder(cls).__new__(holder(cls))
        result._own = value
        return result
    return wrapped(value, scalars)


def library_function(name: str, value: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of SciPy's under a name of CuPy's."""

    @functools.wraps(value)
    def call(*arguments: Any, **options: Any) -> Any:
        result = computed(value, _bare(arguments), _bare(options))
        return _result(result)

    return call
