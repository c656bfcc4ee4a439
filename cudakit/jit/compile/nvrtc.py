"""Compiling a `Specialization` to `Compiled` code, by cuda.core's Program or by NVRTC itself."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Literal

from cudakit.errors import CompileError, CompileWarning, TemplateError
from cudakit.jit.compile.compiled import TYPES_PROBE, Compiled, type_of
from cudakit.jit.source import closure, headers
from cudakit.jit.source.source import escaped
from cudakit.jit.specialise.options import CompileOptions, unknown_arch
from cudakit.jit.specialise.specialise import GENERATED, Specialization
from cudakit.streams.process import Occupied

if TYPE_CHECKING:
    from cuda.core import ProgramOptions

    from cudakit.jit.compile import worker


# Which compile options name files beside headers. Code made with one of them is not kept: the key has no such file.
#
# Every option that reaches a tool is judged here. An option that is in no table counts as one that reads a file.
#
# ==========  ==================================  ==========================================================
# tool        options come from                   of these read files
# ==========  ==================================  ==========================================================
# NVRTC       fields of cuda.core.ProgramOptions  headers, which the closure has, and the fields outside `FIELDS`
# ptxas       the field ``ptxas_options``         ``--options-file``, ``--apply-controls``, input files
# nvJitLink   `cudakit.jit.compile.linked` alone  none: its inputs' bytes are hashed
# tileiras    `cudakit.jit.compile.assemble`      none: ``--apply-controls`` and ``-l`` are never passed
# ==========  ==================================  ==========================================================

#: Fields of cuda.core.ProgramOptions that read nothing, or headers alone.
_FIELDS = """
relocatable_device_code extensible_whole_program debug lineinfo device_code_optimize ptxas_options
max_register_count ftz prec_sqrt prec_div fma use_fast_math extra_device_vectorization link_time_optimization
gen_opt_lto define_macro undefine_macro include_path use_bundled_headers pre_include no_source_include std
builtin_move_forward builtin_initializer_list disable_warnings restrict device_as_default_execution_space
device_int128 optimization_info no_display_error_number diag_error diag_suppress diag_warn brief_diagnostics
split_compile fdevice_syntax_only minimal no_cache device_float128 frandom_seed ofast_compile pch pch_verbose
pch_messages instantiate_templates_in_pch numba_debug
"""
#: Options of ptxas that read nothing.
_PTXAS_FLAGS = """
--compile-as-tools-patch -astoolspatch --compile-only -c --compiler-annotations -annotate --device-debug -g
--disable-optimizer-constants -disable-optimizer-consts --disable-warnings -w --dont-merge-basicblocks
-no-bb-merge --extensible-whole-program -ewp --g-tensor-memory-access-check -g-tmem-access-check
--generate-line-info -lineinfo --gno-fabric-access-check -gno-fabric-access-check
--gno-tensor-memory-access-check -gno-tmem-access-check --legacy-bar-warp-wide-behavior
-legacy-bar-warp-wide-behavior --make-errors-visible-at-exit -make-errors-visible-at-exit
--optimize-float-atomics -opt-fp-atomics --override-directive-values -override-directive-values
--preserve-relocs -preserve-relocs --return-at-end -ret-end --sp-bounds-check -sp-bounds-check
--suppress-async-bulk-multicast-advisory-warning -suppress-async-bulk-multicast-advisory-warning
--suppress-debug-info -suppress-debug-info --suppress-double-demote-warning -suppress-double-demote-warning
--suppress-position-independent-code-warning -suppress-position-independent-code-warning
--suppress-sparse-mma-advisory-info -suppress-sparse-mma-advisory-info --suppress-stack-size-warning
-suppress-stack-size-warning --verbose -v --verbose2 -v2 --warn-on-double-precision-use -warn-double-usage
--warn-on-local-memory-usage -warn-lmem-usage --warn-on-spills -warn-spills --warning-as-error -Werror
"""
#: Options of ptxas that read nothing and have a value, after ``=`` or as the next option.
_PTXAS_VALUES = """
--Ofast-compile -Ofc --allow-expensive-optimizations -allow-expensive-optimizations --def-load-cache -dlcm
--def-store-cache -dscm --device-function-maxrregcount -func-maxrregcount --device-stack-protector
-device-stack-protector --enable-func-clone-sc -enable-func-clone-sc --entry -e --fmad -fmad
--force-load-cache -flcm --force-store-cache -fscm --machine -m --maxntid -maxntid --maxrregcount
-maxrregcount --minnctapersm -minnctapersm --opt-level -O -O0 -O1 -O2 -O3 --position-independent-code -pic
--register-usage-level -regUsageLevel --sanitize -sanitize --split-compile -split-compile
"""
FIELDS: Final = frozenset(_FIELDS.split())
PTXAS_FLAGS: Final = frozenset(_PTXAS_FLAGS.split())
PTXAS_VALUES: Final = frozenset(_PTXAS_VALUES.split())


def reads_files(extra: Iterable[tuple[str, Any]]) -> str | None:
    """Return the reason why code made with further compiler options cannot be stored, or None.

    The reason is an option that may read or write files. `extra` has pairs of option and value.
    """
    for name, value in extra:
        if name not in FIELDS:
            return f"the option {name} reads or writes other files"
        if name == "ptxas_options" and value is not None:
            option = _reads_file(_listed(value))
            if option is not None:
                return f"the option {option} of ptxas may read a file"
    return None


def _reads_file(options: Iterable[Any]) -> str | None:
    is_value = False
    for option in map(str, options):
        if is_value and not option.startswith("-"):
            is_value = False
            continue
        name, _, value = option.replace(" ", "=", 1).partition("=")
        if name not in PTXAS_VALUES and (name not in PTXAS_FLAGS or value):
            return option
        # -O2 contains its value; the next word is an input file.
        is_value = not value and name in PTXAS_VALUES and not name[-1].isdigit()
    return None


#: Increased when the meaning of stored data, or the generated source, changes.
FORMAT = "4"
#: What NVRTC's option ``minimal`` leaves out: textures, launches by kernels, types and calls of CUDA's runtime.
_RUNTIME: Final = r"cuda(?!kit|_fp16|_bf16)|\b_*(?:tex|surf)|<<<"
#: Each match of `_RUNTIME` contains one of these. To compile the pattern takes a tenth of a first launch from the disk.
_RUNTIME_PARTS: Final = ("cuda", "tex", "surf", "<<<")
#: Headers that use nothing of these, beside cudakit's own.
_SMALL_HEADERS: Final = ("cuda_fp16.h", "cuda_bf16.h")
_UNROLL = ("_CCCL_META_UNROLL_LIMIT", "10")
#: A path that cannot exist, as the folder of sources without a folder.
_NOWHERE = f"{os.devnull}/"
#: An error of tile code, as NVRTC prints it.
_PRINTED = r'loc\("(.*?)":(\d+):\d+\): error:[ :]*(.*)'
_LEAST_TILE_ARCH = 80
_nvrtc = Occupied()
#: NVRTC's message about an unknown name.
_REFUSED_NAME = r'Input name expression was: "(.*?)"\n'


class Request:
    """A specialization to compile, as a request to the cache: its key in readable parts, and how to compile it.

    Attributes
    ----------
    closure : Closure or None
        Closure of the source; None until a compile, or the cache, has found it.
    unstorable : str or None
        Reason why the code cannot be stored, or None. A compile may add a reason.
    """

    def __init__(self, specialization: Specialization) -> None:
        self.specialization = specialization
        self.closure: closure.Closure | None = None if self.includes else closure.NOTHING_READ
        self._key: tuple[closure.Closure | None, str] | None = None
        self.unstorable = reads_files(specialization.options.extra)
        if any(name in self.written for name in closure.TIMES):
            self.unstorable = closure.TELLS_TIME

    @property
    def label(self) -> str:
        return f"{self.specialization.source.name}: {self.specialization.title}"

    @property
    def origin(self) -> tuple[Specialization, tuple[closure.Closure | None, ...]]:
        return self.specialization, (self.closure,)

    @cached_property
    def written(self) -> str:
        """The generated source and the user's source in one text, without ``#line`` directives between them."""
        spec = self.specialization
        return f"{''.join(spec.prelude)}{spec.own_text}\n{''.join(spec.postlude)}"

    @cached_property
    def includes(self) -> bool:
        """True if the source may include anything; otherwise no headers are searched."""
        return b"include" in closure.spliced(self.written.encode()) or any(
            "include" in f"{name}{value}" for name, value in self.user_flags
        )

    @cached_property
    def is_minimal(self) -> bool:
        """True if NVRTC need not declare what `_RUNTIME` names; a short kernel then compiles in two thirds of the time.

        The same code results. Headers of users and of CUDA may use those declarations.
        """
        spec, options = self.specialization, self.specialization.options
        texts = (self.written, *self.name_expressions, repr(self.user_flags))
        if spec.has_tiles or spec.target not in ("ptx", "cubin") or any(map(_names_runtime, texts)):
            return False
        if not self.includes:
            return True
        is_searched = options.include_paths or any("include" in name for name, _ in options.extra)
        if is_searched or spec.source.folder not in (None, headers.templates_folder()):
            return False
        with contextlib.suppress(closure.Unsure):
            names = closure.names_included(self.written.encode())
            return all(name.startswith("cudakit/") or name in _SMALL_HEADERS for name in names)
        return False

    @cached_property
    def user_flags(self) -> tuple[tuple[str, Any], ...]:
        return (*self.specialization.options.defines, *self.specialization.options.extra)

    @cached_property
    def parts_without_headers(self) -> Mapping[str, str]:
        """All parts of the key but headers, by name, in the order of explanations."""
        spec = self.specialization
        text = "\0".join((self.text, *self.name_expressions))
        return {
            "format": FORMAT,
            "name": spec.title,
            "file": spec.source.name,
            "text": hashlib.sha256(text.encode()).hexdigest(),
            "options": " ".join(
                f"{name}={value!r}" for name, value in self.fields.items() if name not in ("arch", "name")
            ),
            "arch": spec.arch,
            "target": spec.target,
            "nvrtc": compiler_identity(),
            "cuda.core": headers.core_version(),
            "cuda": headers.toolkit_version() if self.includes else "",
        }

    @property
    def parts(self) -> Mapping[str, str]:
        """All parts of the key, by name, in the order of explanations."""
        return {**self.parts_without_headers, "headers": "unknown" if self.closure is None else self.closure.digest}

    @cached_property
    def base(self) -> str:
        """Key of stored closures: the digest of everything that can change which headers are read."""
        return digest_of(self.parts_without_headers)

    @property
    def key(self) -> str:
        if self._key is None or self._key[0] is not self.closure:
            self._key = self.closure, digest_of(self.parts)
        return self._key[1]

    @cached_property
    def text(self) -> str:
        """Source for NVRTC: the specialization's source and, if types are requested, a probe."""
        spec = self.specialization
        text = spec.text
        if self.includes and spec.source.folder is None and not (spec.prelude or spec.options.pch):
            text = f'#line 1 "{escaped(spec.source.name)}"\n{text}'
        if any(name.startswith(TYPES_PROBE) for name in self.name_expressions):
            keyword = "__tile_global__" if spec.is_tile else "__global__"
            text += f'#line 1 "{GENERATED}"\ntemplate <typename T_> {keyword} void {TYPES_PROBE}() {{}}\n'
        return text

    @cached_property
    def name_expressions(self) -> tuple[str, ...]:
        spec = self.specialization
        unknown = [name for name, is_requested in spec.requested if is_requested]
        return (
            *(name for name, _ in spec.requested),
            *(f"&{symbol}" for symbol in spec.symbols),
            *map(type_of, (*unknown, *spec.typed)),
        )

    def compile(self, elsewhere: Callable[..., worker.Answer] | None = None) -> Compiled:
        """Compile now, without the cache. Also sets `closure` and `unstorable`.

        Parameters
        ----------
        elsewhere : callable, optional
            Function that runs NVRTC in another process, with the arguments of `worker.compiled`. Default: NVRTC runs
            here. Tile code has a process of its own in any case.

        Raises
        ------
        CompileError
            If NVRTC fails. The message has NVRTC's diagnostics, placed in the user's source.
        """
        if not self.includes:
            return self._compile({}, elsewhere)
        folders = self.fields["include_path"]
        first = "".join(f'#include "{path}"\n' for path in self.fields.get("pre_include", ()))
        texts = [f"{first}{self.written}".encode(), repr(self.user_flags).encode()]
        before: closure.Closure | None = None
        try:
            reads = closure.all_included(texts[0], folders)
            watch = closure.Watch(folders, reads)
            before = closure.closure_of(reads, texts, watch)
        except (closure.Unsure, OSError) as reason:
            self.unstorable = self.unstorable or str(reason)
        changes: dict[str, Any] = {}
        if self.fields.get("pch"):
            # NVRTC does not notice a change of a header after precompiling; a macro with the headers' digest forces a
            # new one.
            mark = [] if before is None else [("CUDAKIT_PCH", before.marks)]
            changes = {
                "define_macro": [*(self.fields.get("define_macro") or ()), *mark],
                "pch": before is not None or None,
            }
        compiled = self._compile(changes, elsewhere)
        if before is not None and self.unstorable is None:
            try:
                if closure.closure_of(closure.all_included(texts[0], folders), texts, watch) != before:
                    raise closure.Unsure("a header changed while it was compiled")
                self.closure = before
            except (closure.Unsure, OSError) as reason:
                self.unstorable = str(reason)
        return compiled

    def _compile(self, changes: Mapping[str, Any], elsewhere: Callable[..., worker.Answer] | None) -> Compiled:
        spec = self.specialization
        if spec.is_tile:
            _check_tiles(spec)
        options = self.program_options(changes)
        # cuda.core's Program asks the driver before it makes PTX, and has no option for tile code.
        is_direct = elsewhere or spec.has_tiles or spec.target == "ptx" or _nvrtc.at_fork
        run = partial(_by_nvrtc, elsewhere=elsewhere) if is_direct else _by_program
        names = self.name_expressions
        try:
            return run(self, options, names)
        except CompileError as error:
            # A refused name must not affect the other names: it is compiled alone later.
            refused = {"".join(name.split()) for name in re.findall(_REFUSED_NAME, error.log)}
            left = tuple(name for name in names if "".join(name.split()) not in refused)
            # This request is for its own name: no other request would report the error.
            own = self.specialization.name_expression
            if (own and own not in left) or len(self.specialization.requested) < 2 or len(left) in (0, len(names)):
                raise
        return run(self, options, left)

    @property
    def program_name(self) -> str:
        """Path of the source for NVRTC, which searches quoted headers in that folder first."""
        name = self.specialization.source.name
        # A string has no folder, and must not use the working directory.
        return f"{_NOWHERE}{name}" if self.includes and self.specialization.source.folder is None else name

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Fields of cuda.core's options for this specialization; cuda.core translates them to the compiler's flags."""
        spec = self.specialization
        options = spec.options
        paths = [
            *([str(spec.source.folder)] if spec.source.folder else []),
            *map(os.path.abspath, options.include_paths),
        ]
        fields: dict[str, Any] = {}
        defines = list(options.defines)
        if self.includes:
            # With NVRTC, libcu++ unrolls type lists to 16 in place of nvcc's 10. This costs 0.7 s in each compile with
            # CUB, and changes no code.
            if all(name != _UNROLL[0] for name, _ in defines):
                defines.append(_UNROLL)
            # The project's headers are written out in the text; a toolkit among its folders must not hide replacements.
            first = map(str, headers.own_folders()) if spec.source.host_code == "skip" else ()
            paths = list(dict.fromkeys([*first, *paths, *headers.search_folders()]))
            if not headers.toolkit_folders() and _nvrtc_version() >= (13, 3):
                fields["use_bundled_headers"] = True
        fields |= {
            "name": self.program_name,
            "arch": spec.arch.replace("sm_", "compute_") if spec.target in ("ptx", "tileir") else spec.arch,
            "std": "c++20" if spec.has_tiles and options.std == CompileOptions.std else options.std,
            "include_path": paths,
            "define_macro": defines or None,
            "use_fast_math": options.fast_math or None,
            "lineinfo": options.lineinfo or None,
            "debug": options.debug or None,
            "max_register_count": options.max_registers,
            "pch": options.pch or None,
            "minimal": self.is_minimal or None,
            "relocatable_device_code": options.relocatable or spec.target in ("object", "ltoir") or None,
            "link_time_optimization": spec.target == "ltoir" or None,
        }
        has_lambda = any("cudakit_functor_" in text for text in spec.postlude)
        if spec.source.host_code == "skip" or (has_lambda and _nvrtc_version() < (13, 5)):
            # Code without annotations is code that nvcc lets kernels use: constants, constexpr functions. For NVRTC
            # before 13.5, generic lambdas have no annotation anywhere.
            fields["device_as_default_execution_space"] = True
        if options.extra:
            fields |= dict(options.extra)
            fields["include_path"] = [os.path.abspath(path) for path in _listed(fields["include_path"])]
            if "pre_include" in fields:
                folders = fields["include_path"]
                fields["pre_include"] = [_header_path(name, folders) for name in _listed(fields["pre_include"])]
        return {name: value for name, value in fields.items() if value is not None}

    def program_options(self, changes: Mapping[str, Any]) -> ProgramOptions:
        """Return cuda.core's options for this specialization, with `changes` to their fields."""
        from cuda.core import ProgramOptions

        try:
            return ProgramOptions(**{**self.fields, **changes})
        except TypeError as error:
            raise TemplateError(f"compile option not known to cuda.core.ProgramOptions: {error}") from error


