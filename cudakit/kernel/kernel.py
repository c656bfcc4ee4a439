"""The public classes: a module of CUDA C++, and its kernels, which are called from Python."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from cudakit.errors import ArgumentError, CudakitError, TemplateError, shortened
from cudakit.jit.cache.stages import compiled_of
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.launch.code_place import DeviceCode, evidence_of_types
from cudakit.jit.launch.dispatch import Dispatcher
from cudakit.jit.launch.tracebacks import cut, raised_from_call
from cudakit.jit.load.load import Attributes, EmulatedAttributes, Loaded
from cudakit.jit.signature.signature import Declarations, Signature, select
from cudakit.jit.source import source
from cudakit.jit.source.source import HostCode, Source
from cudakit.jit.specialise.deduce import hashable
from cudakit.jit.specialise.options import CompileOptions, Target, check_target, options_of
from cudakit.jit.specialise.specialise import Specialization
from cudakit.kernel.calls import Calls, choose
from cudakit.kernel.unit import Unit
from cudakit.places import DEVICES, default_place
from cudakit.streams import devices
from cudakit.types.checked import is_one_of, listed, text_of, whole
from cudakit.types.cpp import split_arguments
from cudakit.types.shown_signature import ShownSignature

if TYPE_CHECKING:
    from cudakit.jit.compile.assemble import Explained
    from cudakit.jit.launch.plan import Plan
    from cudakit.kernel.globals import Globals
    from cudakit.tuning.by_size import TunedKernel
    from cudakit.tuning.space import Space


class Module:
    """A CUDA C++ source compiled with some options: its kernels, and the variables that they share.

    All kernels and all their instances share ``__device__``, ``__constant__`` and ``__managed__`` variables, also those
    inside functions and classes. Kernels that are no templates are compiled together and loaded once.

    A process has one module for each source (its text, name and folder), options and arch. `Module` and `Kernel` share
    it. After a header has changed, the next request makes a new module. If cudakit cannot tell the included files, as
    with ``#include MACRO``, each request makes a new module: take all kernels from one `Module`.

    A module has separate variables on each device, and on the emulator of each arch. A module with variables lives as
    long as the process.

    Parameters
    ----------
    text : str
        CUDA C++ source.
    options : CompileOptions, optional
        Compile options.
    arch : str, optional
        Arch to compile for (``sm_90a``). Default: the arch of the device that the kernel is launched on.
    host_code : {"keep", "skip"}
        ``"skip"`` accepts the program of an nvcc project, see `Kernel`.

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
        try:
            return cls._of_source(_with_host_code(source.from_text(text, depth=2), host_code, options), options, arch)
        except CudakitError as error:
            cut(error)
            raise

    @classmethod
    @raised_from_call
    def from_file(
        cls,
        path: str | Path,
        *,
        options: CompileOptions | None = None,
        arch: str | None = None,
        host_code: HostCode = "keep",
    ) -> Self:
        """Make the module of a source file; ``#include "…"`` looks beside the file first."""
        return cls._of_source(
            _with_host_code(source.from_file(path, None, host_code), host_code, options), options, arch
        )

    @classmethod
    @raised_from_call
    def from_template(cls, concept: str, *, options: CompileOptions | None = None, arch: str | None = None) -> Self:
        """Make the module of the packaged file ``templates/<concept>.cuh``."""
        return cls._of_source(source.from_template(concept), options, arch)

    @classmethod
    def _of_source(cls, origin: Source, options: CompileOptions | None, arch: str | None) -> Self:
        return cls._of(Unit.of(origin, options, arch))

    @classmethod
    def _of(cls, unit: Unit) -> Self:
        if unit.arch is not None:
            check_target(unit.source.name, unit.arch, "cubin")
        with unit.lock:
            module: Self | None = unit.module()
            if module is None:
                module = object.__new__(cls)
                module.source, module.declarations = unit.source, unit.declarations
                module.options, module.arch, module._unit = unit.options, unit.arch, unit
                unit.module = weakref.ref(module)
            return module

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of_source, (self.source, self.options, self.arch)

    if not TYPE_CHECKING:  # a type checker would take every attribute for one that exists

        def __getattr__(self, name: str) -> NoReturn:
            from cudakit import foreign_names  # late: most programs look up no missing name

            raise foreign_names.missing_attribute("module", self, f"{type(self).__name__!r} object", name)

    def __repr__(self) -> str:
        return f"<cudakit.Module {self.source.name}: {', '.join(self.kernels)}>"

    @property
    def kernels(self) -> tuple[str, ...]:
        """Qualified names of the module's ``__global__`` functions."""
        return tuple(dict.fromkeys(kernel.name for kernel in self.declarations.kernels))

    @property
    def globals(self) -> Globals:
        """The module's variables, on the GPU or the emulator where one of its kernels was launched last.

        Before any launch they are the GPU's, or the emulator's if there is no GPU. A stream passed to `Globals.read` or
        `Globals.write` chooses the place.
        """
        from cudakit.kernel.globals import Globals

        return Globals(self.declarations, self._unit.loaded, self._unit.check)

    @raised_from_call
    def __getitem__(self, name: str) -> Kernel:
        """Return a kernel by its name, qualified where needed; ``module["scale<float, 4>"]`` names an instance."""
        text_of(f"{self.source.name}: a kernel's name", name)
        overloaded = "(" in name  # one of several, by the types of its parameters
        bare, bracket, arguments = (name, "", "") if overloaded else name.partition("<")
        kernel = Kernel._of(self._unit, self.source, bare if overloaded else bare.strip())
        if not bracket:
            return kernel
        items = split_arguments(arguments.rstrip().removesuffix(">"))
        return kernel[tuple(int(item) if item.lstrip("-").isdigit() else item for item in items)]

    @raised_from_call
    def prepare(self, *instances: str, arch: str | None = None) -> None:
        """Compile instances ahead of use, all at once; a GPU then loads them together.

        On a GPU, all instances of a module with variables must be in one piece of code. Launching a further instance
        compiles and loads all of them again, and copies the variables. The launch fails if code or variables cannot be
        moved: a `Plan` or a graph holds the code, or a variable holds an address.

        Parameters
        ----------
        *instances : str
            Instances such as ``"scale<float>"``. Default: the kernels that are no templates.
        arch : str, optional
            Arch to compile for, as for `Kernel.specialization`.
        """
        names = instances or [kernel.name for kernel in self.declarations.kernels if not kernel.is_template]
        self._unit.prepare([self[name].specialization(arch=arch) for name in names])


