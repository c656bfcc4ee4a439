"""What the order between streams costs beside bare events, in one run: host time a call, medians, empty kernels.

On a GPU. A launch takes turns between two streams, on one buffer
that it writes, so that each launch depends on the one before it. Beside it stands the same by hand: a bare launch with
the pointer in hand, an event recorded on the former stream and waited for on the next. CuPy's current stream is the
launch's own in both; a row of its own shows what it costs where that is a third one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tables import table

from cases.timing import host_time

TITLE = "Cost of the order between streams"
EMPTY = "__global__ void empty(float* x, int n) { if (n < 0) x[0] = 0; }"
READ = "__global__ void read(const float* x, float* out, int n) { if (n < 0) out[0] = x[0]; }"


def rows(repeats: int) -> list[tuple[str, float, str, str]]:
    """Rows (what, nanoseconds, beside, aim)."""
    import cupy
    from cuda.core import LaunchConfig, Program, ProgramOptions, launch

    import cudakit as ck
    from cudakit.streams.order import order
    from cudakit.streams.streams import cupy_stream

    streams = [ck.stream(), ck.stream()]
    third, *late = (ck.stream() for _ in range(3))
    config = LaunchConfig(grid=1, block=32)
    arch = f"sm_{streams[0].device.arch}"
    code = Program(EMPTY, "c++", ProgramOptions(arch=arch)).compile("cubin", name_expressions=["empty"])
    bare, kernel, read = code.get_kernel("empty"), ck.Kernel(EMPTY), ck.Kernel(READ)
    with ck.using(streams[0]):
        x, y, z, shared, single = (cupy.zeros(1024, "f4") for _ in range(5))
        streams[0].sync()
        pointer = x.data.ptr
        found = host_time(
            {
                "bare": lambda: launch(streams[0], config, bare, single.data.ptr, 1024),
                "checked": lambda: kernel(streams[0], config, single, 1024),
            },
            streams[0].sync,
            repeats,
            200,
        )
        table = [
            ("one stream, bare launch", found["bare"], "", ""),
            ("one stream, cudakit", found["checked"], f"{found['checked'] / found['bare']:.3f} ×", "≤ 1.10 ×"),
        ]
    first, second = streams
    use_first, use_second, *use_late = [cupy_stream(stream).use for stream in (*streams, *late)]
    events = [first.record(), second.record()]

    def alternating() -> None:
        use_first()
        kernel(first, config, x, 1024)
        use_second()
        kernel(second, config, x, 1024)

    def late_alternating() -> None:
        for use, stream in zip(use_late, late, strict=True):
            use()
            kernel(stream, config, x, 1024)

    def late_by_hand() -> None:
        for use, stream, other in zip(use_late, late, late[::-1], strict=True):
            use()
            stream.wait(other.record())
            launch(stream, config, bare, pointer, 1024)

    def by_hand() -> None:
        use_first()
        first.wait(second.record())
        launch(first, config, bare, pointer, 1024)
        use_second()
        second.wait(first.record())
        launch(second, config, bare, pointer, 1024)

    def by_hand_reused() -> None:
        use_first()
        second.record(events[1])
        first.wait(events[1])
        launch(first, config, bare, pointer, 1024)
        use_second()
        first.record(events[0])
        second.wait(events[0])
        launch(second, config, bare, pointer, 1024)

    def launches() -> None:
        use_first()
        launch(first, config, bare, pointer, 1024)
        use_second()
        launch(second, config, bare, pointer, 1024)

    def record_and_wait() -> None:
        first.wait(second.record())
        second.wait(first.record())

    def wait_for_stream() -> None:
        first.wait(second)
        second.wait(first)

    def record_and_wait_reused() -> None:
        second.record(events[1])
        first.wait(events[1])
        first.record(events[0])
        second.wait(events[0])

    def with_manual() -> None:
        use_first()
        first.wait(second.record())
        kernel(first, config, x, 1024)
        use_second()
        second.wait(first.record())
        kernel(second, config, x, 1024)

    def reads() -> None:
        use_first()
        read(first, config, shared, y, 1024)
        use_second()
        read(second, config, shared, z, 1024)

    def third_current() -> None:
        kernel(first, config, x, 1024)
        kernel(second, config, x, 1024)

    def sync() -> None:
        for stream in (*streams, *late):
            stream.sync()

    former = cupy.cuda.get_current_stream()
    found = host_time(
        {
            "hand": by_hand,
            "reused": by_hand_reused,
            "ours": alternating,
            "launches": launches,
            "pair": record_and_wait,
            "stream": wait_for_stream,
            "pair reused": record_and_wait_reused,
            "reads": reads,
        },
        sync,
        repeats,
        50,
    )
    with ck.hazards.manual():
        found |= host_time({"manual": with_manual}, sync, repeats, 50)
    with ck.using(third):
        found |= host_time({"third": third_current}, sync, repeats, 50)
        for _ in range(100):
            kernel(third, config, single, 1024)
        several = {
            "several bare": lambda: launch(third, config, bare, pointer, 1024),
            "several": lambda: kernel(third, config, single, 1024),
        }
        found |= host_time(several, third.sync, repeats, 200)
        kernel(third, config, x, 1024)
    found |= host_time({"late": late_alternating, "late hand": late_by_hand}, sync, repeats, 50)
    former.use()
    order().release()
    each = {name: nanoseconds / (1 if name in several else 2) for name, nanoseconds in found.items()}
    over, over_reused = each["ours"] - each["hand"], each["ours"] - each["reused"]
    over_late = each["late"] - each["late hand"]
    table += [
        ("event recorded and waited for, a new one each time", each["pair"], "", ""),
        ("stream.wait(stream)", each["stream"], "", ""),
        ("event recorded and waited for, the same again", each["pair reused"], "", ""),
        ("two streams in turn, bare launches that race", each["launches"], "", ""),
        ("the same by hand, new events", each["hand"], "", ""),
        ("the same by hand, events used again", each["reused"], "", ""),
        ("the same by hand, cudakit's launches under manual()", each["manual"], "", ""),
        ("the same with cudakit's order", each["ours"], f"{over:+.0f} ns over new events", "≤ 700 ns"),
        ("", each["ours"], f"{over_reused:+.0f} ns over events used again", "≤ 1000 ns"),
        ("the same of streams that came after a third", each["late"], f"{over_late:+.0f} ns", "≤ 700 ns"),
        ("two streams that read one buffer in turn", each["reads"], f"{each['reads'] - each['launches']:+.0f} ns", ""),
        ("two streams in turn, CuPy on a third", each["third"], "", ""),
        ("one stream of several, bare launch", each["several bare"], "", ""),
        (
            "one stream of several, cudakit",
            each["several"],
            f"{each['several'] / each['several bare']:.3f} ×",
            "≤ 1.10 ×",
        ),
    ]
    return table


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=60, help="measurements whose median is taken")


def lines(options: argparse.Namespace) -> Iterator[str]:
    found = [(what, f"{taken:.0f} ns", beside, aim) for what, taken, beside, aim in rows(options.repeats)]
    return table(("what", "time a launch", "beside", "aim"), found)
