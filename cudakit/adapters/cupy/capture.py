"""Recorder of work between the begin and the end of a stream's capture."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.errors import LaunchError


class Capture:
    """Recorder of the work between a stream's ``begin_capture`` and ``end_capture``.

    Attributes
    ----------
    actions : list of callable or None
        Recorded work, or None outside of a capture.
    """

    def __init__(self) -> None:
        self.actions: list[Callable[[], object]] | None = None

    def do(self, action: Callable[[], object]) -> None:
        """Run work that changes memory, or record it during a capture."""
        if self.actions is None:
            action()
        else:
            self.actions.append(action)

    def forbid(self, noun: str) -> None:
        """Raise during a capture, for an operation that waits for the device.

        Raises
        ------
        LaunchError
        """
        if self.actions is not None:
            self.actions = None
            raise LaunchError(f"{noun} waits for the device, and a capture cannot: call it before or after the capture")


#: Recorder of the process.
CAPTURE = Capture()
