"""Names in host code that neither the text nor the host's own libraries declare: what a missing header declares."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

from cudakit.jit.source.declared_in import header_of
from cudakit.jit.source.lexical import without_literals

#: A name that is no member's, and none inside a namespace.
_NAME: Final = re.compile(r"(?<![\w.:])(?<!->)[A-Za-z_]\w*")
#: A name behind a type or a star, as declarations have it.
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


def undeclared(host: str, known: Container[str]) -> set[str]:
    """Names in host code that it does not declare, and that `known` has not.

    Parameters
    ----------
    host : str
        Host code, without directives.
    known : container of str
        Names that the rest of the text declares.
    """
    text = without_literals(host)
    names = {name for name in _NAME.findall(text) if name not in known and not _LANGUAGE.fullmatch(name)}
    declared = {match[2] for match in _DECLARED.finditer(text) if match[1].strip(" *&\n\t") not in _BEFORE_EXPRESSIONS}
    return {name for name in names - declared if not _LIBRARIES.fullmatch(name) and header_of(name) is None}
