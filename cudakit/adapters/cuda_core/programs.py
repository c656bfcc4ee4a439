"""Stand-ins for cuda.core's Program, Linker, ObjectCode and Kernel: NVRTC compiles, and the emulator runs the PTX.

Machine code and LTO IR are compiled where a program asks for their bytes. Bytes that this process has compiled can be
loaded again, since their PTX is known. The linker joins PTX.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import cuda.core as real
from cuda.core.typing import CompilerBackendType

from cudakit.adapters.cuda_core.faults import (
    Closeable,
    CoreCompileError,
    CoreError,
    MadeByOthers,
    handle_of,
    living,
    of_options,
    raising,
)
from cudakit.adapters.cuda_core.parts import parts
from cudakit.emulator import face
from cudakit.errors import CudakitError, shortened
from cudakit.jit.compile import worker
from cudakit.jit.compile.nvrtc import load_library
from cudakit.jit.signature.reader import parse as declarations_of
from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.kernel.kernel import Kernel as CheckedKernel

#: A function of CUDA's device runtime, in PTX: a condition's handle is the address of its number.
_SET_CONDITION = """
.version 8.3
.target sm_80
.address_size 64
.visible .func cudaGraphSetConditional(.param .b64 condition, .param .b32 value)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [condition];
    ld.param.u32 %r1, [value];
    st.u32 [%rd1], %r1;
    ret;
}
"""
_LOADABLE = ("cubin", "ptx", "fatbin")


def _arch() -> str:
    return face.EmulatorPlace().limits().arch


class ProgramOptions(real.ProgramOptions):  # type: ignore[misc]  # untyped
    """A stand-in for ``cuda.core.ProgramOptions``, whose default arch is the emulator's."""

    def __post_init__(self) -> None:
        self.arch: str | None = getattr(self, "arch", None) or _arch()
        super().__post_init__()


class LinkerOptions(real.LinkerOptions):  # type: ignore[misc]  # untyped
    """A stand-in for ``cuda.core.LinkerOptions``, whose default arch is the emulator's."""

    def __post_init__(self) -> None:
        self.arch: str | None = getattr(self, "arch", None) or _arch()
        super().__post_init__()


#: PTX of code that this process has compiled, by the digest of the code's bytes.
_ptx_of: dict[bytes, str] = {}


def _digest(code: bytes) -> bytes:
    return hashlib.sha256(code).digest()


def remember(code: bytes, ptx: str) -> None:
    """Keep the PTX of code, so that the code can be loaded by its bytes."""
    _ptx_of[_digest(code)] = ptx


def _format_of(target_type: Any, allowed: Sequence[str], subject: str) -> str:
    name = str(target_type).lower()
    if name not in allowed:
        raise ValueError(f"{subject}: target_type is one of {', '.join(allowed)}, got {shortened(target_type)}")
    return name


