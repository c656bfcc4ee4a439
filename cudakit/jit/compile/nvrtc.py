"""Stage 4, compile: a `Specialization` becomes `Compiled` code, by cuda.core's Program or, for PTX, by NVRTC itself."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from cudakit.errors import CompileError, TemplateError
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.source import headers
from cudakit.jit.source.source import Closure, closure
from cudakit.jit.specialise.specialise import GENERATED, Specialization

if TYPE_CHECKING:
    from cuda.core import ProgramOptions

#: Raised whenever the meaning of what is stored, or the text that is generated, changes.
FORMAT = "1"
_UNROLL = ("_CCCL_META_UNROLL_LIMIT", "10")
#: Kernel whose mangled name carries the parameter types that only the compiler knows.
TYPES_PROBE = "cudakit_parameter_types"


class Request:
    """One specialization as the cache asks for it: its key in readable parts, and how to compile it."""

    def __init__(self, specialization: Specialization) -> None:
        self.specialization = specialization

    @property
    def label(self) -> str:
        return f"{self.specialization.source.name}: {self.specialization.name_expression}"

    @cached_property
    def closure(self) -> Closure:
        spec = self.specialization
        return closure(spec.source, spec.prelude + spec.postlude, spec.options.include_paths)

    @property
    def unstorable(self) -> str | None:
        """Why the result is kept in memory only, or None."""
        return self.closure.computed

    @cached_property
    def parts(self) -> Mapping[str, str]:
        """Everything that can change the code, by name, in the order in which it is explained."""
        spec = self.specialization
        generated = hashlib.sha256(f"{spec.prelude}\0{spec.postlude}".encode()).hexdigest()
        return {
            "format": FORMAT,
            "name": spec.name_expression,
            "source": spec.source.digest,
            "file": spec.source.name,
            "generated": generated,
            "headers": self.closure.digest,
            "options": repr(spec.options),
            "arch": spec.arch,
            "target": spec.target,
            "nvrtc": compiler_identity(),
        }

    @cached_property
    def key(self) -> str:
        return hashlib.sha256("\0".join(f"{name}\0{value}" for name, value in self.parts.items()).encode()).hexdigest()

    @cached_property
    def text(self) -> str:
        """What NVRTC is given: the specialization's text and, where types are asked for, a probe."""
        spec = self.specialization
        text = spec.text
        if spec.needs_types:
            text += (
                f'#line 1 "{GENERATED}"\n'
                f"namespace {TYPES_PROBE}_detail {{ template <typename F> struct types {{}}; }}\n"
                f"__global__ void {TYPES_PROBE}({TYPES_PROBE}_detail::types<decltype(&{spec.name_expression})>) {{}}\n"
            )
        return text

    @property
    def name_expressions(self) -> tuple[str, ...]:
        spec = self.specialization
        probe = (TYPES_PROBE,) if spec.needs_types else ()
        return (spec.name_expression, *(f"&{symbol}" for symbol in spec.symbols), *probe)

    def compile(self) -> Compiled:
        """Compile now, whatever the cache holds.

        Raises
        ------
        CompileError
            With NVRTC's diagnostics placed in the user's source.
        """
        options = self.program_options()
        return _ptx(self, options) if self.specialization.target == "ptx" else _cubin(self, options)

    def program_options(self) -> ProgramOptions:
        """cuda.core's options for this specialization."""
        from cuda.core import ProgramOptions

        spec = self.specialization
        given = spec.options
        paths = [*([str(spec.source.folder)] if spec.source.folder else []), *given.include_paths]
        paths += map(str, headers.own_folders())
        fields: dict[str, Any] = {}
        defines = list(given.defines)
        if self.closure.uses_toolkit:
            # libcu++ gives NVRTC type lists unrolled to 16 where nvcc gets 10; that costs 0.7 s in each compile that
            # includes CUB, and changes no code.
            if all(name != _UNROLL[0] for name, _ in defines):
                defines.append(_UNROLL)
            folders = headers.toolkit_folders()
            paths += map(str, folders)
            if not folders and _nvrtc_version() >= (13, 3):
                fields["use_bundled_headers"] = True
            paths.append(str(headers.fallback_folder()))
        fields |= {
            "name": spec.source.name,
            "arch": spec.arch if spec.target == "cubin" else spec.arch.replace("sm_", "compute_"),
            "std": given.std,
            "include_path": paths,
            "define_macro": defines or None,
            "use_fast_math": given.fast_math or None,
            "lineinfo": given.lineinfo or None,
            "debug": given.debug or None,
            "max_register_count": given.max_registers,
            "pch": given.pch or None,
        }
        try:
            return ProgramOptions(**fields | dict(given.extra))
        except TypeError as error:
            raise TemplateError(f"compile option not known to cuda.core.ProgramOptions: {error}") from error


