"""The calls of a kernel: specialization, loading, and the full check of calls that no recorded shape fits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from inspect import Parameter
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, TypeVar

from cudakit.errors import ArgumentError, CompileError, TemplateError, raise_launch_error, shortened
from cudakit.jit.launch import code_place
from cudakit.jit.launch.bind import evaluate
from cudakit.jit.launch.dispatch import MISSING, Dispatcher
from cudakit.jit.launch.launch import CallShape
from cudakit.jit.load.config import Config, Cover, as_config, is_empty
from cudakit.jit.signature.signature import Signature, listed
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.deduce import Deduced, deduce, explicit_arguments
from cudakit.jit.specialise.options import Target
from cudakit.jit.specialise.specialise import Specialization, specialise
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.kernel.unit import Unit
from cudakit.places import place_of
from cudakit.streams import devices
from cudakit.types.arguments import Evidence

if TYPE_CHECKING:
    from cudakit.jit.launch.generated import Shape
    from cudakit.jit.launch.plan import Plan

_T = TypeVar("_T")


def choose(overloads: Iterable[Signature], attempt: Callable[[Signature], _T], count: int) -> _T:
    """Call `attempt` with each overload, and return its result for the only one that does not raise.

    `count` is the number of arguments, for the error.

    Raises
    ------
    ArgumentError
        If no overload accepts the arguments, or several do.
    """
    overloads = tuple(overloads)
    matches: list[tuple[Signature, _T]] = []
    refused: list[str] = []
    for kernel in overloads:
        try:
            matches.append((kernel, attempt(kernel)))
        except (ArgumentError, TemplateError, CompileError) as error:
            refused.append(f"{kernel.full_name}: {str(error).partition(chr(10))[0]}")
    if len(matches) == 1:
        return matches[0][1]
    name = overloads[0].name
    if matches:
        raise ArgumentError(
            f"{name} has several kernels that these arguments fit: {listed(kernel for kernel, _ in matches)}; name one "
            f"with the types of its parameters, as in Kernel(source, {shortened(matches[0][0].full_name)})"
        )
    raise ArgumentError(f"no kernel {name} takes these {count} arguments:\n" + "\n".join(refused))


def _has_host_arrays(arguments: tuple[Any, ...]) -> bool:
    """Return whether `In`, `Out` or `InOut` is among a call's arguments."""
    if "cudakit.memory.host_arrays" not in sys.modules:  # before it is loaded there are no such arguments
        return False
    from cudakit.memory.host_arrays import among

    return among(arguments)


