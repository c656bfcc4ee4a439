"""Variants of a kernel: the template arguments, compile options, macros and launch shape of a point."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from cudakit.errors import ArgumentError, CudakitError, LaunchError
from cudakit.jit.load.config import Config, Cover, as_config, config
from cudakit.jit.signature.signature import Declarations
from cudakit.jit.specialise.options import CompileOptions
from cudakit.jit.specialise.specialise import Specialization
from cudakit.jit.specialise.spellings import names_of
from cudakit.memory.host_arrays import HostArray
from cudakit.tuning.space import Point, Space

#: Parameters of `ck.config` that a space may vary when no `config` is passed.
SHAPES = ("grid", "block", "shared_bytes", "cluster", "cooperative")
_OPTIONS = frozenset(field.name for field in dataclasses.fields(CompileOptions))
#: A configuration, or a function of parameters of the space that returns one.
Configured: TypeAlias = Config | Cover | Callable[..., Any] | None


class Variants:
    """The variants of a kernel in a space: for each point a kernel and a launch configuration.

    A parameter of the space is, by its name, a template parameter of the kernel, a field of `CompileOptions`, a
    parameter of `ck.config`, or a macro that the source uses. A parameter that only `config` takes is allowed.

    Parameters
    ----------
    kernel : Kernel
        Kernel whose variants are tried.
    space : Space
        Space of the variants.
    config : Config, Cover, LaunchConfig or callable, optional
        Launch configuration, or a function of parameters of the space and of the kernel, by their names. Default: the
        space has ``grid`` and ``block``.

    Raises
    ------
    ArgumentError
        A parameter of the space has no meaning for the kernel, or there is no configuration.
    """

    def __init__(self, kernel: Any, space: Space, config: Configured = None) -> None:
        self.space = space
        self._kernel = kernel
        self._config = config
        of_config = _names_of_config(config)
        parameters = [parameter.name for parameter in kernel.signature.parameters or ()]
        #: Parameters of the kernel whose arguments `config` takes.
        self.of_call = tuple(name for name in parameters if name in of_config and name not in space.names)
        names = {*space.names, *self.of_call, "**"}
        if unknown := [name for name in of_config if name not in names]:
            raise ArgumentError(
                f"config takes {unknown[0]!r}: neither the space ({', '.join(space.names)}) nor {kernel.name} "
                f"({', '.join(parameters)}) has it"
            )
        of_templates = [parameter.name for parameter in kernel.signature.template_parameters]
        self.template = tuple(name for name in space.names if name in of_templates)
        self.options = tuple(name for name in space.names if name in _OPTIONS)
        self.shapes = tuple(name for name in space.names if name in SHAPES and config is None)
        others = [name for name in space.names if name not in {*self.template, *self.options, *self.shapes}]
        words = _words_of(kernel) if others else frozenset()
        self.macros = tuple(name for name in others if name in words)
        self._of_config = [name for name in space.names if name in of_config or of_config == {"**"}]
        if unused := [name for name in others if name not in words and name not in self._of_config]:
            raise ArgumentError(
                f"{unused[0]!r} of the space changes nothing of {kernel.name}: it is no template parameter "
                f"({', '.join(of_templates) or 'the kernel has none'}), no compile option, no macro of the source "
                "or its headers, and `config` does not take it"
            )
        if config is None and "grid" not in self.shapes:
            raise ArgumentError(
                "there is no launch configuration: pass config=ck.cover(n), a function of the space's parameters, or "
                "'grid' and 'block' in the space"
            )

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return str(self._kernel.name)

    def packaged(self, path: str) -> Any:
        """Return a kernel of the package's templates, ``concept/name``."""
        return type(self._kernel).from_template(path)

    def kernel(self, point: Point) -> Any:
        """Return the kernel of a point."""
        kernel = self._kernel
        changes = {name: point[name] for name in self.options}
        if self.macros:
            changes["defines"] = {**_as_dict(kernel.options.defines), **{name: point[name] for name in self.macros}}
        if changes:
            kernel = kernel.with_options(**changes)
        if self.template:
            kernel = kernel[tuple(slice(name, point[name]) for name in self.template)]
        return kernel

    def specializations(self, point: Point, stream: Any, arguments: Sequence[Any]) -> list[Specialization]:
        """Return the specializations that a launch of a point needs."""
        return [self.kernel(point).specialization_of(stream, *arguments)]

    def values(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """Return the arguments that `config` takes, by the names of the kernel's parameters."""
        pairs = zip(self._kernel.signature.parameters or (), arguments, strict=False)
        return {
            parameter.name: value.array if isinstance(value, HostArray) else value
            for parameter, value in pairs
            if parameter.name in self.of_call
        }

    def config(self, point: Point, values: Mapping[str, Any]) -> Config | Cover:
        """Return the launch configuration of a point; `values` has the arguments that `config` takes."""
        if self._config is None:
            return config(**{name: point[name] for name in self.shapes})
        if callable(self._config) and not isinstance(self._config, Config | Cover):
            if absent := [name for name in self.of_call if name not in values]:
                raise ArgumentError(f"config takes {absent[0]!r}, which the call leaves out: pass it in the call")
            try:
                chosen = self._config(**values, **{name: point[name] for name in self._of_config})
            except CudakitError:
                raise
            except Exception as error:
                raise LaunchError(f"config raises {type(error).__name__}: {error}") from error
            return as_config(chosen)
        return as_config(self._config)


def _words_of(kernel: Any) -> frozenset[str]:
    """Return the identifiers of a kernel's source and of the headers that it includes."""
    texts = names_of(kernel.source, Declarations(), kernel.options).texts
    return frozenset(word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text))


def _names_of_config(config: Configured) -> frozenset[str]:
    """Return the parameters of a configuration's function; ``{"**"}`` for all of the space's."""
    if config is None or isinstance(config, Config | Cover) or not callable(config):
        return frozenset()
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(config).parameters.items()
        if parameter.default is parameter.empty or parameter.kind is parameter.VAR_KEYWORD
    }
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return frozenset({"**"})
    return frozenset(parameters)


def _as_dict(defines: Any) -> Mapping[str, Any]:
    """Return macros as a dict; `CompileOptions` keeps them as pairs."""
    return dict(defines)
