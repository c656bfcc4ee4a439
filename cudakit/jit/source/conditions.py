"""Which branches of a text's conditionals are compiled, as far as the text's own macros say it.

Macros of the command line and of CUDA's headers are not known here: a condition that asks for them is undecided.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from cudakit.jit.source.lexical import closing, split_at

_DEFINED: Final = re.compile(r"defined\s*(?:\(\s*(\w+)\s*\)|(\w+))")
_GUARD: Final = re.compile(rf"!\s*{_DEFINED.pattern}")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_CONSTANTS: Final = {"0": False, "false": False, "1": True, "true": True}
#: Macros that NVRTC defines, and nvcc's own, which stands for one of them.
_PREDEFINED: Final = ("__CUDACC__", "__CUDACC_RTC__", "__CUDA_ARCH__", "__NVCC__", "__cplusplus")


@dataclass(slots=True)
class _Conditional:
    """An open conditional.

    Attributes
    ----------
    verdict : bool or None
        Whether the branch at hand is compiled; None where that is undecided.
    tests : list of str
        Conditions of the branches so far.
    is_settled, is_unsure : bool
        Whether a condition so far is surely true, so that no other branch is compiled; whether one is undecided.
    """

    verdict: bool | None
    tests: list[str]
    is_settled: bool
    is_unsure: bool


@dataclass(slots=True)
class _Layer:
    """What an undecided branch defines (True) and undefines (False; None: undecided), and what it takes for granted."""

    macros: dict[str, bool | None] = field(default_factory=dict)
    assumed: dict[str, bool] = field(default_factory=dict)


class Conditions:
    """The conditionals that are open at a point of a text, and the macros that are defined there."""

    def __init__(self) -> None:
        self._open: list[_Conditional] = []
        self._layers = [_Layer(dict.fromkeys(_PREDEFINED, True))]

    @property
    def is_dead(self) -> bool:
        """Whether the text at hand is surely left out."""
        return any(conditional.verdict is False for conditional in self._open)

    def verdict(self, word: str, rest: str) -> bool | None:
        """Whether a conditional's ``#if`` or its kin is true, or None."""
        return self._value(_test(word, rest))

    def read(self, word: str, rest: str, is_guard: bool = False) -> None:
        """Take account of a directive; `is_guard` for the ``#ifndef`` around a whole header.

        A guard that is not surely defined is taken as undefined: where it is defined, the header was read before, with
        all that it includes.
        """
        if word in ("if", "ifdef", "ifndef"):
            test = _test(word, rest)
            verdict = self._value(test)
            self._enter(_Conditional(None, [], False, False), test, True if is_guard and verdict is None else verdict)
        elif word in ("elif", "elifdef", "elifndef", "else", "endif"):
            if not self._open:
                return
            conditional = self._open[-1]
            self._leave()
            if word == "else":
                self._enter(conditional, "1", True)
            elif word != "endif":
                test = _test(word.removeprefix("el"), rest)
                self._enter(conditional, test, self._value(test))
        elif word in ("define", "undef") and not self.is_dead and (name := _NAME.match(rest.lstrip())):
            self._set(name[0], word == "define")
        elif word == "pragma" and "pop_macro" in rest and (names := re.findall(r'"(\w+)"', rest)):
            self._set(names[0], None)

    def _enter(self, conditional: _Conditional, test: str, verdict: bool | None) -> None:
        """Begin a branch of `conditional` under `test`."""
        layer = _Layer()
        was_settled = conditional.is_settled
        conditional.is_settled |= verdict is True
        if was_settled:
            verdict = False
        elif conditional.is_unsure and verdict:
            verdict = None
        if verdict is None:
            for other in conditional.tests:
                layer.assumed |= _implied(other, False)
            layer.assumed |= _implied(test, True)
        conditional.verdict = verdict
        conditional.tests.append(test)
        conditional.is_unsure |= verdict is None
        self._open.append(conditional)
        if verdict is None:
            self._layers.append(layer)

    def _leave(self) -> None:
        """End the branch at hand; what it defines if it is compiled is undecided from then on."""
        if self._open.pop().verdict is not None:
            return
        layer = self._layers.pop()
        for name, value in layer.macros.items():
            # After `#ifndef X`, `#define X` the macro is defined, whatever was so before.
            is_certain = value is True and (layer.assumed.get(name) is False or self._lookup(name) is True)
            self._layers[-1].macros[name] = True if is_certain else None

    def _set(self, name: str, value: bool | None) -> None:
        self._layers[-1].macros[name] = value
        for layer in self._layers:
            for test in [test for test in layer.assumed if test != name and name in _NAME.findall(test)]:
                del layer.assumed[test]

    def _lookup(self, name: str) -> bool | None:
        """Whether a macro is defined, or a condition true."""
        for layer in reversed(self._layers):
            if name in layer.macros:
                return layer.macros[name]
            if name in layer.assumed:
                return layer.assumed[name]
        return None

    def _value(self, test: str) -> bool | None:
        """Whether a condition is true, or None."""
        if (assumed := self._lookup(f"#if {test}")) is not None:
            return assumed
        for operator, decisive in (("||", True), ("&&", False)):
            parts = split_at(test, operator)
            if len(parts) > 1:
                values = [self._value(part) for part in parts]
                return decisive if decisive in values else None if None in values else not decisive
        if test.startswith("!"):
            value = self._value(test[1:].strip())
            return None if value is None else not value
        if test.startswith("(") and closing(test, 0) == len(test) - 1:
            return self._value(test[1:-1].strip())
        if name := _DEFINED.fullmatch(test):
            return self._lookup(name[1] or name[2])
        return _CONSTANTS.get(test)


def is_guard(match: re.Match[str], following: re.Match[str] | None) -> bool:
    """Whether a directive is the ``#ifndef`` of a macro that the next one defines."""
    if following is None or following[1] != "define" or match[1] not in ("if", "ifndef"):
        return False
    name = _GUARD.match(_test(match[1], match[2]))
    return name is not None and _NAME.findall(following[2])[:1] == [name[1] or name[2]]


def _test(word: str, rest: str) -> str:
    """The condition of an ``#if``, ``#ifdef`` or ``#ifndef`` as an expression on one line."""
    text = " ".join(rest.replace("\\\n", " ").split())
    if word == "if":
        return text
    name = _NAME.match(text)
    return f"{'!' if word == 'ifndef' else ''}defined({name[0] if name else text})"


def _implied(test: str, value: bool) -> dict[str, bool]:
    """What is so where `test` is true or false: of the test itself, or of the macro whose being defined it asks."""
    while test.startswith("!"):
        test, value = test[1:].strip(), not value
    name = _DEFINED.fullmatch(test)
    return {name[1] or name[2]: value} if name else {f"#if {test}": value}