def _check_tiles(spec: Specialization) -> None:
    """Raise for targets and archs that tile kernels cannot be compiled for; the compiler does not report them."""
    if spec.target != "tileir":
        raise CompileError(f"{spec.title}: a tile kernel has no {spec.target}; there is target='cubin', or 'tileir'")
    if int(spec.arch.strip("sm_af")) < _LEAST_TILE_ARCH:
        raise CompileError(
            f"{spec.title}: tile kernels are for sm_{_LEAST_TILE_ARCH} and later, not for {spec.arch}; there is "
            "__global__, for kernels of threads"
        )


def _by_program(request: Request, options: ProgramOptions, names: tuple[str, ...]) -> Compiled:
    from cuda.core import Program

    log = io.StringIO()
    program = Program(request.text, "c++", options)
    failure = ""
    try:
        output = "ltoir" if request.specialization.target == "ltoir" else "cubin"
        with _nvrtc.inside():
            code = program.compile(output, name_expressions=names, logs=log)
    except Exception as error:
        # cuda.core's error classes are private: errors that are not NVRTC's are raised unchanged.
        if "NVRTC" not in str(error):
            raise
        failure = str(error)
    finally:
        program.close()
        # A Program in a cycle with the exception's frames cannot be collected cleanly by cuda.core 1.2.0.
        del program
    if failure:
        raise _failure(request, failure)
    lowered = {name: symbol.decode() for name, symbol in code.symbol_mapping.items()}
    compiled = Compiled(bytes(code.code), lowered, _cleaned(log.getvalue()), request.specialization.target)
    _check_defined(request, compiled)
    return compiled


