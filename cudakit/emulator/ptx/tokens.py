"""PTX text to tokens: PTX ISA 4.1 to 4.5 (source format, comments, identifiers, constants)."""

from __future__ import annotations

import re

from cudakit.errors import EmulationError, shortened

#: An identifier; dots join the parts of special registers (``%tid.x``) and of vector elements (``v.x``).
NAME = r"(?:%(?=[^\W\d]|\$)|[^\W\d]|\$)[\w$%]*+(?:\.\w+)*+"
_TOKEN = re.compile(
    rf"""\s*+(
      "(?:\\.|[^"\\])*+"
    | (?:0[fF][0-9a-fA-F]{{8}}|0[dD][0-9a-fA-F]{{16}}|[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)(?!\w)
    | (?:0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)U?(?!\w)
    | {NAME}
    | \.\w+
    | <<|>>|<=|>=|==|!=|&&|\|\|
    | [-+@!,;:(){{}}\[\]|=<>~*/%&^?]
    | \Z
    )""",
    re.VERBOSE,
)
_SPACE = re.compile(r"\s*+")
_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*+")|//[^\n]*|/\*.*?(?:\*/|(?P<open>\Z))""", re.DOTALL)


def without_comments(text: str) -> str:
    """`text` with comments blanked, each character in its place and each line kept.

    Raises
    ------
    EmulationError
        If a comment does not end.
    """

    def blank(match: re.Match[str]) -> str:
        if match["open"] is not None:
            raise EmulationError(f"PTX line {text.count(chr(10), 0, match.start()) + 1}: the comment does not end")
        return match[1] or re.sub(r"[^\n]", " ", match[0])

    return _COMMENT.sub(blank, text.rstrip("\0")).rstrip()


class Tokens:
    """A cursor over PTX text: `token` is the one at hand, from `start` to `end`; empty at the text's end.

    Parameters
    ----------
    text : str
        PTX without comments.
    first_line : int
        Line of the text's beginning, for messages.
    """

    text: str
    first_line: int
    start: int
    end: int

    def __init__(self, text: str, first_line: int = 1) -> None:
        self.text, self.first_line = text, first_line
        self.jump(0)

    def jump(self, position: int) -> None:
        """Go to the token at or after `position`."""
        match = _TOKEN.match(self.text, position)
        if match is None:
            space = _SPACE.match(self.text, position)
            self.start = position if space is None else space.end()
            raise self.error(f"{shortened(self.text[self.start : self.start + 20])} is no PTX")
        self.start, self.end = match.span(1)
        self.token: str = match[1]

    def take(self, expected: str | None = None) -> str:
        """The token at hand, going on to the next."""
        token = self.token
        if expected is not None and token != expected:
            raise self.error(f"expected {shortened(expected)}, found {token or 'the end of the text'!r}")
        if not token:
            raise self.error("the text ends in the middle of a statement")
        self.jump(self.end)
        return token

    def skip(self, token: str) -> bool:
        """Take `token` if it is at hand; whether it was."""
        if self.token != token:
            return False
        self.take()
        return True

    def skip_past(self, end: str) -> None:
        """Take tokens up to `end`, and it."""
        while self.take() != end:
            pass

    def name(self) -> str:
        """Take an identifier."""
        if not is_name(self.token):
            raise self.error(f"expected a name, found {self.token or 'the end of the text'!r}")
        return self.take()

    @property
    def line(self) -> int:
        """Line of the token at hand."""
        return self.first_line + self.text.count("\n", 0, self.start)

    def error(self, what: str) -> EmulationError:
        """An error that names the line."""
        return EmulationError(f"PTX line {self.line}: {what}")


def is_name(token: str) -> bool:
    """Whether a token is an identifier."""
    return token[:1].isalpha() or token[:1] in ("_", "$") or (token[:1] == "%" and len(token) > 1)


def is_number(token: str) -> bool:
    """Whether a token is a constant."""
    return "0" <= token[:1] <= "9"