class Program(Closeable):
    """A stand-in for ``cuda.core.Program``."""

    def __init__(self, code: str | bytes | bytearray, code_type: str, options: Any = None) -> None:
        source_type = str(code_type).lower()
        if source_type not in ("c++", "ptx", "nvvm"):
            languages = ("c++", "ptx", "nvvm")
            raise RuntimeError(f"Unsupported code_type={source_type!r} (supported_code_types={languages})")
        if source_type != "nvvm" and not isinstance(code, str):
            raise TypeError(f"a program of {source_type} is a str, got {shortened(code)}")
        self._options = of_options(ProgramOptions, _own(ProgramOptions, options), "Program options")
        if source_type == "ptx" and self._options.extra_sources is not None:
            raise ValueError("extra_sources is for NVVM IR")
        self._code, self._code_type = code, source_type
        self.pch_status: Any = None

    def __repr__(self) -> str:
        return f"<Program backend='{self.backend}' on the emulator>"

    @property
    def backend(self) -> CompilerBackendType:
        """Compiler of the program."""
        name = {"c++": "NVRTC", "ptx": "NVJITLINK", "nvvm": "NVVM"}[self._code_type]
        return CompilerBackendType[name]

    def compile(
        self,
        target_type: Any,
        name_expressions: Sequence[str] = (),
        logs: Any = None,
        *,
        cache: Any = None,
    ) -> ObjectCode:
        """Compile to code that the emulator runs.

        Parameters
        ----------
        target_type : str
            ``"cubin"``, ``"ptx"`` or ``"ltoir"``.
        name_expressions : sequence of str
            C++ names of kernels or variables, whose names in the code the result knows.
        logs : object, optional
            Object whose ``write`` takes the compiler's log.
        cache : optional
            Ignored: cudakit keeps no code of these programs.

        Raises
        ------
        CoreCompileError
            With the compiler's log.
        """
        allowed = {"c++": ("cubin", "ptx", "ltoir"), "ptx": ("cubin", "ptx"), "nvvm": ("ptx", "ltoir")}
        target = _format_of(target_type, allowed[self._code_type], f"Program of {self._code_type}")
        name = self._options.name or ""
        if self._code_type == "ptx":
            text = str(self._code)
            parsed(text)
            return ObjectCode(text, target, name, {}, text.encode(), {})
        if self._code_type == "nvvm":
            ptx = bytes(self._really("ptx", (), logs).code).rstrip(b"\0").decode()
            make = None if target == "ptx" else lambda: bytes(self._really(target, (), None).code)
            return ObjectCode(ptx, target, name, {}, ptx.encode() if target == "ptx" else None, {}, make)
        names = tuple(expression for expression in name_expressions)
        answer = self._nvrtc(target, names)
        if logs is not None and answer.log:
            logs.write(answer.log)
        ptx = (answer.code or b"").rstrip(b"\0").decode()
        mapping = {expression: symbol.encode() for expression, symbol in answer.lowered.items()}
        make = None if target == "ptx" else lambda: bytes(self._really(target, names, None).code)
        code = ptx.encode() if target == "ptx" else None
        return ObjectCode(ptx, target, name, mapping, code, _signatures(str(self._code)), make)

    def _nvrtc(self, target: str, names: Sequence[str]) -> worker.Answer:
        """Compile C++ to PTX with the program's options."""
        flags = [*self._options.as_bytes("nvrtc", "ptx")]
        flags = [b"-arch=" + flag[6:].replace(b"sm_", b"compute_") if flag.startswith(b"-arch=") else flag
                 for flag in flags if flag not in (b"-dlto", b"--dlink-time-opt")]  # fmt: skip
        if target == "ltoir" and b"--relocatable-device-code=true" not in flags:
            flags.append(b"--relocatable-device-code=true")  # code that is linked later keeps its functions
        if not self._options.debug and not self._options.lineinfo:
            flags.append(b"--generate-line-info")  # errors of the emulator name lines
        path = load_library("nvrtc")
        answer = worker.compiled(path, str(self._code), self._options.name or "default_program", flags, names, "PTX")
        if answer.code is None:
            raise CoreCompileError(f"NVRTC_ERROR_COMPILATION: {answer.failure or 'it does not compile'}\n{answer.log}")
        return answer

    def _really(self, target: str, names: Sequence[str], logs: Any) -> Any:
        """Compile by the real cuda.core, which needs no driver where an arch is named."""
        program = real.Program(self._code, self._code_type, self._options)
        try:
            return program.compile(target, name_expressions=names, logs=logs)
        finally:
            program.close()


def _own(options_class: Any, options: Any) -> Any:
    """Return options of the real class as options of the stand-in's."""
    base = options_class.__mro__[1]
    if isinstance(options, base) and not isinstance(options, options_class):
        return options_class(**{name: getattr(options, name) for name in base.__dataclass_fields__})
    return options


_parsed: dict[str, Any] = {}


def parsed(ptx: str) -> Any:
    """Return the emulator's program of PTX.

    Raises
    ------
    CoreError
        If the text is no PTX.
    """
    program = _parsed.get(ptx)
    if program is None:
        try:
            program = _parsed[ptx] = face.parse(ptx)
        except CudakitError as error:
            raise CoreError(f"CUDA_ERROR_INVALID_PTX: {error}") from error
    return program


def _signatures(text: str) -> dict[str, str]:
    """Return the signatures of a source's kernels that are no templates, as text by name; their names tell no types."""
    kernels = [kernel for kernel in declarations_of(text).kernels if kernel.parameters is not None]
    return {
        kernel.name: f"void {kernel.name}({', '.join(f'{p.type} {p.name}' for p in kernel.parameters or ())})"
        for kernel in kernels
        if not kernel.is_template
    }


