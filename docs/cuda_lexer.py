"""A Pygments lexer for Python whose strings hold CUDA C++: it colours the strings as C++."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from pygments.lexers import CudaLexer, PythonLexer
from pygments.token import Error, String, _TokenType

Token = tuple[int, _TokenType, str]

#: A triple-quoted string without an f before it: its opening, its content, its closing.
QUOTED = re.compile(r"([rRbBuU]*(\"\"\"|'''))(.*)(\2)", re.DOTALL)
CUDA = re.compile(
    r"\b__(?:global|device|host|shared|constant|tile_global|tile)__|^[ \t]*(?:template\s*<|#include|#define)",
    re.MULTILINE,
)


class PythonWithCuda(PythonLexer):
    """Python, with CUDA C++ in triple-quoted strings."""

    name = "Python with CUDA C++"
    aliases = ("python", "py", "python3")

    def get_tokens_unprocessed(self, text: str, *arguments: object) -> Iterator[Token]:
        """Yield the tokens of the Python program, and the tokens of C++ in place of a string that holds C++."""
        tokens = super().get_tokens_unprocessed(text, *arguments)
        for is_string, group in groupby(tokens, lambda token: token[1] in String):
            string = list(group)
            is_code = is_string and string[-1][1] is not String.Doc
            quoted = QUOTED.fullmatch("".join(value for _, _, value in string)) if is_code else None
            if quoted is None or CUDA.search(quoted[3]) is None:
                yield from string
                continue
            start = string[0][0]
            yield start, String.Double, quoted[1]
            for index, token, value in CudaLexer().get_tokens_unprocessed(quoted[3]):
                yield start + quoted.start(3) + index, String.Double if token is Error else token, value
            yield start + quoted.start(4), String.Double, quoted[4]
