"""Commands that run programs and proofs, and the demo: what is asked, what is said, and the status."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import cli, demo, reports
from cudakit.adapters import program
from cudakit.cli import parsers, supervised
from cudakit.demo import Stage
from cudakit.emulator.checks.findings import Finding
from cudakit.proof import prove
from cudakit.types.shown import byte_size

pytestmark = pytest.mark.emulator


class Ran:
    """A program's run that is made up."""

    def __init__(self, *faults: Finding, status: int = 0) -> None:
        self.faults, self.status, self.pages = faults, status, list[Any]()
        kernels = {"f": SimpleNamespace(launches=2), "g": SimpleNamespace(launches=3)}
        self.report: Any = SimpleNamespace(
            kernels=kernels,
            annotated=lambda: "annotated",
            to_dict=lambda: {"kernels": []},
            save_html=lambda page, card: self.pages.append((page, card)),
        )
        self.problems = reports.problems_of(faults)
        self.report = type("Report", (SimpleNamespace,), {"__str__": lambda _: "the report"})(**vars(self.report))


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(supervised, "is_needed", lambda options: False)  # stand-ins are of this process
    monkeypatch.chdir(tmp_path)
    Path("app.py").write_text("")
    return "app.py"


def given(monkeypatch: pytest.MonkeyPatch, ran: Ran) -> list[Any]:
    """Let programs run so; what they were run with."""
    calls: list[Any] = []

    def run(*arguments: Any) -> Ran:
        calls.append(arguments)
        print("the program's own")
        return ran

    monkeypatch.setattr(program, "examine", run)
    return calls


RACE = Finding("race", "f", "a.cu", 3, "", "two write")


