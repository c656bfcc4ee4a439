"""Errors of the stand-ins, which are cuda.core's and cudakit's, and options given as cuda.core takes them."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import cuda.core

from cudakit.errors import CompileError, LaunchError, shortened

Options = TypeVar("Options")


def _private(name: str) -> type[Exception]:
    """Return an error class of cuda.core. Before version 1.3 they are in a private module."""
    from cuda.core._utils import cuda_utils

    error: type[Exception] = getattr(cuda.core, name, None) or getattr(cuda_utils, name)
    return error


CUDAError: type[Exception] = _private("CUDAError")
NVRTCError: type[Exception] = _private("NVRTCError")


class CoreError(LaunchError, CUDAError):  # type: ignore[misc,valid-type]  # a class found at run time
    """Error where cuda.core raises a ``CUDAError``, or where the emulator lacks what the driver has."""


class CoreCompileError(CompileError, NVRTCError):  # type: ignore[misc,valid-type]  # a class found at run time
    """Error of a program that does not compile, where cuda.core raises an ``NVRTCError``."""


class MadeByOthers:
    """A base of classes that programs do not construct: methods of other objects make their instances."""

    __slots__ = ()

    def __new__(cls, *arguments: Any, **keywords: Any) -> Any:
        if not str(sys._getframe(1).f_globals.get("__name__", "")).startswith("cudakit."):
            raise RuntimeError(
                f"{cls.__name__} objects cannot be instantiated directly. Methods of cuda.core make them."
            )
        return super().__new__(cls)


#: Objects whose handles a program has asked for, by handle.
living: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def handle_of(value: Any) -> int:
    """Return the handle of an object, which `living` has from now on."""
    living[id(value)] = value
    return id(value)


class Closeable:
    """A base of objects with a number, which are closed by hand. What an object has made stays."""

    is_closed: bool = False

    @property
    def handle(self) -> int:
        """Number of the object; 0 once it is closed."""
        return 0 if self.is_closed else handle_of(self)

    def close(self) -> None:
        """Close the object."""
        self.is_closed = True


def raising(text: str, error_class: type[Exception] = CoreError) -> Callable[..., NoReturn]:
    """Return a function that raises: what it does needs a GPU, or a derived class."""

    def call(*arguments: Any, **keywords: Any) -> NoReturn:
        raise error_class(text)

    return call


def unavailable(name: str, text: str, *makers: str) -> Any:
    """Return a class whose constructor and class methods raise: it needs a GPU's driver."""
    methods: dict[str, Any] = {maker: staticmethod(raising(f"{name}.{maker}: {text}")) for maker in makers}
    methods |= {"__init__": raising(f"{name}: {text}"), "__doc__": f"A stand-in for ``{name}``, which raises: {text}."}
    return type(name, (), methods)


def of_options(options_class: type[Options], options: Any, noun: str) -> Options:
    """Return options of a class, which may be given as a dict, or as None for the defaults.

    Raises
    ------
    TypeError
    """
    if options is None:
        return options_class()
    if isinstance(options, dict):
        return options_class(**options)
    if not isinstance(options, options_class):
        raise TypeError(f"{noun} must be a {options_class.__name__} or a dict of its fields, got {shortened(options)}")
    return options