def _by_nvrtc(
    request: Request,
    options: ProgramOptions,
    names: tuple[str, ...],
    elsewhere: Callable[..., worker.Answer] | None,
) -> Compiled:
    from cudakit.jit.compile import worker  # as `_apart`: not for code that is in the cache

    spec = request.specialization
    target = spec.target
    output = {"object": "CUBIN", "tileir": "TileIR"}.get(target, target.upper())
    # cuda.core has no option for tile code.
    flags = [
        *options.as_bytes("nvrtc", "ptx" if target == "tileir" else target.replace("object", "cubin")),
        *([b"--enable-tile"] if spec.has_tiles else []),
    ]
    program = load_library("nvrtc"), request.text, request.program_name, flags, names, output
    if spec.has_tiles or _nvrtc.at_fork:
        answer, printed = _apart(program)
    elif elsewhere is not None:
        answer, printed = elsewhere(*program), ""
    else:
        with _nvrtc.inside():
            answer, printed = worker.compiled(*program), ""
    printed = re.sub(_PRINTED, lambda match: f"{spec.source.named(match[1])}({match[2]}): error: {match[3]}", printed)
    if answer.code is None:
        if "unrecognized option --enable-tile" in answer.log or answer.failure == worker.NO_TILE_IR:
            from cudakit.jit.compile import pins  # late: it reads packages' metadata

            raise CompileError(
                f"{request.label}: tile kernels need NVRTC 13.5 or newer, not {compiler_identity()}; "
                f"{pins.tile_nvrtc_advice()}"
            )
        if answer.log:
            raise _failure(request, f"{printed}{answer.log}")
        raise CompileError(f"NVRTC: {answer.failure}\n{printed}".strip())
    code = answer.code.rstrip(b"\0") if target == "ptx" else answer.code
    compiled = Compiled(code, answer.lowered, _cleaned(answer.log), target)
    if target == "tileir":
        compiled = _examined(request, compiled)
        _warn_of_hints(request, compiled.log)
    _check_defined(request, compiled)
    return compiled


