"""Parser from PTX text to a program: PTX ISA section 10 (directives); `body` reads the bodies of functions.

Several modules in one text become one program. Private names of a module are renamed if another module has them too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from cudakit.emulator.ptx.body import Body, Sources, attribute, variable
from cudakit.emulator.ptx.program import Function, Program, Variable
from cudakit.emulator.ptx.tokens import Tokens, integer, is_number, listed, without_comments
from cudakit.errors import EmulationError, shortened
from cudakit.jit.compile.mangled import common_name
from cudakit.types.checked import text_of

# ── several modules ──

#: Where a module begins.
_MODULE = re.compile(r"^[ \t]*\.version\b", re.MULTILINE)
_NAME = r"[\w$]+"
#: A function or a variable that a module defines or declares, with the directive that says who sees it.
_DECLARED = re.compile(
    rf"^[ \t]*(?P<linking>\.(?:visible|weak|common|extern)\s+)?"
    rf"(?:\.(?:func|entry)\s+(?:\([^)]*\)\s*)?(?P<function>{_NAME})"
    rf"|\.(?:global|const|shared|tex)\b[^;={{]*?(?P<variable>{_NAME})\s*(?:\[[^\]]*\]\s*)*[;=])",
    re.MULTILINE,
)


def modules_in(text: str) -> Iterator[tuple[str, int]]:
    """Yield the text of each module in `text`, with the number of the line where it begins; `text` has no comments.

    A private name of a module is renamed if another module has it too.
    """
    starts = [match.start() for match in _MODULE.finditer(text)] if text.count(".version") > 1 else []
    if len(starts) < 2:
        yield text, 1
        return
    cuts = [0, *starts[1:], len(text)]
    texts = [text[start:end] for start, end in pairwise(cuts)]
    names = [_names(part) for part in texts]
    for position, part in enumerate(texts):
        own = names[position][0]
        others = [names[other] for other in range(len(texts)) if other != position]
        taken_names = set().union(*(shared for _, shared in others))
        if position:
            taken_names = taken_names.union(*(private for private, _ in others))
        taken_names = set(map(common_name, taken_names))
        for name in own:
            if common_name(name) not in taken_names:
                continue
            part = re.sub(rf"(?<![\w$%]){re.escape(name)}(?![\w$])", f"{name}${position}", part)
        yield part, 1 + text.count("\n", 0, cuts[position])


def _names(text: str) -> tuple[set[str], set[str]]:
    """Return the names of a module's functions and variables: private names, and names that other modules see."""
    own, shared = set[str](), set[str]()
    for match in _DECLARED.finditer(text):
        (shared if match["linking"] else own).add(match["function"] or match["variable"])
    return own - shared, shared


#: Major versions of the PTX ISA that this parser reads: with an ABI and 64-bit addresses.
_VERSIONS = range(3, 10)
_LINKING = (".visible", ".weak", ".common", ".extern")
_FILE = re.compile(r'\.file\s+([0-9]{1,9})\s+"((?:\\.|[^"\\])*)"')


def _shown(name: str) -> str:
    """Return a file's name for messages: a name in angle brackets without its folder, other names unchanged.

    The compiler gives a folder to source that has no file.
    """
    _, slash, last = name.rpartition("/<")
    return f"<{last}" if slash else name


def parse(text: str) -> Program:
    """Parse PTX `text` into a program; several modules, one after the other, are linked.

    Raises
    ------
    EmulationError
        For text that is no PTX, with its line, and for a symbol that modules define twice or not at all.
    ArgumentError
        If `text` is no str.
    """
    text = text_of("emulator.parse: PTX", text)
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    program, shared = Program("", {}, {}, digest), set[str]()
    for module, first_line in modules_in(without_comments(text)):
        _Module(module, first_line, program, shared).parse()
    for declared in program.variables.values():
        if declared.extern and declared.space in ("global", "const"):
            raise EmulationError(
                f"variable {declared.name} is declared extern, and nothing that is linked defines it; add what does to "
                "CompileOptions(link=[…])"
            )
    return program


