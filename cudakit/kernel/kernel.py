"""The façade: a module of CUDA C++ and its kernels, called from Python, over all the stages."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cudakit.errors import ArgumentError, TemplateError, shortened
from cudakit.jit.cache.stages import compiled_of
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.launch.code_place import DeviceCode, evidence_of_types
from cudakit.jit.launch.dispatch import Dispatcher
from cudakit.jit.launch.launch import Plan, Recipe
from cudakit.jit.load.load import Attributes, EmulatedAttributes, Loaded
from cudakit.jit.signature.signature import Declarations, Signature, select
from cudakit.jit.source import source
from cudakit.jit.source.source import HostCode, Source
from cudakit.jit.specialise.deduce import explicit_arguments, hashable
from cudakit.jit.specialise.options import CompileOptions, Target, check_target, options_of
from cudakit.jit.specialise.specialise import Specialization
from cudakit.kernel.calls import Calls, choose
from cudakit.kernel.unit import Unit
from cudakit.places import DEVICES, default_place
from cudakit.streams import devices
from cudakit.types.checked import is_one_of, listed, text_of, whole
from cudakit.types.cpp import split_arguments
from cudakit.types.shown import ShownSignature, Table, html

if TYPE_CHECKING:
    from cudakit.jit.compile.assemble import Explained
    from cudakit.kernel.globals import Globals


class Module:
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

    source: Source
    declarations: Declarations
    options: CompileOptions
    arch: str | None
    _unit: Unit

    def __new__(
        cls,
        text: str,
        *,
        options: CompileOptions | None = None,
        arch: str | None = None,
        host_code: HostCode = "keep",
    ) -> Self:
        return cls._of_source(_as_wanted(source.from_text(text, depth=2), host_code, options), options, arch)

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
        return cls._of_source(_as_wanted(source.from_file(path, None, host_code), host_code, options), options, arch)

    @classmethod
    def from_template(cls, concept: str, *, options: CompileOptions | None = None, arch: str | None = None) -> Self:
        """That of the packaged file ``templates/<concept>.cuh``."""
        return cls._of_source(source.from_template(concept), options, arch)

    @classmethod
    def _of_source(cls, origin: Source, options: CompileOptions | None, arch: str | None) -> Self:
        return cls._of(Unit.of(origin, options, arch))

    @classmethod
    def _of(cls, unit: Unit) -> Self:
        if unit.arch is not None:
            check_target(unit.source.name, unit.arch, "cubin")
        with unit.lock:
            found: Self | None = unit.module()
            if found is None:
                found = object.__new__(cls)
                found.source, found.declarations = unit.source, unit.declarations
                found.options, found.arch, found._unit = unit.options, unit.arch, unit
                unit.module = weakref.ref(found)
            return found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of_source, (self.source, self.options, self.arch)

    def __repr__(self) -> str:
        return f"<cudakit.Module {self.source.name}: {', '.join(self.kernels)}>"

    @property
    def kernels(self) -> tuple[str, ...]:
        """Qualified names of its ``__global__`` functions."""
        return tuple(dict.fromkeys(kernel.name for kernel in self.declarations.kernels))

    @property
    def globals(self) -> Globals:
        """Its variables, on the GPU or the emulator that a kernel of it was launched on last.

        Before any launch they are the GPU's or, where there is none, the emulator's; naming the stream in
        `Globals.read` and `Globals.write` chooses.
        """
        from cudakit.kernel.globals import Globals

        return Globals(self.declarations, self._unit.loaded, self._unit.check)

    def __getitem__(self, name: str) -> Kernel:
        """A kernel of it by its name, qualified where needed; ``module["scale<float, 4>"]`` names an instance."""
        text_of(f"{self.source.name}: a kernel's name", name)
        overloaded = "(" in name  # one of several, by the types of its parameters
        bare, bracket, arguments = (name, "", "") if overloaded else name.partition("<")
        found = Kernel._of(self._unit, self.source, bare if overloaded else bare.strip())
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
        self._unit.prepare([self[name].specialization(arch=arch) for name in names])


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

    __signature__: ShownSignature = ShownSignature(lambda self: self._calls.shown_parameters())
    source: Source
    signature: Signature
    options: CompileOptions
    arch: str | None
    module: Module
    dispatcher: Dispatcher
    _calls: Calls
    _bound: dict[Any, Any]

    def __new__(
        cls,
        text: str,
        name: str | None = None,
        *,
        options: CompileOptions | None = None,
        arch: str | None = None,
        host_code: HostCode = "keep",
    ) -> Self:
        return cls._make(_as_wanted(source.from_text(text, depth=2), host_code, options), name, options, arch)

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        return self  # no method of a class that it is an attribute of, as partials are from Python 3.14 on

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        name: str | None = None,
        *,
        signature: str | None = None,
        options: CompileOptions | None = None,
        arch: str | None = None,
        host_code: HostCode = "keep",
    ) -> Self:
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
            return cls._of_code(origin, name, options, arch)
        return cls._make(_as_wanted(origin, host_code, options), name, options, arch)

    @classmethod
    def from_ptx(
        cls,
        text: str,
        name: str | None = None,
        *,
        signature: str | None = None,
        options: CompileOptions | None = None,
        arch: str | None = None,
    ) -> Self:
        """The kernel `name` of PTX, whoever made it: nvcc, CuPy, Numba, Triton.

        Parameters
        ----------
        text : str
            A PTX module, or several.
        name : str, optional
            As in the PTX or, where that is mangled, as in C++. May be left out if there is one kernel only.
        signature, options, arch
            As for `from_file`: without a head, parameters of a kernel whose name is not mangled are checked by their
            sizes, and those that the PTX calls pointers (``.ptr``) take arrays.

        Raises
        ------
        TemplateError
            If the text is no PTX, or has no such kernel.
        """
        return cls._of_code(source.from_ptx(text, signature), name, options, arch)

    @classmethod
    def _of_code(cls, origin: Source, name: str | None, options: CompileOptions | None, arch: str | None) -> Self:
        from cudakit.jit.compile import binary

        return cls._make(origin, binary.spelled(name), options, arch)

    @classmethod
    def from_template(cls, path: str, *, options: CompileOptions | None = None, arch: str | None = None) -> Self:
        """A packaged template, ``concept/name``: the kernel `name` of ``templates/<concept>.cuh``."""
        concept, slash, name = path.rpartition("/") if isinstance(path, str) else ("", "", "")
        if not slash:
            raise TemplateError(
                f"a packaged template is named 'concept/name', as in 'image/gray'; got {shortened(path)}"
            )
        return cls._make(source.from_template(concept), name, options, arch)

    @classmethod
    def _make(
        cls,
        origin: Source,
        name: str | None,
        options: CompileOptions | None,
        arch: str | None,
        given: tuple[Any, ...] = (),
    ) -> Self:
        # The heads that are given for kernels of one file make no modules of their own.
        whole_file = origin if origin.head is None else dataclasses.replace(origin, head=None)
        unit = Unit.of(whole_file, options if isinstance(options, CompileOptions) else None, arch)
        made = cls._of(unit, origin, name, given)
        options_of(made.name, options)
        return made

    @classmethod
    def _of(cls, unit: Unit, origin: Source, name: str | None, given: tuple[Any, ...] = ()) -> Self:
        signature = select(unit.declarations, name, origin.name) if origin.head is None else _headed(origin)
        if unit.arch is not None:
            check_target(signature.name, unit.arch, "cubin")
        calls = Calls(unit, origin, signature, unit.arch, given)
        self: Self = super().__new__(cls, calls.dispatcher.function)
        self.__dict__.update(
            source=origin,
            signature=signature,
            options=unit.options,
            arch=unit.arch,
            module=Module._of(unit),
            dispatcher=calls.dispatcher,
            _calls=calls,
            _bound={},
        )
        calls.kernel = self
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._make, (self.source, self.signature.full_name, self.options, self.arch, self._calls.given)

    def __repr__(self) -> str:
        explicit = self._calls.explicit.values()
        given = f"<{', '.join(map(str, explicit))}>" if explicit else ""
        return f"<cudakit.Kernel {self.signature.name}{given} from {self.source.name}>"

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name[:1] != "_" and name not in ("args", "func", "keywords")]

    def _repr_html_(self) -> str:
        """Its parameters and the specializations that were launched, in a notebook."""
        given = ((each.name, each.annotation) for each in self._calls.shown_parameters())
        parameters = [(name, cpp) for name, cpp in given if isinstance(cpp, str)]
        loaded = [each.specialization for each in self._calls.unit.instances(self.name)]
        rows = [
            (each.name_expression, each.arch, "a GPU" if each.target == "cubin" else "the emulator") for each in loaded
        ]
        loaded_table = Table(("launched specialization", "arch", "on"), rows)
        return html(repr(self), Table(("parameter", "type"), parameters), loaded_table)

    @property
    def name(self) -> str:
        """Qualified name of the ``__global__`` function."""
        return self.signature.name

    def __getitem__(self, given: Any) -> Self:
        """The kernel with template arguments given: ``kernel[np.float32, 256]``, ``kernel["BLOCK": 256]``."""
        items = given if isinstance(given, tuple) else (given,)
        key = tuple(hashable(item) for item in items)
        bound: dict[Any, Self] = self._bound
        try:
            found = bound.get(key)
        except TypeError:  # what has no hash is no template argument, which is said here
            explicit_arguments(self.signature, (*self._calls.given, *items), self._calls.book)
            raise
        if found is None:
            both = (*self._calls.given, *items)
            made = self._of(self._calls.unit, self.source, self.signature.full_name, both)
            found = bound.setdefault(key, made)
        return found

    def with_options(self, **changes: Any) -> Self:
        """The kernel of another module, with other compile options: ``kernel.with_options(fast_math=True)``."""
        options = self.options.replace(**changes)
        origin = self.source if self.source.whole is None else _as_wanted(self.source.whole, "skip", options)
        return self._make(origin, self.signature.full_name, options, self.arch, self._calls.given)

    # ── compile, without or ahead of a launch ────────────────────────────────────────────────────────────────────

    def specialization(self, *types: Any, arch: str | None = None, target: Target | None = None) -> Specialization:
        """The specialization for the given template arguments and argument types.

        Parameters
        ----------
        *types : object
            One for each kernel parameter, to deduce template arguments from: a dtype (of a scalar, or of an array's
            elements), ``(dtype, ndim)`` for ``cudakit::strided`` and ``cudakit::tensor``, for the latter also a NumPy
            array that lies in memory as the argument will, or None where nothing is to be deduced.
        arch : str, optional
            Default: the kernel's own, else the current device's; where there is no GPU, the emulator's.
        target : {"cubin", "ptx", "object", "ltoir", "tileir"}, optional
            Machine code, PTX, or what can be linked: relocatable machine code, or LTO IR; of a tile kernel machine code
            or Tile IR. Default: machine code; without a GPU, where no `arch` is named here, what the emulator runs.

        Raises
        ------
        ArgumentError, TemplateError
        """
        if arch is not None:
            check_target(self.name, arch, "cubin" if target is None else target)
        place = DEVICES if arch else default_place()
        chosen = arch or self.arch or place.limits().arch
        emulated = place is not DEVICES and target in (None, "ptx")

        def specialized(calls: Calls) -> Specialization:
            evidence = evidence_of_types(calls.signature, types)
            return calls.specialized(evidence, chosen, target or "cubin")[0]

        calls = self._calls
        if self.signature.overloads:
            made = choose(self.signature.overloads, lambda each: specialized(calls.overload(each)), len(types))
        else:
            made = specialized(calls)
        # A tile kernel has no PTX, which is said when that is compiled.
        return place.default_code(chosen).adapted(made) if emulated and not (target and made.is_tile) else made

    def compile(self, *types: Any, arch: str | None = None, target: Target | None = None) -> Compiled:
        """Compiled code, from the cache or by the compiler; needs no GPU. Parameters as those of `specialization`.

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
        from cudakit.jit.compile.binary import disassemble

        return disassemble(self._compile_latest(types, arch, "cubin").code)

    def explain(self, *types: Any, arch: str | None = None) -> Explained:
        """What became of a specialization in machine code: registers, spills, shared memory; needs no GPU.

        Of a tile kernel also which instructions the assembler chose for which line: TMA or plain loads, tensor cores.

        Parameters
        ----------
        *types : object
            As for `specialization`; left out, the specialization launched last.
        arch : str, optional

        Returns
        -------
        Explained
            Printed, it is a page to read.
        """
        from cudakit.jit.compile.assemble import explained

        wanted = self._latest_or(types, arch, "cubin")
        arrays = tuple(f"{p.name}: {p.layout.shown}" for p in wanted.parameters or () if p.layout is not None)
        return explained(compiled_of(wanted), wanted.name_expression, wanted.source)._replace(arrays=arrays)

    def _compile_latest(self, types: tuple[Any, ...], arch: str | None, target: Target) -> Compiled:
        return compiled_of(self._latest_or(types, arch, target))

    def _latest_or(self, types: tuple[Any, ...], arch: str | None, target: Target) -> Specialization:
        """The specialization launched last, where no types are given and there is one; else the one of the types."""
        latest = self._calls.latest
        if types or latest is None:
            return self.specialization(*types, arch=arch, target=target)
        found = latest.specialization
        if arch or target != found.target:  # the emulator's is with source lines
            found = found._replace(arch=arch or found.arch, target=target, options=self.options)
        return found

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
        made = self._calls.plan(stream, config, args)
        made.recipe = Recipe(self, config)
        return made

    def attributes(
        self, *types: Any, block: int | None = None, shared_bytes: int = 0
    ) -> Attributes | EmulatedAttributes:
        """Registers, spills, shared memory and occupancy on the current device, of a specialization.

        Of the specialization that was launched last on the emulator, without `types`: which machine ran it, and why.

        Parameters
        ----------
        *types : object
            As for `specialization`; left out, the template arguments given, or the specialization launched last.
        block : int, optional
            Threads in a block for the occupancy; default: what the driver suggests.
        shared_bytes : int
            Dynamic shared memory a block, in bytes.
        """
        latest = self._calls.latest
        if not types and latest is not None and not isinstance(latest, Loaded):
            told: EmulatedAttributes = latest.attributes()  # type: ignore[attr-defined]
            return told
        device_id = devices.current_device().device_id
        if types or not isinstance(latest, Loaded):
            evidence = evidence_of_types(self.signature, types)
            place = DeviceCode(device_id)
            try:
                with place.entered():
                    latest = self._calls.load(evidence, place)
            except TemplateError as error:
                raise TemplateError(f"{error}; or launch the kernel first") from error
            assert isinstance(latest, Loaded)
        return latest.attributes(device_id, block, shared_bytes)

    @property
    def globals(self) -> Globals:
        """The variables of its `module`."""
        return self.module.globals


