"""The package's mutants: each file has one room, each room tests; what is changed, and which tests are chosen for it.

The command that runs them: CONTRIBUTING.md, "Mutants".
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest
from support import caches, package_mutants
from support.mutant_server import MAKERS, Trial, changed
from support.mutants import Change, is_like, is_python, module_changes, mutant_of
from support.package_mutants import ROOMS, ROOT, TEMPLATES, PackageMutant, choose, place_of

MODULE = """
from typing import TYPE_CHECKING
Size = tuple[int, 2] | None
LIMIT = 8
def scaled(x: int, y: float = 2, *, name: str | None = None) -> int:
    if TYPE_CHECKING:
        return 3
    if x in known and not y:
        raise ValueError(f"{x + 1}" + str(4))
    assert x < 5
    warnings.warn("far" * 6)
    told.append(x % y)
    if isinstance(x, int | str):
        return divmod(x, max(y, x))
    else:
        x -= y
    self.x = -x
    return f"{x - 1}"
"""


def test_every_file_has_one_room() -> None:
    counts = Counter(file for room in ROOMS for file in package_mutants.files_of(room))
    assert {file: counts[file] for file in package_mutants.sources() if counts[file] != 1} == {}


def test_the_tests_of_rooms_and_templates_exist() -> None:
    entries = {entry for room in ROOMS.values() for entry in room.tests}
    assert [entry for entry in entries if not any(ROOT.glob(entry))] == []
    assert [name for name in TEMPLATES if not (ROOT / "templates" / f"{name}.cuh").exists()] == []
    measured = ROOMS["templates"].tests
    named = {f"tests/{test}" for tests in (*TEMPLATES.values(), package_mutants.OTHER_HEADERS) for test in tests}
    assert [test for test in named if not (ROOT / test).exists() or not test.startswith(measured)] == []


def test_every_template_has_tests_of_its_own() -> None:
    headers = [Path(file) for file in package_mutants.files_of("templates")]
    names = [str(header.relative_to("templates").with_suffix("")) for header in headers if header.suffix == ".cuh"]
    assert [name for name in names if not name.startswith("include") and name not in TEMPLATES] == []
    others = {f"tests/{test}" for test in package_mutants.OTHER_HEADERS}
    ours = [file for file in package_mutants.files_of("templates") if "include/cudakit/" in file]
    assert [file for file in ours if set(package_mutants.tests_of_header(file)) == others] == []


def test_a_header_has_the_tests_of_what_includes_it() -> None:
    tests = package_mutants.tests_of_header("templates/include/cudakit/sort/order.cuh")
    assert {"tests/ops/test_sort.py", "tests/ops/test_topk.py", "tests/ops/test_unique.py"} <= set(tests)


def test_the_cache_is_empty_for_all_that_fills_it() -> None:
    assert {maker.rstrip("/") for maker in MAKERS} == set(caches.MAKERS)


def test_one_thing_of_a_module_is_changed_at_a_time() -> None:
    data = MODULE.encode()
    lines = [(change.kind, mutant_of(data, change).line) for change in module_changes(data)]
    assert sorted(lines) == sorted(
        [
            ("constant", "LIMIT = 9"),
            ("constant", "LIMIT = 7"),
            ("constant", "def scaled(x: int, y: float = 3, *, name: str | None = None) -> int:"),
            ("constant", "def scaled(x: int, y: float = 1, *, name: str | None = None) -> int:"),
            ("guard", '- if x in known and not y: raise ValueError(f"{x + 1}" + str(4))'),
            ("comparison", "if x not in known and not y:"),
            ("operator", "if x in known or not y:"),
            ("operator", "if x in known and (y):"),
            ("statement", "- told.append(x % y)"),
            ("operator", "told.append(x * y)"),
            ("arguments", "return divmod(max(y, x), x)"),
            ("operator", "x += y"),
            ("statement", "- x -= y"),
            ("statement", "- self.x = -x"),
        ]
    )


@pytest.mark.parametrize("room", ["roof", "random", "templates"])
def test_each_room_has_mutants_that_differ(room: str) -> None:
    mutants = [mutant for mutant, _ in zip(package_mutants.draw(room, 3), range(4), strict=False)]
    assert len(mutants) == 4
    for mutant in mutants:
        text = package_mutants.text_of(mutant.file, mutant.change)
        assert text != (ROOT / mutant.file).read_text()
        assert not mutant.file.endswith(".py") or is_python(text)


def test_a_larger_sample_begins_with_a_smaller_one() -> None:
    rooms = ["types", "graphs", "random"]
    sample = package_mutants.sample(rooms, 12, 7)
    assert sample[:5] == package_mutants.sample(rooms, 5, 7)
    assert {mutant.room for mutant in sample} == set(rooms)
    assert package_mutants.sample(rooms, 5, 8) != sample[:5]


@pytest.mark.parametrize(
    ("marked", "place"),
    [
        ("A = «1»\n", (1, 1, True)),
        ("class A:\n    b = f(\n        «1»)\n", (2, 3, True)),
        ("def f(a=«1»):\n    return a\n", (1, 1, True)),
        ("def f(a):\n    return «1»\n", (2, 2, False)),
        (
            "class A:\n    def f(self):\n        if (\n            «1»\n        ):\n            return 2\n",
            (3, 5, False),
        ),
        ("def f(a):\n    try:\n        g()\n    except E:\n        g(«1»)\n", (5, 5, False)),
        ("def f(a):\n    match a:\n        case 1:\n            g(«1»)\n", (4, 4, False)),
    ],
)
def test_where_a_change_is(marked: str, place: tuple[int, int, bool]) -> None:
    start, end = marked.encode().index("«".encode()), marked.encode().index("»".encode()) - 2
    assert place_of(marked.replace("«", "").replace("»", "").encode(), Change("constant", start, end, b"2")) == place


class Measured:
    """Tests a to d of two files, as if they were measured."""

    seconds: ClassVar = {"x.py::a": 3.0, "x.py::b": 1.0, "y.py::c": 2.0, "y.py::d": 4.0}

    def __init__(self, *contexts: str) -> None:
        self.contexts = set(contexts)

    def lines(self, file: str) -> dict[int, set[str]]:
        return {1: {""}, 9: {"y.py::c"}, LINE: self.contexts}


FILE = "cudakit/types/shown.py"
LINE, CHANGE = next(
    (place[0], change)
    for change in module_changes((ROOT / FILE).read_bytes())
    if not (place := place_of((ROOT / FILE).read_bytes(), change))[2]
)


@pytest.mark.parametrize(
    ("contexts", "where", "tests"),
    [
        ((), "", ""),
        (("x.py::a",), "line", "ab"),  # and what else is in its file
        (("y.py::d", "x.py::b"), "line", "bdca"),
        (("",), "import", "cbad"),  # those of the file first
        (("child y.py::d",), "child", "dcba"),
        (("x.py::gone",), "", ""),
    ],
)
def test_tests_that_execute_the_line_come_first(contexts: tuple[str, ...], where: str, tests: str) -> None:
    mutant = PackageMutant("types", FILE, LINE, CHANGE.kind, "", "", CHANGE)
    choice = choose(mutant, [Measured(*contexts)])  # type: ignore[list-item]
    assert (choice.where, "".join(test[-1] for test in choice.tests)) == (where, tests)


def test_a_mutant_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text("1")
    before = Path("a.py").stat().st_mtime
    for version in (1, 2):
        with changed(Trial("a.py", "2", (), 1), version):
            assert Path("a.py").read_text() == "2"
            assert int(Path("a.py").stat().st_mtime) == int(before) + version  # bytecode is kept by whole seconds
    assert (Path("a.py").read_text(), Path("a.py").stat().st_mtime) == ("1", before)


def test_equivalents_are_mutants_with_a_reason() -> None:
    for pattern in package_mutants.listed():
        data = (ROOT / pattern[0]).read_bytes()
        lines = (mutant_of(data, change).line for change in package_mutants.changes_of(pattern[0]))
        assert any(is_like(pattern, pattern[0], line) for line in lines), pattern
        assert pattern[2]