class _Module:
    """Parser of one module, which adds to a program."""

    def __init__(self, text: str, first_line: int, program: Program, shared: set[str]) -> None:
        self.tokens = Tokens(text, first_line)
        # Files are named after the code whose lines refer to them.
        self.sources = Sources({int(number): _shown(name) for number, name in _FILE.findall(text)})
        self.program, self.shared = program, shared
        self.own: set[str] = set()

    def parse(self) -> None:
        """Read the module directive by directive."""
        directives: dict[str, Callable[[], None]] = {
            ".target": self.target, ".address_size": self.address_size, ".file": self.file, ".section": self.section,
            ".alias": self.alias, ".pragma": lambda: self.tokens.skip_past(";"),
            **dict.fromkeys((*_LINKING, ".entry", ".func", ".global", ".const", ".shared", ".tex"), self.linked),
        }  # fmt: skip
        self.version()
        while token := self.tokens.token:
            if token not in directives:
                raise self.tokens.error(f"unknown directive {shortened(token)}")
            directives[token]()

    def address_size(self) -> None:
        """Read ``.address_size 64``."""
        self.tokens.take()
        if self.tokens.take() != "64":
            raise self.tokens.error("only addresses of 64 bits are emulated")

    def version(self) -> None:
        """Read ``.version``, and refuse versions that are not emulated."""
        tokens = self.tokens
        if tokens.token != ".version":
            raise tokens.error(f"PTX begins with .version, found {tokens.token or 'nothing'!r}")
        tokens.take()
        match = re.fullmatch(r"([0-9]{1,3})\.[0-9]+", tokens.token)
        if match is None or int(match[1]) not in _VERSIONS:
            raise tokens.error(
                f"PTX version {tokens.token or 'nothing'} is not emulated; versions {_VERSIONS[0]}.0 to "
                f"{_VERSIONS[-1]}.x are"
            )
        tokens.take()

    def target(self) -> None:
        """Read ``.target``: the arch, and options that are ignored."""
        tokens = self.tokens
        tokens.take()
        if not re.fullmatch(r"sm_[0-9]+[af]?", tokens.token):
            raise tokens.error(f"target {shortened(tokens.token)} is not emulated; a target is named as in 'sm_90'")
        self.program.target = tokens.take()
        while tokens.skip(","):
            tokens.name()

    def file(self) -> None:
        """Read ``.file number "name"``, with an optional time and size; the names are known already."""
        tokens = self.tokens
        tokens.take()
        integer(tokens)
        if not tokens.take().startswith('"'):
            raise tokens.error("expected the name of a file in quotes")
        while tokens.skip(","):
            integer(tokens)

    def section(self) -> None:
        """Skip debug information."""
        tokens = self.tokens
        tokens.take()
        tokens.take()
        end = tokens.text.find("}", tokens.start)
        if tokens.token != "{" or end < 0:
            raise tokens.error("the section does not end")
        tokens.jump(end + 1)

    def alias(self) -> None:
        """Read ``.alias``: another name of a function, which must be defined before."""
        tokens = self.tokens
        tokens.take()
        name = tokens.name()
        tokens.take(",")
        aliasee = tokens.name()
        tokens.take(";")
        function = self.program.functions.get(aliasee)
        if function is None or function.is_declaration:
            raise tokens.error(f"{name} is an alias of {aliasee}, which is no function defined before")
        self.program.functions[name] = function

    def linked(self) -> None:
        """Read linking directives, and the function or variable behind them."""
        linking = set()
        while self.tokens.token in _LINKING:
            linking.add(self.tokens.take())
        # The first definition counts, where several are allowed.
        several = not linking.isdisjoint((".weak", ".common"))
        if self.tokens.token in (".entry", ".func"):
            self.function(several)
        else:
            self.variable(".extern" in linking, several)

    def variable(self, extern: bool, several: bool) -> None:
        """Read a variable; with `several`, other modules may define it too."""
        declared = variable(self.tokens, extern)
        self.tokens.take(";")
        if declared.space == "shared":
            self.shared.add(declared.name)
        former = self.program.variables.get(declared.name)
        elsewhere = former is not None and not former.extern and declared.name not in self.own
        if elsewhere and not (extern or several):
            raise self.tokens.error(f"variable {declared.name} is defined twice")
        if not elsewhere:
            self.program.variables[declared.name] = declared
            self.own.add(declared.name)

    def function(self, several: bool) -> None:
        """Read a function or kernel; with `several`, other modules may define it too."""
        tokens = self.tokens
        is_entry = tokens.take() == ".entry"
        if tokens.skip(".attribute"):
            attribute(tokens)
        returns = self.parameters()
        name = tokens.name()
        function = Function(name, is_entry, self.parameters(), returns)
        while tokens.token not in ("{", ";"):
            self.function_directive(function)
        former = self.program.functions.get(name)
        if tokens.skip(";"):
            function.is_declaration = True
            self.program.functions.setdefault(name, function)
            return
        if former is not None and not former.is_declaration:
            if not several or name in self.own:
                raise tokens.error(f"function {name} is defined twice")
            name = ""
        tokens.jump(Body(tokens, function, self.sources, self.shared).read())
        if name:
            self.program.functions[name] = function
            self.own.add(name)

    def parameters(self) -> tuple[Variable, ...]:
        """Read parameters in brackets, if there are any."""
        tokens = self.tokens
        return listed(tokens, "(", ")", lambda: variable(tokens)) if tokens.token == "(" else ()

    def function_directive(self, function: Function) -> None:
        """Read ``.maxntid 128, 1, 1``, ``.noreturn``, ``.pragma "nounroll";`` and other directives of a function."""
        tokens = self.tokens
        token = tokens.token
        if not token.startswith("."):
            raise tokens.error(f"expected a directive or the body of {function.name}, found {token or 'the end'!r}")
        tokens.take()
        if token == ".pragma":
            tokens.skip_past(";")
            return
        if token == ".attribute":
            attribute(tokens)
            return
        numbers = []
        while is_number(tokens.token):
            numbers.append(integer(tokens, 1 << 32))
            if not tokens.skip(","):
                break
        function.directives[token[1:]] = tuple(numbers)
