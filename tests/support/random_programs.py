"""Random kernels in PTX: arithmetic of all types, lanes that part, talk and wait, memory of each space.

A program is well defined whatever it draws: lanes talk only to those that are there, threads read what others wrote
behind a barrier, loops end, and addresses lie inside; but for one access, or one trap, where a fault is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from support.random_forms import FORMS

#: Bytes that each thread writes, and that there are to read.
OUT, IN = 256, 4096

_COUNTS = {"r": 8, "d": 4, "f": 6, "g": 4, "h": 5, "p": 4}
_TYPES = {"r": "b32", "d": "b64", "f": "f32", "g": "f64", "h": "b16", "p": "pred"}
_ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
_INTS = (0, 1, 2, 3, 5, 7, 8, 15, 31, 32, 33, 63, 64, 100, 255, 65535, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
#: Beyond what a register has, a byte holds, and a signed number reaches.
_AMOUNTS = (127, 128, 191, 255, 256, 257, 288, 300, 320, 511, 512, 65535, 65536, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
_FLOATS = (0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x00000001, 0x4F000000)


class Program:
    """One kernel ``f(in, out, sums, number)``, drawn by a `Random`.

    Attributes
    ----------
    text : str
        The module's PTX.
    block, blocks : int
    """

    def __init__(self, draw: Random, size: int = 40, fault: bool = False) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.block = draw.choice((32, 64, 96, 128, 40, 1, 160, 33))
        self.blocks = draw.choice((1, 2, 3))
        self._labels = self._masks = 0
        #: Masks of the lanes that are here, the innermost last; None where it is not known.
        self._here: list[str | None] = ["%here"]
        #: Whether all threads of the block come here; the loops around; whether values written may be read by others.
        self._together, self._loops = True, 0
        self._begin()
        parts = size // 2
        for _ in range(parts):
            self._statement(2)
        if fault:
            self._fault()
        for _ in range(parts):
            self._statement(2)
        self._end()
        self.text = self._module()

    # ── what is drawn ──

    def _some(self, kind: str) -> str:
        return f"%{kind}{self.draw.randrange(_COUNTS[kind])}"

    def _label(self) -> str:
        self._labels += 1
        return f"L{self._labels}"

    def _operand(self, kind: str, form: str) -> str:
        """An operand of a kind, at times a constant."""
        if kind == "#":
            return str(self._amount(72))
        if kind in "1!":
            return str(self.draw.randrange({"1": 2, "!": 256}[kind]))
        if kind[0] == "(":
            return f"{{{self._some(kind[1])}, {self._some(kind[2])}}}"
        if kind == "s":
            return self._some("r")
        if self.draw.random() < 0.12:
            if kind == "r" and "f16" not in form:
                return str(self.draw.choice(_INTS))
            if kind == "f" and not form.startswith("mov"):
                return f"0f{self.draw.choice(_FLOATS):08X}"
        if kind == "r" and self.draw.random() < 0.1:
            return self.draw.choice(("%tid.x", "%laneid", "%ctaid.x", "%ntid.x", "%lanemask_lt"))
        return self._some(kind)

    def _amount(self, most: int) -> int:
        """An amount or position: mostly below `most`, at times any of 32 bits."""
        drawn = self.draw.random()
        if drawn < 0.7:
            return self.draw.randrange(most)
        return self.draw.choice(_AMOUNTS) if drawn < 0.9 else self.draw.randrange(1 << 32)

    def _put(self, line: str) -> None:
        self.lines.append(f"    {line};")

    def _compute(self) -> None:
        form = self.draw.choice(FORMS[self.draw.choice(tuple(FORMS))])
        name, target, *sources = form.split()
        carries = name.split(".")[0] in ("addc", "subc", "madc")
        if target == "*":
            target = "f" if ".f32.f32" in name else "r"
        if target == "~h":
            target = "h" if "16." in name else "r"
        written = self._operand(target, name) if target[0] == "(" else self._some(target)
        if target[0] == "(" and len(set(written.strip("{}").split(", "))) < 2:
            written = f"{{%{target[1]}0, %{target[1]}1}}"
        guard = f"@{self.draw.choice(('', '!'))}{self._some('p')} " if self.draw.random() < 0.12 else ""
        if carries:
            self._put(f"{self.draw.choice(('add.cc.u32', 'sub.cc.u32'))} {self._some('r')}, %r0, {self._some('r')}")
            guard = ""
        self._put(f"{guard}{name} {', '.join([written, *(self._operand(kind, name) for kind in sources)])}")

    def _statement(self, depth: int) -> None:
        drawn = self.draw.random()
        if drawn < 0.52:
            self._compute()
        elif drawn < 0.7:
            self.draw.choice((self._load, self._store, self._local, self._vector, self._global_sum, self._own_atomic))()
        elif drawn < 0.80:
            self._talk()
        elif drawn < 0.86 and self._together:
            self._wait()
        elif depth and drawn < 0.97:
            self.draw.choice((self._if, self._if, self._loop, self._counted, self._jumping))(depth - 1)
        elif self._loops == 0 and drawn < 0.985:
            self._return()
        else:
            self._compute()

    # ── memory ──

    def _address(self, base: str, size: int, most: int) -> str:
        """An address of an element of some size, inside of `most` bytes, in various ways."""
        count = most // size
        way = self.draw.randrange(6)
        index = self._some("r")
        if way == 0:
            self._put(f"and.b32 %t0, {index}, {count - 1}")
            self._put(f"mul.wide.u32 %a0, %t0, {size}")
            self._put(f"add.s64 %a0, %a0, {base}")
        elif way == 1:
            self._put(f"and.b32 %t0, {index}, {count - 1}")
            self._put("cvt.u64.u32 %a0, %t0")
            self._put(f"mad.lo.s64 %a0, %a0, {size}, {base}")
        elif way == 2:
            self._put(f"and.b64 %a0, {self._some('d')}, {count - 1}")
            self._put(f"shl.b64 %a0, %a0, {size.bit_length() - 1}")
            self._put(f"add.s64 %a0, {base}, %a0")
        elif way == 3:  # in a row
            self._put(f"add.u32 %t0, %tid.x, {self.draw.randrange(64)}")
            self._put("and.b32 %t0, %t0, %eight")
            self._put(f"mad.wide.u32 %a0, %t0, {size}, {base}") if count > 160 else self._put(f"mov.b64 %a0, {base}")
        elif way == 4 and count > 224:  # in a row, whose index is known to fit
            first = self.draw.randrange(count - 160)
            self._put(f"add.s32 %t0, %tid.x, {first + 7}")
            self._put(f"mul.wide.s32 %a0, %t0, {size}")
            self._put(f"add.s64 %a0, {base}, %a0")
            return f"[%a0+{-7 * size}]"
        else:  # backwards
            self._put(f"and.b32 %t0, {index}, {count - 1}")
            self._put(f"sub.s32 %t0, {count - 1}, %t0")
            self._put(f"mad.wide.s32 %a0, %t0, {size}, {base}")
        return "[%a0]"

    def _load(self) -> None:
        name, size, kind = self.draw.choice(
            (
                ("u32", 4, "r"), ("s32", 4, "r"), ("f32", 4, "f"), ("u64", 8, "d"), ("f64", 8, "g"), ("u8", 1, "r"),
                ("s8", 1, "r"), ("u16", 2, "r"), ("s16", 2, "r"), ("b16", 2, "h"), ("s8", 1, "h"), ("u16", 2, "d"),
                ("s32", 4, "d"),
            )
        )  # fmt: skip
        space = self.draw.choice((".global", ".global", "", ".global.nc"))
        place = self._address("%in", size, IN)
        self._put(f"ld{space}.{name} {self._some(kind)}, {place}")

    def _vector(self) -> None:
        count, name, kind = self.draw.choice(
            ((2, "u32", "r"), (4, "u32", "r"), (4, "f32", "f"), (2, "f64", "g"), (2, "u64", "d"), (4, "u8", "r"),
             (2, "u16", "h"), (4, "s16", "r"), (2, "s8", "r"))
        )  # fmt: skip
        size = count * int(name[1:]) // 8
        place = self._address("%in", size, IN)
        into = self.draw.sample([f"%{kind}{number}" for number in range(_COUNTS[kind])], count)
        self._put(f"ld.global.v{count}.{name} {{{', '.join(into)}}}, {place}")
        if self.draw.random() < 0.5:
            at = self.draw.randrange(OUT // size) * size
            self._put(f"st.global.v{count}.{name} [%own+{at}], {{{', '.join(into)}}}")

    def _store(self) -> None:
        name, size, kind = self.draw.choice(
            (("u32", 4, "r"), ("f32", 4, "f"), ("u64", 8, "d"), ("f64", 8, "g"), ("u8", 1, "r"), ("u16", 2, "h"))
        )
        if self.draw.random() < 0.5:
            place = self._address("%own", size, OUT)
        else:
            place = f"[%own+{self.draw.randrange(OUT // size) * size}]"
        self._put(f"st{self.draw.choice(('.global', ''))}.{name} {place}, {self._some(kind)}")

    def _local(self) -> None:
        self._put(f"and.b32 %t0, {self._some('r')}, {15 if self.draw.random() < 0.8 else 3}")
        self._put("mul.wide.u32 %a0, %t0, 4")
        self._put("add.s64 %a0, %local, %a0")
        form = self.draw.choice(("st.local.u32 [%a0], {}", "ld.local.u32 {}, [%a0]", "ld.local.u8 {}, [%a0+3]"))
        self._put(form.format(self._some("r")))

    def _global_sum(self) -> None:
        """What is added up in global memory, of which no thread sees what it was."""
        name = self.draw.choice(("add.u32", "min.s32", "max.u32", "or.b32", "and.b32", "xor.b32", "add.u64", "max.s64"))
        # Where one word is taken by several operations, their order is seen.
        which = ("add.u32", "min.s32", "max.u32", "or.b32", "and.b32", "xor.b32", "add.u64", "max.s64").index(name)
        wide = name.endswith("64")
        size = 8 if wide else 4
        self._put(f"and.b32 %t0, {self._some('r')}, 7")
        self._put(f"mad.wide.u32 %a0, %t0, {size}, %sums")
        guard = f"@{self._some('p')} " if self.draw.random() < 0.3 else ""
        self._put(f"{guard}red.global.{name} [%a0+{64 * which}], {self._some('d' if wide else 'r')}")

    def _own_atomic(self) -> None:
        """Atomic operations on a thread's own words, of which the result counts."""
        name, values = self.draw.choice(
            (("add.u32", 1), ("exch.b32", 1), ("cas.b32", 2), ("inc.u32", 1), ("dec.u32", 1), ("min.s32", 1),
             ("and.b32", 1), ("add.f32", 1), ("add.u64", 1), ("cas.b64", 2), ("max.u64", 1), ("add.f64", 1))
        )  # fmt: skip
        kind = {"f32": "f", "f64": "g"}.get(name[-3:], "d" if name.endswith("64") else "r")
        at = self.draw.randrange(OUT // 8) * 8
        given = ", ".join(self._some(kind) for _ in range(values))
        self._put(f"atom.global.{name} {self._some(kind)}, [%own+{at}], {given}")

    # ── lanes and threads ──

    def _mask(self) -> str:
        here = self._here[-1]
        assert here is not None
        return here

    def _talk(self) -> None:
        if self._here[-1] is None:
            self._compute()
            return
        guard, mask = self._guarded(self._mask())
        form = self.draw.randrange(7)
        if form <= 2:
            mode, clamp = self.draw.choice((("up", 0), ("down", 31), ("bfly", 31), ("idx", 31), ("idx", 0x181F)))
            if self.draw.random() < 0.3:  # segments of any lanes, and bits that are not looked at
                clamp = self.draw.randrange(1 << self.draw.choice((13, 32)))
            by = str(self._amount(32)) if self.draw.random() < 0.6 else self._some("r")
            into = self.draw.choice((self._some("r"), f"{self._some('r')}|{self._some('p')}"))
            self._put(f"{guard}shfl.sync.{mode}.b32 {into}, {self._some('r')}, {by}, {clamp}, {mask}")
        elif form == 3:
            self._put(f"{guard}vote.sync.ballot.b32 {self._some('r')}, {self._some('p')}, {mask}")
        elif form == 4:
            mode = self.draw.choice(("any", "all", "uni"))
            self._put(f"{guard}vote.sync.{mode}.pred {self._some('p')}, {self._some('p')}, {mask}")
        elif form == 5:
            self._put(f"and.b32 %t0, {self._some('r')}, 3")
            name, into = self.draw.choice((("any", ""), ("all", f"|{self._some('p')}")))
            self._put(f"{guard}match.{name}.sync.b32 {self._some('r')}{into}, %t0, {mask}")
        else:
            name = self.draw.choice(("add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"))
            self._put(f"{guard}redux.sync.{name} {self._some('r')}, {self._some('r')}, {mask}")

    def _guarded(self, mask: str) -> tuple[str, str]:
        """At times a guard, and the mask of the lanes that it lets through."""
        if self.draw.random() < 0.7:
            return "", mask
        predicate = self._some("p")
        self._put(f"vote.sync.ballot.b32 %t1, {predicate}, {mask}")
        if self.draw.random() < 0.5:
            return f"@{predicate} ", "%t1"
        self._put(f"xor.b32 %t1, %t1, {mask}")
        return f"@!{predicate} ", "%t1"

    def _wait(self) -> None:
        """Write to shared memory, wait, and read what others wrote."""
        form = self.draw.randrange(4)
        if form == 3:
            name, kind = self.draw.choice((("and.pred", "p"), ("or.pred", "p"), ("popc.u32", "r")))
            self._put(f"bar.red.{name} {self._some(kind)}, 0, {self._some('p')}")
            return
        self._put("mul.wide.u32 %a0, %tid.x, 4")
        self._put("add.s64 %a0, %a0, %shared")
        kind = self.draw.choice("rf")
        if form == 0:
            self._put(f"st.shared.b32 [%a0], {self._some(kind)}")
        else:
            self._put(f"and.b32 %t0, {self._some('r')}, 63")
            self._put("mad.wide.u32 %a0, %t0, 4, %shared")
            self._put(f"red.shared.{self.draw.choice(('add.u32', 'max.s32', 'xor.b32'))} [%a0], {self._some('r')}")
        self._put("bar.sync 0")
        for _ in range(self.draw.randrange(1, 3)):
            self._put(f"and.b32 %t0, {self._some('r')}, 127")
            self._put("mad.wide.u32 %a0, %t0, 4, %shared")
            self._put(f"ld.shared.b32 {self._some(kind)}, [%a0]")
        self._put("bar.sync 0")

    # ── flow ──

    def _inside(self, body: Callable[[], None], mask: str | None, together: bool) -> None:
        was = self._together
        self._here.append(mask)
        self._together = was and together
        body()
        self._together = was
        self._here.pop()

    def _new_mask(self) -> str:
        self._masks += 1
        return f"%m{self._masks}"

    def _some_statements(self, depth: int) -> None:
        for _ in range(self.draw.randrange(1, 5)):
            self._statement(depth)

    def _parted(self, predicate: str) -> tuple[str | None, str | None]:
        """Masks of the lanes for which a predicate holds, and of the others."""
        if self._here[-1] is None:
            return None, None
        held, others = self._new_mask(), self._new_mask()
        self._put(f"vote.sync.ballot.b32 {held}, {predicate}, {self._mask()}")
        self._put(f"xor.b32 {others}, {held}, {self._mask()}")
        return held, others

    def _if(self, depth: int) -> None:
        predicate = self._some("p")
        uniform = self.draw.random() < 0.2
        if uniform:
            self._put(f"setp.{self.draw.choice(_ORDERED)}.s32 {predicate}, %number, {self.draw.randrange(8)}")
        held, others = self._parted(predicate)
        otherwise, after = self._label(), self._label()
        self._put(f"@!{predicate} bra {otherwise}")
        self._inside(lambda: self._some_statements(depth), held, uniform)
        if self.draw.random() < 0.6:
            self._put(f"bra {after}")
            self.lines.append(f"{otherwise}:")
            self._inside(lambda: self._some_statements(depth), others, uniform)
            self.lines.append(f"{after}:")
        else:
            self.lines.append(f"{otherwise}:")

    def _turns(self, depth: int, uniform: bool) -> None:
        """A loop whose number of turns is in a register of its own, and may differ from lane to lane."""
        number = self._labels
        counter, most, again, mask = f"%c{number}", f"%n{number}", f"%q{number}", self._new_mask()
        head, out = self._label(), self._label()
        if uniform:
            self._put(f"add.u32 {most}, %number, {self.draw.randrange(3)}")
        else:
            self._put(f"and.b32 {most}, {self._some('r')}, {self.draw.choice((1, 3, 7))}")
        self._put(f"mov.u32 {counter}, 0")
        here = self._here[-1]
        if here is not None:
            self._put(f"mov.u32 {mask}, {here}")
        self.lines.append(f"{head}:")
        self._put(f"setp.ge.u32 {again}, {counter}, {most}")
        if here is not None:
            self._put(f"vote.sync.ballot.b32 %t1, {again}, {mask}")
            self._put("not.b32 %t1, %t1")
            self._put(f"and.b32 {mask}, {mask}, %t1")
        self._put(f"@{again} bra {out}")
        self._loops += 1
        self._inside(lambda: self._some_statements(depth), mask if here is not None else None, uniform)
        if self.draw.random() < 0.3 and not uniform:  # leave it early
            leaves = self._some("p")
            if here is not None:
                self._put(f"vote.sync.ballot.b32 %t1, {leaves}, {mask}")
                self._put("not.b32 %t1, %t1")
                self._put(f"and.b32 {mask}, {mask}, %t1")
            self._put(f"@{leaves} bra {out}")
            self._inside(lambda: self._some_statements(depth), mask if here is not None else None, uniform)
        self._loops -= 1
        self._put(f"add.u32 {counter}, {counter}, 1")
        self._put(f"bra {head}")
        self.lines.append(f"{out}:")

    def _loop(self, depth: int) -> None:
        self._turns(depth, False)

    def _counted(self, depth: int) -> None:
        self._turns(depth, True)

    def _jumping(self, depth: int) -> None:
        """Branches into a branch: what a compiler makes of a switch that falls through."""
        first, second = self._some("p"), self._some("p")
        early, late = self._label(), self._label()
        self._put(f"@{first} bra {early}")
        self._inside(lambda: self._some_statements(depth), None, False)
        self._put(f"@{second} bra {late}")
        self._inside(lambda: self._some_statements(depth), None, False)
        self.lines.append(f"{early}:")
        self._inside(lambda: self._some_statements(depth), None, False)
        self.lines.append(f"{late}:")

    def _return(self) -> None:
        predicate, here = self._some("p"), self._here
        self._put(f"setp.{self.draw.choice(_ORDERED)}.u32 {predicate}, {self._some('r')}, {self._some('r')}")
        if len(here) == 1 and here[0] is not None:
            self._put(f"vote.sync.ballot.b32 %t1, {predicate}, %here")
            self._put("not.b32 %t1, %t1")
            self._put("and.b32 %here, %here, %t1")
        else:
            # The lanes around do not know who has left.
            self._here[:] = [None] * len(here)
        self._put(f"st.global.u32 [%own], {self._some('r')}")
        self._put(f"@{predicate} {self.draw.choice(('ret', 'exit', 'bra END'))}")

    def _fault(self) -> None:
        self._put(f"setp.eq.u32 %p0, %tid.x, {self.draw.randrange(self.block)}")
        self._put(
            self.draw.choice(
                (
                    f"@%p0 ld.global.u32 %r0, [%in+{IN + 60}]",
                    f"@%p0 ld.global.u32 %r0, [%in+{IN}]",
                    "@%p0 ld.global.u32 %r0, [%in+-4]",
                    "@%p0 ld.global.v2.u32 {%r0, %r1}, [%in+4]",
                    "@%p0 st.global.u16 [%own+1], %h0",
                    "@%p0 trap",
                    "@%p0 ld.shared.u32 %r0, [%shared+4096]",
                    "@%p0 red.shared.add.u32 [%shared+4096], %r1",
                    "@%p0 red.global.add.u32 [%sums+1024], %r1",
                    "@%p0 atom.global.add.u64 %d0, [%own+4], %d0",
                )
            )
        )

    # ── around it ──

    def _begin(self) -> None:
        self.lines += [
            "    ld.param.u64 %in, [in];",
            "    ld.param.u64 %out, [out];",
            "    ld.param.u64 %sums, [sums];",
            "    ld.param.u32 %number, [number];",
            "    mov.u64 %shared, sh;",
            "    mov.u64 %local, loc;",
            "    mov.u32 %eight, 255;",
            "    activemask.b32 %here;",
            "    mad.lo.u32 %self, %ctaid.x, %ntid.x, %tid.x;",
            f"    mad.wide.u32 %own, %self, {OUT}, %out;",
            "    and.b32 %t0, %self, 127;",
            "    mad.wide.u32 %a0, %t0, 8, %in;",
        ]
        for kind, size in (("r", 4), ("d", 8), ("f", 4), ("g", 8), ("h", 2)):
            for number in range(_COUNTS[kind]):
                what = self.draw.random()
                name = f"%{kind}{number}"
                if what < 0.12 and kind == "r":
                    self._put(f"mov.u32 {name}, {self.draw.choice(('%tid.x', '%self', '%number', '%laneid', '5'))}")
                else:
                    at = self.draw.randrange(2048 // size) * size
                    self._put(f"ld.global.{_TYPES[kind]} {name}, [%a0+{at}]")
        for number in range(_COUNTS["p"]):
            other = self.draw.choice(("%r1", "7", "%tid.x", "%laneid"))
            self._put(f"setp.{self.draw.choice(_ORDERED)}.s32 %p{number}, {self._some('r')}, {other}")

    def _end(self) -> None:
        at = 0
        self.lines.append("END:")
        for kind, size in (("d", 8), ("g", 8), ("r", 4), ("f", 4), ("h", 2)):
            for number in range(_COUNTS[kind]):
                self._put(f"st.global.{_TYPES[kind]} [%own+{at}], %{kind}{number}")
                at += size
        for number in range(_COUNTS["p"]):
            self._put(f"selp.u32 %t0, 1, 0, %p{number}")
            self._put(f"st.global.u8 [%own+{at + number}], %t0")
        self._put("ret")

    def _module(self) -> str:
        declared = [f".reg .{_TYPES[kind]} %{kind}<{count}>;" for kind, count in _COUNTS.items()]
        declared += [".reg .b64 %in, %out, %sums, %own, %shared, %local, %a<2>;"]
        declared += [".reg .b32 %number, %here, %self, %eight, %t<2>;", f".reg .b32 %m<{self._masks + 1}>;"]
        declared += [
            f".reg .b32 %c<{self._labels + 1}>, %n<{self._labels + 1}>;",
            f".reg .pred %q<{self._labels + 1}>;",
        ]
        body = "\n".join([*(f"    {each}" for each in declared), *self.lines])
        return (
            ".version 8.6\n.target sm_90\n.address_size 64\n"
            ".visible .entry f(.param .u64 in, .param .u64 out, .param .u64 sums, .param .u32 number)\n{\n"
            "    .shared .align 16 .b8 sh[4096];\n    .local .align 16 .b8 loc[64];\n"
            f"{body}\n}}\n"
        )
