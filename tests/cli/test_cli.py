"""The command line: what it says, what it removes, and how it fails."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import cudakit as ck
from cudakit import cli
from cudakit.cli import parsers
from cudakit.errors import CudakitError, TemplateError
from cudakit.jit.cache import cache as cache_module
from cudakit.jit.cache.cache import Cache, default_cache
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.source.closure import NOTHING_READ, Closure


@dataclass
class Specialization:
    """What the cache needs of one."""

    name: str = "saxpy<float>"
    arch: str = "sm_90"
    options: str = ""
    unstorable: str | None = None
    origin: None = None
    closure: Closure | None = NOTHING_READ

    @property
    def parts(self) -> dict[str, str]:
        return {"source": "5a" * 32, "name": self.name, "arch": self.arch, "options": self.options}

    @property
    def base(self) -> str:
        return self.key

    @property
    def key(self) -> str:
        return (self.name + self.arch + self.options).encode().hex().ljust(64, "0")[-128:]

    @property
    def label(self) -> str:
        return f"saxpy.cu: {self.name}"


class FakeKernel:
    """Stands in for `cudakit.kernel.kernel.Kernel`, the facade that the command calls."""

    def __init__(self, path: Path, name: str | None, arguments: object = None) -> None:
        self.path, self.name, self.arguments = path, name, arguments

    @classmethod
    def from_file(cls, path: Path, name: str | None = None) -> FakeKernel:
        if not path.exists():
            raise TemplateError(f"{path}: no such file")
        return cls(path, name)

    def __getitem__(self, arguments: object) -> FakeKernel:
        return FakeKernel(self.path, self.name, arguments)

    def specialization(self, *, arch: str | None = None) -> Specialization:
        arguments = self.arguments if isinstance(self.arguments, tuple) else (self.arguments,)
        listed = "" if self.arguments is None else f"<{', '.join(map(repr, arguments))}>"
        return Specialization(f"{self.name or 'saxpy'}{listed}", arch or "sm_90")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CUDAKIT_CACHE_BYTES", raising=False)
    monkeypatch.setattr(cache_module, "_caches", {})
    return default_cache()


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module: Any = types.ModuleType("cudakit.kernel.kernel")
    module.Kernel = FakeKernel
    monkeypatch.setitem(sys.modules, "cudakit.kernel.kernel", module)
    for name, attribute, value in (
        ("compiling", "first_request", lambda specialization: specialization),
        ("stages", "bundled_code_of", lambda specialization: None),
    ):
        module = types.ModuleType(f"cudakit.jit.cache.{name}")
        setattr(module, attribute, value)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    path = tmp_path / "saxpy.cu"
    path.touch()
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert cli.main([str(argument) for argument in arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def fill(cache: Cache, *specializations: Specialization) -> None:
    for specialization in specializations:
        cache.put(specialization, Compiled(b"x" * 2000, {}))


class TestCache:
    def test_info(self, cache: Cache, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        fill(cache, Specialization(), Specialization("scale<int>"))
        text = said(capsys, "cache", "info")
        assert str(tmp_path / "cache") in text
        assert "kernels  2" in text
        assert "of at most 1.0 GiB" in text
        record = json.loads(said(capsys, "cache", "info", "--json"))
        assert record["folder"] == str(tmp_path / "cache")
        assert (record["entries"], record["max_bytes"]) == (2, 1 << 30)
        assert record["bytes"] == sum(entry.bytes for entry in cache.entries())

    def test_info_without_a_folder(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr(cache_module, "_caches", {})
        monkeypatch.setenv("CUDAKIT_CACHE_DIR", "")
        assert "no cache on disk" in said(capsys, "cache", "info")
        assert json.loads(said(capsys, "cache", "info", "--json"))["folder"] is None
        assert "no kernels" in said(capsys, "cache", "list")

    def test_list(self, cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
        assert said(capsys, "cache", "list") == "The cache holds no kernels.\n"
        fill(cache, Specialization(), Specialization("scale<int>", "sm_80"))
        for entry in cache.entries():
            os.utime(entry.path, (0, 86400 * (10 + entry.label.count("scale"))))
        heading, first, second = said(capsys, "cache", "list").splitlines()
        assert heading.split() == ["last", "used", "size", "arch", "kernel"]
        assert first.endswith("sm_80     saxpy.cu: scale<int>")
        assert "2." in first
        assert "KiB" in first
        assert first.startswith("1970-01-1")
        assert second.endswith("saxpy.cu: saxpy<float>")
        records = json.loads(said(capsys, "cache", "list", "--json"))["kernels"]
        assert [record["parts"]["name"] for record in records] == ["scale<int>", "saxpy<float>"]
        assert records[0]["last_used"] == "1970-01-12T00:00:00Z"
        assert Path(records[0]["path"]).exists()

    def test_clear(self, cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
        fill(cache, Specialization(), Specialization("saxpy<int>"), Specialization("scale<int>"))
        assert said(capsys, "cache", "clear", "scale") == "Removed 1 kernel from the cache.\n"
        assert said(capsys, "cache", "clear") == "Removed 2 kernels from the cache.\n"
        assert cache.entries() == []


class TestExplain:
    def test_hit(self, cache: Cache, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
        fill(cache, Specialization("saxpy<'float', 256>"))
        cache._memory.clear()
        text = said(capsys, "cache", "explain", source, "--args", "float,256")
        assert text == "hit: saxpy.cu: saxpy<'float', 256> is in the cache, on disk.\n"

    def test_miss_says_what_differs(self, cache: Cache, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
        fill(cache, Specialization("saxpy<'float'>", "sm_80", "-G"), Specialization("saxpy<'float'>", "sm_80"))
        text = said(capsys, "cache", "explain", source, "--args", "float", "--arch", "sm_120")
        lines = text.splitlines()
        assert lines[0] == "miss: saxpy.cu: saxpy<'float'> is not in the cache."
        assert lines[2] == "  arch: asked for sm_120, stored sm_80"
        assert lines[5] == "  options: asked for (empty), stored -G"

    def test_only_the_nearest_are_told(self, cache: Cache, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
        fill(cache, *(Specialization(arch=f"sm_{arch}") for arch in (75, 80, 86, 89, 100)))
        text = said(capsys, "cache", "explain", source)
        assert text.count("Stored is") == 3
        assert text.endswith("And 2 more that differ at least as much.\n")

    def test_miss_with_nothing_near(self, cache: Cache, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
        text = said(capsys, "cache", "explain", source, "--kernel", "scale")
        assert "saxpy.cu: scale is not in the cache" in text
        assert "Nothing of this kernel" in text

    def test_miss_of_what_is_never_stored(
        self, cache: Cache, source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        unstorable = Specialization(unstorable="computed #include at line 3")
        monkeypatch.setattr(FakeKernel, "specialization", lambda self, arch: unstorable)
        assert "never kept on disk: computed #include at line 3." in said(capsys, "cache", "explain", source)

    def test_what_was_run_is_there(self, cache: Cache, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "k.cu"
        path.write_text(
            "#include <cstdint>\n"
            "__device__ int runs;\n"
            "template <class T, int N> __global__ void k(T* x, std::uint32_t n) { if (n > N) *x = T(2); runs++; }\n"
            "__global__ void plain(float2 pair, float* x) { *x = pair.y; }\n"
        )
        stream = ck.emulator.stream() if not ck.has_gpu() else ck.stream()
        with ck.using(stream) as xp:
            x = xp.ones(4, "f4")
            ck.Kernel.from_file(path, "plain")(stream, ck.config(1, 32), (1.0, 2.5), x)
            ck.Kernel.from_file(path, "k")["N":3](stream, ck.config(1, 32), x, 4)
        cache._memory.clear()
        for asked in (("--kernel", "k", "--args", "float,3"), ("--kernel", "plain")):
            assert said(capsys, "cache", "explain", path, *asked).startswith("hit: ")
        assert "asked for sm_89, stored sm_90" in said(
            capsys, "cache", "explain", path, "--kernel", "k", "--args", "float,3", "--arch", "sm_89"
        )

    def test_no_such_source(self, cache: Cache, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["cache", "explain", "absent.cu"]) == 4
        assert capsys.readouterr().err == "cudakit: absent.cu: no such file\n"

    @pytest.mark.parametrize(
        ("text", "arguments"),
        [
            ("", ()),
            ("float", ("float",)),
            ("float, 256,-1", ("float", 256, -1)),
            ("thrust::pair<int, float>, f<(1 > 0), 2>, 3", ("thrust::pair<int, float>", "f<(1 > 0), 2>", 3)),
            ("(N > 1), true", ("(N > 1)", "true")),
            ("(1 < 2), 3", ("(1 < 2)", 3)),
            ("a[1, 2], S{1, 2}, 1u", ("a[1, 2]", "S{1, 2}", "1u")),
        ],
    )
    def test_arguments_split(self, text: str, arguments: tuple[str | int, ...]) -> None:
        assert parsers.split_arguments(text) == arguments

    def test_an_empty_argument_is_refused(self) -> None:
        with pytest.raises(CudakitError, match="empty"):
            parsers.split_arguments("float,,1")


class TestDemo:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ([], (None, None, Path())),
            (["me.jpg", "--arch", "sm_90", "--output", "out"], (Path("me.jpg"), "sm_90", Path("out"))),
        ],
    )
    def test_arguments(self, given: list[str], expected: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[tuple[object, ...]] = []

        def main(photo: Path | None, arch: str | None, folder: Path) -> int:
            calls.append((photo, arch, folder))
            return 3

        module: Any = types.ModuleType("cudakit.demo")
        module.main = main
        monkeypatch.setitem(sys.modules, "cudakit.demo", module)
        assert cli.main(["demo", *given]) == 3
        assert calls == [expected]


class TestErrors:
    def test_bad_environment_is_one_line(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(cache_module, "_caches", {})
        monkeypatch.setenv("CUDAKIT_CACHE_BYTES", "lots")
        assert cli.main(["cache", "info"]) == 1
        error = capsys.readouterr().err
        assert "CUDAKIT_CACHE_BYTES='lots'" in error
        assert error.count("\n") == 1

    def test_os_error_is_one_line(
        self, cache: Cache, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def refuse(path: str) -> None:
            raise PermissionError(13, "Permission denied", path)

        fill(cache, Specialization())
        monkeypatch.setattr(os, "unlink", refuse)
        assert cli.main(["cache", "clear"]) == 6
        error = capsys.readouterr().err
        assert error.startswith("cudakit: [Errno 13] Permission denied")
        assert error.count("\n") == 1

    @pytest.mark.parametrize(
        ("arguments", "listed"), [([], ["cache", "check", "demo", "info"]), (["cache"], ["info", "list", "clear"])]
    )
    def test_without_a_command_the_help_is_shown(
        self, arguments: list[str], listed: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"usage: {' '.join(['cudakit', *arguments])} [-h]")
        assert all(f"\n    {name} " in captured.err for name in listed)

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            (["chek", "p.py"], "cudakit: error: unknown command 'chek'; did you mean check?"),
            (["cache", "lst"], "cudakit cache: error: unknown action 'lst'; did you mean list?"),
            (["cache", "burn"], "unknown action 'burn'; expected one of info, list, explain, clear, export, import"),
            (["check", "p.py", "--jsn"], "cudakit check: error: unrecognized arguments: --jsn; did you mean --json?"),
            (["prove", "k.cu", "--kernl=f"], "unrecognized arguments: --kernl=f; did you mean --kernel?"),
            (["--versoin"], "unrecognized arguments: --versoin; did you mean --version?"),
        ],
    )
    def test_the_nearest_is_suggested(
        self, arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        assert stop.value.code == 2
        usage, _, last = capsys.readouterr().err.rstrip().rpartition("\n")
        assert usage.startswith("usage: cudakit")
        assert last.endswith(error)

    def test_an_unknown_card_is_an_error_before_the_program_runs(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "program.py"
        path.write_text("print('ran')")
        assert cli.main(["inspect", str(path), "--card", "H20"]) == 4
        captured = capsys.readouterr()
        assert captured.err.startswith("cudakit: unknown card 'H20'; expected one of H200, H100")
        assert captured.out == ""

    @pytest.mark.parametrize("command", ["check", "inspect", "debug"])
    def test_cuda_code_is_no_program(self, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "k.cu"
        path.touch()
        assert cli.main([command, f"{path}:3" if command == "debug" else str(path)]) == 1
        error = capsys.readouterr().err
        assert f"{path} is CUDA C++, and cudakit {command} runs a Python program" in error
        assert f"cudakit {command} program.py. cudakit prove {path} needs no program" in error


def test_colours_are_for_terminals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", str(tmp_path / "no.py")]) == 6
    assert capsys.readouterr().err.startswith("cudakit: there is no program")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for setting, start in (("", "\x1b[31mcudakit:\x1b[0m there"), ("1", "cudakit: there")):
        monkeypatch.setenv("NO_COLOR", setting)
        assert cli.main(["check", str(tmp_path / "no.py")]) == 6
        assert capsys.readouterr().err.startswith(start)


def test_every_command_has_examples_that_it_can_read() -> None:
    whole = cli.parser()
    count = 0
    for command in whole.leaves():
        lines = [line.strip() for line in (command.epilog or "").splitlines() if line.startswith("  cudakit ")]
        assert lines, command.prog
        assert "--json" in command.format_usage()
        for line in lines:
            assert line.startswith(command.prog)
            words = shlex.split(line.partition(" > ")[0])[1:]
            end = words.index("--") if "--" in words else len(words)
            entry_options = whole.parse_known_args(words[:end])[1] if words[0] != "run" else []
            assert entry_options == []
            count += 1
    assert count > 20


class TestCompletion:
    """Scripts for shells, made by shtab."""

    @pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
    def test_bash_completes(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "script").write_text(said(capsys, "completion", "bash"))
        (tmp_path / "program.py").touch()
        (tmp_path / "pictures").mkdir()
        expected = {
            "": "info cache bundle record compile run check inspect debug prove tune bench demo completion",
            "che": "check",
            "cache e": "explain export",
            "cache list --j": "--json",
            "check pro": "program.py",
            "debug pro": "program.py",
            "demo --output p": "pictures",
            "completion f": "fish",
        }
        asked = [words.rpartition(" ") for words in expected]
        lines = ["source ./script"]
        for before, _, last in asked:
            words = ["cudakit", *before.split(), f"'{last}'"]
            lines += [f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}", "_shtab_cudakit cudakit"]
            lines.append('echo "${COMPREPLY[*]}"')
        done = subprocess.run(
            ["bash", "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
        )
        shown = dict(zip(expected, done.stdout.splitlines(), strict=True))
        assert {words: " ".join(each for each in line.split() if each[0] != "-" or "--j" in words)
                for words, line in shown.items()} == expected  # fmt: skip
        assert done.stderr == ""

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_every_command_and_option_is_there(self, shell: str, capsys: pytest.CaptureFixture[str]) -> None:
        script = said(capsys, "completion", shell)
        options = {option for action in cli.parser().actions() for option in action.option_strings}
        assert len(options) > 10
        assert [option for option in options if option.lstrip("-") not in script] == []
        assert "completion" in script

    def test_without_shtab_the_command_says_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setitem(sys.modules, "shtab", None)
        assert cli.main(["completion", "zsh"]) == 1
        assert capsys.readouterr().err == "cudakit: cudakit completion: shtab makes the scripts: pip install shtab\n"
        with pytest.raises(SystemExit):
            cli.main(["completion", "zhs"])
        assert capsys.readouterr().err.endswith("unknown shell 'zhs'; did you mean zsh?\n")


class TestProgram:
    """As a user starts it."""

    def start(self, *arguments: str, folder: Path) -> subprocess.Popen[str]:
        environment = {**os.environ, "CUDAKIT_CACHE_DIR": str(folder)}
        command = [sys.executable, "-m", "cudakit", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)

    def test_version(self, tmp_path: Path) -> None:
        out, err = self.start("-V", folder=tmp_path).communicate(timeout=60)
        assert out.startswith("cudakit ")
        assert err == ""

    def test_a_reader_that_leaves_is_no_error(self, cache: Cache, tmp_path: Path) -> None:
        for number in range(1000):
            cache.put(Specialization(f"kernel_with_a_long_name_{number:04}" * 2), Compiled(b"", {}))
        process = self.start("cache", "list", folder=tmp_path / "cache")
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0
        process.stderr.close()