def test_check(app: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls = given(monkeypatch, Ran())
    assert cli.main(["check", app, "--schedules", "5", "--", "one", "--two"]) == 0
    assert calls == [(program.Program(app, ("one", "--two")), True, 5)]
    assert capsys.readouterr().out == "the program's own\n2 kernels, 5 launches: nothing wrong was found.\n"
    calls = given(monkeypatch, Ran(RACE))
    assert cli.main(["check", app]) == 3
    assert calls == [(program.Program(app), True, 0)]
    assert capsys.readouterr().out.endswith("\nf: a.cu:3: two write\n2 kernels, 5 launches: 1 fault.\n")
    given(monkeypatch, Ran(status=7))
    assert cli.main(["check", app]) == 7
    capsys.readouterr()
    assert cli.main(["check", "--json", app]) == 7
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert (document["command"], document["program"], document["status"]) == ("check", app, 7)
    assert [problem["kind"] for problem in document["problems"]] == ["exit"]
    assert captured.err == "the program's own\n"


def test_inspect(app: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(RACE)
    calls = given(monkeypatch, ran)
    assert cli.main(["inspect", app, "--html"]) == 3
    assert calls == [(program.Program(app), False, 0)]
    captured = capsys.readouterr()
    assert captured.out == "the program's own\ntwo write\nthe report\n\nannotated\n"
    assert captured.err == "wrote app.html\n"
    assert cli.main(["inspect", app, "--html", "page.html", "--card", "L4"]) == 3
    assert ran.pages == [(Path.cwd() / "app.html", "H200"), (Path.cwd() / "page.html", "L4")]
    given(monkeypatch, Ran(status=3))
    capsys.readouterr()
    assert cli.main(["inspect", "--json", app]) == 3
    assert json.loads(capsys.readouterr().out)["program"] == app


def test_debug(app: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(program, "debug", lambda *arguments: calls.append(arguments) or len(calls) < 3)
    assert cli.main(["debug", f"{app}:12", "--", "x"]) == 0
    assert cli.main(["debug", app]) == 0
    assert cli.main(["debug", f"{app}:12"]) == 1
    assert cli.main(["debug", app]) == 1
    assert calls == [
        *((program.Program(app, words), line) for words, line in ((("x",), 12), ((), None), ((), 12), ((), None))),
    ]
    assert capsys.readouterr().err == (
        "cudakit: app.py launches no kernel of threads that has line 12, or any after it\n"
        "cudakit: app.py launches no kernel of threads\n"
    )
    for words in (["debug", "no.py:x"], ["debug", ":12"], ["check", "no.py"], ["inspect", "no.py"]):
        assert cli.main(words) == 6
        assert f"cudakit: there is no program {words[1]}\n" in capsys.readouterr().err


def test_prove(app: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Proof:
        def __init__(self, holds: bool) -> None:
            self.holds = holds

        def __bool__(self) -> bool:
            return self.holds

        def __str__(self) -> str:
            return f"proof {self.holds}"

        def to_json(self) -> Any:
            return {"holds": self.holds}

    calls: list[Any] = []
    results = [[Proof(True)], [Proof(True), Proof(False)], [Proof(False), Proof(True)]]
    monkeypatch.setattr(prove, "proofs_of", lambda *arguments: calls.append(arguments) or results[len(calls) - 1])
    assert cli.main(["prove", "a.cu"]) == 0
    assert capsys.readouterr().out == "proof True\n"
    assert cli.main(["prove", "a.cu", "--kernel", "f", "--timeout", "2.5", "--arch", "sm_80"]) == 1
    assert capsys.readouterr().out == "proof True\nproof False\n"
    assert cli.main(["prove", "a.cu", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["proofs"] == [{"holds": False}, {"holds": True}]
    assert calls == [
        *((Path("a.cu"), None, 10.0, "sm_90"), (Path("a.cu"), "f", 2.5, "sm_80"), (Path("a.cu"), None, 10.0, "sm_90")),
    ]


def test_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(demo, "main", lambda *arguments: calls.append(arguments) or 5)
    assert cli.main(["demo"]) == 5
    assert cli.main(["demo", "photo.png", "--arch", "sm_90", "--output", "folder"]) == 5
    assert calls == [(None, None, Path()), (Path("photo.png"), "sm_90", Path("folder"))]


def test_one_message_for_an_unknown_arch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.cu"
    path.write_text("// prove: n <= len(x)\n__global__ void k(int* x, int n) { x[0] = n; }\n")
    for words in (["demo"], ["prove", str(path)], ["cache", "explain", str(path)]):
        assert cli.main([*words, "--arch", "90"]) == 4
        assert capsys.readouterr().err.endswith(": unknown arch '90'; expected a name such as 'sm_90'\n")
    assert cli.main(["demo", "--arch", "sm_999"]) == 5
    assert "demo: unknown arch 'sm_999'; expected one that NVRTC" in capsys.readouterr().err


def test_words_that_are_not_understood(capsys: pytest.CaptureFixture[str]) -> None:
    for words, hint in (
        (["check", "app.py", "100", "-x"], "; the program's own arguments follow after --: -- 100 -x"),
        (["cache", "info", "100"], ""),
    ):
        with pytest.raises(SystemExit) as left:
            cli.main(words)
        assert left.value.code == 2
        rest = " ".join(words[2:])
        assert f"error: unrecognized arguments: {rest}{hint}\n" in capsys.readouterr().err


def test_errors_are_said_and_not_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for error in (ck.CudakitError("this is wrong"), OSError("this is wrong")):

        def fail(*_: Any, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(demo, "main", fail)
        assert cli.main(["demo"]) == 1
        assert capsys.readouterr().err == "cudakit: this is wrong\n"
    duplicated: list[Any] = []

    def broken(*_: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(demo, "main", broken)
    monkeypatch.setattr("os.dup2", lambda *numbers: duplicated.append(numbers))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(fileno=lambda: 77, flush=lambda: None))
    assert cli.main(["demo"]) == 0
    assert [target for _, target in duplicated] == [77]


def test_the_command_is_a_module_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["cudakit", "--version"])
    with pytest.raises(SystemExit) as left:
        runpy.run_module("cudakit", run_name="__main__")
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("cudakit ")
    runpy.run_module("cudakit.__main__", run_name="cudakit.__main__")


def test_sizes() -> None:
    found = [byte_size(size) for size in (0, 1023, 1024, 1536, (1 << 20) - 1, 1 << 20, 5 << 19, 1 << 30, 3 << 40)]
    assert found == [
        *("0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "1024.0 KiB", "1.0 MiB", "2.5 MiB", "1.0 GiB", "3072.0 GiB"),
    ]


def test_template_arguments() -> None:
    assert parsers.split_arguments("") == parsers.split_arguments("  ") == ()
    assert parsers.split_arguments("float, 256,-3,+4") == ("float", 256, -3, 4)
    assert parsers.split_arguments("pair<int, 2>, f(1, 2), a[1, 2]") == ("pair<int, 2>", "f(1, 2)", "a[1, 2]")
    assert parsers.split_arguments("(a > b), c") == ("(a > b)", "c")
    assert parsers.split_arguments("N < 3") == ("N < 3",)
    for text, words in (("f(1, 2", "has a bracket that is not closed"), ("a,,b", "has an empty"), ("a,", "an empty")):
        with pytest.raises(ck.CudakitError, match=words):
            parsers.split_arguments(text)


# ── the demo ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Axes:
    """A panel that says what is drawn into it."""

    def __init__(self) -> None:
        self.done: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: self.done.append((name, given, named))

    def of(self, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return next((given, named) for each, given, named in self.done if each == name)


def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, height: int, width: int) -> tuple[list[list[Axes]], Any]:
    """The panels of a picture of some dtypes, and the figure."""
    panels = [[Axes() for _ in range(5)] for _ in range(2)]
    figure = SimpleNamespace(size=None)

    class Figure:
        def __init__(self, **named: Any) -> None:
            figure.size = named["figsize"]

        def subplots(self, rows: int, columns: int, squeeze: bool) -> Any:
            assert (rows, columns, squeeze) == (2, 5, False)
            return panels

        def savefig(self, file: Any, format: str) -> None:
            file.write(b"picture")

    monkeypatch.setitem(sys.modules, "matplotlib.figure", SimpleNamespace(Figure=Figure))
    monkeypatch.setitem(
        sys.modules, "matplotlib.patches", SimpleNamespace(Rectangle=lambda *given, **named: (given, named))
    )
    gray = np.zeros((height, width))
    blurred = gray.copy()
    blurred[60, 110] = 9
    counts = np.arange(256, dtype=np.uint64)
    stages: dict[Any, list[Stage]] = {}
    for code, elapsed in (("u1", 0.25), ("f4", None)):
        dtype = np.dtype(code)
        stages[dtype] = [
            Stage(name, dtype, output, elapsed, "GPU", 0.0, 0.0)
            for name, output in (("gray", gray), ("blur", blurred), ("even", counts))
        ]
    monkeypatch.chdir(tmp_path)
    for output, expected in (("new", "new/cudakit-demo.png"), ("my.PNG", "my.PNG"), ("", "cudakit-demo.png")):
        path = demo.save_picture(np.zeros((height, width, 3), np.uint8), stages, Path(output))
        assert path == tmp_path / expected
        assert path.read_bytes() == b"picture"
    return panels, figure


def test_the_picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    panels, figure = drawn(monkeypatch, tmp_path, 200, 2402)
    assert figure.size == (21, 9.6)
    for row, low, high, most, dtype in (
        *((panels[0], -0.5, 255.5, 255, "uint8"), (panels[1], -0.5 / 255, 255.5 / 255, 1, "float32")),
    ):
        for axes, shape, title in (
            (row[0], (67, 801, 3), f"before: the photograph, as {dtype}"),
            (row[1], (67, 801), "after: gray and blurred; the square is the detail"),
        ):
            (pixels,), named = axes.of("imshow")
            assert (pixels.shape, named["extent"]) == (shape, (0, 2402, 200, 0))
            assert (named["vmin"], named["vmax"], named["cmap"]) == (0, most, "gray")
            ((rectangle, looks),), _ = axes.of("add_patch")
            assert rectangle == ((96, 48), 48, 48)
            assert (looks["fill"], looks["color"], looks["linewidth"]) == (False, "red", 2)
            assert axes.of("set_title")[0] == (title,)
        for axes, name, brightest in ((row[2], "gray", 0), (row[3], "blur", 9)):
            (shown,), named = axes.of("imshow")
            assert (shown.shape, shown.max()) == ((48, 48), brightest)
            assert (named["vmin"], named["vmax"], named["cmap"]) == (0, most, "gray")
            time = ", 0.2500 ms" if dtype == "uint8" else ""
            title = f"detail, {name}{time}\non the GPU\ncompared with NumPy: exact"
            assert axes.of("set_title")[0] == (title,)
        for axes in row[:4]:
            axes.of("set_axis_off")
        (counts, edges), named = row[4].of("stairs")
        assert (counts.tolist(), len(edges)) == ([*range(256)], 257)
        assert (edges[0], edges[-1]) == (low, high)
        assert edges[1] - edges[0] == pytest.approx((high - low) / 256)
        assert named["fill"]
        assert row[4].of("set_xlabel")[0] == ("gray level",)
        assert row[4].of("set_ylabel")[0] == ("pixels",)
        assert row[4].of("margins")[1] == {"x": 0}
        assert row[4].of("set_title")[0][0].startswith("even")


def test_a_small_picture_is_drawn_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    panels, _ = drawn(monkeypatch, tmp_path, 96, 1200)
    assert panels[0][0].of("imshow")[0][0].shape == (96, 1200, 3)


@pytest.mark.parametrize("has_llvmlite", [False, True])
@pytest.mark.parametrize("has_gpu", [False, True])
def test_the_demo_says_what_it_does(
    has_gpu: bool,
    has_llvmlite: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output, wrong = np.zeros(3), list[bool]()

    def run_stages(stream: Any, rgb: Any, strips: Any, bar: Any) -> list[Stage]:
        assert (stream, rgb.shape, strips) == ("stream", (4, 6, 3), [(0, 4)])
        assert bar._total == 6
        difference = 1.0 if wrong else 0.0
        return [Stage(name, rgb.dtype, output, None if wrong else 1.5, "GPU", difference, 0.0) for name in "abc"]

    monkeypatch.setattr(ck, "has_gpu", lambda: has_gpu)
    monkeypatch.setattr(ck, "stream", lambda: "stream")
    monkeypatch.setattr(ck, "device_limits", lambda: SimpleNamespace(name="a made-up card"))
    monkeypatch.setattr(ck, "emulator", SimpleNamespace(stream=lambda: "stream"), raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: has_llvmlite or None)
    monkeypatch.setattr(demo, "read_photo", lambda photo: np.zeros((4, 6, 3), np.uint8))
    monkeypatch.setattr(demo, "run_stages", run_stages)
    monkeypatch.setattr(demo, "save_picture", lambda pixels, stages, folder: folder / "p.png")
    monkeypatch.setattr(demo, "compile_all", lambda arch: arch == "sm_90")
    assert demo.main(Path("my.png"), "sm_90", tmp_path) == 0
    shown = capsys.readouterr().out
    assert ("There is no GPU here" in shown) == (not has_gpu)
    assert ("run on the GPU, a made-up card." in shown) == has_gpu
    assert ("compiles long ones" in shown) == (not has_gpu and has_llvmlite)
    assert ("pip install 'cudakit[cpu]'" in shown) == (not has_gpu and not has_llvmlite)
    assert "my.png: 6 × 4 pixels" in shown
    assert f"picture: {tmp_path}/p.png\n" in shown
    rows = [line.split() for line in shown.splitlines() if line.startswith(("a ", "b ", "c "))]
    assert rows == [[name, dtype, "GPU", "1.5000", "exact"] for dtype in ("uint8", "float32") for name in "abc"]
    wrong.append(True)
    assert demo.main(None, None, tmp_path) == 1
    shown = capsys.readouterr().out
    assert "grace_hopper.jpg, as matplotlib ships it: 6 × 4 pixels" in shown
    assert "–   WRONG: off by 1, at most 0 allowed" in shown.replace("–     ", "–   ")
    assert demo.main(None, "sm_10", tmp_path) == 1
    assert capsys.readouterr().out == ""


def test_verdicts() -> None:
    def verdict(difference: float, tolerance: float) -> tuple[bool, str]:
        stage = Stage("a", np.dtype("f4"), np.zeros(1), None, "GPU", difference, tolerance)
        return stage.is_right, stage.verdict

    assert verdict(0, 0) == (True, "exact")
    assert verdict(0.5, 0.5) == (True, "within 5.0e-01 (allowed 5.0e-01)")
    assert verdict(2, 0.5) == (False, "WRONG: off by 2, at most 0.5 allowed")
    assert not verdict(float("nan"), 1)[0]
    assert demo._shown(None) == "–"
    assert demo._shown(0.12345) == "0.1235" or demo._shown(0.12345) == "0.1234"


def test_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    silent = demo.Bar(6)
    for _ in range(6):
        silent.add("x")
    assert capsys.readouterr().err == ""
    bar = demo.Bar(7)
    for _ in range(7):
        bar.add("x")
    shown = capsys.readouterr().err
    assert shown.startswith("\r██·················· x")
    assert shown.count("\n") == 1
    assert shown.endswith(f"\r{'█' * 20} {'x':<24}\n")


def test_weights_and_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(demo._FIXED_POINT_WEIGHTS) == 65536
    assert [round(65536 * weight) for weight in (0.299, 0.587, 0.114)][:2] == [*demo._FIXED_POINT_WEIGHTS[:2]]
    machines = {"compiled": "emulator, compiled for this CPU", "interpreted": "emulator, interpreted with NumPy"}

    class Attributes:
        def __init__(self, machine: str) -> None:
            self.machine = machine

    monkeypatch.setattr(demo, "EmulatedAttributes", Attributes)
    for machine, words in machines.items():
        kernel: Any = SimpleNamespace(attributes=lambda machine=machine: Attributes(machine))
        assert demo._machine_of(kernel) == words
    on_gpu: Any = SimpleNamespace(attributes=lambda: 3)
    assert demo._machine_of(on_gpu) == "GPU"
    assert demo._to_host(np, np.ones(2)).tolist() == [1, 1]
    assert demo._to_host(SimpleNamespace(asnumpy=lambda x: [*x, 3]), [1]).tolist() == [1, 3]


def test_numbers_of_a_histogram_as_the_template_has_them() -> None:
    """The number before 1 of float64 is 1 as float32, and out of the range."""
    below = np.nextafter(1.0, 0.0)
    for dtype, counted in (("f8", 1), ("f4", 0)):
        assert demo.histogram_reference(np.array([below], dtype), 0.0, 1.0, 4).sum() == counted
    for dtype in ("u1", "i2", "u2"):
        assert demo.histogram_reference(np.array([0, 1, 5, 6], dtype), 0.5, 5.5, 5).tolist() == [1, 0, 0, 0, 1]
    large = np.array([2**24 + 1], "i4")
    assert demo.histogram_reference(large, 2.0**24 - 3, 2.0**24 + 5, 8).tolist() == [0, 0, 0, 0, 1, 0, 0, 0]


def test_small_integers_are_counted_as_float32() -> None:
    """Of 115 values in 25 bins float32 puts one into another bin than float64."""
    values = np.arange(115)
    counts = {code: demo.histogram_reference(values.astype(code), 0.0, 115.0, 25).tolist() for code in ("f4", "f8")}
    assert counts["f4"] != counts["f8"]
    for small, code in (("i1", "f4"), ("u1", "f4"), ("i2", "f4"), ("u2", "f4"), ("i4", "f8"), ("u4", "f8")):
        assert demo.histogram_reference(values.astype(small), 0.0, 115.0, 25).tolist() == counts[code]