#: Names of CUDA's libraries in errors.
_LIBRARIES: Final = {"nvrtc": "NVRTC, CUDA's compiler,", "nvJitLink": "nvJitLink, CUDA's linker,"}


def load_library(name: Literal["nvrtc", "nvJitLink"]) -> str:
    """Load a CUDA library by the name that cuda.core uses, and return its path.

    Raises
    ------
    CompileError
        If the library is not installed.
    """
    missing = f"{_LIBRARIES[name]} is not installed: pip install 'cudakit[cu13]' (or [cu12]), or install a CUDA toolkit"
    try:
        from cuda import pathfinder
    except ModuleNotFoundError as error:  # on macOS
        raise CompileError(missing) from error
    try:
        path: str = pathfinder.load_nvidia_dynamic_lib(name).abs_path
    except pathfinder.DynamicLibNotFoundError as error:
        raise CompileError(missing) from error
    return path


def _apart(program: tuple[Any, ...]) -> tuple[worker.Answer, str]:
    """Run NVRTC in a process of its own; return its answer and the printed text.

    `program` has the arguments of `worker.compiled`. If the process dies, the answer has no code, and a message.

    In a child that was forked while another thread compiled, NVRTC's own lock stays locked. For tile code, NVRTC prints
    some errors to the process's output, and crashes on others.
    """
    from cudakit.jit.compile import worker

    status, answer, printed = worker.apart("compiled", *program)
    if status == 0:
        return worker.Answer(*answer), printed
    return worker.Answer(None, {}, "", f"the compiler died of this text (status {status})"), printed


