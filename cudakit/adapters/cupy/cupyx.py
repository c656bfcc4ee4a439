"""A stand-in for the modules of ``cupyx``, except ``cupyx.jit``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cudakit.adapters.cupy.arrays import ndarray, plain, wrapped
from cudakit.adapters.cupy.modules import Module, library_function
from cudakit.adapters.stand_ins import unchanged
from cudakit.emulator.face import EmulatorPlace, order
from cudakit.memory.memory import empty

_SCIPY = (
    "fft", "fftpack", "interpolate", "linalg", "ndimage", "optimize", "signal", "signal.windows", "sparse",
    "sparse.csgraph", "sparse.linalg", "spatial", "spatial.distance", "special", "stats",
)  # fmt: skip


def empty_pinned(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    """Return a new NumPy array in pinned memory."""
    shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    if order == "F":
        return empty_pinned(shape[::-1], dtype).T
    with EmulatorPlace().using(EmulatorPlace().stream()):
        return np.asarray(empty(shape, dtype, "pinned"))


def zeros_pinned(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    """Return a new NumPy array of zeros in pinned memory."""
    array = empty_pinned(shape, dtype, order)
    array[...] = 0
    return array


def _like(make: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def like(a: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> np.ndarray:
        is_fortran = order == "F" or (order in "KA" and a.flags.f_contiguous and not a.flags.c_contiguous)
        return make(a.shape if shape is None else shape, dtype or a.dtype, "F" if is_fortran else "C")

    return like


def rsqrt(x: Any, out: Any = None, dtype: Any = None) -> Any:
    """Return 1 / √x of each element."""
    result = np.asarray(1 / np.sqrt(plain(x), dtype=dtype))
    if out is None:
        return wrapped(result)
    out[...] = wrapped(result)
    return out


class PerfCaseResult:
    """Times of a function on the host; those on a GPU are NaN.

    Attributes
    ----------
    name : str
        Name of the function.
    cpu_times, gpu_times : numpy.ndarray
        Times in seconds: shape (repeats,), and (devices, repeats).
    """

    def __init__(self, name: str, cpu_times: np.ndarray) -> None:
        self.name: str = name
        self.cpu_times: np.ndarray = cpu_times
        self.gpu_times: np.ndarray = np.full((1, len(cpu_times)), np.nan)

    def to_str(self, show_gpu: bool = False) -> str:
        """Return the mean time on the host, as a line."""
        mean, gpu = self.cpu_times.mean() * 1e6, "    GPU-0: nan us" if show_gpu else ""
        return f"{self.name:<20s}:    CPU: {mean:9.3f} us{gpu}"

    def __str__(self) -> str:
        return self.to_str(show_gpu=True)

    __repr__ = __str__


def benchmark(
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    n_repeat: int = 10000,
    *,
    name: str | None = None,
    n_warmup: int = 10,
    max_duration: float = float("inf"),
    devices: Any = None,
) -> PerfCaseResult:
    """Call a function once, and return the host's time. Repeats would measure no GPU.

    See `PerfCaseResult`; the other parameters are CuPy's and change nothing.
    """
    begun = time.perf_counter()
    func(*args, **(kwargs or {}))
    elapsed = time.perf_counter() - begun
    return PerfCaseResult(name or str(getattr(func, "__name__", "function")), np.array([elapsed]))


class time_range(contextlib.ContextDecorator):
    """A named range of a program. A profiler that shows it needs a GPU, so it is a context that does nothing."""

    def __init__(self, message: str | None = None, color_id: Any = None, argb_color: Any = None, sync: bool = False):
        self.message = message

    def __enter__(self) -> time_range:
        return self

    def __exit__(self, *raised: object) -> None:
        pass


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """Return a context that does nothing: there is no GPU to profile."""
    yield
    order().finish_all()


class DeviceSynchronized(RuntimeError):
    """Error of CuPy's for a wait in a block that forbids it."""


def get_runtime_info(*, full: bool = True) -> str:
    """Return what runs the program."""
    import cudakit

    return f"cudakit {cudakit.__version__}'s stand-in for CuPy: no GPU\nNumPy        : {np.__version__}"


