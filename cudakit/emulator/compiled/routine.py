"""A function of LLVM IR, written with Python's operators and `with` blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cudakit.emulator.compiled.text import Text, X, constant


def _binary(opcode: str) -> Callable[[Word, Word | int], Word]:
    return lambda one, other: one.made(one.text.binary(opcode, one.x, one.like(other)))


def _compare(how: str) -> Callable[[Word, Word | int], Word]:
    return lambda one, other: one.made(one.text.compare(how, one.x, one.like(other)))


class Word:
    """A number of 64 bits without a sign, or a truth, that a routine computes. ``address[n]`` is a word in memory."""

    def __init__(self, text: Text, x: X) -> None:
        self.text, self.x = text, x

    def made(self, x: X) -> Word:
        """Another word of the routine."""
        return Word(self.text, x)

    def like(self, value: Word | int) -> X:
        """A value of the same type."""
        return constant(self.x.type, value) if isinstance(value, int) else value.x

    __add__, __sub__, __mul__ = _binary("add"), _binary("sub"), _binary("mul")
    __and__, __or__, __xor__ = _binary("and"), _binary("or"), _binary("xor")
    __lshift__, __rshift__, signed_shift = _binary("shl"), _binary("lshr"), _binary("ashr")
    __lt__, __le__, __ge__ = _compare("ult"), _compare("ule"), _compare("uge")
    equals, differs = _compare("eq"), _compare("ne")

    def select(self, then: Word | int, otherwise: Word | int) -> Word:
        """One of two words, by this truth."""
        words = [constant("i64", word) if isinstance(word, int) else word.x for word in (then, otherwise)]
        return self.made(self.text.select(self.x, *words))

    def load(self, bits: int) -> Word:
        """A number in memory, at this address, of so many bits."""
        value = self.text.load(f"i{bits}", self.pointer.name, ", align 1")
        return self.made(self.text.cast("zext", value, "i64"))

    def store(self, value: Word, bits: int) -> None:
        """Write the lower bits of a number to memory."""
        self.text.store(self.text.cast("trunc", value.x, f"i{bits}"), self.pointer.name, ", align 1")

    def __getitem__(self, number: Word | int) -> Word:
        return self.made(self.text.load("i64", self._at(number).pointer.name))

    def __setitem__(self, number: Word | int, value: Word | int) -> None:
        self.text.store(self.like(value), self._at(number).pointer.name)

    def _at(self, number: Word | int) -> Word:
        return self + number * 8

    @property
    def pointer(self) -> X:
        """The address as a pointer."""
        return self.text.make(f"inttoptr {self.x} to ptr", "ptr")


class Variable:
    """A word that changes: what it is `now`."""

    def __init__(self, text: Text, place: str) -> None:
        self._text, self._place = text, place

    @property
    def now(self) -> Word:
        return Word(self._text, self._text.load("i64", self._place))

    @now.setter
    def now(self, value: Word | int) -> None:
        self._text.store(constant("i64", value) if isinstance(value, int) else value.x, self._place)


class Routine:
    """A function in the making.

    Parameters
    ----------
    name, result : str
        Its name, and LLVM's type of what it gives.
    parameters : dict of str to str
        LLVM's types of these, by name.
    """

    def __init__(self, name: str, result: str, parameters: dict[str, str]) -> None:
        self.name, self.result, self.parameters = name, result, parameters
        self.text = Text()
        self._allocas: list[str] = []
        self._has_left = False

    def arguments(self) -> list[Word]:
        """What it is called with."""
        return [
            Word(
                self.text,
                self.text.make(f"ptrtoint ptr %{name} to i64", "i64") if type_ == "ptr" else X(type_, f"%{name}"),
            )
            for name, type_ in self.parameters.items()
        ]

    def source(self, attributes: str) -> str:
        """The function as LLVM's assembler has it."""
        parameters = ", ".join(f"{type_} %{name}" for name, type_ in self.parameters.items())
        body = "\n".join(["entry:", *self._allocas, *self.text.lines])
        return f"define {self.result} @{self.name}({parameters}) {attributes} {{\n{body}\n}}"

    def variable(self, value: Word | int) -> Variable:
        """A word that may be changed, with what it is at first."""
        made = Variable(self.text, self._room())
        made.now = value
        return made

    def room(self) -> Word:
        """The address of a word in memory."""
        return Word(self.text, self.text.make(f"ptrtoint ptr {self._room()} to i64", "i64"))

    def _room(self) -> str:
        name = f"%{self.text.fresh('room')}"
        self._allocas.append(f"  {name} = alloca i64")
        return name

    def give(self, value: Word | int | None = None) -> None:
        """Return."""
        x = constant(self.result, value) if isinstance(value, int) else value and value.x
        self.text.do(f"ret {x or 'void'}")
        self._has_left = True

    def call(self, callee: Routine | Word, *arguments: Word | int) -> Word:
        """Call a routine, or what lies at an address and takes a pointer first and gives a number."""
        if isinstance(callee, Routine):
            result, name, types = callee.result, f"@{callee.name}", [*callee.parameters.values()]
        else:
            result, name, types = "i64", callee.pointer.name, ["ptr", *["i64"] * (len(arguments) - 1)]
        words = [
            constant("i64", word) if isinstance(word, int) else word.pointer if type_ == "ptr" else word.x
            for word, type_ in zip(arguments, types, strict=True)
        ]
        called = f"call {result} {name}({', '.join(map(str, words))})"
        if result == "void":
            self.text.do(called)
            return Word(self.text, constant("i64", 0))
        return Word(self.text, self.text.make(called, result))

    def move(self, to: Word, of: Word, size: Word) -> None:
        """Copy bytes, which may overlap."""
        self.text.run("llvm.memmove.p0.p0.i64", to.pointer, of.pointer, size.x, X("i1", "false"))

    def first_lane(self, mask: Word) -> Word:
        return Word(self.text, self.text.call("llvm.cttz.i64", "i64", mask.x, X("i1", "false")))

    @contextmanager
    def when(self, condition: Word, holds: bool = True) -> Iterator[None]:
        """Do what follows if a condition holds, or does not."""
        inside, behind = self.text.fresh("inside"), self.text.fresh("behind")
        self.text.branch(condition.x, *((inside, behind) if holds else (behind, inside)))
        self.text.label(inside)
        yield
        self._end(behind)
        self.text.label(behind)

    @contextmanager
    def loop(self, condition: Callable[[], Word] | None = None) -> Iterator[None]:
        """Do what follows while a condition holds, or until it returns."""
        again, inside, behind = (self.text.fresh(stem) for stem in ("again", "inside", "behind"))
        self.text.jump(again)
        self.text.label(again)
        self.text.branch(condition().x if condition else X("i1", "true"), inside, behind)
        self.text.label(inside)
        yield
        self._end(again)
        self.text.label(behind)
        if condition is None:
            self.text.do("unreachable")

    @contextmanager
    def each(self, count: Word) -> Iterator[Word]:
        """Do what follows for each number below a count."""
        number = self.variable(0)
        with self.loop(lambda: number.now < count):
            yield number.now
            number.now += 1

    @contextmanager
    def each_lane(self, mask: Word) -> Iterator[Word]:
        """Do what follows for each lane of a mask."""
        left = self.variable(mask)
        with self.loop(lambda: left.now.differs(0)):
            lane = self.first_lane(left.now)
            left.now &= left.now - 1
            yield lane

    def _end(self, following: str) -> None:
        """End a block: go on, unless it has returned."""
        if not self._has_left:
            self.text.jump(following)
        self._has_left = False
