"""What differs by operating system stands in one module, and gives the next best where a system lacks something."""

from __future__ import annotations

import ast
import ctypes
import errno
import ntpath
import os
import re
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import platformdirs
import pytest
from support.syntax import MODULES, PACKAGE, nodes_of

import cudakit as ck
from cudakit import system
from cudakit.errors import CudakitError
from cudakit.jit.compile import mangled
from cudakit.jit.source import headers
from cudakit.streams.process import in_child

#: What only one system has, or another says otherwise.
SYSTEMS = re.compile(
    r"sys\.platform|os\.(name|O_\w+|fork|register_at_fork|killpg|sysconf|sched_\w+|memfd_create|get[eu]?[ug]id)\b"
    r"|ctypes\.CDLL|(has|get)attr\(os,"
)


def test_no_other_module_asks_which_system_it_is_on() -> None:
    asked = {
        f"{path.relative_to(PACKAGE)}: {match[0]}"
        for path in MODULES
        if path.name != "system.py" and SYSTEMS.search(path.read_text(encoding="utf-8"))
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute | ast.Call) and (match := SYSTEMS.match(ast.unparse(node)))
    }
    # The NVRTC that cuda.pathfinder names.
    assert asked == {"jit/compile/worker.py: ctypes.CDLL"}


def test_on_a_system_that_lacks_much(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("register_at_fork", "geteuid", "sched_getaffinity", "sysconf", "memfd_create"):
        monkeypatch.delattr(os, name, raising=False)
    found: Any = SimpleNamespace(st_uid=12345, st_mode=0o666)
    assert not system.is_of_another_user(found)
    assert not system.writable_by(found, 0o022)
    assert system.cores() == (os.cpu_count() or 1)
    assert system.memory_bytes() == 0
    assert system.now_ns() > 0
    in_child(lambda: None)


def test_an_open_file_is_not_replaced_on_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"

    def refuse(*_: str) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "replace", refuse)
    new.write_text("same")
    with pytest.raises(PermissionError):
        system.replace(str(new), str(old))
    monkeypatch.setattr(system, "_IS_WINDOWS", True)
    with pytest.raises(PermissionError):
        system.replace(str(new), str(old))
    old.write_text("same")
    system.replace(str(new), str(old))
    assert sorted(tmp_path.iterdir()) == [old]
    stat: Any = SimpleNamespace(st_mtime_ns=5, st_ctime_ns=7)
    assert system.changed_ns(stat) == 5


@pytest.mark.parametrize("is_windows", [False, True])
def test_a_process_ends_with_those_that_it_started(monkeypatch: pytest.MonkeyPatch, is_windows: bool) -> None:
    calls: list[Any] = []
    process: Any = SimpleNamespace(pid=4711, kill=lambda: calls.append("kill"))
    monkeypatch.setattr(system, "_IS_WINDOWS", is_windows)
    monkeypatch.setattr(os, "killpg", lambda *group: calls.append(group))
    monkeypatch.setattr(subprocess, "run", lambda command, **_: calls.append(command))

    def fill(name: Any, size: int) -> None:
        assert size == 260
        name.value = "folder"

    library = SimpleNamespace(kernel32=SimpleNamespace(GetSystemDirectoryW=fill))
    monkeypatch.setattr(ctypes, "windll", library, raising=False)
    system.end(process)
    windows = [[os.path.join("folder", "taskkill.exe"), "/T", "/F", "/PID", "4711"], "kill"]
    assert calls == (windows if is_windows else [(4711, signal.SIGKILL)])


def test_a_pipe_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    windows_says = OSError(errno.EINVAL, "Invalid argument")
    assert system.is_closed_pipe(BrokenPipeError())
    assert not system.is_closed_pipe(windows_says)
    monkeypatch.setattr(system, "_IS_WINDOWS", True)
    assert system.is_closed_pipe(windows_says)
    assert not system.is_closed_pipe(FileNotFoundError(errno.ENOENT, "no file"))
    assert not system.is_closed_pipe(CudakitError("text"))


def test_a_file_is_within_a_folder_by_either_separator(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.is_within("/a/include/x.h", "/a/include")
    assert system.is_within("/a/include/x.h", Path("/a/include"))
    assert not system.is_within("/a/include2/x.h", "/a/include")
    assert not system.is_within(r"C:\a\include\x.h", r"C:\a\include")
    monkeypatch.setattr(os, "sep", "\\")
    assert system.is_within(r"C:\a\include\x.h", r"C:\a\include")
    assert system.is_within(r"C:\a\include/x.h", r"C:\a\include")
    assert not system.is_within(r"C:\a\include2\x.h", r"C:\a\include")


def test_headers_of_wheels_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    site = r"C:\site-packages"
    monkeypatch.setattr(os, "sep", "\\")
    monkeypatch.setattr(os.path, "join", ntpath.join)
    monkeypatch.setattr(headers, "_wheels", lambda: {site: ("nvidia_cuda_cccl",)})
    assert headers.in_wheel.__wrapped__(rf"{site}\nvidia\cu13\include/cuda_fp16.h")
    assert not headers.in_wheel.__wrapped__(rf"{site}\other\cuda_fp16.h")


def test_without_a_c_library_types_are_to_be_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no such library")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    monkeypatch.setattr(system, "cxa_demangle", system.cxa_demangle.__wrapped__)
    assert system.cxa_demangle() is None
    assert mangled.readable_name("_Z5scaleIfEvPT_") == "_Z5scaleIfEvPT_"
    with pytest.raises(ck.TemplateError, match="write them out"):
        mangled.demangle("_Z5scaleIfEvPT_")


@pytest.mark.parametrize("value", ["/caches", "/with space", "", " ", "relative/caches"])
def test_the_cache_folder_is_that_of_platformdirs(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    expected = Path(platformdirs.user_cache_dir("cudakit"))
    assert system.user_cache_folder(value) == expected
    monkeypatch.setattr("sys.platform", "darwin")
    assert system.user_cache_folder(value) == expected
