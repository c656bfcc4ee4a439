"""Linking by nvJitLink: relocatable code of a source, and of the inputs in its options, becomes one kernel's code.

The inputs' bytes are read, hashed and linked, so that a cached result cannot be older than its inputs. PTX for the
emulator is only concatenated: the emulator links it when it parses it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cudakit.errors import CompileError, TemplateError
from cudakit.jit.compile import elf, worker
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.mangled import demangle
from cudakit.jit.compile.nvrtc import FORMAT, digest_of, load_library
from cudakit.jit.source import headers, source
from cudakit.jit.source.closure import NOTHING_READ, Closure
from cudakit.jit.source.source import Source, kind_of
from cudakit.jit.specialise.options import CompileOptions
from cudakit.jit.specialise.specialise import Specialization

_SOURCES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hpp")
#: Prefix of functions that a kernel calls to launch kernels; CUDA's device runtime library defines them.
DEVICE_RUNTIME_CALL = "__cudaCDP2"
_UNDEFINED = re.compile(r"(?:Undefined reference to|Unresolved extern function) '([^']+)'")
_TWICE = re.compile(r"(?:Linking globals named|Multiple definition of) '([^']+)'")
#: A function or variable that PTX defines for other code.
_VISIBLE = re.compile(
    r"^[ \t]*\.visible\s+(?:\.(?:func|entry)\s+(?:\([^)]*\)\s*)?|\.(?:global|const)\b[^;={]*?)([\w$]+)"
    r"\s*(?:\(|(?:\[[^\]]*\]\s*)*[;=])",
    re.MULTILINE,
)
#: Linker flags for fields of cuda.core's options.
_FLAGS = {"ftz": "-ftz", "prec_div": "-prec-div", "prec_sqrt": "-prec-sqrt", "fma": "-fma"}


class Input(NamedTuple):
    """Code that is linked: its format, its name in messages, and its bytes."""

    code_format: str
    name: str
    code: bytes


def to_be_linked(specialization: Specialization) -> Specialization:
    """Return the specialization with the options that apply to all linked code.

    Raises
    ------
    TemplateError
        For a file that cannot be read, or holds no code.
    """
    options = specialization.options
    codes = [item for item in options.link if isinstance(item, bytes | Path) and not _is_text(item)]
    # Machine code cannot call LTO IR, which the linker would drop as unused.
    lto = options.lto or any(_input(code).code_format == "ltoir" for code in codes)
    return specialization._replace(options=options.replace(rdc=True, lto=lto))


def text_part(specialization: Specialization) -> Specialization:
    """Return the specialization that compiles the kernel's own source to code for the linker.

    Its target is ``object`` or, for link-time optimisation, ``ltoir``. A specialization for PTX is returned unchanged.
    """
    options = specialization.options
    if specialization.target == "ptx":
        return specialization
    return specialization._replace(target="ltoir" if options.lto else "object", options=_own(options))


def inputs_of(specialization: Specialization, compile: Callable[[Specialization], Compiled]) -> list[Input]:
    """Return the inputs that the options link to the kernel; sources are compiled with the kernel's options.

    Raises
    ------
    TemplateError
        For a file that cannot be read, or holds no code that can be linked to this target.
    CompileError
    """
    inputs = []
    part = text_part(specialization)
    for item in specialization.options.link:
        if _is_text(item):
            item = source.from_file(item)
        if isinstance(item, Source):
            text = Specialization(item, "", (), "", (), (), (), (), part.arch, part.options, part.target)
            compiled = compile(text)
            inputs.append(Input(kind_of(compiled.code) or "", item.name, compiled.code))
        else:
            inputs.append(_input(item))
    wrong = [f"{item.name} ({item.code_format})" for item in inputs if item.code_format != "ptx"]
    if specialization.target == "ptx" and wrong:
        raise TemplateError(
            f"{specialization.name_expression}: PTX, which the emulator runs, is linked with PTX and CUDA C++ text "
            f"only; got {', '.join(wrong)}"
        )
    return inputs


def linked_files(options: CompileOptions) -> tuple[str | None, ...]:
    """Return the digests of the linked files' current contents; None for a file that cannot be read."""
    paths = [item for item in options.link if isinstance(item, Path)]
    return tuple(hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None for path in paths)


