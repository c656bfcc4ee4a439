"""Commands with stand-ins for kernels, programs and processes: what is passed on, written and said. No compile."""

from __future__ import annotations

import contextlib
import inspect
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import cli
from cudakit.adapters import program
from cudakit.cli import bench, entry, kernels, programs, record, supervised
from cudakit.jit.bundle import used
from cudakit.streams.witnesses import Work

pytestmark = [pytest.mark.emulator, pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(supervised, "is_needed", lambda options: False)
    monkeypatch.chdir(tmp_path)
    Path("app.py").write_text("")
    return tmp_path


def document_of(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert cli.main([*words, "--json"]) == status
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


# ── kernels of files ──


class Kernel:
    """A kernel that notes its calls."""

    name = "f"
    __signature__ = inspect.Signature(
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("stream", "config", "x", "y", "n")
    )

    def __init__(self) -> None:
        self.calls: list[tuple[Any, list[Any], dict[str, Any]]] = []

    def __call__(self, stream: Any, config: Any, *values: Any, **named: Any) -> None:
        self.calls.append((config, [np.asarray(value) for value in values], named))

    def specialization_of(self, stream: Any, *arguments: Any) -> Any:
        return SimpleNamespace(name_expression=f"f<{len(arguments)}>")

    def compile(self, arch: str, target: str) -> Any:
        return SimpleNamespace(code=f"{arch} {target}".encode(), lowered={"f<int>": "_f"})

    def explain(self, arch: str) -> Any:
        return SimpleNamespace(registers=40, spill_bytes=8 if arch == "sm_80" else 0, shared_bytes=16)


@pytest.fixture
def kernel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    result = Kernel()
    monkeypatch.setattr(kernels, "_kernel", lambda path, options: result)
    return result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zeros:int16:2x3", np.zeros((2, 3), "i2")),
        ("ones:float64:3", np.ones(3)),
        ("full:float32:2x2:2.5", np.full((2, 2), 2.5, "f4")),
        ("range:int32:5:10:2", np.arange(5, 10, 2, "i4")),
        ("range:float32:0:1:0.25", np.arange(0, 1, 0.25, "f4")),
        ("range:uint8:3", np.arange(3, dtype="u1")),
        ("random:float32:7", np.random.default_rng(0).random(7).astype("f4")),
        ("random:float64:3:5", np.random.default_rng(5).random(3)),
        ("random:int64:9:1", np.random.default_rng(1).integers(0, 100, 9, endpoint=True)),
        ("random:int8:4x5", np.random.default_rng(0).integers(0, 100, (4, 5), endpoint=True).astype("i1")),
    ],
)
def test_arrays_of_the_command_line(
    text: str, expected: np.ndarray, kernel: Kernel, capsys: pytest.CaptureFixture[str]
) -> None:
    document_of(capsys, "run", "f.cu", "--emulator", "--arg", text)
    ((config, (value,), named),) = kernel.calls
    assert (value.dtype, value.shape, named) == (expected.dtype, expected.shape, {})
    assert np.array_equal(value, expected)
    assert config == ck.cover(expected.size)


