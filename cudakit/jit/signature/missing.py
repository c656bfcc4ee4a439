"""Missing headers of an nvcc program that device code depends on.

A missing header matters if a conditional around device code tests a macro that it may define (`Conditionals`). Host
code needs a header if it uses names that neither it nor the host's libraries declare (`undeclared`).
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

from cudakit.jit.source.headers import header_of
from cudakit.jit.source.preprocessor import DIRECTIVE, branchings, without_literals

_NAME: Final = re.compile(r"(?<!\w)[A-Za-z_]\w*")
#: Names in conditions that no header of a project defines: the language's, compilers', CUDA's and the C library's.
_OTHERS: Final = re.compile(
    r"defined|true|false|and|or|not|_[A-Z_]\w*|CU(?:DA|DART|B|RAND|BLAS|FFT|SPARSE|DNN|PTI)?_\w+|(?:THRUST|CCCL|NV|NVTX)_\w+"
    r"|NDEBUG|NULL|EOF|W?WIN(?:32|64)|LINUX|linux|unix|APPLE|assert|min|max|restrict|inline"
)
#: Names that depend on the GPU and the language.
_OF_DEVICE: Final = frozenset({"__CUDA_ARCH__", "__cplusplus"})


@dataclass(slots=True)
class _Group:
    """An ``#if`` with its branches, in so far as it may decide about device code.

    Attributes
    ----------
    start, end : int
        Offset of the ``#if``, and the offset after its ``#endif``.
    names : set of str
        Names in the conditions of its branches.
    guards : str or None
        The macro, if the ``#ifndef`` is followed by its definition.
    """

    start: int
    end: int
    names: set[str]
    guards: str | None


@dataclass(slots=True)
class Conditionals:
    """The conditionals of a source, and the conditionals that decide about device code.

    Parameters
    ----------
    text : str
        CUDA C++ source.
    device : str
        The source with everything but device code blanked.
    used : set of str
        Names that device code uses.
    """

    text: str
    device: str
    used: set[str]
    _all: list[_Group] = field(default_factory=list)
    _defined: list[tuple[int, str]] = field(default_factory=list)
    deciding: list[_Group] = field(default_factory=list)

    def __post_init__(self) -> None:
        directives = list(DIRECTIVE.finditer(without_literals(self.text)))
        rest = DIRECTIVE.sub(lambda match: " " * len(match[0]), without_literals(self.device))
        filled = [match.start() for match in re.finditer(r"\S+", rest)]
        for group in branchings(directives):
            names = {name for match in group.branches if match[1] != "else" for name in _NAME.findall(match[2])}
            guards = _NAME.findall(group.guard[2])[0] if group.guard else None
            end = group.end.end() if group.end else len(self.text)
            self._all.append(_Group(group.branches[0].start(), end, names, guards))
        for match in directives:
            if match[1] == "define" and (macro := _NAME.search(match[2])):
                self._defined.append((match.start(), macro[0]))
        self._find_deciding(filled)

    def _find_deciding(self, filled: list[int]) -> None:
        """Find the conditionals that decide about device code, and add them to `deciding`.

        They stand around device code, or around macros that device code or another deciding conditional uses. `filled`
        has the offsets of device code in ascending order.
        """
        used_names = set(self.used)
        left = self._all
        while left:
            decided = [(group, self._decides(group, used_names, filled)) for group in left]
            more = [group for group, decides in decided if decides]
            if not more:
                return
            self.deciding += more
            left = [group for group, decides in decided if not decides]
            used_names |= {name for group in more for name in group.names}

    def _decides(self, conditional: _Group, used_names: set[str], filled: list[int]) -> bool:
        if conditional.guards and conditional.guards not in used_names:
            return False
        position = bisect.bisect_left(filled, conditional.start)
        if position < len(filled) and filled[position] < conditional.end:
            return True
        low = bisect.bisect_left(self._defined, (conditional.start, ""))
        high = bisect.bisect_left(self._defined, (conditional.end, ""))
        return any(name in used_names for _, name in self._defined[low:high])

    def macros_tested_after(self, offset: int, defaults: bool) -> list[tuple[int, str]]:
        """Return macros that a header at `offset` may define, and by which later conditionals decide about device code.

        Each macro has the offset of its conditional. Macros that the text defines before the conditional are left out.
        With `defaults`, only macros that the text defines as a default (``#ifndef``, ``#define``) count.
        """
        macros: dict[str, int] = {}
        first: dict[str, int] = {}
        for position, name in self._defined:
            first.setdefault(name, position)
        for conditional in sorted(self.deciding, key=lambda group: group.start):
            if conditional.start < offset or (defaults and not conditional.guards):
                continue
            for name in sorted(conditional.names):
                if first.get(name, conditional.start) < conditional.start:
                    continue
                if not _OTHERS.fullmatch(name) and header_of(name) is None:
                    macros.setdefault(name, conditional.start)
        return [(start, name) for name, start in macros.items()]

    def matters(self, offset: int) -> bool:
        """Return whether an ``#error`` at `offset` depends on a condition that matters to device code, or on none."""
        names = {
            name for group in self._all if group.start < offset < group.end and not group.guards for name in group.names
        }
        used_names = {name for group in self.deciding for name in group.names} | self.used
        return not names or any(
            name in _OF_DEVICE or (name in used_names and not _OTHERS.fullmatch(name)) for name in names
        )


#: A name that is neither a member nor inside a namespace.
_FREE_NAME: Final = re.compile(r"(?<![\w.:])(?<!->)[A-Za-z_]\w*")
#: A name after a type or a star, as in declarations.
_DECLARED: Final = re.compile(r"(\w+[\s*&]+|[>\]*&]\s*)([A-Za-z_]\w*)\s*(?=[;=,\[\](){:>]|$)")
_BEFORE_EXPRESSIONS: Final = frozenset({"return", "else", "case", "new", "delete", "throw", "sizeof", "goto", "do"})
_LANGUAGE: Final = re.compile(
    r"align(?:as|of)|and|asm|auto|bool|break|case|catch|char|class|const(?:expr|_cast)?|continue|decltype|default|delete|do"
    r"|double|dynamic_cast|else|enum|explicit|extern|false|final|float|for|friend|goto|if|inline|int|long|mutable|namespace"
    r"|new|noexcept|not|nullptr|operator|or|override|private|protected|public|register|reinterpret_cast|return|short|signed"
    r"|sizeof|static(?:_assert|_cast)?|struct|switch|template|this|throw|true|try|typedef|typename|union|unsigned|using"
    r"|virtual|void|volatile|wchar_t|while|__(?:host|global|device|restrict|forceinline)__"
)
#: Names of the C and C++ libraries, and of CUDA's runtime, driver and libraries.
_LIBRARIES: Final = re.compile(
    r"cu(?:da|blas|fft|rand|sparse|solver|dnn)?[A-Z]\w*|CU\w*_\w+|nccl\w+|nvtx\w+|std|thrust|cub|cg|dim3|cudaStream_t"
    r"|u?(?:char|short|int|long|longlong|float|double)[1-4]|make_\w+[1-4]|u?int\d*(?:_t)?|s?size_t|ptrdiff_t|time_t|clock_t|FILE"
    r"|[fsv]*n?printf|[fs]?scanf|puts|putchar|f?getc(?:har)?|fgets|fputs|fopen|fclose|fread|fwrite|fseek|ftell|fflush|perror"
    r"|malloc|calloc|realloc|free|exit|abort|atexit|ato[fil]l?|strto\w+|s?rand|getenv|system|qsort|mem\w+|str\w+|time|clock"
    r"|assert|f?(?:abs|min|max)f?|sqrtf?|powf?|expf?|log\w*|floorf?|ceilf?|roundf?|sinf?|cosf?|tanf?|stdin|stdout|stderr"
    r"|EOF|NULL|EXIT_\w+|RAND_MAX|CLOCKS_PER_SEC|SEEK_\w+|cout|cerr|cin|endl|string|vector|map|set|pair|array|unique_ptr"
    r"|shared_ptr|move|swap|sort|fill|fixed|setprecision|setw|ifstream|ofstream|to_string|main|argc|argv"
)


def undeclared(host: str, declared_names: Container[str]) -> set[str]:
    """Return the names that host code uses, and that neither host code nor `declared_names` declares.

    Parameters
    ----------
    host : str
        Host code, without directives.
    declared_names : container of str
        Names that the rest of the source declares.
    """
    text = without_literals(host)
    names = {name for name in _FREE_NAME.findall(text) if name not in declared_names and not _LANGUAGE.fullmatch(name)}
    declared = {match[2] for match in _DECLARED.finditer(text) if match[1].strip(" *&\n\t") not in _BEFORE_EXPRESSIONS}
    return {name for name in names - declared if not _LIBRARIES.fullmatch(name) and header_of(name) is None}