def _as_wanted(origin: Source, host_code: HostCode, options: CompileOptions | None) -> Source:
    if not is_one_of(host_code, ("keep", "skip")):
        raise ArgumentError(f"host_code is 'keep' or 'skip', got {shortened(host_code)}")
    if host_code == "keep":
        return origin
    from cudakit.jit.signature.host_code import device_part  # with the parser, which most programs never load

    paths, defines = (options.include_paths, options.defines) if options else ((), ())
    return device_part(origin, paths, (name.partition("=")[0] for name, _ in defines))


def _headed(origin: Source) -> Signature:
    """The head that was given for a kernel of compiled code."""
    from cudakit.jit.compile import binary

    return binary.signature(origin)


def of_source(origin: Source, name: str, options: CompileOptions | None = None) -> Kernel:
    """The kernel `name` of a source that was read, or generated."""
    return Kernel._make(origin, name, options, None)


def prewarm(
    kernels: Iterable[Kernel], *, arch: str | None = None, archs: Iterable[str] = (), workers: int | None = None
) -> None:
    """Compile `kernels` into the cache; what it holds already costs a look-up.

    Parameters
    ----------
    kernels : iterable of Kernel
        With their template arguments given: ``[saxpy[np.float32], saxpy[np.float64]]``.
    arch : str, optional
        Default: each kernel's own, else the current device's; where there is no GPU, what the emulator runs.
    archs : iterable of str, optional
        Several: ``archs=["sm_80", "sm_90"]``.
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
    kernels = listed("prewarm takes several kernels", kernels, "; put them into a list")
    archs = listed("prewarm: archs are several, as in archs=['sm_80', 'sm_90']", archs)
    for each in archs:
        check_target("prewarm", each, "cubin")
    if workers is not None:
        whole("prewarm: workers", workers, 1)
    every_arch: list[str | None] = [*archs, *([arch] if arch is not None else [])] or [None]
    alone, together = list[Specialization](), dict[Unit, list[Specialization]]()
    for kernel in kernels:
        if not isinstance(kernel, Kernel):
            raise ArgumentError(f"prewarm takes kernels, such as kernel[np.float32], got {shortened(kernel)}")
    for kernel in kernels:
        unit = kernel._calls.unit
        # Instances that share variables must be in one piece of code.
        into = together.setdefault(unit, []) if unit.declarations.symbols else alone
        into += [kernel.specialization(arch=each) for each in every_arch]
    compile_all(alone, workers)
    for unit, instances in together.items():
        unit.prepare(instances)
