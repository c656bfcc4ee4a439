"""The instances of kernels that a program launches, read from its host code: what ``k<T, 256><<<…>>>(x)`` means there.

Template arguments that a launch leaves out are deduced from the types that its arguments are declared with; names of
constants, of aliases and of the template parameters around a launch become what they stand for, by the calls of the
function that launches, and of those that call it. What is not found so stays open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from cudakit.jit.signature.outline import closing, closing_angle, outline, without_attributes
from cudakit.jit.source.preprocessor import blank, without_literals
from cudakit.types.cpp import split_arguments

_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_MACRO: Final = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(([^()]*)\)((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_TEMPLATE: Final = re.compile(r"\s*template\s*<")
_NAME_AT_END: Final = re.compile(r"([A-Za-z_]\w*)\s*(<.*>)?\s*(?:::\s*[~\w]+\s*)?$", re.DOTALL)
_QUALIFIERS: Final = re.compile(r"\b(?:const|volatile|typename|struct|class|register|__restrict__|__restrict)\b|&")
_CONSTANT: Final = re.compile(r"\bconst(?:expr)?\s+(?:static\s+)?(?:[\w:]+\s+)+(\w+)\s*=\s*([^;,{}]+);")
_USING: Final = re.compile(r"\busing\s+(\w+)\s*=\s*([^;]+);")
_TYPEDEF: Final = re.compile(r"\btypedef\s+([^;{}]+?)\s*\b(\w+)\s*;")
_POINTER_CAST: Final = re.compile(r"\(\s*([\w:]+(?:\s*<[^()]*>)?(?:\s*[\w:]+)*[\s*]*\*)\s*\)\s*[\w(&]")
_NAMED_CAST: Final = re.compile(r"(?:static|reinterpret|const)_cast\s*<")
_NUMBERS: Final = (
    (re.compile(r"true|false"), "bool"),
    (re.compile(r"[\d.]+(?:e[+-]?\d+)?f", re.IGNORECASE), "float"),
    (re.compile(r"(?:\d+\.\d*|\.\d+)(?:e[+-]?\d+)?|\d+e[+-]?\d+", re.IGNORECASE), "double"),
    (re.compile(r"\d+|0x[\da-f]+", re.IGNORECASE), "int"),
)
_DECLARATION: Final = re.compile(
    r"\s*((?:(?:const|constexpr|static|unsigned|signed|long|extern)\s+)*[A-Za-z_][\w:]*(?:\s*<[^;{}()]*>)?)"
    r"((?:\s|\*|&|\bconst\b|\b__restrict__\b)+)"
)
_NO_TYPES: Final = frozenset({"return", "new", "delete", "else", "typename", "case", "using", "goto", "template"})
_MOST_DEEP: Final = 5
_MOST: Final = 8


@dataclass(eq=False)
class _Function:
    """A function, kernel or macro; a macro's parameters are template parameters here, since they are text."""

    name: str
    template: list[str]
    pack: str = ""
    defaults: dict[str, str] = field(default_factory=dict)
    parameters: list[tuple[str, str]] = field(default_factory=list)
    head: str = ""
    body: str = ""
    is_macro: bool = False
    of_class: str = ""

    @cached_property
    def constants(self) -> dict[str, str]:
        return _constants(self.body)


