"""Link: relocatable code of one text, and of what its options link to it, becomes one kernel's code, by nvJitLink.

Of the inputs the bytes themselves are read, hashed and linked, so that a kept result cannot be older than they are.
PTX for the emulator is put together as it is: the emulator links it when it reads it.
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
from cudakit.jit.compile.elf import demangle
from cudakit.jit.compile.nvrtc import FORMAT, digest_of, library_path
from cudakit.jit.source import headers, source
from cudakit.jit.source.closure import NOTHING_READ, Closure
from cudakit.jit.source.source import Source, kind_of
from cudakit.jit.specialise.options import CompileOptions
from cudakit.jit.specialise.specialise import Specialization

_SOURCES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hpp")
#: What a kernel that launches kernels calls, which CUDA's device runtime library defines.
DEVICE_RUNTIME_CALL = "__cudaCDP2"
_UNDEFINED = re.compile(r"(?:Undefined reference to|Unresolved extern function) '([^']+)'")
_TWICE = re.compile(r"(?:Linking globals named|Multiple definition of) '([^']+)'")
#: A function or variable that PTX defines for other code.
_VISIBLE = re.compile(
    r"^[ \t]*\.visible\s+(?:\.(?:func|entry)\s+(?:\([^)]*\)\s*)?|\.(?:global|const)\b[^;={]*?)([\w$]+)"
    r"\s*(?:\(|(?:\[[^\]]*\]\s*)*[;=])",
    re.MULTILINE,
)
#: Options of cuda.core by the names of its fields, which the linker takes as well.
_FLAGS = {"ftz": "-ftz", "prec_div": "-prec-div", "prec_sqrt": "-prec-sqrt", "fma": "-fma"}


class Input(NamedTuple):
    """Code that is linked: its kind, what messages call it, and its bytes."""

    kind: str
    name: str
    code: bytes


def to_be_linked(specialization: Specialization) -> Specialization:
    """The specialization with the options that hold for all that is linked.

    Raises
    ------
    TemplateError
        For a file that cannot be read, or that holds no code.
    """
    options = specialization.options
    codes = [given for given in options.link if isinstance(given, bytes | Path) and not _is_text(given)]
    # Machine code cannot call what is LTO IR: the linker takes that for unused.
    lto = options.lto or any(_read(given).kind == "ltoir" for given in codes)
    return specialization._replace(options=options.replace(rdc=True, lto=lto))


def text_part(specialization: Specialization) -> Specialization:
    """What is compiled of the kernel's own text, to be linked."""
    options = specialization.options
    if specialization.target == "ptx":
        return specialization
    return specialization._replace(target="ltoir" if options.lto else "object", options=_own(options))


def inputs_of(specialization: Specialization, compile: Callable[[Specialization], Compiled]) -> list[Input]:
    """What the options link to the kernel; texts are compiled, with the kernel's options.

    Raises
    ------
    TemplateError
        For a file that cannot be read, or holds no code that can be linked to this target.
    CompileError
    """
    found = []
    part = text_part(specialization)
    for given in specialization.options.link:
        if _is_text(given):
            given = source.from_file(given)
        if isinstance(given, Source):
            text = Specialization(given, "", (), "", (), (), (), (), part.arch, part.options, part.target)
            made = compile(text)
            found.append(Input(kind_of(made.code) or "", given.name, made.code))
        else:
            found.append(_read(given))
    wrong = [f"{one.name} ({one.kind})" for one in found if one.kind != "ptx"]
    if specialization.target == "ptx" and wrong:
        raise TemplateError(
            f"{specialization.name_expression}: PTX, which the emulator runs, is linked with PTX and CUDA C++ text "
            f"only; got {', '.join(wrong)}"
        )
    return found


def linked_files(options: CompileOptions) -> tuple[str | None, ...]:
    """What the files that are linked hold now, as digests; None for one that cannot be read."""
    paths = [given for given in options.link if isinstance(given, Path)]
    return tuple(hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None for path in paths)


def _is_text(given: Path | bytes | Source) -> bool:
    return isinstance(given, Path) and given.suffix in _SOURCES


def _own(options: CompileOptions) -> CompileOptions:
    """The options of a text alone: not of what is linked to it, whose bytes are hashed when it is linked."""
    return options.replace(link=(), rdc=True, lto=False)


def _read(given: Path | bytes) -> Input:
    name = "linked code" if isinstance(given, bytes) else str(given)
    try:
        code = given if isinstance(given, bytes) else given.read_bytes()
    except OSError as error:
        raise TemplateError(f"cannot read {name}, which is to be linked: {error.strerror or error}") from error
    kind = kind_of(code)
    if kind == "cubin" and elf.is_executable(code):
        raise TemplateError(
            f"{name} is linked already, and cannot be linked to other code: take relocatable code, as nvcc -rdc=true "
            'and Kernel.compile(…, target="object") make it'
        )
    if kind is None:
        raise TemplateError(
            f"{name} cannot be linked: it is no cubin, PTX, LTO IR, fatbin, object file or library; CUDA C++ is known "
            f"by its name, {', '.join(_SOURCES)}"
        )
    return Input(kind, name, code.rstrip(b"\0") if kind == "ptx" else code)