def _is_text(item: Path | bytes | Source) -> bool:
    return isinstance(item, Path) and item.suffix in _SOURCES


def _own(options: CompileOptions) -> CompileOptions:
    """Return the options to compile a source by itself: relocatable, without linked inputs and link-time optimisation.

    The linked inputs are left out because their bytes are hashed at link time.
    """
    return options.replace(link=(), rdc=True, lto=False)


def _input(item: Path | bytes) -> Input:
    name = "linked code" if isinstance(item, bytes) else str(item)
    try:
        code = item if isinstance(item, bytes) else item.read_bytes()
    except OSError as error:
        raise TemplateError(f"cannot read {name}, which is to be linked: {error.strerror or error}") from error
    code_format = kind_of(code)
    if code_format == "cubin" and elf.is_executable(code):
        raise TemplateError(
            f"{name} is linked already, and cannot be linked to other code: take relocatable code, as nvcc -rdc=true "
            'and Kernel.compile(…, target="object") make it'
        )
    if code_format is None:
        raise TemplateError(
            f"{name} cannot be linked: it is no cubin, PTX, LTO IR, fatbin, object file or library; CUDA C++ is known "
            f"by its name, {', '.join(_SOURCES)}"
        )
    return Input(code_format, name, code.rstrip(b"\0") if code_format == "ptx" else code)


class Link:
    """Code to link, as a request to the cache: its key in readable parts, and how to link it.

    Attributes
    ----------
    origin : tuple
        Specialization before it had options for linking, and the closures of the compiled sources.
    """

    key: str
    base: str

    closure: Closure | None = NOTHING_READ
    unstorable: str | None = None

    def __init__(
        self,
        specialization: Specialization,
        own: Compiled,
        others: Iterable[Input],
        origin: tuple[Specialization, tuple[Closure | None, ...]],
    ) -> None:
        self._specialization, self._own, self.origin = specialization, own, origin
        name = f"{specialization.source.name}: {specialization.title}"
        self.label = name
        self._inputs = [Input(kind_of(own.code) or "", name, own.code), *others]
        self._flags = _flags(specialization, any(item.code_format == "ltoir" for item in self._inputs))
        runtime = _device_runtime()
        self.parts: Mapping[str, str] = {
            "format": FORMAT,
            "name": specialization.title,
            "file": specialization.source.name,
            "linked": " ".join(f"{item.code_format}:{hashlib.sha256(item.code).hexdigest()}" for item in self._inputs),
            "lowered": repr(sorted(own.lowered.items())),
            "options": " ".join(self._flags),
            "nvjitlink": linker_identity(),
            "device runtime": "" if runtime is None else headers.file_mark(runtime),
        }
        self.key = self.base = digest_of(self.parts)

    def run(self) -> Compiled:
        """Link now, without the cache.

        Raises
        ------
        CompileError
            If the linker fails. The message has the linker's log, and hints.
        """
        self._check()
        code, log = _linked(self._flags, self._inputs)
        runtime = _device_runtime()
        if code is None and runtime is not None and DEVICE_RUNTIME_CALL in log:
            # Only if it is called: it adds 200 KB to the code.
            library = Input("library", "CUDA's device runtime", Path(runtime).read_bytes())
            code, log = _linked(self._flags, [*self._inputs, library])
        if code is None:
            raise self._failure(log)
        lines = "\n".join(line for line in log.splitlines() if not line.startswith("INFO"))
        return Compiled(code, self._own.lowered, "\n".join(filter(None, (self._own.log, lines))), "cubin")

    def _check(self) -> None:
        """Check that no two inputs define the same name: nvJitLink would crash, or take either definition."""
        defined: dict[str, Input] = {}
        for item in self._inputs:
            for name in _defined(item):
                if name in defined:
                    raise CompileError(
                        f"cannot link {self._specialization.title}: {defined[name].name} and {item.name} both "
                        f"define {_shown(name)}; make it static or inline, or link one of them only"
                    )
                defined[name] = item

    def _failure(self, log: str) -> CompileError:
        undefined = list(dict.fromkeys(_UNDEFINED.findall(log)))
        twice = list(dict.fromkeys(_TWICE.findall(log)))
        hints = []
        if any(name.startswith(DEVICE_RUNTIME_CALL) for name in undefined):
            hints.append(
                "hint: a kernel that launches kernels needs CUDA's device runtime, libcudadevrt.a, which is not "
                "installed: it comes with the wheel nvidia-cuda-runtime: pip install 'cudakit[cu13]' (or [cu12]), "
                "or with a CUDA toolkit (set CUDA_HOME)"
            )
        elif undefined:
            hints.append(
                f"hint: nothing that is linked defines {', '.join(map(_shown, undefined))}; add what does to "
                "CompileOptions(link=[…]). A cubin must be relocatable for it, as nvcc -rdc=true and the target "
                '"object" of Kernel.compile make it'
            )
        if "bad input" in log:
            hints.append(
                "hint: an input is damaged, or newer than nvJitLink; CUDA's device runtime (nvidia-cuda-runtime), the "
                "compiler and nvidia-nvjitlink should be of one version"
            )
        if "LTO enabled" in log or "without LTO" in log:
            hints.append("hint: an input holds LTO IR: link with CompileOptions(lto=True)")
        if twice:
            hints.append(f"hint: more than one input defines {', '.join(map(_shown, twice))}")
        text = "\n".join(
            [
                f"nvJitLink cannot link {self._specialization.title}",
                log.strip(),
                *hints,
                f"inputs: {', '.join(f'{item.name} ({item.code_format})' for item in self._inputs)}",
                f"options: {' '.join(self._flags)}",
            ]
        )
        return CompileError(text, log=log, source=self._specialization.source.text, options=self._flags)