def _cubin(request: Request, options: ProgramOptions) -> Compiled:
    from cuda.core import Program

    log = io.StringIO()
    program = Program(request.text, "c++", options)
    failure = ""
    try:
        code = program.compile("cubin", name_expressions=request.name_expressions, logs=log)
    except Exception as error:
        # cuda.core's error classes are private: what is not a failure of NVRTC is raised on as it is.
        if "NVRTC" not in str(error):
            raise
        failure = str(error)
    finally:
        program.close()
        # A Program in a cycle with the exception's frames cannot be collected cleanly by cuda.core 1.2.0.
        del program
    if failure:
        raise _failure(request, options, failure)
    lowered = {name: symbol.decode() for name, symbol in code.symbol_mapping.items()}
    return Compiled(bytes(code.code), lowered, log.getvalue().strip("\0\n "), "cubin")


def _ptx(request: Request, options: ProgramOptions) -> Compiled:
    """PTX by NVRTC directly, because cuda.core's Program asks the driver before it makes PTX."""
    from cuda.bindings import nvrtc

    def check(result: tuple[Any, ...]) -> Any:
        if int(result[0]) != 0:
            raise CompileError(f"NVRTC: {nvrtc.nvrtcGetErrorString(result[0])[1].decode()}")
        return result[1] if len(result) == 2 else result[1:]

    flags = options.as_bytes("nvrtc", "ptx")
    name = request.specialization.source.name.encode()
    program = check(nvrtc.nvrtcCreateProgram(request.text.encode(), name, 0, None, None))
    try:
        for expression in request.name_expressions:
            check(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        log = _buffer(check(nvrtc.nvrtcGetProgramLogSize(program)))
        check(nvrtc.nvrtcGetProgramLog(program, log))
        if int(status) != 0:
            raise _failure(request, options, log.decode(errors="replace"))
        lowered = {
            expression: check(nvrtc.nvrtcGetLoweredName(program, expression.encode())).decode()
            for expression in request.name_expressions
        }
        code = _buffer(check(nvrtc.nvrtcGetPTXSize(program)))
        check(nvrtc.nvrtcGetPTX(program, code))
        return Compiled(code.rstrip(b"\0"), lowered, log.decode(errors="replace").strip("\0\n "), "ptx")
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _buffer(size: int) -> bytes:
    """Bytes for NVRTC to write into. Never of length 1: those Python shares, and all of it would see the change."""
    return bytes(max(size, 2))


def _failure(request: Request, options: ProgramOptions, failure: str) -> CompileError:
    from cudakit.jit.compile.diagnostics import compile_error

    spec = request.specialization
    flags = tuple(flag.decode() for flag in options.as_bytes("nvrtc", spec.target))
    return compile_error(spec.source, spec.name_expression, flags, request.text, failure, spec.unnumbered_lines)


@cache
def _nvrtc_version() -> tuple[int, int]:
    from cuda.bindings import nvrtc

    status, major, minor = nvrtc.nvrtcVersion()
    if int(status) != 0:
        raise CompileError("NVRTC does not answer; install it with pip install 'cudakit[cu13]' (or [cu12])")
    return major, minor


@cache
def compiler_identity() -> str:
    """Which NVRTC would compile: of a wheel its exact version, read without loading the library.

    Raises
    ------
    CompileError
        Where there is none.
    """
    wheels = headers.compiler_wheels()
    if wheels:
        return wheels
    from cuda import pathfinder

    try:
        library = pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path
    except pathfinder.DynamicLibNotFoundError as error:
        raise CompileError(
            "NVRTC, CUDA's compiler, is not here: pip install 'cudakit[cu13]' (or [cu12]), or install a CUDA toolkit"
        ) from error
    return f"{'.'.join(map(str, _nvrtc_version()))} {headers.file_mark(library)}"