class Kernel(functools.partial[None]):
    """A CUDA C++ kernel, called as ``kernel[template arguments](stream, config, *arguments)``.

    - ``[template arguments]``: types and constants, by position or name: ``kernel[np.float32, 256]``,
      ``kernel["BLOCK": 256]``. Arguments' dtypes determine most of them: leave these out.
    - ``stream``: the stream to launch on, of cuda.core, CuPy, torch or the emulator. ``ck.stream()`` makes one.
    - ``config``: the number of threads. ``ck.cover(n)`` starts a thread for each of n elements, ``ck.config(grid,
      block)`` names blocks and threads. A ``cuda.core.LaunchConfig`` is accepted too.
    - ``*arguments``: the kernel's parameters in order, or by their C++ names. Pointers take arrays in device memory (on
      the emulator NumPy arrays), or a host array in ``ck.In``, ``ck.Out`` or ``ck.InOut``. Other parameters take
      numbers and structs. C++ default arguments may be left out.

    The call launches and returns None; wait for the results with ``stream.sync()``. It checks each argument, and raises
    ``ck.ArgumentError`` before anything is launched. The first call with new dtypes compiles.

    Parameters
    ----------
    text : str
        CUDA C++ source. It may hold many kernels and device functions. Kernels of one text belong to one `Module`.
    name : str, optional
        Name of the ``__global__`` function, qualified by its namespace. Optional if the source has one kernel.
    options : CompileOptions, optional
        Compile options.
    arch : str, optional
        Arch to compile for (``sm_90a``). Default: the arch of the device that the kernel is launched on.
    host_code : {"keep", "skip"}
        ``"skip"`` accepts an nvcc program. Host functions, ``main``, host variables and host headers are removed, also
        in the project's own headers. These are read now, from beside the file or from the options' `include_paths`.
        Code that kernels use stays, and nvcc's implicit includes are added. ``"keep"`` compiles the text unchanged.
    bundle : path, optional
        File of ``cudakit bundle build`` whose code is used in place of compiling, see `use_bundle`. Short for the field
        `bundle` of the options.

    Raises
    ------
    TemplateError
        If the source has no such kernel. The message lists similar names.

    Examples
    --------
    >>> scale = Kernel("template <typename T> __global__ void scale(T* x, T by, int n) { … }")
    >>> scale(stream, ck.cover(x.size), x, 2.0, x.size)

    Notes
    -----
    The class is a `functools.partial` of a generated function: no other Python callable with attributes is as cheap to
    call. ``cudakit.jit.launch.dispatch`` generates the function.
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
        bundle: str | Path | None = None,
    ) -> Self:
        try:
            options = _with_bundle("Kernel", options, bundle)
            return cls._make(_with_host_code(source.from_text(text, depth=2), host_code, options), name, options, arch)
        except CudakitError as error:
            cut(error)
            raise

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        return self  # no method of a class that it is an attribute of, as partials are from Python 3.14 on

    @classmethod
    @raised_from_call
    def from_file(
        cls,
        path: str | Path,
        name: str | None = None,
        *,
        signature: str | None = None,
        options: CompileOptions | None = None,
        arch: str | None = None,
        host_code: HostCode = "keep",
        bundle: str | Path | None = None,
    ) -> Self:
        """Make the kernel `name` of a source file, or of a file of compiled code.

        Parameters
        ----------
        path : path
            CUDA C++, in which ``#include "…"`` looks beside the file first, or PTX, a cubin, LTO IR or a fatbin. The
            emulator runs CUDA C++ and PTX.
        name : str, optional
            Name of the kernel. Optional if the file has one kernel.
        signature : str, optional
            Signature of the kernel, ``"void scale(const float* x, int n)"``, if the compiled code does not contain it.
            Mangled names in PTX and cubins contain it. An ``extern "C"`` kernel there tells only the sizes of its
            parameters: pass arrays, and NumPy scalars of exactly these sizes. LTO IR and fatbins tell nothing.
        options : CompileOptions, optional
            Compile options. Compiled code uses only `link`, `lto` and `max_registers`.
        arch : str, optional
            Arch to compile for, as for `Kernel`.
        host_code : {"keep", "skip"}
            ``"skip"`` accepts the file of an nvcc program, see `Kernel`.
        bundle : path, optional
            Bundle of compiled kernels, as for `Kernel`.
        """
        options = _with_bundle("Kernel.from_file", options, bundle)
        origin = source.from_file(path, signature, host_code)
        if origin.code is not None:
            return cls._of_code(origin, name, options, arch)
        return cls._make(_with_host_code(origin, host_code, options), name, options, arch)

    @classmethod
    @raised_from_call
    def from_ptx(
        cls,
        text: str,
        name: str | None = None,
        *,
        signature: str | None = None,
        options: CompileOptions | None = None,
        arch: str | None = None,
    ) -> Self:
        """Make the kernel `name` of PTX from any compiler: nvcc, CuPy, Numba, Triton.

        Parameters
        ----------
        text : str
            A PTX module, or several.
        name : str, optional
            Name in the PTX, or the C++ name if the PTX name is mangled. Optional if there is one kernel.
        signature, options, arch
            As for `from_file`. Without a signature, the parameters of a kernel whose name is not mangled are checked by
            their sizes. Parameters that the PTX declares as pointers (``.ptr``) take arrays.

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
    @raised_from_call
    def from_template(cls, path: str, *, options: CompileOptions | None = None, arch: str | None = None) -> Self:
        """Make a kernel of a packaged template, ``concept/name``: the kernel `name` of ``templates/<concept>.cuh``."""
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
        template_arguments: tuple[Any, ...] = (),
    ) -> Self:
        # Signatures that callers pass for kernels of one file make no modules of their own.
        whole_file = origin if origin.head is None else dataclasses.replace(origin, head=None)
        unit = Unit.of(whole_file, options if isinstance(options, CompileOptions) else None, arch)
        kernel = cls._of(unit, origin, name, template_arguments)
        options_of(kernel.name, options)
        return kernel

    @classmethod
    def _of(cls, unit: Unit, origin: Source, name: str | None, template_arguments: tuple[Any, ...] = ()) -> Self:
        signature = select(unit.declarations, name, origin.name) if origin.head is None else _signature_of_code(origin)
        if unit.arch is not None:
            check_target(signature.name, unit.arch, "cubin")
        calls = Calls(unit, origin, signature, unit.arch, template_arguments)
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
        return type(self)._make, (
            self.source,
            self.signature.full_name,
            self.options,
            self.arch,
            self._calls.template_arguments,
        )

    if not TYPE_CHECKING:  # a type checker would take every attribute for one that exists

        def __getattr__(self, name: str) -> NoReturn:
            from cudakit import foreign_names  # late: most programs look up no missing name

            raise foreign_names.missing_attribute("kernel", self, f"{type(self).__name__!r} object", name)

    def __repr__(self) -> str:
        explicit = self._calls.explicit.values()
        shown = f"<{', '.join(map(str, explicit))}>" if explicit else ""
        return f"<cudakit.Kernel {self.signature.name}{shown} from {self.source.name}>"

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name[:1] != "_" and name not in ("args", "func", "keywords")]

    def _repr_html_(self) -> str:
        """Return a notebook's view: the parameters, and the specializations that were launched."""
        from cudakit.types.shown import Table, html  # for a notebook alone

        annotations = ((parameter.name, parameter.annotation) for parameter in self._calls.shown_parameters())
        parameters = [(name, cpp) for name, cpp in annotations if isinstance(cpp, str)]
        loaded = [instance.specialization for instance in self._calls.unit.instances(self.name)]
        rows = [
            (
                specialization.name_expression,
                specialization.arch,
                "a GPU" if specialization.target == "cubin" else "the emulator",
            )
            for specialization in loaded
        ]
        loaded_table = Table(("launched specialization", "arch", "on"), rows)
        return html(repr(self), Table(("parameter", "type"), parameters), loaded_table)

    @property
    def name(self) -> str:
        """Qualified name of the ``__global__`` function."""
        return self.signature.name

    def __getitem__(self, template_arguments: Any) -> Self:
        """Bind template arguments: ``kernel[np.float32, 256]``, ``kernel["BLOCK": 256]``."""
        items = template_arguments if isinstance(template_arguments, tuple) else (template_arguments,)
        key = tuple(hashable(item) for item in items)
        bound: dict[Any, Self] = self._bound
        try:
            kernel = bound.get(key)
        except TypeError:  # an unhashable value is no template argument, which `_specialized` reports
            kernel = None
        if kernel is None:
            kernel = bound.setdefault(key, self._specialized(items))
        return kernel

    @raised_from_call
    def _specialized(self, items: tuple[Any, ...]) -> Self:
        """Return the kernel with further template arguments."""
        all_arguments = (*self._calls.template_arguments, *items)
        return self._of(self._calls.unit, self.source, self.signature.full_name, all_arguments)

    @raised_from_call
    def with_options(self, **changes: Any) -> Self:
        """Return the kernel compiled with changed options: ``kernel.with_options(fast_math=True)``.

        The result belongs to another module, with variables of its own.
        """
        options = self.options.replace(**changes)
        origin = self.source if self.source.whole is None else _with_host_code(self.source.whole, "skip", options)
        return self._make(origin, self.signature.full_name, options, self.arch, self._calls.template_arguments)

    # ── compile, without or ahead of a launch ────────────────────────────────────────────────────────────────────

    @raised_from_call
    def specialization(self, *types: Any, arch: str | None = None, target: Target | None = None) -> Specialization:
        """Return the specialization for the bound template arguments and the argument types.

        Parameters
        ----------
        *types : object
            One entry for each kernel parameter, to deduce template arguments from. An entry is the dtype of a scalar or
            of an array's elements, or None if nothing is deduced from it. For ``cudakit::strided`` and
            ``cudakit::tensor`` it is ``(dtype, ndim)``. For ``cudakit::tensor`` it may also be a NumPy array with the
            argument's layout.
        arch : str, optional
            Arch to compile for. Default: the kernel's own, else the current device's, or the emulator's if there is no
            GPU.
        target : {"cubin", "ptx", "object", "ltoir", "tileir"}, optional
            Output of the compiler: machine code, PTX, relocatable machine code or LTO IR for linking. Tile kernels have
            machine code or Tile IR. Default: machine code; without a GPU and without `arch`, the emulator's target.

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
            result = choose(
                self.signature.overloads, lambda overload: specialized(calls.overload(overload)), len(types)
            )
        else:
            result = specialized(calls)
        # A tile kernel has no PTX; compiling it raises the error.
        return place.default_code(chosen).adapted(result) if emulated and not (target and result.is_tile) else result

    @raised_from_call
    def specialization_of(self, stream: Any, *arguments: Any) -> Specialization:
        """Return the specialization that a call with these arguments launches. Nothing is compiled."""
        return self._calls.of_call(stream, arguments)

    @raised_from_call
    def compile(self, *types: Any, arch: str | None = None, target: Target | None = None) -> Compiled:
        """Return compiled code, from the cache or from the compiler; this needs no GPU.

        Parameters are those of `specialization`.

        Raises
        ------
        CompileError
        TemplateError
        """
        return compiled_of(self.specialization(*types, arch=arch, target=target))

    @raised_from_call
    def ptx(self, *types: Any, arch: str | None = None) -> str:
        """Return the PTX of a specialization: of the given types, or of the last launch if no types are given."""
        return self._compile_latest(types, arch, "ptx").code.decode()

    @raised_from_call
    def sass(self, *types: Any, arch: str | None = None) -> str:
        """Return the machine code of a specialization, disassembled by nvdisasm or cuobjdump.

        Raises
        ------
        LaunchError
            If neither tool is found.
        """
        from cudakit.jit.compile.binary import disassemble

        return disassemble(self._compile_latest(types, arch, "cubin").code)

    @raised_from_call
    def explain(self, *types: Any, arch: str | None = None) -> Explained:
        """Report registers, spills and shared memory of a specialization's machine code; this needs no GPU.

        For a tile kernel, the report also lists the instructions that the assembler chose for each line: TMA or plain
        loads, tensor cores.

        Parameters
        ----------
        *types : object
            Types of the arguments, as for `specialization`. Default: the specialization launched last.
        arch : str, optional
            Arch to compile for, as for `specialization`.

        Returns
        -------
        Explained
            A report whose printed form is a page to read.
        """
        from cudakit.jit.compile.assemble import explained

        specialization = self._latest_or(types, arch, "cubin")
        arrays = tuple(f"{p.name}: {p.layout.shown}" for p in specialization.parameters or () if p.layout is not None)
        return explained(compiled_of(specialization), specialization.name_expression, specialization.source)._replace(
            arrays=arrays
        )

    def _compile_latest(self, types: tuple[Any, ...], arch: str | None, target: Target) -> Compiled:
        return compiled_of(self._latest_or(types, arch, target))

    def _latest_or(self, types: tuple[Any, ...], arch: str | None, target: Target) -> Specialization:
        """Return the specialization of the types; without types, the one launched last if there is one."""
        latest = self._calls.latest
        if types or latest is None:
            return self.specialization(*types, arch=arch, target=target)
        specialization = latest.specialization
        if arch or target != specialization.target:  # the emulator's code has source lines
            specialization = specialization._replace(
                arch=arch or specialization.arch, target=target, options=self.options
            )
        return specialization

    @raised_from_call
    def prepare(self, *specializations: Any, arch: str | None = None) -> None:
        """Compile specializations ahead of use: in worker processes, or together if they share variables.

        Parameters
        ----------
        *specializations : object
            Template arguments, as in the brackets, one entry for each specialization: ``kernel.prepare(np.float32,
            np.float64)``, ``kernel.prepare((np.float32, 128), (np.float32, 256))``. Default: the kernel as it is.
        arch : str, optional
            Arch to compile for, as for `specialization`.
        """
        prewarm([self[template_arguments] for template_arguments in specializations] or [self], arch=arch)

    # ── on a GPU ─────────────────────────────────────────────────────────────────────────────────────────────────

    @raised_from_call
    def plan(self, stream: Any, config: Any, *args: Any) -> Plan:
        """Check a launch, order it and resolve its configuration now.

        The `Plan` then launches it at the driver's own cost.
        """
        from cudakit.jit.launch.plan import Recipe  # many programs make no plan

        result = self._calls.plan(stream, config, args)
        result.recipe = Recipe(self, config)
        return result

    def tuned(
        self,
        space: Mapping[str, Sequence[Any]] | Space,
        *,
        by: str | Sequence[str] = (),
        config: Any = None,
        **search: Any,
    ) -> TunedKernel:
        """Return a kernel that finds its best variant for each size class at the first call, and keeps the result.

        Parameters
        ----------
        space : dict of str to list, or Space
            Parameter → values, as for `ck.tune`.
        by : str or sequence of str
            Parameters of the kernel whose powers of two make the size class.
        config : Config, Cover, LaunchConfig or callable, optional
            Launch configuration, as for `ck.tune`.
        **search : object
            Other parameters of `ck.tune`: ``where``, ``check``, ``objective``, ``budget`` and so on. Default of
            ``objective``: the time; on the emulator the instructions. ``arguments``, a function of the stream and a
            size, and ``sizes`` are for ``cudakit tune``.

        Returns
        -------
        TunedKernel
            It is called without a configuration: ``scale(stream, x, y, 2.0, n)``.

        Notes
        -----
        ``CUDAKIT_TUNE=kept`` never searches: without a kept result the first point of the space is used, with a
        warning. ``CUDAKIT_TUNE=off`` always uses the first point.
        """
        from cudakit.tuning.by_size import TunedKernel  # most programs tune nothing

        return TunedKernel(self, space, by, config, **search)

    def attributes(
        self, *types: Any, block: int | None = None, shared_bytes: int = 0
    ) -> Attributes | EmulatedAttributes:
        """Return registers, spills, shared memory and occupancy of a specialization on the current device.

        If the last launch was on the emulator and no `types` are given, the result says which back-end ran it, and why.

        Parameters
        ----------
        *types : object
            Types of the arguments, as for `specialization`. Default: the bound template arguments, or the
            specialization launched last.
        block : int, optional
            Threads in a block, for the occupancy. Default: the driver's suggestion.
        shared_bytes : int
            Dynamic shared memory of a block, in bytes.
        """
        latest = self._calls.latest
        if not types and latest is not None and not isinstance(latest, Loaded):
            result: EmulatedAttributes = latest.attributes()  # type: ignore[attr-defined]
            return result
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
        """The variables of the kernel's `module`."""
        return self.module.globals


