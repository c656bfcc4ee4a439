"""The façade: a module of CUDA C++ and its kernels, called from Python, over all the stages."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from inspect import Parameter
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from cudakit.errors import ArgumentError, TemplateError, raise_launch_error
from cudakit.jit.cache.stages import compiled_of
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.launch.bind import evaluate
from cudakit.jit.launch.call_arguments import (
    defaults_of,
    describe_call,
    evidence_of_types,
    in_order,
    weak_choices,
    with_defaults,
    wrong_count,
)
from cudakit.jit.launch.code_place import CodePlace, DeviceCode, Ready
from cudakit.jit.launch.dispatch import MISSING, Dispatcher, Shape
from cudakit.jit.launch.launch import CallShape
from cudakit.jit.launch.plan import Plan, nothing
from cudakit.jit.load.config import Config, Cover, as_config, is_empty
from cudakit.jit.load.load import Attributes, Loaded
from cudakit.jit.signature.signature import Signature, listed, select
from cudakit.jit.source import source
from cudakit.jit.source.source import HostCode, Source
from cudakit.jit.specialise.deduce import Deduced, deduce
from cudakit.jit.specialise.options import CompileOptions, Target, options_of
from cudakit.jit.specialise.specialise import Specialization, specialise
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.jit.specialise.template_arguments import explicit_arguments, hashable
from cudakit.kernel.overloads import choose
from cudakit.kernel.unit import Unit
from cudakit.memory import host_arrays
from cudakit.memory.backend import backend_of
from cudakit.places import place_of
from cudakit.streams import devices
from cudakit.types.arguments import Evidence
from cudakit.types.checked import text_of, whole
from cudakit.types.parameters_shown import ShownSignature
from cudakit.types.text import split_arguments

if TYPE_CHECKING:
    from cudakit.kernel.globals import Globals

_Self = TypeVar("_Self", bound="Kernel")


class Module(Unit):
    """One source, compiled with some options: its kernels, and the variables that they share, as C++ has it.

    All kernels and all their instances share ``__device__``, ``__constant__`` and ``__managed__`` variables, those
    inside functions and classes too. Kernels that are no templates are compiled together and loaded once.

    There is one module of a source (its text, name and folder), its options and its arch in a process, whoever asks
    for it, `Kernel` too; once a header has changed, who asks gets a new one. (Where cudakit cannot tell what is
    included, as with ``#include MACRO``, each is new: take the kernels of one `Module`.) On each device it has
    variables of its own, and so it has on the emulator of each arch. One that has any lives as long as the process.

    Parameters
    ----------
    text : str
        CUDA C++ source.
    options : CompileOptions, optional
    arch : str, optional
        Compile for this arch (``sm_90a``) rather than for the device that is launched on.
    host_code : {"keep", "skip"}
        ``"skip"`` for the program of nvcc, see `Kernel`.

    Examples
    --------
    >>> module = Module("__device__ int n; __global__ void count() { atomicAdd(&n, 1); }")
    >>> module["count"](stream, ck.config(1, 32))
    >>> int(module.globals["n"])
    32
    """

    def __new__(
        cls,
        text: str,
        *,
        options: CompileOptions | None = None,
        arch: str | None = None,
        host_code: HostCode = "keep",
    ) -> Self:
        return cls.of(_as_wanted(source.from_text(text, depth=2), host_code, options), options, arch)

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        options: CompileOptions | None = None,
        arch: str | None = None,
        host_code: HostCode = "keep",
    ) -> Self:
        """The module of a source file; ``#include "…"`` looks beside it first."""
        return cls.of(_as_wanted(source.from_file(path, None, host_code), host_code, options), options, arch)

    @classmethod
    def from_template(cls, concept: str, *, options: CompileOptions | None = None, arch: str | None = None) -> Self:
        """That of the packaged file ``templates/<concept>.cuh``."""
        return cls.of(source.from_template(concept), options, arch)

    def __getitem__(self, name: str) -> Kernel:
        """A kernel of it by its name, qualified where needed; ``module["scale<float, 4>"]`` names an instance."""
        text_of(f"{self.source.name}: a kernel's name", name)
        if "(" in name:  # one of several, by the types of its parameters
            return Kernel.of_module(self, name)
        bare, bracket, arguments = name.partition("<")
        found = Kernel.of_module(self, bare.strip())
        if not bracket:
            return found
        given = split_arguments(arguments.rstrip().removesuffix(">"))
        return found[tuple(int(each) if each.lstrip("-").isdigit() else each for each in given)]

    def prepare(self, *instances: str, arch: str | None = None) -> None:
        """Compile instances ahead of use, all at once; a GPU then loads them together.

        On a GPU the instances of a module that has variables must be in one piece of code. One that is launched later
        has all of them compiled and loaded again, and the variables copied; what cannot be moved (the code that a
        `Plan` or a graph holds, addresses that variables hold) refuses that.

        Parameters
        ----------
        *instances : str
            Such as ``"scale<float>"``; none: the kernels that are no templates.
        arch : str, optional
        """
        names = instances or [kernel.name for kernel in self.declarations.kernels if not kernel.is_template]
        self.prepare_all([self[name].specialization(arch=arch) for name in names])


class Kernel(functools.partial[None]):
    """A CUDA C++ kernel, as C++ has it: ``kernel[template arguments](stream, config, *arguments)``.

    The class is a `functools.partial` of a generated function, because that is the cheapest callable that Python lets
    an object with attributes be; see `cudakit.jit.launch.dispatch`.

    Parameters
    ----------
    text : str
        CUDA C++ source; it may hold many kernels and device functions. Kernels of one text are of one `Module`.
    name : str, optional
        Which ``__global__`` function, qualified by namespace where it has one. May be left out if there is one only.
    options : CompileOptions, optional
    arch : str, optional
        Compile for this arch (``sm_90a``) rather than for the device that is launched on.
    host_code : {"keep", "skip"}
        ``"skip"`` for a program as nvcc takes it: host functions, ``main``, the host's variables and headers are cut,
        in the project's own headers too (beside the file, or in the options' `include_paths`), which are read now.
        What kernels use stays, and what nvcc includes by itself is there. ``"keep"`` compiles the text as it is.

    Raises
    ------
    TemplateError
        If the source has no such kernel; near names are given.

    Examples
    --------
    >>> scale = Kernel("template <typename T> __global__ void scale(T* x, T by, int n) { … }")
    >>> scale(stream, ck.cover(x.size), x, 2.0, x.size)
    """

    __signature__: ShownSignature = ShownSignature(lambda self: self._shown_parameters())
    source: Source
    signature: Signature
    options: CompileOptions
    arch: str | None
    module: Module
    dispatcher: Dispatcher
    _given: tuple[Any, ...]
    _explicit: dict[str, Deduced]
    _book: TypeBook
    _defaults: dict[str, Any]
    _bound: dict[Any, Any]
    _latest: Ready | None

    def __new__(
        cls: type[_Self],
        text: str,
        name: str | None = None,
        *,
        options: CompileOptions | None = None,
        arch: str | None = None,
        host_code: HostCode = "keep",
    ) -> _Self:
        return cls._make(_as_wanted(source.from_text(text, depth=2), host_code, options), name, options, arch)

    @classmethod
    def from_file(
        cls: type[_Self],
        path: str | Path,
        name: str | None = None,
        *,
        signature: str | None = None,
        options: CompileOptions | None = None,
        arch: str | None = None,
        host_code: HostCode = "keep",
    ) -> _Self:
        """The kernel `name` of a source file, or of one that is compiled already.

        Parameters
        ----------
        path : path
            CUDA C++, in which ``#include "…"`` looks beside the file first; or PTX, a cubin, LTO IR or a fatbin. The
            emulator runs CUDA C++ and PTX.
        name : str, optional
        signature : str, optional
            The head of the kernel, where compiled code does not tell it, ``"void scale(const float* x, int n)"``.
            Mangled names in PTX and cubins do. Of a kernel that is ``extern "C"`` they tell the sizes of the
            parameters only: arguments are then arrays, and NumPy scalars of exactly so many bytes. LTO IR and fatbins
            tell nothing.
        options : CompileOptions, optional
            Of compiled code only `link`, `lto` and `max_registers` count.
        arch : str, optional
        host_code : {"keep", "skip"}
            ``"skip"`` for the file of an nvcc program, see `Kernel`.
        """
        origin = source.from_file(path, signature, host_code)
        if origin.code is not None:
            from cudakit.jit.compile import binary

            return cls._make(origin, binary.spelled(name), options, arch)
        return cls._make(_as_wanted(origin, host_code, options), name, options, arch)

    @classmethod
    def from_template(
        cls: type[_Self], path: str, *, options: CompileOptions | None = None, arch: str | None = None
    ) -> _Self:
        """A packaged template, ``concept/name``: the kernel `name` of ``templates/<concept>.cuh``."""
        concept, slash, name = path.rpartition("/") if isinstance(path, str) else ("", "", "")
        if not slash:
            raise TemplateError(f"a packaged template is named 'concept/name', as in 'image/gray'; got {path!r}")
        return cls._make(source.from_template(concept), name, options, arch)

    @classmethod
    def from_source(cls: type[_Self], origin: Source, name: str, options: CompileOptions | None = None) -> _Self:
        """The kernel `name` of a source that was read, or generated."""
        return cls._make(origin, name, options, None)

    @classmethod
    def of_module(cls: type[_Self], module: Module, name: str) -> _Self:
        """The kernel `name` of a module."""
        return cls._make(module.source, name, module.options, module.arch, (), module)

    @classmethod
    def _make(
        cls: type[_Self],
        origin: Source,
        name: str | None,
        options: CompileOptions | None,
        arch: str | None,
        given: tuple[Any, ...] = (),
        module: Module | None = None,
    ) -> _Self:
        # The heads that are given for kernels of one file make no modules of their own.
        whole_file = origin if origin.head is None else dataclasses.replace(origin, head=None)
        module = module or Module.of(whole_file, options if isinstance(options, CompileOptions) else None, arch)
        signature = select(module.declarations, name, origin.name) if origin.head is None else _headed(origin)
        options_of(signature.name, options)
        book = TypeBook(module.declarations)
        explicit = explicit_arguments(signature, given, book) if given and not signature.overloads else {}
        names = [parameter.name for parameter in signature.parameters or () if not parameter.pack]
        self: _Self
        defaults = defaults_of(signature)
        dispatcher = Dispatcher(signature.name, names, lambda *call, **named: self._check(*call, **named), defaults)
        self = super().__new__(cls, dispatcher.function)
        self.__dict__.update(
            source=origin,
            signature=signature,
            options=module.options,
            arch=arch,
            module=module,
            dispatcher=dispatcher,
            _given=given,
            _explicit=explicit,
            _book=book,
            _defaults=defaults,
            _bound={},
            _latest=None,
        )
        module.users.add(self)
        return self

    def forget(self) -> None:
        """Look for the code of every call anew: it was loaded anew."""
        self.dispatcher.clear()
        self.__dict__["_latest"] = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.source, self.signature.full_name, self.options, self.arch, self._given)

    def __repr__(self) -> str:
        given = f"<{', '.join(map(str, self._explicit.values()))}>" if self._explicit else ""
        return f"<cudakit.Kernel {self.signature.name}{given} from {self.source.name}>"

    def _shown_parameters(self) -> Iterable[Parameter]:
        """Parameters for `inspect.signature`: C++'s by their keywords, with their C++ types as annotations."""
        yield Parameter("stream", Parameter.POSITIONAL_ONLY)
        yield Parameter("config", Parameter.POSITIONAL_ONLY)
        parameters, names = self.signature.parameters, iter(self.dispatcher.parameters)
        if parameters is None or self.signature.overloads:
            yield Parameter("arguments", Parameter.VAR_POSITIONAL)
            return
        needed = [k for k, p in enumerate(parameters) if not p.pack and p.name not in self._defaults]
        kind: Any = Parameter.POSITIONAL_OR_KEYWORD
        for k, p in enumerate(parameters):
            if p.pack:
                yield Parameter(
                    "arguments" if iskeyword(p.name) else p.name or "arguments",
                    Parameter.VAR_POSITIONAL,
                    annotation=str(p.type),
                )
                kind = Parameter.KEYWORD_ONLY
                continue
            may_lack = not needed or k > needed[-1]
            default = self._defaults[p.name] if may_lack else Parameter.empty
            yield Parameter(next(names), kind, default=default, annotation=str(p.type))

    @property
    def name(self) -> str:
        """Qualified name of the ``__global__`` function."""
        return self.signature.name

    def __getitem__(self: _Self, given: Any) -> _Self:
        """The kernel with template arguments given: ``kernel[np.float32, 256]``, ``kernel["BLOCK": 256]``."""
        items = given if isinstance(given, tuple) else (given,)
        key = tuple(hashable(item) for item in items)
        bound: dict[Any, _Self] = self._bound
        try:
            found = bound.get(key)
        except TypeError:  # what has no hash is no template argument, which is said here
            explicit_arguments(self.signature, (*self._given, *items), self._book)
            raise
        if found is None:
            both = (*self._given, *items)
            made = self._make(self.source, self.signature.full_name, self.options, self.arch, both, self.module)
            found = bound.setdefault(key, made)
        return found

    def with_options(self: _Self, **changes: Any) -> _Self:
        """The kernel of another module, with other compile options: ``kernel.with_options(fast_math=True)``."""
        options = self.options.replace(**changes)
        return self._make(self.source, self.signature.full_name, options, self.arch, self._given)

    def _overload(self: _Self, signature: Signature) -> _Self:
        """That of the kernels which share this one's name."""
        return self._make(self.source, signature.full_name, self.options, self.arch, self._given, self.module)

    # ── compile, without or ahead of a launch ────────────────────────────────────────────────────────────────────

    def specialization(self, *types: Any, arch: str | None = None, target: Target = "cubin") -> Specialization:
        """The specialization for the given template arguments and argument types.

        Parameters
        ----------
        *types : object
            One for each kernel parameter, to deduce template arguments from: a dtype (of a scalar, or of an array's
            elements), ``(dtype, ndim)`` for ``cudakit::strided``, or None where nothing is to be deduced.
        arch : str, optional
            Default: the kernel's own, else the current device's.
        target : {"cubin", "ptx", "object", "ltoir"}
            Machine code, PTX for the emulator, or what can be linked: relocatable machine code, or LTO IR.

        Raises
        ------
        ArgumentError, TemplateError
        """
        if self.signature.overloads:
            return choose(
                self.signature.overloads,
                lambda each: self._overload(each).specialization(*types, arch=arch, target=target),
                len(types),
            )
        evidence = evidence_of_types(self.signature, types)
        return self._specialized(evidence, arch or self.arch or devices.default_arch(), target)[0]

    def _specialized(
        self, evidence: tuple[Evidence, ...], arch: str, target: Target
    ) -> tuple[Specialization, TypeBook]:
        """The specialization for arguments of those types, and the types that it knows then."""
        if self.signature.overloads:
            raise TemplateError(
                f"there are several kernels {self.name}: {listed(self.signature.overloads)}; name one with "
                f"the types of its parameters, as in Kernel(source, {self.signature.overloads[0].full_name!r})"
            )
        module = self.module
        book = TypeBook(module.declarations, dict(self._book.structs), dict(self._book.snippets))
        found = deduce(self.signature, self._explicit, evidence, book.spell)
        made = specialise(
            self.source, module.declarations, self.signature, found, evidence, book, arch, self.options, target
        )
        return made, book

    def compile(self, *types: Any, arch: str | None = None, target: Target = "cubin") -> Compiled:
        """Compiled code, from the cache or by the compiler; needs no GPU where `arch` is named.

        Raises
        ------
        CompileError
        TemplateError
        """
        return compiled_of(self.specialization(*types, arch=arch, target=target))

    def ptx(self, *types: Any, arch: str | None = None) -> str:
        """PTX of a specialization; of the one launched last where no types are given and one is needed."""
        return self._compile_latest(types, arch, "ptx").code.decode()

    def sass(self, *types: Any, arch: str | None = None) -> str:
        """Machine code of a specialization, disassembled by nvdisasm or cuobjdump.

        Raises
        ------
        LaunchError
            If neither tool is found.
        """
        from cudakit.jit.compile.disassemble import disassemble

        return disassemble(self._compile_latest(types, arch, "cubin").code)

    def _compile_latest(self, types: tuple[Any, ...], arch: str | None, target: Target) -> Compiled:
        if not types and self._latest is not None:
            found = self._latest.specialization._replace(target=target)
            return compiled_of(found._replace(arch=arch) if arch else found)
        return self.compile(*types, arch=arch, target=target)

    def prepare(self, *specializations: Any, arch: str | None = None) -> None:
        """Compile ahead of use: in worker processes where there are several, or together where they share variables.

        Parameters
        ----------
        *specializations : object
            What would stand in the brackets, one entry a specialization: ``kernel.prepare(np.float32, np.float64)``,
            ``kernel.prepare((np.float32, 128), (np.float32, 256))``. None: the kernel as it is.
        arch : str, optional
        """
        prewarm([self[given] for given in specializations] or [self], arch=arch)

    # ── on a GPU ─────────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, stream: Any, config: Any, *args: Any) -> Plan:
        """Check, order and decide a launch now; the `Plan` then launches it at the driver's own cost."""
        host_arrays.refuse_in_plan(self.name, args)
        with self.module.lock:  # until the plan holds the code, lest it be loaded anew
            args = with_defaults(self.signature, self._defaults, args)
            wanted, shape, values = self._shape(stream, config, args)
            return Plan(nothing) if shape is None else shape.plan(shape.target(stream), wanted, values, args)

    def attributes(self, *types: Any, block: int | None = None, shared_bytes: int = 0) -> Attributes:
        """Registers, spills, shared memory and occupancy on the current device, of a specialization.

        Parameters
        ----------
        *types : object
            As for `specialization`; left out, the template arguments given, or the specialization launched last.
        block : int, optional
            Threads in a block for the occupancy; default: what the driver suggests.
        shared_bytes : int
            Dynamic shared memory a block, in bytes.
        """
        device_id = devices.current_device().device_id
        latest = self._latest
        if types or not isinstance(latest, Loaded):
            evidence = evidence_of_types(self.signature, types)
            place = DeviceCode(device_id)
            try:
                with place.entered():
                    latest = self._load(evidence, place)
            except TemplateError as error:
                raise TemplateError(f"{error}; or launch the kernel first") from error
            assert isinstance(latest, Loaded)
        return latest.attributes(device_id, block, shared_bytes)

    @property
    def globals(self) -> Globals:
        """The variables of its `module`."""
        return self.module.globals

    def _load(self, evidence: tuple[Evidence, ...], place: CodePlace) -> Ready:
        """The specialization for arguments of those types, ready to be launched at a place."""
        place.check_arch(self.name, self.arch)
        wanted, book = self._specialized(evidence, self.arch or place.arch, place.target)
        found = self.__dict__["_latest"] = self.module.load(wanted, evidence, book, place)
        return found

    # ── the full check, for calls that fit no plan ───────────────────────────────────────────────────────────────

    def _check(
        self, stream: Any, config: Any, given: tuple[Any, ...], reason: BaseException | None, /, **named: Any
    ) -> None:
        # A thread that had no context has one now, and the call is made once more.
        if reason is not None and (devices.is_forked() or not devices.has_gpu() or not devices.make_current()):
            raise_launch_error(reason, self.dispatcher.shapes[0].name if self.dispatcher.shapes else "")
        if named:
            given = in_order(self.name, self.dispatcher.parameters, given, named)
        while given and given[-1] is MISSING:
            given = given[:-1]
        given = with_defaults(self.signature, self._defaults, given)
        if host_arrays.among(given):
            backend_of(stream).call(self, stream, config, given)
            return
        with self.module.lock:
            _, shape, values = self._shape(stream, config, given)
            if shape is None:
                return
            self.dispatcher.add(shape)
            target: Any = shape.target(stream)
            if isinstance(shape, CallShape):
                # Before the code is loaded anew: what this launch writes to variables would be lost.
                shape.launch(target, config, values, given)
                return
        # The emulator's code is never replaced, and the launch may wait for another thread's.
        shape.launch(target, config, values, given)

    def _shape(
        self, stream: Any, config: Any, given: tuple[Any, ...]
    ) -> tuple[Config | Cover, Shape | None, list[Any]]:
        """Configuration, shape and values of a call; no shape where it launches nothing."""
        if self.signature.overloads:
            return choose(
                self.signature.overloads, lambda each: self._overload(each)._shape(stream, config, given), len(given)
            )
        place = place_of(stream).code(stream)
        wanted = as_config(config)
        described = describe_call(self.signature, given, self._book, place.describe)
        if is_empty(wanted):
            return wanted, None, []
        evidence = tuple(argument.evidence for argument in described)
        with place.entered():
            ready = self._load(evidence, place)
            if len(ready.parameters) != len(described):
                raise wrong_count(self.name, len(ready.parameters), len(described))
            shape = place.bind(ready, given, described, weak_choices(self.signature, evidence, self._explicit))
        pairs = zip(shape.fragments, described, strict=True)
        return wanted, shape, [evaluate(fragment, argument.value) for fragment, argument in pairs]


