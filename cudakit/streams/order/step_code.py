"""The step of a use in the order between streams, written out as Python code.

A launch that depends on another stream's costs this, and most of what it would cost as loops over a few segments is the
loops. So the code is generated once for each number of segments, as `cudakit.jit.launch.dispatch` does it for calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from textwrap import indent
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cudakit.streams.order.segments import Use

#: What a step says in place of a use; see `cudakit.streams.order.clocks.Clocks.step`.
MANY: Any = object()
COLD: Any = object()

#: Segments that are written out; more are looped over.
_MOST_WRITTEN_OUT = 8

_TEST = """\
if former is not used and former is not None:
    if former.spell is not None:
        return MANY
    other, count = former.stream, former.count
    if other is not stream and count > clock.get(other, 0) and count > done.get(other, 0):
        if needed is None:
            needed = former
        elif needed.stream is not other:
            return MANY
        elif needed.count < count:
            needed = former
"""
_NEEDS_OF_WRITTEN = f"""\
former = segment.write
{_TEST}if segment.reads:
    for former in segment.reads.values():
{indent(_TEST, " " * 8)}"""
_NEEDS_OF_READ = f"""\
former = segment.write
{_TEST}former = segment.reads.get(stream)
if former is not used and former is not None and former.spell is not None:
    return MANY
"""
_COOL = """\
if segment.warmth:
    segment.warmth -= 1
    found = None
"""
_CROSS = """\
former = segment.write
if {others}(former is not None and former.stream is not stream):
    segment.warmth = warmth
elif segment.warmth:
    segment.warmth -= 1
"""
_WRITE = """\
segment.write = used
if segment.reads:
    segment.reads = {}
"""
_READ = """\
segment.reads[stream] = used
"""
_CODE = """\
def make(clocks, counts, done, stream, written, read, warmth):
    {names} = *written, *read

    def step(used, waits):
        clock = clocks.get(stream) or EMPTY
        needed = None
{needs}
        if needed is None:
            found = COLD
{cool}
        else:
            found = needed
            if waits:
                clock = clock.copy()
                clock[needed.stream] = needed.count
                before = needed.clock
                if len(before) > 1 or stream not in before:
                    for other, count in before.items():
                        if other is not stream and count > clock.get(other, 0) and count > done.get(other, 0):
                            clock[other] = count
                clocks[stream] = clock
{cross}
        used.event = None
        used.clock = clock
        used.count = counts[stream] = counts.get(stream, 0) + 1
{note}
        return found

    return step
"""


@functools.cache
def step_maker(written: int, read: int, cut: bool) -> Callable[..., Callable[[Use, bool], Any]]:
    """``make(clocks, counts, done, stream, written, read, warmth)`` for so many segments, which makes a ``step``."""
    if cut:
        return lambda *given: lambda used, waits: MANY
    is_short = written + read <= _MOST_WRITTEN_OUT

    def each(of_written: str, of_read: str, depth: int) -> str:
        """The lines for each segment of both kinds."""
        lines = ""
        for kind, count, body in (("written", written, of_written), ("read", read, of_read)):
            if is_short:
                lines += "".join(f"segment = {kind}{k}\n{body}" for k in range(count))
            else:
                lines += f"for segment in {kind}:\n{indent(body, '    ')}"
        return indent(lines, " " * 4 * depth)

    names = [f"{kind}{k}" for kind, count in (("written", written), ("read", read)) for k in range(count)]
    code = _CODE.format(
        names="".join(f"{name}, " for name in names) if is_short and names else "*_,",
        needs=each(_NEEDS_OF_WRITTEN, _NEEDS_OF_READ, 2),
        cool=each(_COOL, _COOL, 3),
        cross=each(_CROSS.format(others="segment.reads or "), _CROSS.format(others=""), 3),
        note=each(_WRITE, _READ, 2),
    )
    made: dict[str, Any] = {"MANY": MANY, "COLD": COLD, "EMPTY": {}}
    exec(compile(code, "<step of the order between streams>", "exec"), made)
    make: Callable[..., Callable[[Use, bool], Any]] = made["make"]
    return make
