"""Several PTX modules as one: names that a module keeps to itself are made different from those of the others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from cudakit.jit.compile.symbol_names import common_name

#: Where a module begins.
_MODULE = re.compile(r"^[ \t]*\.version\b", re.MULTILINE)
_NAME = r"[\w$]+"
#: A function or a variable that a module defines or declares, with the directive that says who sees it.
_DECLARED = re.compile(
    rf"^[ \t]*(?P<linking>\.(?:visible|weak|common|extern)\s+)?"
    rf"(?:\.(?:func|entry)\s+(?:\([^)]*\)\s*)?(?P<function>{_NAME})"
    rf"|\.(?:global|const|shared|tex)\b[^;={{]*?(?P<variable>{_NAME})\s*(?:\[[^\]]*\]\s*)*[;=])",
    re.MULTILINE,
)


def modules_in(text: str) -> Iterator[tuple[str, int]]:
    """Each module in `text`, which has no comments, and the line where it begins."""
    starts = [match.start() for match in _MODULE.finditer(text)]
    if len(starts) < 2:
        yield text, 1
        return
    cuts = [0, *starts[1:], len(text)]
    texts = [text[start:end] for start, end in pairwise(cuts)]
    names = [_names(part) for part in texts]
    for position, part in enumerate(texts):
        own = names[position][0]
        others = [names[other] for other in range(len(texts)) if other != position]
        taken = set().union(*(seen for _, seen in others))
        if position:
            taken = taken.union(*(kept for kept, _ in others))
        taken = set(map(common_name, taken))
        for name in own:
            if common_name(name) not in taken:
                continue
            part = re.sub(rf"(?<![\w$%]){re.escape(name)}(?![\w$])", f"{name}${position}", part)
        yield part, 1 + text.count("\n", 0, cuts[position])


def _names(text: str) -> tuple[set[str], set[str]]:
    """Names that a module keeps to itself, and those that others see."""
    own, shared = set[str](), set[str]()
    for match in _DECLARED.finditer(text):
        (shared if match["linking"] else own).add(match["function"] or match["variable"])
    return own - shared, shared
