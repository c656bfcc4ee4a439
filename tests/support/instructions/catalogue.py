"""All forms, by name."""

from __future__ import annotations

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