def _examined(request: Request, compiled: Compiled) -> Compiled:
    """Return Tile IR with its promises added.

    Raises
    ------
    CompileError
        If the code makes a call that tile code cannot make.
    """
    from cudakit.jit.compile import tile_bytecode, tile_ir

    module = tile_bytecode.read(compiled.code)
    trapped = [
        f"{request.specialization.source.named(place.file) if place else request.program_name}"
        f"({place.line if place else 1}): error: "
        f"{operation.attributes['message']} It would end the kernel when it comes to it; use cuda::tiles' own"
        for operation, place in tile_ir.traps(module)
    ]
    if trapped:
        raise _failure(request, "\n".join(trapped))
    return compiled._replace(promises=tile_ir.promises(module))


def _warn_of_hints(request: Request, log: str) -> None:
    """Warn of hints that the compiler ignores: without them a kernel is correct, and may be slow."""
    if "tile optimization hint" not in log:
        return
    from cudakit.jit.compile.diagnostics import placed_log

    spec = request.specialization
    for diagnostic in placed_log(spec.source, log, spec.unnumbered_lines):
        if "tile optimization hint" in diagnostic.message:
            warnings.warn(f"{diagnostic.file}:{diagnostic.line}: {diagnostic.message}", CompileWarning, stacklevel=2)