class ObjectCode(MadeByOthers):
    """A stand-in for ``cuda.core.ObjectCode``: PTX, and the bytes that the program asked for."""

    signatures: dict[str, str]

    def __init__(
        self,
        ptx: str,
        code_type: str,
        name: str,
        mapping: Mapping[str, bytes],
        code: bytes | None,
        signatures: Mapping[str, str],
        make: Callable[[], bytes] | None = None,
    ) -> None:
        if "cudaGraphSetConditional" in ptx and _SET_CONDITION not in ptx:
            ptx += _SET_CONDITION
        self.ptx: str = ptx
        self.code_type: str = code_type
        self.name: str = name
        self._mapping, self._bytes, self.signatures, self._make = dict(mapping), code, dict(signatures), make

    @property
    def symbol_mapping(self) -> dict[str, bytes]:
        """Names in the code, by name expression."""
        return dict(self._mapping)

    _path: str | None = None

    @property
    def code(self) -> bytes | str:
        """Bytes of the code, or the path of its file. Machine code and LTO IR are compiled now."""
        return self.content() if self._path is None else self._path

    def content(self) -> bytes:
        """Return the bytes of the code, also of a file."""
        if self._bytes is None:
            assert self._make is not None
            self._bytes = self._make()
            remember(self._bytes, self.ptx)
        return self._bytes

    @property
    def is_ptx(self) -> bool:
        """Whether the code's bytes are PTX. Linked code of any type is PTX."""
        return self._bytes is not None and not self._bytes.startswith(b"\x7fELF")

    @property
    def handle(self) -> int:
        """Number of the code."""
        return handle_of(self)

    get_module: Any = raising("ObjectCode.get_module returns a module of CUDA's driver, and there is none")

    def kernels(self) -> list[str]:
        """Return the names of the code's kernels."""
        return [function.name for function in parsed(self.ptx).functions.values() if function.is_entry]

    def get_kernel(self, name: str | bytes) -> Kernel:
        """Return a kernel by its name, or by its name expression.

        Raises
        ------
        CoreError
            If the code has no such kernel.
        """
        if self.code_type not in _LOADABLE:
            raise RuntimeError(
                f"{self.code_type} has no kernels to launch before it is linked: Linker(code).link('cubin')"
            )
        shown = name.decode() if isinstance(name, bytes) else name
        symbol = self._mapping.get(shown, shown.encode()).decode()
        entries = self.kernels()
        if symbol not in entries:
            raise CoreError(
                f"CUDA_ERROR_NOT_FOUND: the code has no kernel {shown}; it has {', '.join(entries) or 'none'}. "
                'The name of a template or of a C++ function without extern "C" is a name expression: '
                f'compile(…, name_expressions=("{shown}",))'
            )
        return Kernel(self, shown, symbol)

    def __repr__(self) -> str:
        return f"<ObjectCode code_type='{self.code_type}' on the emulator>"

    def __reduce__(self) -> tuple[Any, ...]:
        code = None if self._bytes is None and self._make is not None else self._bytes
        return _restored, (
            self.ptx, self.code_type, self.name, self._mapping, code or self.content(), self.signatures,
        )  # fmt: skip

    @classmethod
    def of_type(cls, code_type: str, module: Any, name: str, symbol_mapping: Mapping[str, Any] | None) -> ObjectCode:
        """Load PTX, or code of another type that this process has compiled: bytes, or the path of a file."""
        if isinstance(module, str | os.PathLike):
            data = Path(module).read_bytes()
        elif isinstance(module, bytes | bytearray):
            data = bytes(module)
        else:
            raise TypeError(f"from_{code_type} takes bytes or a path, got {shortened(module)}")
        mapping = {
            key: value if isinstance(value, bytes) else value.encode() for key, value in (symbol_mapping or {}).items()
        }
        ptx = data.rstrip(b"\0").decode() if code_type == "ptx" else _ptx_of.get(_digest(data))
        if ptx is None:
            raise CoreError(
                f"ObjectCode.from_{code_type}: the emulator runs PTX, and knows the PTX of code only that this process "
                "has compiled; compile to 'ptx' and load it with ObjectCode.from_ptx"
            )
        code = cls(ptx, code_type, name, mapping, data, {})
        code._path = os.fspath(module) if isinstance(module, str | os.PathLike) else None
        return code

    from_cubin: ClassVar[Callable[..., ObjectCode]]
    from_ptx: ClassVar[Callable[..., ObjectCode]]
    from_ltoir: ClassVar[Callable[..., ObjectCode]]
    from_fatbin: ClassVar[Callable[..., ObjectCode]]
    from_object: ClassVar[Callable[..., ObjectCode]]
    from_library: ClassVar[Callable[..., ObjectCode]]


def _loader(code_type: str) -> Any:
    """Return the function that loads PTX, or code of another type that this process has compiled."""

    def load(module: Any, *, name: str = "", symbol_mapping: Mapping[str, Any] | None = None) -> ObjectCode:
        return ObjectCode.of_type(code_type, module, name, symbol_mapping)

    return staticmethod(load)


for _code_type in ("cubin", "ptx", "ltoir", "fatbin", "object", "library"):
    setattr(ObjectCode, f"from_{_code_type}", _loader(_code_type))


def _restored(*state: Any) -> ObjectCode:
    code = ObjectCode(*state)
    _ptx_of.setdefault(_digest(code.content()), code.ptx)
    return code


class ParamInfo(NamedTuple):
    """Offset and size of a kernel's parameter, in bytes."""

    offset: int
    size: int


