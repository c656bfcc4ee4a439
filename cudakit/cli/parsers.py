"""Parsers of commands: what several commands share."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from cudakit.errors import CudakitError, shortened
from cudakit.types import cpp
from cudakit.types.shown import red


class UsageError(Exception):
    """A command line is wrong. `parser` is that of the command."""

    def __init__(self, parser: Parser, message: str) -> None:
        super().__init__(message)
        self.parser = parser

    def leave(self) -> NoReturn:
        """End the process with the usage and the message on standard error, as argparse does."""
        argparse.ArgumentParser.error(self.parser, str(self))


class Parser(argparse.ArgumentParser):
    """A parser that suggests the nearest command for an unknown one, and shows its help where none is named."""

    def add_commands(self, title: str, metavar: str) -> Any:
        """Add a group of commands; without a command the help is shown, with the status of a wrong call."""
        self.set_defaults(run=self._show_help, parser=self)
        return self.add_subparsers(title=title, metavar=metavar)

    def error(self, message: str) -> NoReturn:
        """Raise a `UsageError`, as argparse calls this for a wrong command line."""
        raise UsageError(self, message)

    def _show_help(self, options: argparse.Namespace) -> int:
        self.print_help(sys.stderr)
        return 2

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # Python 3.14 suggests too, in other words and for commands alone.
        if action.choices is not None and value not in action.choices:
            name = str(action.metavar).lower()
            choices = ", ".join(action.choices)
            raise argparse.ArgumentError(
                None, f"unknown {name} {value!r}{_suggestion(value, action.choices) or f'; expected one of {choices}'}"
            )

    def refuse(self, words: Sequence[str], takes_program: bool) -> NoReturn:
        """End the process with an error about `words`, which no argument takes. Suggest the nearest option.

        `takes_program`: else suggest how to pass the words to the program.
        """
        options = [option for action in self._actions for option in action.option_strings]
        suggestions = {word: _suggestion(word.partition("=")[0], options) for word in words if word.startswith("-")}
        hint = next(filter(None, suggestions.values()), "")
        if takes_program and not hint:
            hint = f"; the program's own arguments follow after --: -- {' '.join(words)}"
        self.error(f"unrecognized arguments: {' '.join(words)}{hint}")

    def leaves(self) -> Iterator[Parser]:
        """Yield the parsers of all commands, or this one if it has none."""
        groups = [action.choices for action in self._actions if isinstance(action.choices, dict)]
        if not groups:
            yield self
        for command in (command for group in groups for command in group.values()):
            yield from command.leaves()

    def actions(self) -> Iterator[argparse.Action]:
        """Yield argparse's arguments of the parser, and of its commands in place of the choice of a command."""
        for action in self._actions:
            if isinstance(action.choices, dict):  # the commands of a parser with commands
                for command in action.choices.values():
                    yield from command.actions()
            else:
                yield action


def _suggestion(word: str, candidates: Iterable[str]) -> str:
    """Return ``; did you mean …?`` with the candidate nearest to `word`; empty if none is near."""
    nearest = difflib.get_close_matches(word, list(candidates), n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def command(group: Any, name: str, run: Callable[[argparse.Namespace], int], text: str, *examples: str) -> Parser:
    """Add a command, or an action of a command, to `group`, and return its parser. `run` carries it out.

    `text` is the line of help, and `examples` are command lines without ``cudakit`` and the name.
    """
    parser: Parser = group.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    lines = [f"  {parser.prog} {example}".rstrip() for example in examples]
    parser.epilog = "\n".join(["examples:" if len(lines) > 1 else "example:", *lines])
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("--json", action="store_true", help="write one JSON document, also of an error")
    return parser


def complain(message: object) -> None:
    """Write a message of the command on standard error."""
    print(f"{red('cudakit:', sys.stderr)} {message}", file=sys.stderr)


def byte_count(text: str) -> int:
    """Return a number of bytes from a text such as ``2G``, ``1.5M`` or ``4096``."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, such as 500M or 2G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def split_arguments(text: str) -> tuple[str | int, ...]:
    """Split a template argument list at the commas that no bracket encloses; whole numbers become int."""
    if any(cpp.closing(text, opening.start()) < 0 for opening in re.finditer(r"[(\[{]", text)):
        raise CudakitError(
            f"--args {shortened(text)} has a bracket that is not closed; expected a list such as float,256."
        )
    pieces = cpp.split_arguments(text)
    if "" in pieces:
        raise CudakitError(
            f"--args {shortened(text)} has an empty template argument; expected a list such as float,256."
        )
    return tuple(int(piece) if re.fullmatch(r"[+-]?[0-9]+", piece) else piece for piece in pieces)
