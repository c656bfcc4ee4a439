"""A hundred bad programs give a hundred documents of the schema, with the right kind, status and line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import bad_programs
from support.bad_programs import Bad
from support.json_schema import faults_of

import cudakit as ck
from cudakit import cli, reports
from cudakit.cli import supervised

pytestmark = pytest.mark.emulator

QUICK = [*bad_programs.faults(), *bad_programs.ARGUMENTS, *bad_programs.EXCEPTIONS, *bad_programs.SYNTAX,
         *bad_programs.MISSING]  # fmt: skip
SLOW = [pytest.param(case, marks=pytest.mark.slow) for case in bad_programs.COMPILE]
ALL = [*QUICK, *bad_programs.COMPILE, *bad_programs.ENDINGS]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for all programs, so that its kernels are compiled once."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "kernels.cu").write_text(bad_programs.KERNELS)
    return folder


@pytest.fixture
def folder(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(shared)
    return shared


def words_of(case: Bad) -> list[str]:
    """Write a case's program and return its command line."""
    path = Path("app.py")
    path.unlink(missing_ok=True)
    if case.text:
        path.write_text(case.text)
    program = [] if "-m" in case.words else ["app.py"]
    if case.kind in ("usage", "error"):
        return [case.command, "--json", *program, *case.words]
    if case.kind == "compile":
        Path("bad.cu").write_text(case.words[0])
        return ["check", "--json", *program]
    if case.command == "run":
        return ["run", "--json", *program, *case.words]
    return [case.command, "--json", *program, "--", *case.words]


def check(case: Bad, document: dict[str, Any], status: int) -> None:
    """Compare a document with what the case expects."""
    assert faults_of(document, reports.schema()) == []
    problem = document["problems"][-1]
    assert (problem["kind"], document["ok"], document["status"]) == (case.kind, False, status)
    expected = problem["status"] if case.kind in ("exit", "signal") else reports.KINDS[case.kind].status
    assert status == expected != 0
    if case.file == "kernels.cu":
        line = bad_programs.fault_line(case)
        assert (problem["kernel"], problem["line"]) == ("f", line)
        assert Path(problem["file"]).name == "kernels.cu"
        assert problem["code"].strip() == bad_programs.KERNELS.splitlines()[line - 1].strip()
        assert len(problem["accesses"]) == (2 if case.kind == "race" else 1)
        if case.kind != "fault":
            assert problem["block"] is not None
            assert problem["thread"] is not None
        return
    text = case.words[0] if case.kind == "compile" else case.text
    marked = [number for number, line in enumerate(text.splitlines(), 1) if "HERE" in line]
    if case.file and marked and case.name != "a file that is missing":
        assert (Path(problem["file"]).name, [problem["line"]]) == (case.file, marked)
        assert case.kind in ("syntax", "compile") or "HERE" in problem["code"]


@pytest.mark.parametrize("case", [*QUICK, *SLOW], ids=lambda case: f"{case.kind}: {case.name}")
def test_a_bad_program(
    case: Bad, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supervised, "is_needed", lambda options: False)
    words = words_of(case)
    status = None
    try:
        status = cli.main(words)
    except (Exception, SystemExit):  # the program's own, which Python would report
        if case.kind not in ("exception", "syntax", "memory", "file", "exit"):
            raise
    document = json.loads(capsys.readouterr().out)
    check(case, document, document["status"] if status is None else status)


SLEEPING = [case for case in bad_programs.ENDINGS if case.name in bad_programs.SLEEPING]


def command_of(case: Bad, time_limit_s: int) -> list[str]:
    """Write a case's program and return the command of a process of its own, within limits."""
    words = words_of(case)
    limits = {"time": ["--time-limit", str(time_limit_s)], "memory": ["--memory-limit", "400M"]}.get(case.kind, [])
    return [sys.executable, "-m", "cudakit", *words[:1], *limits, *words[1:]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [case for case in bad_programs.ENDINGS if case not in SLEEPING],
    ids=lambda case: f"{case.kind}: {case.name}",
)
def test_a_program_in_a_process_of_its_own(case: Bad, folder: Path) -> None:
    done = subprocess.run(command_of(case, 5), capture_output=True, text=True, timeout=120, check=False)
    check(case, json.loads(done.stdout), done.returncode)
    if case.kind == "time" and "kernel" in case.name:
        assert json.loads(done.stdout)["problems"][-1]["kernel"] == "loop"


@pytest.mark.slow
def test_programs_that_sleep_end_at_the_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All at the same time: the limit is the price of each."""
    running = []
    for number, case in enumerate(SLEEPING):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        Path("kernels.cu").write_text(bad_programs.KERNELS)
        running.append(subprocess.Popen(command_of(case, 8), stdout=subprocess.PIPE, text=True))
    ended = [(process.communicate(timeout=120)[0], process.returncode) for process in running]
    for case, (document, status) in zip(SLEEPING, ended, strict=True):
        check(case, json.loads(document), status)
    assert "97531" not in commands_that_run()


def commands_that_run() -> str:
    """Return the command lines of all processes."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(line for line in lines if "pytest" not in line and str(os.getpid()) not in line)


def test_there_are_a_hundred() -> None:
    assert len({(case.kind, case.name) for case in ALL}) == len(ALL) >= 100
    kinds = {case.kind for case in ALL}
    assert kinds >= set(reports.KINDS) - {"missing", "unproved", "copy", "mask", "order", "steps", "interrupt"}


def test_the_schema_names_all_kinds() -> None:
    schema = reports.schema()
    assert schema["$defs"]["problem"]["properties"]["kind"]["enum"] == list(reports.KINDS)
    assert faults_of(ck.report(ValueError("no")), schema) == []
    wrong = ck.report(ValueError("no"))
    wrong["problems"][0] |= {"kind": "other", "line": 0, "block": [1]}
    assert len(faults_of(wrong, schema)) == 3
