"""Device memory that is kept from one call for the next one like it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

from cudakit.streams.streams import Known

#: Calls whose device memory is kept.
_MOST = 32


class Spare(Protocol):
    """Device memory that waits for the next call like the one that it was for, on the same stream."""

    size: int
    target: Known

    def release(self) -> None:
        """Let go of what is kept for the last call, if that is done."""

    def let_go(self) -> None:
        """Have what is kept for the last call kept elsewhere."""


class Spares:
    """Device memory between the calls that use it; the least recently used goes first."""

    def __init__(self) -> None:
        self._idle: dict[Hashable, Any] = {}

    def take(self, key: Hashable) -> Any:
        """What was given back for `key`, which is nobody else's from now on; None where there is nothing."""
        return self._idle.pop(key, None)

    def give_back(self, key: Hashable, spare: Spare) -> None:
        """Keep `spare` for the next one who takes it."""
        if self._idle.setdefault(key, spare) is not spare:
            spare.let_go()  # another thread's call was alike
        elif len(self._idle) > _MOST:
            closed = [old for old, kept in list(self._idle.items()) if kept.target.core.is_closed]
            self._drop(closed or list(self._idle)[:-_MOST])

    def _drop(self, keys: list[Hashable]) -> int:
        dropped = [spare for spare in map(self.take, keys) if spare is not None]
        for spare in dropped:
            spare.let_go()
        return sum(spare.size for spare in dropped)

    def drop_closed(self) -> None:
        """Give back that of streams that are closed."""
        self._drop([key for key, kept in list(self._idle.items()) if kept.target.core.is_closed])

    def drop(self) -> int:
        """Give all of it back to CuPy's pool; the bytes."""
        return self._drop(list(self._idle))

    def release(self) -> None:
        """Let go of what is kept for calls that are done."""
        for key in list(self._idle):
            if (spare := self.take(key)) is not None:
                spare.release()
                self.give_back(key, spare)

    def held(self, device_id: int) -> int:
        """Bytes kept on a device."""
        return sum(kept.size for kept in list(self._idle.values()) if kept.target.device_id == device_id)


_spares = Spares()


def spares() -> Spares:
    """The process's spare device memory."""
    return _spares