def _with_bundle(where: str, options: CompileOptions | None, bundle: Any) -> CompileOptions | None:
    return options if bundle is None else options_of(where, options).replace(bundle=bundle)


def _with_host_code(origin: Source, host_code: HostCode, options: CompileOptions | None) -> Source:
    if not is_one_of(host_code, ("keep", "skip")):
        raise ArgumentError(f"host_code is 'keep' or 'skip', got {shortened(host_code)}")
    if host_code == "keep":
        return origin
    from cudakit.jit.signature.host_code import device_part  # loads the parser, which most programs do not need

    paths, defines = (options.include_paths, options.defines) if options else ((), ())
    return device_part(origin, paths, (name.partition("=")[0] for name, _ in defines))


def _signature_of_code(origin: Source) -> Signature:
    """Return the signature that the caller passed along with compiled code (PTX, cubin, …)."""
    from cudakit.jit.compile import binary

    return binary.signature(origin)


def of_source(origin: Source, name: str, options: CompileOptions | None = None) -> Kernel:
    """Make the kernel `name` of a `Source` object, which holds source that was read or generated."""
    return Kernel._make(origin, name, options, None)


def with_source(kernel: Kernel, origin: Source, options: CompileOptions) -> Kernel:
    """Make the kernel of the same name and template arguments of another `Source` object, with other options."""
    return kernel._make(origin, kernel.signature.full_name, options, kernel.arch, kernel._calls.template_arguments)


