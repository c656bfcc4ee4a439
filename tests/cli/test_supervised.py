"""Limits of time and memory: what a command leaves behind, and what may disturb its document."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import cudakit as ck
from cudakit import system
from cudakit.cli import entry, parsers, supervised
from cudakit.streams import witnesses

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists and adopts processes")


def start(folder: Path, text: str, *words: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    (folder / "app.py").write_text(text)
    command = [sys.executable, "-m", "cudakit", *words, "app.py"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=folder)


def document_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=100)
    document: dict[str, Any] = json.loads(out)
    assert document["status"] == process.returncode
    return document


def alive(folder: Path) -> list[int]:
    """Return the processes that a program wrote down, and which still run."""
    numbers = [int(line) for line in (folder / "pids").read_text().split()]
    return [number for number in numbers if Path(f"/proc/{number}").exists() and not is_zombie(number)]


def is_zombie(number: int) -> bool:
    return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


#: A program with a child, a grandchild that has lost its parent, and one in a session of its own.
FAMILY = """
import os, subprocess, sys, time
orphan = "import os, sys; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True); os.close(1)"
orphan += "; import time; time.sleep(60)"
pids = [subprocess.run([sys.executable, "-c", orphan], stdout=subprocess.PIPE, text=True).stdout.strip()]
pids += [str(subprocess.Popen(["sleep", "60"], start_new_session=own).pid) for own in (False, True)]
with open("pids.part", "w") as file:
    file.write("\\n".join([*pids, str(os.getpid())]))
os.rename("pids.part", "pids")
"""


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("end", ["by itself", "limit", "SIGTERM", "SIGINT"])
def test_no_process_is_left(end: str, tmp_path: Path) -> None:
    limit = "5" if end == "limit" else "90"
    text = FAMILY + ("" if end == "by itself" else "time.sleep(60)\n")
    # A process that is left would hold a pipe open, and the test would wait for its end.
    process = start(tmp_path, text, "run", "--json", "--time-limit", limit, stderr=subprocess.DEVNULL)
    if end.startswith("SIG"):
        while not (tmp_path / "pids").exists():
            time.sleep(0.05)
        process.send_signal(signal.Signals[end])
    if end == "SIGTERM":
        process.communicate(timeout=100)
        assert process.returncode == 143
    else:
        problems = document_of(process)["problems"]
        expected = {"by itself": [], "limit": ["time"], "SIGINT": ["interrupt"]}[end]
        assert [problem["kind"] for problem in problems] == expected
    assert alive(tmp_path) == []


@LINUX
@pytest.mark.slow
def test_the_memory_of_children_counts(tmp_path: Path) -> None:
    grow = "x = []\\nwhile True: x.append(bytearray(1 << 24))"
    text = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', '''{grow}'''])\n"
    process = start(tmp_path, text, "run", "--json", "--memory-limit", "300M", "--time-limit", "60")
    (problem,) = document_of(process)["problems"]
    assert (problem["kind"], problem["line"], process.returncode) == ("memory", 2, 125)


@pytest.mark.slow
def test_what_a_program_prints_does_not_come_into_the_document(tmp_path: Path) -> None:
    text = """
import atexit, os, subprocess, sys
print("{")
os.write(1, b"[")
subprocess.run(["echo", "}"])
atexit.register(lambda: os.write(1, b"late"))
sys.stdout.close()
os.close(2)
os.chdir("/")
"""
    document = document_of(start(tmp_path, text, "run", "--json"))
    assert (document["ok"], document["problems"], document["command"]) == (True, [], "run")


@pytest.mark.slow
def test_without_json_output_and_status_are_the_programs(tmp_path: Path) -> None:
    process = start(tmp_path, "import sys\nprint('here')\nsys.exit(7)\n", "run", "--time-limit", "60")
    assert process.communicate(timeout=100) == ("here\n", "")
    assert process.returncode == 7
    process = start(tmp_path, "while True: pass\n", "run", "--time-limit", "2")
    assert process.communicate(timeout=100) == ("", "cudakit: the time limit of 2 s was reached\n")
    assert process.returncode == 124


@pytest.mark.slow
def test_a_crash_after_the_program_is_seen(tmp_path: Path) -> None:
    text = "import atexit, os\natexit.register(os.abort)\n"
    (problem,) = document_of(start(tmp_path, text, "run", "--json"))["problems"]
    assert (problem["kind"], problem["signal"]) == ("signal", "SIGABRT")


@LINUX
def test_descendants() -> None:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, **system.GROUP)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(b"runs\n")
        assert process.stdout.readline() == b"runs\n"  # its memory is its own by now
        assert system.descendants()[process.pid] > 0
        assert process.pid not in system.descendants({process.pid})
    finally:
        system.kill_all(lambda: {process.pid} & system.descendants().keys())
        process.stdin.close()
        process.stdout.close()
    assert process.pid not in system.descendants()
    assert process.wait(1) in (0, -9)  # kill_all has waited for it
    assert os.getpid() not in system.descendants()


def test_sizes() -> None:
    assert [parsers.byte_count(text) for text in ("4096", "2k", "1.5M", "2G", "1GiB", "3MB")] == [
        4096, 2048, 3 << 19, 2 << 30, 1 << 30, 3 << 20,
    ]  # fmt: skip
    for text in ("", "M", "-1", "1X", "1e3", "nan"):
        with pytest.raises(Exception, match="is no size, such as 500M or 2G"):
            parsers.byte_count(text)


def test_the_words_of_the_child_are_its_own() -> None:
    words = ["check", "app.py", "--json"]
    assert supervised.child_of(words) == (words, None)
    rest, child = supervised.child_of(["--supervised-in", "folder", *words])
    assert rest == words
    assert child is not None


@pytest.mark.parametrize("command", ["bench", "tune", "run"])
def test_what_is_measured_is_not_watched(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watched launch takes longer: figures of ``bench --json`` would be those of the observer."""
    monkeypatch.setattr(system, "end_with_parent", lambda: None)
    monkeypatch.setattr("faulthandler.enable", lambda *names: None)
    monkeypatch.setattr("faulthandler.register", lambda *names, **more: None)
    options = entry.parser().parse_args([command, *(["x.py"] if command != "bench" else [])])
    child = supervised.Child(tmp_path)
    with child._stack:
        child.begin(options)
        assert witnesses.watched() == (command == "run")


@pytest.mark.parametrize(
    ("left", "kernel", "text"),
    [
        ("", "", ""),
        ("scale<float>", "scale", "; the kernel scale was running"),
        ("launched scale<float>", "scale", "; scale was the last kernel launched on the GPU"),
    ],
)
def test_the_kernel_of_a_limit(left: str, kernel: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "kernel").write_text(left)
    problem = supervised._limit_problem("time", argparse.Namespace(time_limit=3.0), tmp_path, 0)
    assert problem["text"] == f"the time limit of 3 s was reached{text}"
    assert (problem["kernel"] or "", problem["template_arguments"]) == (kernel, ["float"] if kernel else [])


def test_a_kernel_on_a_gpu_is_named_after_its_launch(tmp_path: Path) -> None:
    """On the emulator a launch that is over has run."""

    class DeviceStream:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 0

    path = tmp_path / "kernel"
    with path.open("wb", buffering=0) as file:
        watcher = supervised._Kernels(file)
        for stream, left in ((DeviceStream(), "launched f<int>"), (ck.emulator.stream(), "")):
            work = witnesses.Work("kernel", "f<int>", stream)
            watcher.begin(work)
            assert path.read_text() == "f<int>"
            watcher.end(work, None)
            assert path.read_text() == left
