"""What differs by operating system stands in one module, and gives the next best where a system lacks something."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.syntax import MODULES, PACKAGE, nodes_of

from cudakit import system
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
    # Where `head` has seen enough; the NVRTC that cuda.pathfinder names.
    assert asked == {"cli/entry.py: os.O_WRONLY", "jit/compile/worker.py: ctypes.CDLL"}


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
