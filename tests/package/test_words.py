"""The rules on words in CONTRIBUTING.md, as far as a program can check them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.syntax import MODULES, PACKAGE, nodes_of

ROOT = PACKAGE.parent
PAGES = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md"), *PACKAGE.rglob("*.md")))
#: Names that do not say what a variable, function or class holds or does.
NAMES = re.compile(
    r"given|found|each|told|kind|kinds|what|held|made|known|kept|wanted|taken|asked|seen|said|parted|meets|meeting|"
    r"brief|frozen|lying|lies|whose|which|whether|it|one|ones|such|those|passed|got|come|done"
)
#: Names that stay, by file: users or other projects' protocols know them.
PUBLIC = {
    "adapters/cuda_core/textures.py": {"kind"},
    "adapters/cupy/streams.py": {"done"},
    "adapters/pycuda/gpuarray.py": {"ones"},
    "emulator/checks/findings.py": {"kind"},
    "errors.py": {"kind", "got"},
    "emulator/counters/counts.py": {"kinds"},
    "emulator/counters/report.py": {"kinds"},
    "emulator/debug/session.py": {"seen"},
    "jit/compile/assemble.py": {"what"},
    "memory/accounting.py": {"kind", "held"},
    "memory/memory.py": {"kind"},
    "places.py": {"given"},
    "profile/hazards.py": {"kind", "seen"},
    "profile/timeline.py": {"kind"},
    "profile/trace.py": {"kind"},
    "proof/prove.py": {"kind"},
    "streams/witnesses.py": {"kind"},
}
#: Words that begin no noun phrase and no imperative.
OPENINGS = re.compile(
    r"what|whether|where|how|of|which|those|its|it|why|that|by|as|so|if|when|while|with|without|for|from|to|not|"
    r"there|this|these|such|one|another|every|each|no|nothing|something|whatever|whoever|only|on|at|in|also",
    re.IGNORECASE,
)
#: Homely words in place of the field's term.
WORDS = re.compile(r"\b(parted|told|lessened|whatever|whoever|hitherto|what becomes of|taken down)\b", re.IGNORECASE)
#: Words in a sentence, at most.
LONGEST = 35
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module


def names_of(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a node binds, each with its line."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield name, node.lineno
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, node.lineno


def prose_of(docstring: str) -> Iterator[str]:
    """Yield paragraphs and list items of a docstring or page, without code, tables and headings."""
    text = re.sub(r"```.*?```|^ *>>>.*$|::\n(\n| +.*\n)+", "", docstring, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^.*\n-{3,}\n|^[*\w, ]+ : .*$", "\n\n", text, flags=re.MULTILINE)  # numpydoc's headings and names
    for paragraph in re.split(r"\n\s*\n", text):
        if not re.match(r"\s*(\||#|=|:::|<|\$)", paragraph):
            items = re.split(r"^\s*(?:[-*]|\d+\.) ", paragraph, flags=re.MULTILINE)
            yield from (" ".join(item.split()) for item in items)


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a docstring or page."""
    for paragraph in prose_of(text):
        yield from (
            part.strip()
            for part in re.split(r"(?<=[.?!:])\**\s+(?=[A-Z`*\[]|cudakit\b|ncu\b|hatch)", paragraph)
            if part.strip()
        )


def opening_fault(node: Definition, docstring: str) -> str | None:
    """Return how a docstring's first word breaks the rule, or None."""
    word = re.match(r"[A-Za-z]+('s)?", docstring)
    if word is None:  # code, or a formula
        return None
    is_property = any("property" in ast.unparse(decorator) for decorator in getattr(node, "decorator_list", ()))
    if OPENINGS.fullmatch(word[0]) and not (is_property and word[0] == "Whether"):
        return "begins with no verb or noun phrase"
    if isinstance(node, ast.FunctionDef) and not is_property and (word[1] or word[0] in ("The", "A", "An")):
        return "does not begin with a verb"
    return None


