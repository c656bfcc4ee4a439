"""The C++ spellings of one specialization's dtypes, and the generated text that they need: structs, functors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

import numpy as np

from cudakit.errors import TemplateError, shortened
from cudakit.jit.signature.signature import Declarations
from cudakit.jit.specialise.names import Names
from cudakit.types import structs

#: Headers that a template argument's text calls for, where it names something of libcu++; a plain part of each
#: pattern stands before it, so that a text without it, as most are, needs no regular expression.
_TEXT_HEADERS = (
    ("::std::complex", r"\bcuda::std::complex\b", "cuda/std/complex"),
    ("::std::",
     r"\bcuda::std::(plus|minus|multiplies|divides|modulus|negate|bit_|logical_|less|greater|equal_to|not_)",
     "cuda/std/functional"),
    ("imum", r"\bcuda::(maximum|minimum)\b", "cuda/functional"),
    ("__half", r"\b__half2?\b", "cuda_fp16.h"),
    ("__nv_bfloat16", r"\b__nv_bfloat162?\b", "cuda_bf16.h"),
    ("__nv_fp8_", r"\b__nv_fp8_", "cuda_fp8.h"),
)  # fmt: skip


class TypeBook:
    """C++ spellings of the dtypes of one specialization, and the generated text that they need.

    Parameters
    ----------
    declarations : Declarations
    structs : dict, optional
        Names of the structs met so far, by dtype.
    snippets : dict, optional
        Text of the function objects met so far, by their names.

    Attributes
    ----------
    written : dict of str to numpy.dtype
        Structs that the kernel's own parameters name, with what an argument says of them.
    """

    def __init__(
        self,
        declarations: Declarations,
        structs: dict[np.dtype, str] | None = None,
        snippets: dict[str, str] | None = None,
    ) -> None:
        self.declarations = declarations
        self.structs: dict[np.dtype, str] = {} if structs is None else structs
        self.snippets: dict[str, str] = {} if snippets is None else snippets
        self.written: dict[str, np.dtype] = {}

    def spell(self, dtype: np.dtype, where: str) -> str:
        """The C++ type that `dtype` becomes; a structured dtype becomes a generated struct."""
        if dtype.names is None:
            return structs.spelling(dtype, where)
        return self.name_struct(dtype, structs.struct_name(dtype))

    def name_struct(self, dtype: np.dtype, name: str) -> str:
        return self.structs.setdefault(dtype, name)

    def functor(self, text: str, parameter: str) -> str:
        """The name of a function-object type given as C++ text: a name as it is, a snippet by its generated name."""
        text = text.strip()
        if "{" not in text:
            return text
        declared = re.match(r"(?:struct|class)\s+(\w+)", text)
        if declared:
            name, body = declared[1], text.rstrip(";") + ";"
        elif text.startswith("["):
            name = f"cudakit_functor_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
            if name in self.snippets:
                return name
            # The lambda stands inside a device function, so it needs no annotation of its own.
            body = (
                f"struct {name} {{ template <typename... Arguments> __device__ constexpr auto "
                f'operator()(Arguments... arguments) const {{ return (\n#line 1 "<template argument {parameter}>"\n'
                f"({text})\n)(arguments...); }} }};"
            )
        else:
            raise TemplateError(
                f"template argument {parameter}: {shortened(text)} is neither a type's name, a struct nor a lambda "
                "such as "
                "'[](auto a, auto b) { return a + b; }'"
            )
        self.snippets[name] = f'#line 1 "<template argument {parameter}>"\n{body}\n'
        return name

    def struct_named(self, name: str) -> np.dtype | None:
        """Layout of the struct that is called `name` here or in the source, as far as an argument has told it."""
        told = (dtype for dtype, struct in self.structs.items() if struct == name)
        return self.written.get(name) or next(told, None)

    def prelude(self, texts: Iterable[str], names: Names) -> tuple[str, ...]:
        """Headers that `texts` need and the structs that the source does not declare, one by one."""
        known: dict[np.dtype, str] = {}
        definitions = "".join(
            structs.definition(name, dtype, known)
            for dtype, name in self.structs.items()
            if dtype not in known and not names.declares(name)
        )
        definitions += "".join(
            structs.definition(name, dtype, known)
            for name, dtype in self.written.items()
            if name.isidentifier() and name not in self.structs.values() and not names.declares_anywhere(name)
        )
        everything = "\n".join([*texts, definitions, *self.snippets.values()])
        included = [
            header for part, pattern, header in _TEXT_HEADERS if part in everything and re.search(pattern, everything)
        ]
        return (*(f"#include <{header}>\n" for header in included), *re.findall(r"struct [^}]*\};\n", definitions))

    def checks(self, checks: Iterable[str]) -> str:
        """Assertions about layouts: of the structs met and those in `checks`."""
        own = [
            structs.struct_assertions(f"struct_{number}", name, name, dtype)
            for number, (dtype, name) in enumerate(self.structs.items())
        ]
        text = "".join([*own, *checks])
        return f'#line 1 "<generated by cudakit>"\n{structs.SUPPORT}#line 1 "<struct layout>"\n{text}' if text else ""