class PlanCache:
    """A cache of cuFFT's plans. NumPy needs no plans, so it stays empty.

    Attributes
    ----------
    size, memsize : int
        Limits of the number of plans and of their bytes, which change nothing here.
    """

    def __init__(self, size: int = 16, memsize: int = -1) -> None:
        self.size: int = size
        self.memsize: int = memsize

    def get_size(self) -> int:
        """Return the limit of the number of plans."""
        return self.size

    def set_size(self, size: int) -> None:
        """Set the limit of the number of plans."""
        self.size = size

    def get_memsize(self) -> int:
        """Return the limit of the plans' bytes."""
        return self.memsize

    def set_memsize(self, memsize: int) -> None:
        """Set the limit of the plans' bytes."""
        self.memsize = memsize

    def get_curr_size(self) -> int:
        """Return 0, the number of plans."""
        return 0

    def get_curr_memsize(self) -> int:
        """Return 0, the bytes of the plans."""
        return 0

    def clear(self) -> None:
        """Do nothing: there are no plans."""

    def show_info(self) -> None:
        """Print that there are no plans."""
        print("cuFFT plan cache: empty, since NumPy computes without plans")


_PLANS = PlanCache()


def fft_config() -> Module:
    """Return the module ``cupy.fft.config``."""
    return Module(
        "cupy.fft.config", None, enable_nd_planning=True, use_multi_gpus=False, get_plan_cache=lambda: _PLANS,
        clear_plan_cache=_PLANS.clear, show_plan_cache_info=_PLANS.show_info, get_plan_cache_size=_PLANS.get_size,
        set_plan_cache_size=_PLANS.set_size, get_plan_cache_max_memsize=_PLANS.get_memsize,
        set_plan_cache_max_memsize=_PLANS.set_memsize,
    )  # fmt: skip


class _Library(Module):
    """A module of SciPy's under CuPy's name."""

    def _part(self, name: str) -> Any:
        value = super()._part(name)
        original = getattr(self._library(), name)
        if callable(original) and not isinstance(original, type | np.ufunc):
            return library_function(name, original)
        return value


class _Transforms(_Library):
    """The module of Fourier transforms, whose functions ignore plans. SciPy takes it as a backend."""

    def _part(self, name: str) -> Any:
        function = super()._part(name)
        if not callable(function):
            return function

        fft: Any = self._library()

        def transform(*arguments: Any, plan: Any = None, **options: Any) -> Any:
            with fft.set_backend("scipy", only=True):
                return function(*arguments, **options)

        return transform

    def _as_backend(self, method: Any, arguments: Any, options: Any) -> Any:
        if not any(isinstance(argument, ndarray) for argument in arguments):
            return NotImplemented
        return getattr(self, method.__name__)(*arguments, **options)


def modules(cupy: Any, jit: Any) -> dict[str, Any]:
    """Return ``cupyx`` and its modules, by name."""
    profiler = Module(
        "cupyx.profiler", benchmark=benchmark, time_range=time_range, profile=profile, PerfCaseResult=PerfCaseResult
    )
    libraries: dict[str, Any] = {
        f"cupyx.scipy.{name}": (_Transforms if name == "fft" else _Library)(f"cupyx.scipy.{name}", f"scipy.{name}")
        for name in _SCIPY
    }
    for name, module in libraries.items():
        parent = libraries.get(name.rpartition(".")[0])
        if parent is not None:
            parent.__dict__[name.rpartition(".")[2]] = module
    top = {name.removeprefix("cupyx.scipy."): module for name, module in libraries.items() if name.count(".") == 2}
    scipy = Module("cupyx.scipy", get_array_module=cupy.get_array_module, **top)
    transforms = libraries["cupyx.scipy.fft"]
    transforms.__dict__.update(__ua_domain__="numpy.scipy.fft", __ua_function__=transforms._as_backend)
    transforms.__dict__["get_fft_plan"] = lambda *arguments, **options: contextlib.nullcontext()
    libraries["cupyx.scipy.special"].__dict__["rsqrt"] = rsqrt
    cupyx = Module(
        "cupyx", profiler=profiler, scipy=scipy, jit=jit, empty_pinned=empty_pinned, zeros_pinned=zeros_pinned,
        empty_like_pinned=_like(empty_pinned), zeros_like_pinned=_like(zeros_pinned), scatter_add=ndarray.scatter_add,
        scatter_max=ndarray.scatter_max, scatter_min=ndarray.scatter_min, rsqrt=rsqrt, errstate=unchanged,
        allow_synchronize=unchanged, DeviceSynchronized=DeviceSynchronized, get_runtime_info=get_runtime_info,
    )  # fmt: skip
    return {"cupyx": cupyx, "cupyx.profiler": profiler, "cupyx.scipy": scipy, "cupyx.jit": jit, **libraries}