def faults_of(text: str) -> Iterator[str]:
    """Yield what the rules forbid in a docstring or page."""
    yield from (f"over {LONGEST} words: {part}" for part in sentences_of(text) if len(part.split()) > LONGEST)
    yield from (f"forbidden: {match[0]}" for match in WORDS.finditer(" ".join(prose_of(text))))


def docstrings_of(path: Path) -> Iterator[tuple[int, Definition, str]]:
    """Yield line, definition and docstring of a module and all that it defines."""
    for node in nodes_of(path):
        if isinstance(node, Definition) and (docstring := ast.get_docstring(node)):
            yield node.body[0].lineno, node, docstring


def name_faults(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the names of a module that the rules forbid, each with its line."""
    for node in nodes_of(path):
        for name, line in names_of(node):
            if NAMES.fullmatch(name.strip("_")):
                yield line, name


def docstring_faults(path: Path) -> Iterator[str]:
    """Yield what the rules forbid in a module's docstrings, each with its line."""
    for line, node, docstring in docstrings_of(path):
        if fault := opening_fault(node, docstring):
            yield f"{line}: {fault}: {docstring[:80]!r}"
        yield from (f"{line}: {fault}" for fault in faults_of(docstring))


def test_names_say_what_they_hold() -> None:
    faults = [(path.relative_to(PACKAGE).as_posix(), *fault) for path in MODULES for fault in name_faults(path)]
    assert [fault for fault in faults if fault[2] not in PUBLIC.get(fault[0], ())] == []
    assert {(file, name) for file, _, name in faults} == {(file, name) for file in PUBLIC for name in PUBLIC[file]}


def test_docstrings_begin_with_a_verb_or_a_noun_and_have_short_sentences() -> None:
    assert [f"{path.relative_to(ROOT)}:{fault}" for path in MODULES for fault in docstring_faults(path)] == []


def test_pages_have_short_sentences_and_the_terms() -> None:
    texts = {page.relative_to(ROOT): page.read_text(encoding="utf-8") for page in PAGES}
    faults = [f"{page}: {fault}" for page, text in texts.items() for fault in faults_of(text)]
    assert faults == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("given = 1", "1: given"),
        ("def f(kind): pass", "1: kind"),
        ("for each in (): pass", "1: each"),
        ("self._held = 1", "1: _held"),
        ("class Frozen: pass\ndef frozen(): pass", "2: frozen"),
        ('def f():\n    """What is read."""', "2: begins with no verb or noun phrase: 'What is read.'"),
        ('def f():\n    """The bytes."""', "2: does not begin with a verb: 'The bytes.'"),
        ('def f():\n    """CUDA\'s dtype."""', '2: does not begin with a verb: "CUDA\'s dtype."'),
        ('class A:\n    """Of a call."""', "2: begins with no verb or noun phrase: 'Of a call.'"),
        ('"""Kernels.\n\nOrder is told."""', "1: forbidden: told"),
        (f'"""Kernels.\n\n{"Word " * 36}."""', f"1: over 35 words: {'Word ' * 35}Word ."),
    ],
)
def test_a_fault_is_seen(tmp_path: Path, source: str, fault: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(source, encoding="utf-8")
    assert [*(f"{line}: {name}" for line, name in name_faults(path)), *docstring_faults(path)] == [fault]


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """Return the bytes."""',
        'def f():\n    """out[k] = x[k] + y[k]"""',
        'class A:\n    @property\n    def f(self):\n        """The bytes."""',
        'class A:\n    @property\n    def f(self):\n        """Whether the kernel runs."""',
        'class A:\n    """A kernel on one device."""',
        f'"""Kernels.\n\nParameters\n----------\nx : int\n    {"Word " * 20}.\ny : int\n    {"Word " * 20}."""',
        f'"""Kernels.\n\n- {"Word " * 20}.\n- {"Word " * 20}."""',
        f'"""Kernels.\n\n```\n{"Word " * 50}\n```"""',
    ],
)
def test_plain_words_are_no_fault(tmp_path: Path, source: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(source, encoding="utf-8")
    assert [*name_faults(path), *docstring_faults(path)] == []