def test_numbers_words_and_launches_of_the_command_line(kernel: Kernel, capsys: pytest.CaptureFixture[str]) -> None:
    values = ["--arg", "0x1F", "--arg", "-1.5", "--arg", "n=true"]
    for words, config in (
        (["--cover", "64x2"], ck.cover((64, 2))),
        (["--cover", "64", "--block", "32"], ck.cover(64, 32)),
        (["--grid", "2x3", "--block", "8x4", "--shared", "96"], ck.config((2, 3), (8, 4), shared_bytes=96)),
    ):
        document = document_of(capsys, "run", "f.cu", "--emulator", *values, *words)
        assert document["kernel"] == "f<3>"
        assert document["where"] == "on the emulator"
        called, positional, named = kernel.calls.pop()
        assert (called, positional, named) == (config, [31, -1.5], {"n": True})
    assert cli.main(["run", "f.cu", "--emulator", "--arg", "zeros:int32:3x4", "--arg", "y=range:int32:9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "f<2> ran on the emulator"
    assert lines[1:] == ["x  int32 (3, 4)  [[0 0 0 0] [0 0 0 0] [0 0 0 0]]", "y  int32 (9,)  [0 1 2 ... 6 7 8]"]
    assert kernel.calls.pop()[0] == ck.cover(12)


def test_files_of_compiled_code(kernel: Kernel, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "out").mkdir()
    both = ["--arch", "sm_80", "--arch", "sm_90"]
    for words, files in (
        (["--arch", "sm_80"], ["f.sm_80.cubin"]),
        (both, ["f.sm_80.cubin", "f.sm_90.cubin"]),
        ([*both, "-o", "out", "--target", "ptx"], ["out/f.sm_80.ptx", "out/f.sm_90.ptx"]),
        (["--arch", "sm_90", "-o", "one"], ["one"]),
    ):
        rows = document_of(capsys, "compile", "f.cu", *words)["kernels"]
        assert [row["file"] for row in rows] == files
        for row in rows:
            code = f"{row['arch']} {row['target']}".encode()
            assert (Path(row["file"]).read_bytes(), row["bytes"], row["lowered"]) == (code, len(code), {"f<int>": "_f"})
            assert ("registers" in row) == (row["target"] == "cubin")
    (problem,) = document_of(capsys, "compile", "f.cu", *both, "-o", "absent", status=2)["problems"]
    assert "-o absent: several archs are written to a folder, which must exist" in problem["text"]
    assert cli.main(["compile", "f.cu", *both]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "sm_80: f<int>: f.sm_80.cubin, 11 bytes, 40 registers, 16 bytes shared, 8 bytes spilled",
        "sm_90: f<int>: f.sm_90.cubin, 11 bytes, 40 registers, 16 bytes shared",
    ]


@pytest.mark.parametrize("words", ["--args float,3", "--args int -D A -D B=2 -I inc", ""])
def test_kernels_of_a_file_with_template_arguments(words: str, folder: Path) -> None:
    head = "template <typename T, int N = 1> " if words else ""
    Path("f.cu").write_text(f"{head}__global__ void f({'T' if words else 'int'}* x) {{ }}")
    read = entry.parser().parse_args(["compile", "f.cu", "--arch", "sm_80", *words.split()])
    result = kernels._kernel(read.file, read)
    name = {"--args float,3": "f<float, 3>", "": "f"}.get(words, "f<int>")
    assert result.specialization(arch="sm_80").name_expression == name
    assert result.options.defines == ((("A", "1"), ("B", "2")) if "-D" in words else ())
    assert result.options.include_paths == (("inc",) if "-I" in words else ())


def test_cases_of_the_benchmark_compute_the_same_by_both() -> None:
    names = {name: getattr(np, name) for name in ("add", "sum", "max", "argmax", "dot", "cumsum")}
    ours = SimpleNamespace(**names, flip=lambda x, out: np.copyto(out, np.flip(x)))
    x, y = np.random.default_rng(0).random((2, 9))
    for name, case in bench.CASES.items():
        results = []
        for call, library in ((case.ours, ours), (case.theirs, np)):
            out = np.zeros(9)
            results.append((call(library, x, y, out), out.tolist()))
        (first, first_out), (second, second_out) = results
        assert np.array_equal(first, second), name
        assert first_out == second_out
        assert any(first_out) == (name in ("add", "cumsum", "flip"))
        assert case.moved == {"add": 3, "dot": 2, "cumsum": 2, "flip": 2}.get(name, 1)


# ── programs ──


@pytest.mark.parametrize(
    "words", [["bench"], ["compile", "f.cu", "--arch", "sm_80"], ["tune", "ops"], ["check", "a.py"], ["record", "a.py"]]
)
def test_limits_are_options_of_all_long_commands(words: list[str]) -> None:
    read = entry.parser().parse_args([*words, "--time-limit", "2.5", "--memory-limit", "2k"])
    assert (read.time_limit, read.memory_limit, read.is_supervised) == (2.5, 2048, True)
    assert read.names_kernels == (words[0] not in ("bench", "tune"))


@pytest.mark.parametrize(
    ("words", "program_name", "module", "arguments"),
    [
        (["--", "python", "app.py", "1", "2"], "app.py", "", ("1", "2")),
        (["--", "app.py", "1"], "app.py", "", ("1",)),
        (["--", "python3.11", "-m", "app", "--x"], None, "app", ("--x",)),
        (["app.py", "--", "-v"], "app.py", "", ("-v",)),
    ],
)
def test_a_recorded_program_and_its_spec(
    words: list[str], program_name: str | None, module: str, arguments: tuple[str, ...],
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    ran_programs: list[Any] = []
    kernel = ck.Kernel("template <typename T> __global__ void f(T* x) {}", arch="sm_90")

    def run(ran: Any) -> None:
        ran_programs.append(ran)
        used.note(kernel["int"].specialization(), ())
        raise SystemExit(0)

    monkeypatch.setattr(program, "run_process", run)
    assert cli.main(["record", "-o", "own.toml", "--arch", "sm_80", *words]) == 0
    (ran,) = ran_programs
    assert (ran.path, ran.module, ran.arguments) == (program_name, module, arguments)
    assert capsys.readouterr().err == f"wrote 1 row to {folder / 'own.toml'}\n"
    assert 'archs = ["sm_80"]' in Path("own.toml").read_text()
    assert cli.main(["record", "--check", "own.toml", *words]) == 0
    assert capsys.readouterr().err == "own.toml has all that the run used\n"
    Path("own.toml").write_text(Path("own.toml").read_text().replace('"int"', '"float"'))
    options = entry.parser().parse_args(["record", "app.py"])
    assert record._lacking(options, [used.Use(kernel["int"].specialization(), ())], Path("own.toml")) == 1
    (row,) = options.result["lacks"]
    assert 'arguments = [{T = "int"}]' in row
    assert capsys.readouterr().err == f"own.toml lacks  {row},\n"


@pytest.mark.parametrize(
    ("words", "rest"),
    [
        ("app.py --own 1", "--own 1"),
        ("-m app --own", "--own"),
        ("-c -code a b", "a b"),
        ("--time-limit 5 app.py --time-limit 6", "--time-limit 6"),
        ("--pycuda ours --json app.py -m x", "-m x"),
        ("- own", "own"),
        ("f.cu --arg 1", ""),
        ("--json", ""),
    ],
)
def test_the_program_s_own_arguments_follow_its_name(words: str, rest: str) -> None:
    line = ["run", *words.split()]
    assert line[programs.end_of_run(line) :] == rest.split()


def test_help_shows_one_example_or_several() -> None:
    heads = set()
    groups: Any = entry.parser()._subparsers
    for group in groups._group_actions:
        for parser in group.choices.values():
            head, *lines = (parser.epilog or "").splitlines() or [""]
            assert head == ("" if not lines else "example:" if len(lines) == 1 else "examples:"), parser.prog
            heads.add(head)
    assert heads >= {"example:", "examples:"}


def test_a_program_that_runs_to_its_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran_programs: list[Any] = []
    monkeypatch.setattr(program, "run_process", ran_programs.append)
    assert cli.main(["run", "app.py", "--own"]) == 0
    assert [(ran.path, ran.arguments) for ran in ran_programs] == [("app.py", ("--own",))]


# ── processes ──


class Process:
    """A process that has written its files, and ends with a status."""

    def __init__(self, status: int, reached: str = "") -> None:
        self.returncode, self.reached, self.signals = status, reached, list[int]()

    def wait(self, timeout: float | None = None) -> int:
        if self.reached == "interrupt":
            raise KeyboardInterrupt
        if self.reached == "memory":
            assert timeout is not None
            raise subprocess.TimeoutExpired("a.py", timeout)
        return self.returncode

    def poll(self) -> int:
        return self.returncode

    def send_signal(self, number: int) -> None:
        self.signals.append(number)


def supervise(process: Process, files: dict[str, str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, Any]:
    @contextlib.contextmanager
    def started(folder: Path, given: list[str], is_json: bool) -> Iterator[Any]:
        for name, text in files.items():
            (folder / name).write_text(text)
        yield process, SimpleNamespace(bytes=lambda: 5000, most=6000)

    monkeypatch.setattr(supervised, "_started", started)
    options = entry.parser().parse_args([*words])
    return supervised.supervise(options, list(words)), options


def test_the_document_of_the_child_is_the_command_s(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps({"status": 3, "problems": [], "command": "check", "own": 7})
    status, _ = supervise(Process(3), {"document.json": text}, monkeypatch, "check", "a.py", "--json")
    assert (status, json.loads(capsys.readouterr().out)["own"]) == (3, 7)
    status, _ = supervise(Process(7), {}, monkeypatch, "check", "a.py", "--json")
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (status, problem["kind"], problem["text"]) == (7, "exit", "the program ended with status 7")
    assert supervise(Process(0), {}, monkeypatch, "check", "a.py")[0] == 0


def test_what_ended_the_child_is_in_the_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = 'Thread 1:\n  File "/lib/other.py", line 3 in g\n  File "{}", line 9 in f\n'.format(tmp_path / "a.py")
    text = json.dumps({"status": 0, "ok": True, "problems": [], "command": "check", "own": 7})
    files = {"document.json": text, "kernel": "f<int>", "lines": lines}
    status, _ = supervise(Process(-signal.SIGSEGV), files, monkeypatch, "check", "a.py", "--json")
    document = json.loads(capsys.readouterr().out)
    (problem,) = document["problems"]
    assert (status, document["own"], document["ok"], document["status"]) == (139, 7, False, 139)
    assert (problem["kind"], problem["signal"], problem["kernel"]) == ("signal", "SIGSEGV", "f")
    assert (problem["file"], problem["line"]) == (str(tmp_path / "a.py"), 9)
    for reached, words, expected, number in (
        ("interrupt", [], "the command was interrupted; the kernel f", 130),
        ("time", ["--time-limit", "0"], "the time limit of 0 s was reached; the kernel f", 124),
    ):
        process = Process(0, reached)
        status, _ = supervise(process, files, monkeypatch, "check", "a.py", "--json", *words)
        (problem,) = json.loads(capsys.readouterr().out)["problems"]
        assert (status, problem["kind"]) == (number, reached)
        assert problem["text"].startswith(expected)
        assert process.signals == [supervised._ASK]
    status, _ = supervise(Process(0, "memory"), files, monkeypatch, "check", "a.py", "--json", "--memory-limit", "4k")
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (status, problem["kind"], problem["got"]) == (125, "memory", "6000 bytes")
    assert problem["text"] == "the memory limit of 4096 bytes was reached; the kernel f was running"
    assert supervise(Process(-1), files, monkeypatch, "check", "a.py")[0] == 129
    # A process that has not begun is asked for nothing.
    process = Process(0, "interrupt")
    assert supervise(process, {}, monkeypatch, "check", "a.py")[0] == 130
    assert process.signals == []


def test_the_running_kernel_is_in_a_file(tmp_path: Path) -> None:
    with (tmp_path / "kernel").open("wb", buffering=0) as file:
        witness = supervised._Kernels(file)
        kernel: Any = SimpleNamespace(kind="kernel", name="first<int>", stream=object())
        copy: Work = SimpleNamespace(kind="copy", name="copy", stream=object())  # type: ignore[assignment]
        contents = []
        for step in (lambda: witness.begin(kernel), lambda: witness.begin(copy), lambda: witness.end(kernel, None)):
            step()
            contents.append((tmp_path / "kernel").read_text())
        kernel.stream = SimpleNamespace(__cuda_stream__=None)
        witness.end(kernel, None)
        contents.append((tmp_path / "kernel").read_text())
    assert contents == ["first<int>", "first<int>", "", "launched first<int>"]


def test_a_document_whose_reader_has_left_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    left = list[bool]()
    monkeypatch.setattr("cudakit.system.discard_output", lambda: left.append(True))
    for error in (BrokenPipeError(32, "Broken pipe"), OSError(28, "No space left on device")):

        def refuse(*words: Any, error: OSError = error, **options: Any) -> None:
            raise error

        monkeypatch.setattr("builtins.print", refuse)
        with contextlib.nullcontext() if error.errno == 32 else pytest.raises(OSError, match="No space"):
            supervised.print_document({})
    monkeypatch.undo()
    assert left == [True]