class Program:
    """A program's text, its own headers in it, without comments."""

    def __init__(self, text: str) -> None:
        found = outline(text)
        self._text = found.text
        self._known: dict[tuple[_Function, int], list[dict[str, str]]] = {}
        self._functions = [*self._macros(without_literals(text))]
        outside = found.text
        classes: dict[str, str] = {}
        for piece in found.pieces:
            if piece.kind == "record":
                if named := re.search(r"\b(?:struct|class)\s+(\w+)\s*(?::|$)", piece.text):
                    classes[named[1]] = piece.text
            elif piece.kind == "function":
                body = found.text[piece.start + len(piece.text) : piece.end]
                outside = outside[: piece.start] + blank(outside[piece.start : piece.end]) + outside[piece.end :]
                around = classes.get(piece.scope[-1], "") if piece.in_class and piece.scope else ""
                if function := _function(piece.text, body, around, piece.scope[-1] if around else ""):
                    self._functions.append(function)
        self._global = _constants(outside)
        self._functions.append(_Function("", [], body=outside))

    def launched(self, kernel: str, names: list[str]) -> list[tuple[str | None, ...]]:
        """Template arguments of each launch of `kernel`, None for those that are not known.

        Parameters
        ----------
        kernel : str
            Without its namespaces.
        names : list of str
            Its template parameters.
        """
        heads = [f for f in self._functions if f.name == kernel and f.template == names and not f.is_macro]
        if not heads:
            return []
        found = [tuple(e.get(name) for name in names) for e in self._environments(heads[0], _MOST_DEEP)]
        found = [each for each in dict.fromkeys(found) if any(each)]
        return sorted(found, key=lambda each: sum(word is None for word in each))

    def _environments(self, of: _Function, depth: int) -> list[dict[str, str]]:
        """What the template parameters of a function stand for, at each of its calls."""
        if not (of.template or of.is_macro) or depth == 0:
            return [{}]
        if (of, depth) not in self._known:
            self._known[of, depth] = self._found(of, depth)
        return self._known[of, depth]

    def _found(self, of: _Function, depth: int) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        callers = [caller for caller in self._functions if caller is not of and of.name in caller.body]
        for caller, (explicit, arguments) in ((c, call) for c in callers for call in _calls(of, c.body)):
            for around in self._environments(caller, depth - 1):
                bound = self._bound(of, caller, explicit, arguments)
                bound = {name: self._resolved(text, caller, around) for name, text in bound.items()}
                if of.is_macro:  # its text is the caller's
                    bound = {**caller.constants, **around, **bound}
                for name, default in of.defaults.items():
                    bound.setdefault(name, _substituted(default, bound))
                if bound and bound not in found:
                    found.append(bound)
            if len(found) >= _MOST:
                break
        if of.of_class:
            found = [each | more for each in found or [{}] for more in self._of_class(of)] or found
        return found or [{}]

    def _of_class(self, of: _Function) -> Iterator[dict[str, str]]:
        """What the parameters of a class template are, by the places that name it with concrete arguments."""
        for match in re.finditer(rf"\b{of.of_class}\s*<", self._text):
            end = closing_angle(self._text, match.end() - 1)
            words = split_arguments(self._text[match.end() : end]) if end > 0 else []
            if words and not set(_WORD.findall(" ".join(words))) & set(of.template):
                texts = [_substituted(word, self._global) for word in words]
                yield of.defaults | dict(zip(of.template, texts, strict=False))

    def _bound(self, of: _Function, caller: _Function, explicit: list[str], arguments: list[str]) -> dict[str, str]:
        """Template arguments of one call, in the words of the caller."""
        bound = dict(zip(of.template, explicit, strict=False))
        if of.pack and len(explicit) >= len(of.template):
            bound[of.template[-1]] = ", ".join(explicit[len(of.template) - 1 :])
        for number, ((pattern, _), argument) in enumerate(zip(of.parameters, arguments, strict=False)):
            if "..." in pattern and of.pack and of.pack not in bound:
                each = [
                    caller.pack if text.endswith("...") else self._type(text, caller) for text in arguments[number:]
                ]
                if all(each):
                    bound[of.pack] = ", ".join(text for text in each if text)
                continue
            missing = [name for name in of.template if name not in bound and re.search(rf"\b{name}\b", pattern)]
            if missing and (given := self._type(argument, caller)):
                expression = re.escape(pattern)
                for name in of.template:
                    group = f"(?P<{name}>.+)" if name in missing else ".+"
                    expression = re.sub(rf"\b{name}\b", lambda _, group=group: group, expression, count=1)
                if matched := re.fullmatch(expression, given):
                    bound |= matched.groupdict()
        return bound

    def _type(self, expression: str, caller: _Function, depth: int = 4) -> str | None:
        """The type that an argument is declared with, where that is simple to say."""
        text = expression.strip()
        if depth == 0 or not text:
            return None
        if found := next((cpp for pattern, cpp in _NUMBERS if pattern.fullmatch(text)), None):
            return found
        if cast := _NAMED_CAST.match(text):
            return _normal(text[cast.end() : closing_angle(text, cast.end() - 1)])
        if cast := _POINTER_CAST.match(text):
            return _normal(cast[1])
        if text[0] == "&":
            inner = self._type(text[1:], caller, depth - 1)
            return f"{inner}*" if inner else None
        if text[0] == "*":
            return ((self._type(text[1:], caller, depth - 1) or "").removesuffix("*")) or None
        if re.fullmatch(r"\w+", text):
            return self._declared(text, caller, depth)
        if holder := re.fullmatch(
            r"(?:thrust::raw_pointer_cast\s*\(\s*&?)?(\w+)(?:\.(?:data|get)\s*\(\s*\)|\[0\])\s*\)?", text
        ):
            whole = self._declared(holder[1], caller, depth) or ""
            if "<" in whole:
                return split_arguments(whole[whole.index("<") + 1 : whole.rindex(">")])[0] + "*"
        if offset := re.match(r"(\w+)\s*[+]", text):
            return self._declared(offset[1], caller, depth)
        if element := re.fullmatch(r"(\w+)\s*\[.*\]", text, re.DOTALL):
            return (self._declared(element[1], caller, depth) or "").removesuffix("*") or None
        if made := re.match(r"([A-Za-z_][\w:]*)\s*(<)?", text):
            end = closing_angle(text, made.end() - 1) + 1 if made[2] else made.end()
            named = text[:end].strip()
            if re.match(r"\s*[({]", text[end:]) and re.search(
                rf"\b(?:struct|class)\s+{made[1].rpartition('::')[2]}\b", self._text
            ):
                return _normal(named)
        return None

    def _declared(self, name: str, caller: _Function, depth: int) -> str | None:
        """The type of a variable, by its declaration in the caller, or else anywhere."""
        for text in (caller.head, caller.body, self._text):
            for match in re.finditer(rf"\b{name}\b\s*([\[=;,)({{]|$)", text):
                before = re.split(r"[;{}]", text[max(0, match.start() - 200) : match.start()])[-1]
                before = before.rpartition("(")[2] if before.count("(") > before.count(")") else before
                last = (_commas(before) or [""])[-1]
                shared = _DECLARATION.match(before) if not last.strip("* ") else None
                declared = shared or _DECLARATION.fullmatch(last + " ")
                if declared is None or declared[1] in _NO_TYPES:
                    continue
                if declared[1].split()[-1] == "auto":
                    return self._type(text[match.end() : text.find(";", match.end())], caller, depth - 1)
                stars = (last if shared else declared[2]).count("*") + (match[1] == "[")
                return _normal(declared[1]) + "*" * stars
        return None

    def _resolved(self, text: str, caller: _Function, around: dict[str, str]) -> str:
        for _ in range(3):
            text = _substituted(text, {**self._global, **caller.constants, **around})
        return " ".join(text.split())

    @staticmethod
    def _macros(text: str) -> Iterator[_Function]:
        for match in _MACRO.finditer(text):
            names = [name.strip() for name in match[2].split(",") if name.strip()]
            yield _Function(match[1], names, body=match[3].replace("\\\n", " "), is_macro=True)