class Link:
    """Code to be linked as the cache asks for it: its key in readable parts, and how to link it."""

    key: str
    base: str

    closure: Closure | None = NOTHING_READ
    unstorable: str | None = None
    portable: str | None = None

    def __init__(self, specialization: Specialization, own: Compiled, others: Iterable[Input]) -> None:
        self._specialization, self._own = specialization, own
        name = f"{specialization.source.name}: {specialization.title}"
        self.label = name
        self._inputs = [Input(kind_of(own.code) or "", name, own.code), *others]
        self._flags = _flags(specialization, any(one.kind == "ltoir" for one in self._inputs))
        runtime = _device_runtime()
        self.parts: Mapping[str, str] = {
            "format": FORMAT,
            "name": specialization.title,
            "file": specialization.source.name,
            "linked": " ".join(f"{one.kind}:{hashlib.sha256(one.code).hexdigest()}" for one in self._inputs),
            "lowered": repr(sorted(own.lowered.items())),
            "options": " ".join(self._flags),
            "nvjitlink": linker_identity(),
            "device runtime": "" if runtime is None else headers.file_mark(runtime),
        }
        self.key = self.base = digest_of(self.parts)

    def run(self) -> Compiled:
        """Link now, whatever the cache holds.

        Raises
        ------
        CompileError
            With the linker's log, and what it means.
        """
        self._check()
        code, log = _linked(self._flags, self._inputs)
        runtime = _device_runtime()
        if code is None and runtime is not None and DEVICE_RUNTIME_CALL in log:
            # Only where it is called: it adds 200 KB to the code.
            library = Input("library", "CUDA's device runtime", Path(runtime).read_bytes())
            code, log = _linked(self._flags, [*self._inputs, library])
        if code is None:
            raise self._failure(log)
        told = "\n".join(line for line in log.splitlines() if not line.startswith("INFO"))
        return Compiled(code, self._own.lowered, "\n".join(filter(None, (self._own.log, told))), "cubin")

    def _check(self) -> None:
        """Check that no two inputs define one name: of that nvJitLink dies, or takes either."""
        defined: dict[str, Input] = {}
        for one in self._inputs:
            for name in _defined(one):
                if name in defined:
                    raise CompileError(
                        f"cannot link {self._specialization.title}: {defined[name].name} and {one.name} both "
                        f"define {_shown(name)}; make it static or inline, or link one of them only"
                    )
                defined[name] = one

    def _failure(self, log: str) -> CompileError:
        undefined = list(dict.fromkeys(_UNDEFINED.findall(log)))
        twice = list(dict.fromkeys(_TWICE.findall(log)))
        hints = []
        if any(name.startswith(DEVICE_RUNTIME_CALL) for name in undefined):
            hints.append(
                "hint: a kernel that launches kernels needs CUDA's device runtime, libcudadevrt.a, which is not here: "
                "it comes with the wheel nvidia-cuda-runtime: pip install 'cudakit[cu13]' (or [cu12]), or with a CUDA "
                "toolkit (set CUDA_HOME)"
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
                f"inputs: {', '.join(f'{one.name} ({one.kind})' for one in self._inputs)}",
                f"options: {' '.join(self._flags)}",
            ]
        )
        return CompileError(text, log=log, source=self._specialization.source.text, options=self._flags)


def together(own: Compiled, others: Iterable[Input]) -> Compiled:
    """PTX of several texts, one after the other, as the emulator takes it."""
    return own._replace(code=b"\n".join([own.code, *(one.code for one in others)]))


def _defined(given: Input) -> set[str]:
    """Names that code defines for other code, as far as can be seen: of LTO IR the linker tells."""
    if given.kind == "cubin":
        return {symbol.name for symbol in elf.symbols(given.code) if symbol.shared}
    return set(_VISIBLE.findall(given.code.decode(errors="replace"))) if given.kind == "ptx" else set()


def _flags(specialization: Specialization, lto: bool) -> tuple[str, ...]:
    options = specialization.options
    extra = dict(options.extra)
    if options.fast_math:
        extra = {"ftz": True, "prec_div": False, "prec_sqrt": False, **extra}
    flags = [f"-arch={specialization.arch}", *(["-lto"] if lto else [])]
    flags += [flag for flag, given in (("-lineinfo", options.lineinfo), ("-g", options.debug)) if given]
    if options.max_registers is not None:
        flags.append(f"-maxrregcount={options.max_registers}")
    return (*flags, *(f"{_FLAGS[name]}={int(bool(value))}" for name, value in extra.items() if name in _FLAGS))


def _linked(flags: tuple[str, ...], inputs: list[Input]) -> tuple[bytes | None, str]:
    """Code, or None, and the log; in a process of its own, because nvJitLink 13 dies of some wrong inputs."""
    status, answer, told = worker.apart("link", flags, [tuple(one) for one in inputs])
    if status == 0:
        code, log = answer
        return code, log
    if status < 0:
        return None, (
            f"nvJitLink died of these inputs (signal {-status}); most often two of them define one name, or one is "
            "damaged"
        )
    return None, told.strip().rpartition("\n")[2]


def _shown(name: str) -> str:
    try:
        return demangle(name)
    except TemplateError:
        return name


def _device_runtime() -> str | None:
    """Where CUDA's device runtime library is."""
    for folder in headers.toolkit_folders():
        for name in ("lib/libcudadevrt.a", "lib64/libcudadevrt.a", "lib/x64/cudadevrt.lib"):
            if os.path.isfile(path := str(folder.parent / name)):
                return path
    return None


@cache
def linker_identity() -> str:
    """Which nvJitLink would link: of a wheel its exact version.

    Raises
    ------
    CompileError
        Where there is none.
    """
    if wheels := headers.wheel_versions("nvidia_nvjitlink"):
        return wheels
    return headers.file_mark(library_path("nvJitLink", "nvJitLink, CUDA's linker,"))