def _failure(request: Request, failure: str) -> CompileError:
    from cudakit.jit.compile.diagnostics import compile_error

    spec = request.specialization
    output = "cubin" if spec.target == "object" else spec.target
    flags = tuple(flag.decode() for flag in request.program_options({}).as_bytes("nvrtc", output))
    failure = failure.replace(_NOWHERE, "")
    if "--gpu-architecture" in failure and not is_supported(spec.arch):
        message = unknown_arch(spec.name_expression or spec.source.name, spec.arch, supported_archs())
        return CompileError(message, log=failure, source=request.text, options=flags)
    return compile_error(
        spec.source, spec.name_expression or spec.source.name, flags, request.text, failure, spec.unnumbered_lines
    )


def _check_defined(request: Request, compiled: Compiled) -> None:
    """Raise if the kernel has no code: NVRTC has a lowered name for a prototype too."""
    spec = request.specialization
    # LTO IR is compressed.
    if spec.target != "ltoir" and compiled.lowered.get(spec.name_expression, "").encode() not in compiled.code:
        raise CompileError(
            f"{spec.name_expression} is declared in {spec.source.name} and nowhere defined: a kernel needs its body",
            log=compiled.log,
            source=request.text,
            template_arguments=spec.name_expression,
        )


def is_supported(arch: str) -> bool:
    """Return whether NVRTC compiles for an arch."""
    return int(arch.strip("sm_af")) in _supported()


