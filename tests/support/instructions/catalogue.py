"""All forms, by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations

from support.instructions import choices, conversions, lanes, memories, reals, tensors, video, whole
from support.instructions.forms import Form


def catalogue() -> dict[str, Form]:
    """Name → form, of every family."""
    found: dict[str, Form] = {}
    for family in (whole, reals, choices, conversions, memories, lanes, video, tensors):
        for form in family.forms():
            if form.name in found:
                raise ValueError(f"two forms are called {form.name}")
            found[form.name] = form
    return found


def in_pairs(forms: Sequence[Form]) -> list[Form]:
    """Return few of the forms in which each two words of a name occur together: modifiers, types by their places."""
    together = {}
    for form in forms:
        words = [word for word in re.split(r"[.\s]+", form.name) if word]
        types = [bool(_TYPE.fullmatch(word)) for word in words]
        placed = [(sum(types[:place]), word) for place, word in enumerate(words)]
        together[form.name] = set(combinations(placed, 2)) or set(placed)
    missing = set[object]().union(*together.values())
    chosen = set()
    while missing:
        best = max(together, key=lambda name: len(together[name] & missing))
        missing -= together[best]
        chosen.add(best)
    return [form for form in forms if form.name in chosen]


_TYPE = re.compile(r"[usb]\d+|b?f\d+(x2)?")


FAMILIES = (
    "integer",
    "bits",
    "floating",
    "half",
    "comparison",
    "conversion",
    "memory",
    "warp",
    "atomic",
    "video",
    "tensor",
)