class Kernel(MadeByOthers):
    """A stand-in for ``cuda.core.Kernel``.

    Attributes
    ----------
    checked : cudakit.Kernel
        Kernel of cudakit, which checks the launches.
    """

    def __init__(self, code: ObjectCode, name: str, symbol: str) -> None:
        self.code: ObjectCode = code
        self.name: str = name
        self.symbol: str = symbol
        #: Variables and functions keep the code's module alive.
        self.function: face.program.Function = parsed(code.ptx).functions[symbol]

    @cached_property
    def checked(self) -> CheckedKernel:
        ptx, symbol, head = self.code.ptx, self.symbol, self.code.signatures.get(self.symbol)
        # A name that cudakit cannot read is replaced by one that tells no types.
        plain = f"kernel_{hashlib.sha256(symbol.encode()).hexdigest()[:12]}"
        for text, name, signature in (
            (ptx, symbol, head),
            (ptx, symbol, None),
            (ptx.replace(symbol, plain), plain, None),
        ):
            try:
                kernel = CheckedKernel.from_ptx(text, name, signature=signature)
                parameters = kernel.specialization(arch=_arch(), target="ptx").parameters
            except CudakitError:
                continue
            if len(parameters or ()) == len(self.function.parameters):
                return kernel
        raise CoreError(f"cudakit cannot read the parameters of {self.name}")

    @cached_property
    def parameters(self) -> tuple[BoundParameter, ...]:
        """Parameters of the kernel, as far as its name or its source tells their types."""
        return tuple(self.checked.specialization(arch=_arch(), target="ptx").parameters or ())

    @property
    def num_arguments(self) -> int:
        """Number of the kernel's parameters."""
        return len(self.function.parameters)

    @property
    def arguments_info(self) -> list[ParamInfo]:
        """Offset and size of each parameter."""
        infos, offset = [], 0
        for variable in self.function.parameters:
            align = max(1, variable.align)
            offset = -(-offset // align) * align
            infos.append(ParamInfo(offset, variable.size))
            offset += variable.size
        return infos

    @property
    def attributes(self) -> Any:
        """Resources of the kernel's machine code."""
        return parts.KernelAttributes(self)

    @property
    def occupancy(self) -> Any:
        """Blocks that a multiprocessor holds at once."""
        return parts.KernelOccupancy(self)

    @property
    def handle(self) -> int:
        """Number of the kernel."""
        return handle_of(self)

    @staticmethod
    def from_handle(handle: Any, mod: ObjectCode | None = None) -> Kernel:
        """Return the kernel with a handle.

        Raises
        ------
        CoreError
            If no living kernel has the handle.
        """
        if not isinstance(handle, int):
            raise TypeError(f"a kernel's handle is an int, got {shortened(handle)}")
        if mod is not None and not isinstance(mod, ObjectCode):
            raise TypeError(f"mod is an ObjectCode, got {shortened(mod)}")
        kernel = living.get(handle)
        if not isinstance(kernel, Kernel):
            raise CoreError(f"no kernel of the emulator has the handle {handle:#x}")
        return kernel

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and (self.code, self.symbol) == (other.code, other.symbol)

    def __hash__(self) -> int:
        return hash((self.code, self.symbol))

    def __repr__(self) -> str:
        return f"<Kernel {self.name} on the emulator>"


class Linker(Closeable):
    """A stand-in for ``cuda.core.Linker``: it joins the PTX of its inputs, which the emulator links."""

    def __init__(self, *object_codes: ObjectCode, options: Any = None) -> None:
        if not object_codes:
            raise ValueError("At least one ObjectCode object must be provided to Linker")
        for code in object_codes:
            if not isinstance(code, ObjectCode):
                raise TypeError(f"Linker takes ObjectCode, got {shortened(code)}")
        self._options = of_options(LinkerOptions, _own(LinkerOptions, options), "Linker options")
        self._codes = object_codes

    def link(self, target_type: Any) -> ObjectCode:
        """Link to ``"cubin"`` or ``"ptx"``. The code of either is the joined PTX."""
        target = _format_of(target_type, ("cubin", "ptx"), "Linker.link")
        ptx = "\n".join(code.ptx.replace(_SET_CONDITION, "") for code in self._codes)
        parsed(ptx)
        signatures = {name: head for code in self._codes for name, head in code.signatures.items()}
        return ObjectCode(ptx, target, self._options.name or "", {}, ptx.encode(), signatures)

    def get_error_log(self) -> str:
        """Return an empty text: errors are raised."""
        return ""

    get_info_log = get_error_log

    backend: Any = CompilerBackendType.NVJITLINK

    @classmethod
    def which_backend(cls) -> CompilerBackendType:
        """Return nvJitLink, which links for a GPU."""
        return cls.backend