def supported_archs() -> str:
    """Return a phrase for error messages that lists the archs that NVRTC compiles for."""
    listed = ", ".join(f"sm_{number}" for number in _supported())
    return f"one that NVRTC {'.'.join(map(str, _nvrtc_version()))} compiles for: {listed}"


@cache
def _supported() -> tuple[int, ...]:
    from cuda.bindings import nvrtc

    status, numbers = nvrtc.nvrtcGetSupportedArchs()
    return tuple(numbers) if int(status) == 0 else ()


def _cleaned(log: str) -> str:
    return log.replace(_NOWHERE, "").strip("\0\n ")


def digest_of(parts: Mapping[str, str]) -> str:
    """Return the cache key of parts: the hexadecimal SHA-256 of all names and values."""
    return hashlib.sha256("\0".join(f"{name}\0{value}" for name, value in parts.items()).encode()).hexdigest()


def _listed(value: str | Iterable[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _names_runtime(text: str) -> bool:
    """Return whether `_RUNTIME` matches in `text`."""
    return any(part in text for part in _RUNTIME_PARTS) and re.search(_RUNTIME, text) is not None


def _header_path(name: str, folders: Iterable[str]) -> str:
    """Return the path of a header named on the command line; NVRTC would search the working directory first."""
    paths = (os.path.join(folder, name) for folder in (*folders, os.getcwd()))
    return next((path for path in paths if os.path.isfile(path)), name)


@cache
def _nvrtc_version() -> tuple[int, int]:
    from cuda.bindings import nvrtc

    status, major, minor = nvrtc.nvrtcVersion()
    if int(status) != 0:
        raise CompileError("NVRTC does not answer; install it with pip install 'cudakit[cu13]' (or [cu12])")
    return major, minor


@cache
def compiler_identity() -> str:
    """Return the version of NVRTC. For a wheel, this is the wheel's exact version, read without loading the library.

    Raises
    ------
    CompileError
        If NVRTC is not installed.
    """
    wheels = headers.compiler_wheels()
    if wheels:
        return wheels
    library = load_library("nvrtc")
    return f"{'.'.join(map(str, _nvrtc_version()))} {headers.file_mark(library)}"
