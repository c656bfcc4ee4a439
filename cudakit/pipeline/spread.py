"""Device stages on several GPUs: each has streams and a thread of its own, and takes the next item when it has room."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence

from cudakit.pipeline.nodes import InOrder, Node
from cudakit.pipeline.stages import END, NOTHING, Parcel
from cudakit.streams import devices


class Spread:
    """The node of the same device stages on several devices, which gives their results in order.

    Parameters
    ----------
    upstream : Node
    sections : sequence of (int or None, callable)
        For each device its number, None for the emulator's, and what makes its section, of the node that it takes from.
    lenient : bool
        Go on after an item on which a stage has failed.
    """

    def __init__(
        self, upstream: Node, sections: Sequence[tuple[int | None, Callable[[Node], Node]]], lenient: bool
    ) -> None:
        self.upstream = upstream
        self.lenient = lenient
        self.taking = threading.Lock()
        self.taken = 0
        self.over = False
        self.results = InOrder()
        self._sections = []
        self._threads = []
        for number, (device, make) in enumerate(sections):
            share = _Share(self)
            with _on(device):
                section = make(share)
            self._sections.append((device, section))
            name = f"cudakit pipeline: device {number if device is None else device}"
            self._threads.append(
                threading.Thread(target=self._work, args=(device, section, share), name=name, daemon=True)
            )
        for thread in self._threads:
            thread.start()

    def take(self, block: bool) -> Parcel:
        """The next result in order; for one thread at a time."""
        return self.results.take(block)

    def stop(self) -> None:
        """Let the threads end after the items that they have."""
        self.over = True
        for _, section in self._sections:
            section.stop()
        self.results.stop()

    def close(self) -> None:
        """Wait for the threads and the devices, and give their memory back."""
        for thread in self._threads:
            # The garbage collector may drop a run in any thread, one of its own included.
            if thread is not threading.current_thread():
                thread.join()
        self.results = InOrder()
        with contextlib.ExitStack() as closing:
            for device, section in self._sections:
                closing.callback(_close, device, section)

    def _work(self, device: int | None, section: Node, share: _Share) -> None:
        with _on(device):
            while True:
                try:
                    parcel = section.take(True)
                except BaseException as error:  # a thread that ends without a word would leave the consumer waiting
                    number = share.numbers[0][0] if share.numbers else self.taken
                    parcel = Parcel(None, number)
                    parcel.fail("device", error, final=True)
                    self.over = True
                    self.results.put(number, parcel, True)
                    return
                if parcel is END:
                    return
                number, item = share.numbers[0]
                if parcel is item:
                    share.numbers.popleft()
                # The items before this one are delivered, whatever becomes of those behind it.
                if parcel.fate is not None and parcel.ends(self.lenient):
                    self.over = True
                self.results.put(number, parcel, parcel is item)
                del parcel, item


class _Share:
    """The node that a section of several takes from: gives it the next item, whichever that is.

    Attributes
    ----------
    numbers : deque of (int, Parcel)
        What was taken and has not come to its end, and the number of each.
    """

    def __init__(self, spread: Spread) -> None:
        self._spread = spread
        self.numbers: deque[tuple[int, Parcel]] = deque()

    def take(self, block: bool) -> Parcel:
        """The next item; NOTHING where another section is waiting for it and this one need not."""
        spread = self._spread
        if not spread.taking.acquire(block):
            return NOTHING
        try:
            if spread.over:
                return END
            parcel = spread.upstream.take(block)
            if parcel is NOTHING:
                return NOTHING
            number, spread.taken = spread.taken, spread.taken + 1
            if parcel is END:
                spread.over = True
                spread.results.put(number, END, True)
                return END
            if parcel.fate is not None and parcel.ends(spread.lenient):
                spread.over = True
            self.numbers.append((number, parcel))
            return parcel
        finally:
            spread.taking.release()

    def stop(self) -> None:
        """The node before is stopped by itself."""

    def close(self) -> None:
        """It holds nothing."""


def _on(device: int | None) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if device is None else devices.on_device(device)


def _close(device: int | None, section: Node) -> None:
    with _on(device):
        section.close()