def _function(head: str, body: str, around: str, of_class: str) -> _Function | None:
    """A function by its head, with the parameters of the class template around it."""
    head = without_attributes(head)
    lists = []
    for text in (around, head):
        while match := _TEMPLATE.match(text):
            end = closing_angle(text, match.end() - 1)
            lists.append(text[match.end() : end])
            text = text[end + 1 :]
    opening = text.find("(")
    named = _NAME_AT_END.search(text[:opening]) if opening > 0 else None
    if named is None:
        return None
    name = re.findall(r"[\w~]+", re.sub(r"<.*>", "", text[:opening], flags=re.DOTALL))[-1]
    if named[2] and "::" in text[named.start() : opening]:
        of_class = named[1]
    template, defaults, pack = [], {}, ""
    for part in (part for each in lists for part in split_arguments(each)):
        declared, _, default = part.partition("=")
        words = _WORD.findall(declared)
        if not words:
            continue
        template.append(words[-1])
        if "..." in declared:
            pack = words[-1]
        if default.strip():
            defaults[words[-1]] = default.strip()
    end = closing(text, opening)
    parameters = []
    for part in split_arguments(text[opening + 1 : end]):
        declared = part.partition("=")[0].rstrip()
        match = re.search(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)$", declared)
        if match and match.start():
            parameters.append((_normal(declared[: match.start()]) + "*" * match[2].count("["), match[1]))
        else:
            parameters.append((_normal(declared), ""))
    return _Function(name, template, pack, defaults, parameters, text, body, of_class=of_class if lists else "")


def _calls(of: _Function, text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Template arguments and arguments that calls of a function give; a kernel may be only named."""
    for match in re.finditer(rf"(?<![\w.])(?:\w+\s*::\s*)*\b{of.name}\b\s*|(?<=\.){of.name}\s*", text):
        position, explicit = match.end(), []
        if text[position : position + 1] == "<" and text[position : position + 3] != "<<<":
            end = closing_angle(text, position)
            if end < 0:
                continue
            explicit = split_arguments(text[position + 1 : end])
            position = end + 1
        launch = re.compile(r"\s*<<<").match(text, position)
        if launch:
            position = text.find(">>>", launch.end()) + 3
        opening = re.compile(r"\s*\(").match(text, position)
        arguments = split_arguments(text[opening.end() : closing(text, opening.end() - 1)]) if opening else []
        if of.is_macro:
            explicit, arguments = arguments, []
        if explicit or arguments:
            yield explicit, arguments


def _constants(text: str) -> dict[str, str]:
    found = {match[1]: _grouped(match[2]) for match in _CONSTANT.finditer(text)}
    found |= {match[1]: match[2].strip() for match in _USING.finditer(text)}
    return found | {match[2]: match[1].strip() for match in _TYPEDEF.finditer(text)}


def _grouped(value: str) -> str:
    value = value.strip()
    return value if re.fullmatch(r"[\w:]+", value) else f"({value})"


def _substituted(text: str, values: dict[str, str]) -> str:
    return re.sub(r"(?<![\w.:])[A-Za-z_]\w*", lambda match: values.get(match[0], match[0]), text)


def _normal(cpp: str) -> str:
    """A type without qualifiers and references, and without spaces that mean nothing."""
    return re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(_QUALIFIERS.sub(" ", cpp).split()))


def _commas(text: str) -> list[str]:
    """`text` split at the commas that no bracket holds, an empty last part kept."""
    *parts, last = split_arguments(f"{text} _")
    return [*parts, last[:-1]]