class Calls:
    """The calls of a kernel with some of its template arguments bound.

    Attributes
    ----------
    template_arguments : tuple
        The template arguments from the brackets, in order.
    explicit : dict
        The same template arguments, by name.
    dispatcher : Dispatcher
        Owner of the generated function that is called.
    latest : Ready or None
        The loaded specialization that was launched last.
    kernel : object
        The `cudakit.kernel.kernel.Kernel` that is called.
    """

    kernel: Any = None

    def __init__(
        self, unit: Unit, origin: Source, signature: Signature, arch: str | None, template_arguments: tuple[Any, ...]
    ) -> None:
        self.unit, self.source, self.signature, self.arch, self.template_arguments = (
            unit,
            origin,
            signature,
            arch,
            template_arguments,
        )
        self.book: TypeBook = TypeBook(unit.declarations)
        self.explicit: dict[str, Deduced] = {}
        if template_arguments and not signature.overloads:
            self.explicit = explicit_arguments(signature, template_arguments, self.book)
        self.defaults: dict[str, Any] = code_place.defaults_of(signature)
        names = [parameter.name for parameter in signature.parameters or () if not parameter.pack]
        self.dispatcher: Dispatcher = Dispatcher(signature.name, names, self._check, self.defaults)
        self.latest: code_place.Ready | None = None
        unit.users.add(self)

    def forget(self) -> None:
        """Drop all loaded code, because it was replaced: every call looks its code up again."""
        self.dispatcher.clear()
        self.latest = None

    def overload(self, signature: Signature) -> Calls:
        """Return the calls of the kernel with this signature, one of several with the same name."""
        return Calls(self.unit, self.source, signature, self.arch, self.template_arguments)

    def specialized(self, evidence: tuple[Evidence, ...], arch: str, target: Target) -> tuple[Specialization, TypeBook]:
        """Return the specialization for arguments with this type information, and the record of the C++ types in it."""
        if self.signature.overloads:
            raise TemplateError(
                f"there are several kernels {self.signature.name}: {listed(self.signature.overloads)}; name one with "
                f"the types of its parameters, as in Kernel(source, {shortened(self.signature.overloads[0].full_name)})"
            )
        declarations, options = self.unit.declarations, self.unit.options
        book = TypeBook(declarations, dict(self.book.structs), dict(self.book.snippets))
        deduced = deduce(self.signature, self.explicit, evidence, book.spell)
        specialization = specialise(
            self.source, declarations, self.signature, deduced, evidence, book, arch, options, target
        )
        return specialization, book

    def of_call(self, stream: Any, args: tuple[Any, ...]) -> Specialization:
        """Return the specialization that a call with these arguments launches. Nothing is compiled."""
        if self.signature.overloads:
            return choose(
                self.signature.overloads, lambda overload: self.overload(overload).of_call(stream, args), len(args)
            )
        args = code_place.with_defaults(self.signature, self.defaults, args)
        place = place_of(stream).code(stream)
        described = code_place.describe_call(self.signature, args, self.book, place.describe)
        evidence = tuple(argument.evidence for argument in described)
        with place.entered():
            return place.adapted(self.specialized(evidence, self.arch or place.arch, place.target)[0])

    def load(self, evidence: tuple[Evidence, ...], place: code_place.CodePlace) -> code_place.Ready:
        """Return the specialization for arguments of these types, loaded at a place and ready to launch."""
        place.check_arch(self.signature.name, self.arch)
        specialization, book = self.specialized(evidence, self.arch or place.arch, place.target)
        ready = self.latest = self.unit.load(place.adapted(specialization), evidence, book, place)
        return ready

    def plan(self, stream: Any, config: Any, args: tuple[Any, ...]) -> Plan:
        """Check a launch, order it and resolve its configuration now; the plan repeats it."""
        from cudakit.jit.launch.plan import Plan, nothing  # many programs make none
        from cudakit.memory.host_arrays import refuse_in_plan

        refuse_in_plan(self.signature.name, args)
        with self.unit.lock:  # until the plan holds the code, lest it be loaded anew
            launch_config, shape, values, args = self._shape(stream, config, args)
            return Plan(nothing) if shape is None else shape.plan(shape.target(stream), launch_config, values, args)

    def shown_parameters(self) -> Iterable[Parameter]:
        """Yield the parameters for `inspect.signature`, with C++ types as annotations."""
        yield Parameter("stream", Parameter.POSITIONAL_ONLY)
        yield Parameter("config", Parameter.POSITIONAL_ONLY)
        parameters, names = self.signature.parameters, iter(self.dispatcher.parameters)
        if parameters is None or self.signature.overloads:
            yield Parameter("arguments", Parameter.VAR_POSITIONAL)
            return
        needed = [k for k, p in enumerate(parameters) if not p.pack and p.name not in self.defaults]
        parameter_kind: Any = Parameter.POSITIONAL_OR_KEYWORD
        for k, p in enumerate(parameters):
            if p.pack:
                yield Parameter(
                    "arguments" if iskeyword(p.name) else p.name or "arguments",
                    Parameter.VAR_POSITIONAL,
                    annotation=str(p.type),
                )
                parameter_kind = Parameter.KEYWORD_ONLY
                continue
            may_lack = not needed or k > needed[-1]
            default = self.defaults[p.name] if may_lack else Parameter.empty
            yield Parameter(next(names), parameter_kind, default=default, annotation=str(p.type))

    # ── the full check, for calls that fit no plan ───────────────────────────────────────────────────────────────

    def _check(
        self, stream: Any, config: Any, args: tuple[Any, ...], reason: BaseException | None, /, **keywords: Any
    ) -> None:
        # A thread without a CUDA context has one now: the call is made once more.
        if reason is not None and (devices.is_forked() or not devices.has_gpu() or not devices.make_current()):
            raise_launch_error(reason, self.dispatcher.shapes[0].name if self.dispatcher.shapes else "")
        if keywords:
            args = code_place.in_order(self.signature.name, self.dispatcher.parameters, args, keywords)
        while args and args[-1] is MISSING:
            args = args[:-1]
        if _has_host_arrays(args):
            from cudakit.memory.backend import backend_of  # for such calls alone

            backend_of(stream).call(
                self.kernel, stream, config, code_place.with_defaults(self.signature, self.defaults, args)
            )
            return
        with self.unit.lock:
            count = len(args)
            _, shape, values, args = self._shape(stream, config, args)
            if shape is None:
                return
            # A default argument of one overload is no default of the function.
            self.dispatcher.add(shape, args[count:] if self.signature.overloads else ())
            target: Any = shape.target(stream)
            if isinstance(shape, CallShape):
                # This launch must come before the code is replaced, or what it writes to variables would be lost.
                shape.launch(target, config, values, args)
                return
        # The emulator's code is never replaced, and the launch may wait for another thread's.
        shape.launch(target, config, values, args)

    def _shape(
        self, stream: Any, config: Any, args: tuple[Any, ...]
    ) -> tuple[Config | Cover, Shape | None, list[Any], tuple[Any, ...]]:
        """Check a call. Return its configuration, its call shape, the values to pass, and all arguments with defaults.

        The shape is None, and the values are empty, for a launch of no threads.
        """
        if self.signature.overloads:
            return choose(
                self.signature.overloads,
                lambda overload: self.overload(overload)._shape(stream, config, args),
                len(args),
            )
        args = code_place.with_defaults(self.signature, self.defaults, args)
        place = place_of(stream).code(stream)
        launch_config = as_config(config)
        described = code_place.describe_call(self.signature, args, self.book, place.describe)
        if is_empty(launch_config):
            return launch_config, None, [], args
        evidence = tuple(argument.evidence for argument in described)
        with place.entered():
            ready = self.load(evidence, place)
            if len(ready.parameters) != len(described):
                unread = "; its head was not understood, so that its default arguments are not known: give all values"
                more = "" if self.signature.parameters is not None else unread
                raise code_place.wrong_count(self.signature.name, len(ready.parameters), len(described), more=more)
            shape = place.bind(ready, args, described, code_place.weak_choices(self.signature, evidence, self.explicit))
        pairs = zip(shape.fragments, described, strict=True)
        return launch_config, shape, [evaluate(fragment, argument.value) for fragment, argument in pairs], args
