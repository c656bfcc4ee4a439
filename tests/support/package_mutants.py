"""Runs a sample of mutants of the package against the tests of their rooms, and says which ones the tests do not see.

``PYTHONPATH=tests python -m support.package_mutants --count 600 --seed 11``; CONTRIBUTING.md, "Mutants", says more.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import datetime
import functools
import itertools
import json
import queue
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from support.executed import CHILD, ROOT, Executed, copied_checkout, files_of_checkout, measured
from support.mutant_server import Outcome, Server, Trial
from support.mutants import (
    Change,
    cuda_changes,
    equivalents,
    is_like,
    is_python,
    module_changes,
    mutant_of,
    with_late_warps,
)


class Room(NamedTuple):
    """Files of a room, and the tests that are its own.

    Attributes
    ----------
    files : tuple of str
        Folders (``…/``), files, or files straight in a folder (``…/*``), below ``cudakit`` or ``templates``.
    tests : tuple of str
        Folders, files, or files straight in a folder. Each is measured once, however many rooms name it.
    """

    files: tuple[str, ...]
    tests: tuple[str, ...]


EMULATOR = "tests/emulator/*"
ROOMS = {
    "roof": Room(
        ("cudakit/*",),
        (
            "tests/kernel",
            "tests/package/test_wrong_calls.py",
            "tests/package/test_roof.py",
            "tests/package/test_foreign_names.py",
            "tests/package/test_report_parts.py",
            "tests/cli/test_reports.py",
        ),
    ),
    "adapters": Room(("cudakit/adapters/",), ("tests/adapters",)),
    "arrays": Room(("cudakit/arrays/",), ("tests/arrays", "tests/generate")),
    "bridges": Room(("cudakit/bridges/",), ("tests/bridges",)),
    "cli": Room(("cudakit/cli/",), ("tests/cli", "tests/bundles/test_commands.py")),
    "generate": Room(("cudakit/generate/",), ("tests/generate",)),
    "graphs": Room(("cudakit/graphs/",), ("tests/graphs",)),
    "jit": Room(("cudakit/jit/",), ("tests/jit", "tests/kernel")),
    "kernel": Room(("cudakit/kernel/",), ("tests/kernel", "tests/jit")),
    "memory": Room(("cudakit/memory/",), ("tests/memory",)),
    "ops": Room(("cudakit/ops/",), ("tests/ops",)),
    "pipeline": Room(("cudakit/pipeline/",), ("tests/pipeline",)),
    "profile": Room(("cudakit/profile/",), ("tests/profile",)),
    "proof": Room(("cudakit/proof/",), ("tests/proof",)),
    "random": Room(("cudakit/random/",), ("tests/random",)),
    "scale": Room(("cudakit/scale/",), ("tests/scale",)),
    "streams": Room(("cudakit/streams/",), ("tests/streams",)),
    "testing": Room(("cudakit/testing/",), ("tests/testing",)),
    "bundles": Room(("cudakit/bundles/",), ("tests/bundles",)),
    "tuning": Room(("cudakit/tuning/",), ("tests/tuning",)),
    "types": Room(("cudakit/types/",), ("tests/types", "tests/jit")),
    "emulator/machine": Room(("cudakit/emulator/machine/",), (EMULATOR, "tests/emulator/programs")),
    "emulator/instructions": Room(("cudakit/emulator/instructions/",), (EMULATOR, "tests/emulator/programs")),
    "emulator/ptx": Room(("cudakit/emulator/ptx/",), (EMULATOR,)),
    "emulator/isa": Room(("cudakit/emulator/isa/",), (EMULATOR,)),
    "emulator/compiled": Room(("cudakit/emulator/compiled/",), (EMULATOR, "tests/emulator/compiled")),
    "emulator/checks": Room(("cudakit/emulator/checks/",), ("tests/emulator/checks", "tests/testing")),
    "emulator/counters": Room(("cudakit/emulator/counters/",), ("tests/emulator/counters",)),
    "emulator/streams": Room(("cudakit/emulator/streams/",), (EMULATOR, "tests/streams")),
    "emulator/tile": Room(("cudakit/emulator/tile/",), ("tests/emulator/tile",)),
    "emulator/debug": Room(("cudakit/emulator/debug/",), ("tests/emulator/debug",)),
    "emulator/rest": Room(("cudakit/emulator/*", "cudakit/emulator/resources/"), (EMULATOR, "tests/emulator/programs")),
    "templates": Room(
        ("templates/",),
        (
            *("tests/ops", "tests/generate", "tests/random", "tests/templates", "tests/graphs"),
            "tests/adapters/test_pycuda_generated.py",
            *("tests/kernel", "tests/emulator/programs", "tests/jit"),
        ),
    ),
}
#: Template, or header that generated code includes → its tests. Other headers have those of what includes them.
TEMPLATES = {
    "attention": ("ops/test_attention.py",),
    "cast": ("ops/test_cast.py",),
    "compact": ("ops/test_select.py",),
    "compare": ("templates/test_compare.py",),
    "concatenate": ("ops/test_move.py",),
    "count": ("ops/test_count.py",),
    "equalize": ("ops/test_geometry.py",),
    "graph": ("graphs", "templates"),
    "histogram": ("templates",),
    "image": ("templates/test_image.py",),
    "matmul": ("ops/test_matmul.py", "ops/test_product.py"),
    "move": ("ops/test_move.py",),
    "norm": ("ops/test_rows.py",),
    "pycuda_random": ("adapters/test_pycuda_generated.py",),
    "random": ("random",),
    "reduce": ("ops/test_reduce.py", "generate/test_reduction.py"),
    "runs": ("ops/test_unique.py",),
    "sample": ("ops/test_geometry.py",),
    "scan": ("ops/test_scan.py",),
    "search": ("ops/test_sort.py", "ops/test_select.py"),
    "softmax": ("ops/test_rows.py",),
    "sort": ("ops/test_sort.py",),
    "take": ("ops/test_move.py", "ops/test_select.py", "ops/test_flags_and_numbers.py"),
    "topk": ("ops/test_topk.py",),
    "transpose": ("ops/test_move.py", "templates/test_templates.py"),
    "vectors": ("ops/test_vectors.py",),
    "warpgroup_matmul": ("ops/test_warpgroups.py",),
    "window": ("ops/test_filters.py",),
    "tile/attention": ("ops/test_attention.py", "templates/test_tiles.py"),
    "tile/matmul": ("ops/test_matmul.py", "templates/test_tiles.py"),
    "tile/rows": ("ops/test_rows.py", "templates/test_tiles.py"),
    "include/cudakit/cluster": ("ops/test_rows.py",),
    "include/cudakit/elementwise/elements": ("generate/test_elementwise.py", "generate/test_fuse.py"),
    "include/cudakit/gnu": ("jit/signature/test_host_code.py", "templates/test_templates.py"),
    "include/cudakit/mdspan": ("templates/test_templates.py",),
    "include/cudakit/product/tile_functions": ("ops/test_matmul.py",),
    "include/cudakit/reduce/expression": ("generate/test_reduction.py",),
    "include/cudakit/reduce/ways": ("generate/test_reduction.py",),
    "include/cudakit/scan/expression": ("generate/test_scan.py",),
    "include/cudakit/stencil/tile": ("generate/test_stencil.py",),
    "include/cudakit/tensor": ("kernel/test_tile_tensors.py",),
    "include/cudakit/ufunc/all": ("generate/test_fuse.py", "generate/test_math.py", "generate/test_ufunc_methods.py"),
    "include/cudakit/ufunc/at": ("generate/test_ufunc_methods.py",),
}
OTHER_HEADERS = (
    *("jit/signature/test_host_code.py", "emulator/programs/test_libraries.py", "emulator/programs/test_cub.py"),
)
#: Seconds of tests, as measured, that a mutant is run against: where its line is reached, and in all.
BOUND = 90.0
#: Seconds of tests beside those that execute the line, in the same files: state kept from test to test hides some.
BESIDE = 10.0
EQUIVALENTS = ROOT / "tests" / "package" / "equivalent_mutants.txt"


#: A quick test, by which each server shows first that it works.
PLAIN = "tests/jit/load/test_config.py::test_empty_grids"


class PackageMutant(NamedTuple):
    """A change of a file of a room; `before` and `after` are what the changed lines say."""

    room: str
    file: str
    line: int
    kind: str
    before: str
    after: str
    change: Change


class Choice(NamedTuple):
    """Tests for a mutant, in their order.

    Attributes
    ----------
    tests : list of str
    where : str
        How they execute the changed line: ``line``; ``import``, which no test is alone with; ``child``, in another
        process; ``template``; or ``""``, not at all.
    count : int
        How many there are, before the bound.
    """

    tests: list[str]
    where: str
    count: int


class Result(NamedTuple):
    """A mutant's outcome: ``seen``, ``endless`` (seen, too), ``survived`` or ``not covered``."""

    mutant: PackageMutant
    choice: Choice
    outcome: Outcome


def is_file_of(room: str, file: str) -> bool:
    """Whether a file belongs to a room."""
    return any(_has(entry, file) for entry in ROOMS[room].files)


def _has(entry: str, file: str) -> bool:
    folder = entry.removesuffix("*")
    if entry.endswith("*"):
        return file.startswith(folder) and "/" not in file[len(folder) :]
    return file.startswith(folder) if entry.endswith("/") else file == entry


@functools.cache
def files_of(room: str) -> list[str]:
    """Files of a room: modules and headers."""
    return [file for file in sources() if is_file_of(room, file)]


@functools.cache
def sources() -> list[str]:
    """All files of the package that may be changed."""
    return [
        file
        for file in files_of_checkout()
        if (file.startswith("cudakit/") and file.endswith(".py"))
        or (file.startswith("templates/") and not file.endswith(".md"))
    ]


@functools.cache
def tests_of_header(file: str) -> tuple[str, ...]:
    """Tests of a template or header: its own, and those of all that includes it."""
    tests: list[str] = []
    including = [file]
    for header in including:  # which grows
        tests += TEMPLATES.get(str(Path(header).relative_to("templates").with_suffix("")), ())
        included = f"<{header.removeprefix('templates/include/')}>"
        including += [other for other in files_of("templates") if other not in including and included in _text(other)]
    return tuple(dict.fromkeys(f"tests/{test}" for test in tests or OTHER_HEADERS))


@functools.cache
def _text(file: str) -> str:
    return (ROOT / file).read_text()


@functools.cache
def changes_of(file: str) -> list[Change]:
    """All changes of a file."""
    data = (ROOT / file).read_bytes()
    return module_changes(data) if file.endswith(".py") else list(cuda_changes(data, True))


def text_of(file: str, change: Change) -> str:
    """The changed text of a file."""
    text = mutant_of((ROOT / file).read_bytes(), change).text
    return with_late_warps(text) if change.kind == "wait" else text


def package_mutant(room: str, file: str, change: Change) -> PackageMutant:
    """Describe a change."""
    data = (ROOT / file).read_bytes()
    first = data.rfind(b"\n", 0, change.start) + 1
    last = data.find(b"\n", change.end) if b"\n" in data[change.end :] else len(data)
    before = " ".join(data[first:last].decode().split())
    line = data.count(b"\n", 0, change.start) + 1
    return PackageMutant(room, file, line, change.kind, before, mutant_of(data, change).line, change)


def draw(room: str, seed: int) -> Iterator[PackageMutant]:
    """Draw a room's mutants without end: a kind, then one of that kind, so that rare kinds come, too."""
    kinds = collections.defaultdict(list)
    for file in files_of(room):
        for change in changes_of(file):
            kinds[change.kind].append((file, change))
    chance = random.Random(f"{seed} {room}")
    while kinds:
        kind = chance.choice(sorted(kinds))
        file, change = kinds[kind].pop(chance.randrange(len(kinds[kind])))
        if not kinds[kind]:
            del kinds[kind]
        if not file.endswith(".py") or is_python(text_of(file, change)):
            yield package_mutant(room, file, change)


def sample(rooms: Sequence[str], count: int, seed: int) -> list[PackageMutant]:
    """Draw mutants; rooms take turns, larger ones more often. A larger sample begins with a smaller one."""
    drawn = {room: draw(room, seed) for room in rooms}
    weights = {room: sum((ROOT / file).stat().st_size for file in files_of(room)) ** 0.5 for room in rooms}
    turns = sorted((((k + 0.5) / weights[room]), room) for room in rooms for k in range(count))
    found = (next(drawn[room], None) for _, room in turns)
    return list(itertools.islice(filter(None, found), count))


def place_of(data: bytes, change: Change) -> tuple[int, int, bool]:
    """First and last line of the changed statement, of a compound one its head, and whether it runs at import."""
    starts = [0, *itertools.accumulate(len(line) for line in data.splitlines(keepends=True))]

    def holds(node: ast.stmt) -> bool:
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[operator]
        return start <= change.start and change.end <= end

    first, last, at_import = 1, len(starts), True
    body = ast.parse(data).body
    while inner := next(filter(holds, body), None):
        first, last = inner.lineno, inner.end_lineno or inner.lineno
        if body := list(_statements(inner)):
            last = max(first, min(node.lineno for node in body) - 1)
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            at_import &= not any(isinstance(node, ast.stmt) and holds(node) for node in inner.body)
    return first, last, at_import


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Statements straight in a node."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        else:
            yield from _statements(child)


def choose(mutant: PackageMutant, executed: Sequence[Executed]) -> Choice:
    """Choose the tests for a mutant, quickest first."""
    seconds: dict[str, float] = {}
    for each in executed:
        seconds.update(each.seconds)

    def ordered(tests: Iterable[str]) -> list[str]:
        return sorted((test for test in tests if test in seconds), key=seconds.__getitem__)

    if not mutant.file.endswith(".py"):
        tests = ordered(test for test in seconds if test.startswith(tests_of_header(mutant.file)))
        return _bounded(tests, tests, "template" if tests else "", seconds)
    first, last, at_import = place_of((ROOT / mutant.file).read_bytes(), mutant.change)
    reached: set[str] = set()
    of_file: set[str] = set()
    for each in executed:
        for line, tests_of_line in each.lines(mutant.file).items():
            of_file |= tests_of_line
            if first <= line <= last:
                reached |= tests_of_line
    reached = {test for test in reached if not test or test.removeprefix(CHILD) in seconds}
    tests = ordered(reached)
    if at_import:
        return _bounded(every := list(dict.fromkeys([*ordered(of_file), *ordered(seconds)])), every, "import", seconds)
    if tests and not any(test.startswith(CHILD) for test in reached):
        files = {test.partition("::")[0] for test in tests}
        beside = ordered(test for test in seconds if test.partition("::")[0] in files and test not in reached)
        return _bounded(tests, [*tests, *_within(beside, BESIDE, seconds)], "line", seconds)
    if not reached:
        return Choice([], "", 0)
    in_children = ordered(test.removeprefix(CHILD) for test in reached)
    every = list(dict.fromkeys([*tests, *in_children, *ordered(of_file), *ordered(seconds)]))
    return _bounded(every, every, "child" if in_children else "import", seconds)


def _bounded(count: Sequence[str], tests: Sequence[str], where: str, seconds: dict[str, float]) -> Choice:
    return Choice(_within(tests, BOUND, seconds), where, len(count))


def _within(tests: Sequence[str], bound: float, seconds: dict[str, float]) -> list[str]:
    """The first tests, as many as take no longer than the bound, and at least one."""
    sums = itertools.accumulate(seconds[test] for test in tests)
    return [test for place, (test, total) in enumerate(zip(tests, sums, strict=True)) if not place or total <= bound]


def measurements(rooms: Iterable[str], options: argparse.Namespace, copy: Path) -> dict[str, list[Executed]]:
    """What the tests of each room execute."""
    entries = dict.fromkeys(entry for room in rooms for entry in ROOMS[room].tests)
    with ThreadPoolExecutor(options.processes) as pool:
        made = pool.map(lambda entry: measured(entry, options.tests, copy, options.gpu), entries)
        of_entry = dict(zip(entries, made, strict=True))
    return {room: [of_entry[entry] for entry in ROOMS[room].tests] for room in rooms}


def results(mutants: Sequence[PackageMutant], options: argparse.Namespace) -> Iterator[Result]:
    """Run mutants and yield their outcomes as they come."""
    with contextlib.ExitStack() as stack:
        rooms = dict.fromkeys(mutant.room for mutant in mutants)
        executed = measurements(rooms, options, stack.enter_context(copied_checkout()))
        idle: queue.Queue[Server] = queue.Queue()
        for _ in range(options.processes):
            server = Server(stack.enter_context(copied_checkout()), options.gpu)
            stack.callback(server.close)
            if (plain := server.run(plain_trial(PLAIN))).outcome != "survived":
                sys.exit(f"this test should pass without mutants: {PLAIN}: {plain}")
            idle.put(server)

        def run(mutant: PackageMutant, choice: Choice, limit: float) -> Result | None:
            if is_late(options.until):
                return None
            if not choice.tests:
                return Result(mutant, choice, Outcome("survived" if choice.where else "not covered", 0, ""))
            server = idle.get()
            try:
                trial = Trial(mutant.file, text_of(mutant.file, mutant.change), choice.tests, limit)
                return Result(mutant, choice, server.run(trial))
            finally:
                idle.put(server)

        pool = stack.enter_context(ThreadPoolExecutor(options.processes))
        running = []
        for mutant in mutants:
            of_room = executed[mutant.room]
            choice = choose(mutant, of_room)
            seconds = sum(each.seconds.get(test, 0) for each in of_room for test in choice.tests)
            running.append(pool.submit(run, mutant, choice, 60 + 3 * seconds))
            while running and (running[0].done() or len(running) > 2 * options.processes):
                if result := running.pop(0).result():
                    yield result
        for future in running:
            if result := future.result():
                yield result


def plain_trial(*tests: str) -> Trial:
    """Tests to be run without a mutant."""
    file = "cudakit/__init__.py"
    return Trial(file, (ROOT / file).read_text(), tests, 600, is_whole=True)


def doubtful(found: Sequence[Result], gpu: bool) -> list[Result]:
    """Mutants that only a test sees which, run as for a mutant, fails without one, too."""
    tests = dict.fromkeys(result.outcome.words for result in found if "::" in result.outcome.words)
    if not tests:
        return []
    with copied_checkout() as copy, contextlib.closing(Server(copy, gpu)) as server:
        failed = server.run(plain_trial(*tests)).words.splitlines()
    return [result for result in found if result.outcome.words in failed]


def is_late(until: str | None) -> bool:
    """Whether it is later than HH:MM."""
    return until is not None and datetime.datetime.now().strftime("%H:%M") >= until


def is_equivalent(mutant: PackageMutant) -> bool:
    """Whether a mutant is listed as one that behaves as the original."""
    return any(is_like(pattern, mutant.file, mutant.after) for pattern in listed())


@functools.cache
def listed() -> list[tuple[str, str, str]]:
    """The mutants that are judged to behave as the original."""
    return equivalents(EQUIVALENTS)


def line_of(result: Result) -> str:
    """A mutant's line of the report."""
    mutant, choice, outcome = result
    tests = (
        f"{len(choice.tests)} tests" if len(choice.tests) >= choice.count else f"{len(choice.tests)} of {choice.count}"
    )
    change = f"{mutant.file}:{mutant.line} {mutant.kind}: {mutant.before} -> {mutant.after}"
    return f"{outcome.outcome:11} {outcome.seconds:5.1f} s  {change}  [{choice.where}: {tests}; {outcome.words}]"


def table(found: Sequence[Result]) -> Iterator[str]:
    """A row per room: sampled, seen, survived, not covered, equivalent; rate of those seen, and among those covered."""
    yield (
        f"{'room':24}{'sampled':>9}{'seen':>7}{'survived':>10}{'not covered':>13}{'equivalent':>12}"
        f"{'rate':>7}{'of covered':>12}"
    )
    for room in [*(room for room in ROOMS if any(result.mutant.room == room for result in found)), "all"]:
        rows = [result for result in found if room in (result.mutant.room, "all")]
        equal = [result for result in rows if is_alive(result) and is_equivalent(result.mutant)]
        counts = collections.Counter(result.outcome.outcome for result in rows if result not in equal)
        seen, others = counts["seen"] + counts["endless"], (counts["survived"], counts["not covered"])
        rates = [f"{seen / total:.0%}" if total else "-" for total in (seen + sum(others), seen + others[0])]
        yield f"{room:24}{len(rows):9}{seen:7}{others[0]:10}{others[1]:13}{len(equal):12}{rates[0]:>7}{rates[1]:>12}"


def is_alive(result: Result) -> bool:
    """Whether no test sees a mutant."""
    return result.outcome.outcome in ("survived", "not covered")


def print_coverage(rooms: Sequence[str], options: argparse.Namespace) -> None:
    """Print how much of each room its tests execute, by lines and by branches."""
    import coverage

    print(f"{'room':24}{'lines':>9}{'executed':>10}{'branches':>10}{'executed':>10}")
    with copied_checkout() as copy, tempfile.TemporaryDirectory() as folder, contextlib.chdir(copy):
        executed = measurements(rooms, options, copy)
        for room in rooms:
            modules = [file for file in files_of(room) if file.endswith(".py")]
            if not modules:
                continue
            data = str(Path(folder) / room.replace("/", "-"))
            report = coverage.Coverage(data_file=data, branch=True, config_file=False)
            report.set_option("run:relative_files", True)
            report.combine([str(each.folder / ".coverage") for each in executed[room]], keep=True)
            report.json_report(include=modules, outfile=f"{data}.json", ignore_errors=True)
            sums = json.loads(Path(f"{data}.json").read_text())["totals"]
            lines, branches = sums["num_statements"], sums["num_branches"]
            shares = sums["covered_lines"] / max(lines, 1), sums["covered_branches"] / max(branches, 1)
            print(f"{room:24}{lines:9}{shares[0]:10.0%}{branches:10}{shares[1]:10.0%}", flush=True)


def read_results(path: Path) -> list[Result]:
    """Results of an earlier run."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        Result(
            PackageMutant(*row["mutant"][:-1], Change(*row["mutant"][-1][:3], row["mutant"][-1][3].encode())),
            Choice(*row["choice"]),
            Outcome(*row["outcome"]),
        )
        for row in rows
    ]


def write_result(result: Result, path: Path) -> None:
    """Append a result, a line of JSON."""
    mutant = [*result.mutant[:-1], [*result.mutant.change[:3], result.mutant.change.by.decode()]]
    with path.open("a") as out:
        print(json.dumps({"mutant": mutant, "choice": result.choice, "outcome": result.outcome}), file=out)


def main() -> None:
    """Run a sample of mutants, and print their outcomes, a table and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rooms", default=",".join(ROOMS), help="names, with commas; default: all")
    parser.add_argument("--count", type=int, default=600, help="mutants in the sample")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--out", type=Path, help="append each result to this file, a line of JSON")
    parser.add_argument("--tests", choices=("quick", "whole"), default="quick", help="without slow tests, or with them")
    parser.add_argument("--gpu", action="store_true", help="run the tests that need a GPU, too, as `pytest --gpu` does")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--until", metavar="HH:MM", help="start no mutant after this")
    parser.add_argument("--rerun", type=Path, metavar="RESULTS", help="run the survivors of an earlier --out again")
    parser.add_argument("--list", action="store_true", help="print the sample and run nothing")
    parser.add_argument("--coverage", action="store_true", help="print lines and branches that tests execute, by room")
    options = parser.parse_args()
    rooms = options.rooms.split(",")
    if unknown := set(rooms) - set(ROOMS):
        parser.error(f"no rooms: {', '.join(sorted(unknown))}; there are {', '.join(ROOMS)}")
    if options.coverage:
        return print_coverage(rooms, options)
    if options.rerun:
        mutants = [result.mutant for result in read_results(options.rerun) if is_alive(result)]
        mutants = [mutant for mutant in mutants if mutant.room in rooms]
        if gone := [mutant for mutant in mutants if package_mutant(*mutant[:2], mutant.change) != mutant]:
            parser.error(f"{gone[0].file} has changed since {options.rerun} was written: draw a new sample")
    else:
        mutants = sample(rooms, options.count, options.seed)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.room}  {mutant.file}:{mutant.line} {mutant.kind}: {mutant.before} -> {mutant.after}")
        return None
    found = []
    for result in results(mutants, options):
        found.append(result)
        print(line_of(result), flush=True)
        if options.out:
            write_result(result, options.out)
    print("", *table(found), "", "Survivors:", sep="\n")
    for result in doubtful(found, options.gpu):
        print(f"fails without a mutant, too: {line_of(result)}")
    for result in found:
        if is_alive(result) and not is_equivalent(result.mutant):
            print(line_of(result))
    for pattern in listed():
        of_pattern = [result for result in found if is_like(pattern, result.mutant.file, result.mutant.after)]
        if of_pattern and not any(map(is_alive, of_pattern)):
            print(f"listed as equivalent, but seen: {pattern[0]}: {pattern[1]}")
    return None


if __name__ == "__main__":
    sys.exit(main())
