"""``ck.trace()``: when each piece of work on the streams began and was done, without waiting for any of it.

On a GPU a timing event is recorded on the work's stream before and after it; the host's work is timed by its own clock,
and the two are laid over each other by an event whose time on the host is known. Work that cudakit does not put on the
streams itself, such as CuPy's and torch's kernels, is not seen: it shows as idle time, or as a longer wait.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from os import PathLike
from types import TracebackType
from typing import Any

from cudakit.errors import ArgumentError, CudakitError
from cudakit.profile.drawing import timelines
from cudakit.profile.recorder import Recorder
from cudakit.profile.timeline import COLOURS, Lane, Span, Stage, Timeline, by_clock
from cudakit.streams.witnesses import Work, witnessing
from cudakit.types.checked import flag, text_of, whole
from cudakit.types.shown import Drawing, html

#: Spans that a trace keeps unless told otherwise: some 50 MB.
MOST_SPANS = 100_000


def trace(streams: Mapping[str, Any] | None = None, *, nvtx: bool | None = None, max_spans: int = MOST_SPANS) -> Trace:
    """A trace of everything that cudakit does inside a ``with`` block, in all threads.

    Parameters
    ----------
    streams : mapping of str to stream, optional
        Names of streams, for the timeline; others are numbered in the order of first use.
    nvtx : bool, optional
        Whether to mark each work as a range for Nsight, with the ``nvtx`` package; default: where it is installed.
    max_spans : int
        Works after which no more are kept, which is warned of; 100 000 take some 50 MB.

    Returns
    -------
    Trace

    Raises
    ------
    ArgumentError
        `max_spans` is not positive, or a stream is none.
    CudakitError
        `nvtx` is asked for and not installed.

    Notes
    -----
    A span begins when its stream comes to the work, and ends when the work is done. A kernel that was waiting in its
    stream shows a microsecond or two longer than it is; where the stream had to wait for the host, the launch itself is
    in the span, some 8 µs. While a trace runs, a launch takes the host about 30 µs (H200): programs of many short
    kernels show more idle time than they have.

    Seen is what cudakit puts on streams, not the kernels of CuPy and torch. Work that is captured into a graph is not
    run, and has no span; the graph's launches have, and on the emulator the kernels in them. There times are steps.

    Examples
    --------
    >>> with ck.trace() as t:
    ...     kernel(stream, ck.cover(x.size), x, y, x.size)
    >>> print(t)
    >>> t.save("trace.json")  # for https://ui.perfetto.dev
    """
    return Trace({} if streams is None else streams, nvtx, max_spans)


class Trace:
    """What a `trace` block saw; to be read after the block, which waits for the streams' work then."""

    def __init__(self, streams: Mapping[str, Any], nvtx: bool | None, max_spans: int) -> None:
        whole("trace: max_spans", max_spans, 1)
        if not isinstance(streams, Mapping):
            raise ArgumentError(f"trace: streams maps names to streams, got {type(streams).__name__}")
        for name in streams:
            text_of("trace: each name in streams", name)
        self._recorder = Recorder(streams, _ranges(nvtx), max_spans)
        self._max_spans = max_spans
        self._stack = contextlib.ExitStack()
        self._state = "new"
        self._spans: tuple[Span, ...] | None = None

    def __enter__(self) -> Trace:
        if self._state != "new":
            raise CudakitError("a trace is of one block; make another with ck.trace()")
        self._state = "running"
        self._recorder.begin_trace()
        self._stack.enter_context(witnessing(self._recorder))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trail: TracebackType | None
    ) -> None:
        self._stack.close()
        self._state = "done"
        if self._recorder.dropped:
            warnings.warn(
                f"the trace kept its first {self._max_spans} works and dropped {self._recorder.dropped}; "
                "give ck.trace(max_spans=...) a larger number, or trace less",
                RuntimeWarning,
                stacklevel=2,
            )

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every work that was seen, in the order in which it was put on its stream; of the host, was done.

        Raises
        ------
        CudakitError
            The block has not ended.
        """
        if self._state != "done":
            raise CudakitError("a trace is read after its block: the work is still being put on the streams")
        if self._spans is None:
            self._spans = self._recorder.finish()
        return self._spans

    @property
    def dropped(self) -> int:
        """Works beyond `max_spans`, which were not kept."""
        return self._recorder.dropped

    def timeline(self) -> Timeline:
        """The spans by stream and stage: those of the emulator, in steps, where there are any, else all."""
        return (*by_clock(self.spans), Timeline(()))[0]

    @property
    def critical(self) -> Stage | Lane | None:
        """The stage or stream that bounds the whole; see `Timeline.critical`."""
        return self.timeline().critical

    def summary(self) -> str:
        """By stream how busy it was and its gaps, by stage its totals, and what bounds the whole."""
        return "\n\n".join(part.summary() for part in by_clock(self.spans)) or Timeline(()).summary()

    def save(self, path: str | PathLike[str]) -> None:
        """Write JSON in the trace-event format, for https://ui.perfetto.dev and ``chrome://tracing``."""
        from cudakit.profile.export import save_json

        save_json(self.spans, path)

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw a PNG: a row for each stream, a colour for each kind, idle gaps marked, the bound in the title.

        Raises
        ------
        CudakitError
            matplotlib is not installed.
        """
        from cudakit.profile.export import save_picture

        save_picture(self.spans, path)

    def __repr__(self) -> str:
        """Without waiting for the streams' work, as reading the spans does."""
        state = self._state if self._spans is None else f"of {len(self._spans)} spans"
        return f"<cudakit.trace {state}{f'; dropped: {self.dropped}' if self.dropped else ''}>"

    def _repr_html_(self) -> str:
        """The timeline, in a notebook."""
        if self._state != "done":
            return html(repr(self))
        return html("cudakit.trace", Drawing(lambda: timelines(self.spans)))

    def __str__(self) -> str:
        return self.summary() if self._state == "done" else f"a trace, {self._state}"


class _Ranges:
    """Ranges of the ``nvtx`` package, one for each work, in the domain ``cudakit``."""

    def __init__(self, nvtx: Any) -> None:
        self._nvtx = nvtx

    def start(self, work: Work) -> Any:
        return self._nvtx.start_range(
            work.name, color=int(COLOURS[work.kind][1:], 16), domain="cudakit", category=work.kind
        )

    def end(self, note: Any) -> None:
        self._nvtx.end_range(note)


def _ranges(wanted: bool | None) -> _Ranges | None:
    if wanted is not None and not flag("trace: nvtx", wanted):
        return None
    try:
        import nvtx
    except ImportError as error:
        if wanted:
            raise CudakitError("ranges for Nsight need the nvtx package; install it with: pip install nvtx") from error
        return None
    return _Ranges(nvtx)