def _as_wanted(origin: Source, host_code: HostCode, options: CompileOptions | None) -> Source:
    if host_code not in ("keep", "skip"):
        raise ArgumentError(f"host_code is 'keep' or 'skip', got {host_code!r}")
    if host_code == "keep":
        return origin
    from cudakit.jit.signature.host_code import device_part  # with the parser, which most programs never load

    return device_part(origin, options.include_paths if options else ())


def _headed(origin: Source) -> Signature:
    """The head that was given for a kernel of compiled code."""
    from cudakit.jit.compile import binary

    return binary.signature(origin)


def _restore(
    cls: type[Kernel], origin: Source, name: str, options: CompileOptions, arch: str | None, given: tuple[Any, ...]
) -> Kernel:
    return cls._make(origin, name, options, arch, given)


def prewarm(kernels: Iterable[Kernel], *, arch: str | None = None, workers: int | None = None) -> None:
    """Compile `kernels` into the cache; what it holds already costs a look-up.

    Parameters
    ----------
    kernels : iterable of Kernel
        With their template arguments given: ``[saxpy[np.float32], saxpy[np.float64]]``.
    arch : str, optional
        Default: each kernel's own, else the current device's.
    workers : int, optional
        Worker processes; default: one a core, at most one for each kernel that must be compiled.

    Raises
    ------
    ArgumentError
        For a kernel alone, and for what is none.
    CompileError
        The first failure, after all others have been tried.
    """
    from cudakit.jit.cache.prewarm import compile_all  # starts processes: most programs never do

    if isinstance(kernels, Kernel):
        raise ArgumentError("prewarm takes several kernels, got one; put it into a list: ck.prewarm([kernel])")
    if not isinstance(kernels, Iterable):
        raise ArgumentError(f"prewarm takes several kernels, got {kernels!r}; put them into a list")
    if workers is not None:
        whole("prewarm: workers", workers, 1)
    kernels = list(kernels)
    for kernel in kernels:
        if not isinstance(kernel, Kernel):
            raise ArgumentError(f"prewarm takes kernels, such as kernel[np.float32], got {kernel!r}")
    alone, together = list[Specialization](), dict[Module, list[Specialization]]()
    for kernel in kernels:
        wanted = kernel.specialization(arch=arch)
        # Instances that share variables must be in one piece of code.
        shares = kernel.module.declarations.symbols
        (together.setdefault(kernel.module, []) if shares else alone).append(wanted)
    compile_all(alone, workers)
    for module, instances in together.items():
        module.prepare_all(instances)