def together(own: Compiled, others: Iterable[Input]) -> Compiled:
    """Concatenate the PTX of several sources, as the emulator accepts it."""
    return own._replace(code=b"\n".join([own.code, *(item.code for item in others)]))


def _defined(item: Input) -> set[str]:
    """Return the names that code defines for other code; empty for formats whose names cannot be read here.

    Only cubins and PTX are read. The linker itself checks LTO IR.
    """
    if item.code_format == "cubin":
        return {symbol.name for symbol in elf.symbols(item.code) if symbol.shared}
    return set(_VISIBLE.findall(item.code.decode(errors="replace"))) if item.code_format == "ptx" else set()


def _flags(specialization: Specialization, lto: bool) -> tuple[str, ...]:
    options = specialization.options
    extra = dict(options.extra)
    if options.fast_math:
        extra = {"ftz": True, "prec_div": False, "prec_sqrt": False, **extra}
    flags = [f"-arch={specialization.arch}", *(["-lto"] if lto else [])]
    flags += [flag for flag, is_on in (("-lineinfo", options.lineinfo), ("-g", options.debug)) if is_on]
    if options.max_registers is not None:
        flags.append(f"-maxrregcount={options.max_registers}")
    return (*flags, *(f"{_FLAGS[name]}={int(bool(value))}" for name, value in extra.items() if name in _FLAGS))


def _linked(flags: tuple[str, ...], inputs: list[Input]) -> tuple[bytes | None, str]:
    """Link in another process: nvJitLink 13 crashes on some wrong inputs. `flags` are nvJitLink's.

    Return the linked code, or None if linking failed, and the log or the reason of the failure.
    """
    status, answer, output = worker.apart("link", flags, [tuple(item) for item in inputs])
    if status == 0:
        code, log = answer
        return code, log
    if status < 0:
        return None, (
            f"nvJitLink died of these inputs (signal {-status}); most often two of them define one name, or one is "
            "damaged"
        )
    return None, output.strip().rpartition("\n")[2]


def _shown(name: str) -> str:
    try:
        return demangle(name)
    except TemplateError:
        return name


def _device_runtime() -> str | None:
    """Return the path of CUDA's device runtime library, or None."""
    for folder in headers.toolkit_folders():
        for name in ("lib/libcudadevrt.a", "lib64/libcudadevrt.a", "lib/x64/cudadevrt.lib"):
            if os.path.isfile(path := str(folder.parent / name)):
                return path
    return None


@cache
def linker_identity() -> str:
    """Return the version of nvJitLink. For a wheel, this is the wheel's exact version.

    Raises
    ------
    CompileError
        If nvJitLink is not installed.
    """
    if wheels := headers.wheel_versions("nvidia_nvjitlink"):
        return wheels
    return headers.file_mark(load_library("nvJitLink"))
