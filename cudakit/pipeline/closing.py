"""Results that are closed: at the end of a block, or by whoever drops them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Self


class Closing(Iterator[Any]):
    """An iterator over results that holds what has to be given back."""

    #: Until there is something to give back.
    _closed = True

    @abstractmethod
    def close(self) -> None:
        """Stop, and give everything back. More than once does no harm."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed:
            self.close()