def module_of_source(
    origin: Source, options: CompileOptions | None = None, host_code: HostCode = "keep", arch: str | None = None
) -> Module:
    """Make the module of a `Source` object, which holds source that was read or generated, or compiled code."""
    return Module._of_source(_with_host_code(origin, host_code, options), options, arch)


@raised_from_call
def prewarm(
    kernels: Iterable[Kernel], *, arch: str | None = None, archs: Iterable[str] = (), workers: int | None = None
) -> None:
    """Compile `kernels` into the cache. A kernel that is cached already costs a look-up.

    Parameters
    ----------
    kernels : iterable of Kernel
        Kernels with their template arguments bound: ``[saxpy[np.float32], saxpy[np.float64]]``.
    arch : str, optional
        Arch to compile for. Default: each kernel's own, else the current device's, or the emulator's if there is no
        GPU.
    archs : iterable of str, optional
        Several archs: ``archs=["sm_80", "sm_90"]``.
    workers : int, optional
        Number of worker processes. Default: one for each core, at most one for each kernel that must be compiled.

    Raises
    ------
    ArgumentError
        If `kernels` is a single kernel, or holds something else than kernels.
    CompileError
        The first failure, after all other kernels have been tried.
    """
    from cudakit.jit.cache.prewarm import compile_all  # starts processes: most programs never do

    if isinstance(kernels, Kernel):
        raise ArgumentError("prewarm takes several kernels, got one; put it into a list: ck.prewarm([kernel])")
    kernels = listed("prewarm takes several kernels", kernels, "; put them into a list")
    archs = listed("prewarm: archs are several, as in archs=['sm_80', 'sm_90']", archs)
    for name in archs:
        check_target("prewarm", name, "cubin")
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
        into += [kernel.specialization(arch=target) for target in every_arch]
    compile_all(alone, workers)
    for unit, instances in together.items():
        unit.prepare(instances)
