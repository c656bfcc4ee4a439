"""Former contents of global memory, so that a launch can begin anew."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Bytes: allocations up to this are copied whole before their first write; of larger ones the written elements.
_WHOLE = 1 << 20
#: Bytes that are kept; a launch that writes over more cannot begin anew.
_MOST = 1 << 28


class Former:
    """Contents of allocations from before a launch wrote them.

    Attributes
    ----------
    is_complete : bool
        Whether all contents are kept; False after more writes than fit.
    """

    def __init__(self, most: int = _MOST) -> None:
        self.is_complete: bool = True
        self._room = most
        self._contents: list[tuple[np.ndarray, Any, np.ndarray]] = []
        self._whole: set[int] = set()

    def keep(self, data: np.ndarray, view: np.ndarray, elements: np.ndarray) -> None:
        """Keep the contents that a write to elements of a view replaces; `data` has the bytes of the allocation."""
        if not self.is_complete or id(data) in self._whole:
            return
        if data.size <= _WHOLE:
            self._whole.add(id(data))
            view, elements = data, slice(None)  # type: ignore[assignment]
        else:
            elements = np.array(elements)
        contents = np.array(view[elements])
        self._room -= contents.nbytes
        if self._room < 0:
            self.is_complete = False
            self._contents.clear()
        else:
            self._contents.append((view, elements, contents))

    def restore(self) -> None:
        """Write the contents back, the latest first."""
        while self._contents:
            view, elements, contents = self._contents.pop()
            view[elements] = contents
