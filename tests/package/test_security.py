"""What `SECURITY.md` says is not done with data is done nowhere: each place that runs or starts something is known."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from support.syntax import MODULES, PACKAGE, calls

#: Calls that run, start, load or unpickle something, and where they stand: a new place is a decision, and a word there.
KNOWN = {
    "exec": {
        "streams/process.py",  # Python text that cudakit has generated
        "adapters/program.py",  # the user's own program, in `cudakit run`, `check`, `inspect` and `debug`
    },
    "eval": {
        "arrays/replay.py",
        "jit/launch/bind.py",
        "tuning/by_size.py",  # likewise
        "records.py",  # constructors of so many fields: text of a number alone
        "tuning/expression.py",  # restrictions of files, whose syntax is checked node by node
    },
    "pickle.load": {"jit/cache/prewarm.py", "jit/compile/worker.py", "tuning/isolated.py"},
    "pickle.loads": {"jit/compile/worker.py"},
    "subprocess.Popen": {
        "jit/cache/prewarm.py",  # workers
        "tuning/isolated.py",  # candidates of a search
        "cli/supervised.py",  # the same command, with limits
        "jit/compile/assemble.py",  # CUDA's assembler of tile code
    },
    "subprocess.run": {
        "jit/compile/binary.py",  # a disassembler
        "jit/compile/worker.py",  # NVRTC and nvJitLink apart
        "system.py",  # taskkill of Windows, from its own folder
    },
    "ctypes.CDLL": {
        "system.py",  # the C library that is loaded already; libstdc++
        "jit/compile/worker.py",  # the NVRTC that cuda.pathfinder names
    },
}
NEVER = {
    *("os.system", "os.popen", "marshal.load", "marshal.loads", "shelve.open", "tempfile.mktemp"),
    *("ctypes.PyDLL", "subprocess.call", "subprocess.check_output", "subprocess.check_call", "pickle.Unpickler"),
}


def test_each_place_that_runs_or_starts_something_is_known() -> None:
    found = defaultdict(set)
    names = "|".join(map(re.escape, (*KNOWN, *NEVER)))
    for path in MODULES:
        for name, _ in calls(path, names):
            found[name].add(path.relative_to(PACKAGE).as_posix())
    assert found == KNOWN


def test_arrays_are_read_without_pickle() -> None:
    seen = 0
    for path in MODULES:
        for _, call in calls(path, r"(np|numpy)\.load|(np\.lib\.format|npy)\.read_array|np\.fromfile"):
            seen += 1
            options = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            assert options.get("allow_pickle") == "False", f"{path}:{call.lineno}"
    assert seen > 2


def test_what_is_started_is_python_with_a_safe_path_or_a_disassembler() -> None:
    for name in ("jit/cache/prewarm.py", "jit/compile/worker.py", "tuning/isolated.py"):
        started = [call for _, call in calls(PACKAGE / name, r"subprocess\..*")]
        script = "worker.__file__" if name.endswith("prewarm.py") else "__file__"
        assert [ast.unparse(call.args[0]) for call in started if call.args[0:]] == [f"command({script})"]
        assert all("environment()" in ast.unparse(call) for call in started)
