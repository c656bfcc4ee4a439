"""What kernels and modules tell of themselves, and what they refuse before anything is compiled."""

from __future__ import annotations

import inspect
import pickle
from inspect import Parameter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.jit.cache import prewarm as prewarm_module
from cudakit.jit.compile import binary
from cudakit.jit.source import headers, source
from cudakit.kernel import calls as calls_module
from cudakit.kernel import kernel as kernel_module
from cudakit.kernel.globals import Globals, UnknownVariable
from cudakit.streams import devices

pytestmark = pytest.mark.emulator
HEADS = """
template <typename T, int N = 2> __global__ void scale(T* x, float by, int n = 3, int m = 4) {}
__global__ void last(int n = 3, float* x) {}
template <typename... A> __global__ void packed(int* x, A... rest, int n) {}
template <typename... A> __global__ void named(A... lambda) {}
__global__ void twice(int* x) {}
__global__ void twice(float* x) {}
"""


def parameters(name: str) -> list[tuple[str, Any, Any, Any]]:
    shown = inspect.signature(ck.Kernel(HEADS, name)).parameters.values()
    assert [(p.name, p.kind) for p in shown][:2] == [
        ("stream", Parameter.POSITIONAL_ONLY),
        ("config", Parameter.POSITIONAL_ONLY),
    ]
    return [(p.name, p.kind, p.default, p.annotation) for p in shown][2:]


def test_parameters_that_are_shown() -> None:
    plain, only, empty = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY, Parameter.empty
    first, second, third, fourth = parameters("scale")
    assert (first[:3], second[:3]) == (("x", plain, empty), ("by", plain, empty))
    assert (first[3], second[3]) == ("T*", "float")
    assert (third[0], third[1], fourth[1]) == ("n", plain, plain)
    assert third[2] is not empty
    assert fourth[2] is not empty
    assert [each[2] for each in parameters("last")] == [empty, empty]
    assert [(name, kind) for name, kind, *_ in parameters("packed")] == [
        *(("x", plain), ("rest", Parameter.VAR_POSITIONAL), ("n", only)),
    ]
    assert [(name, kind) for name, kind, *_ in parameters("named")] == [("arguments", Parameter.VAR_POSITIONAL)]
    assert parameters("twice") == [("arguments", Parameter.VAR_POSITIONAL, empty, empty)]


def test_kernels_that_share_a_name_are_named_with_their_types() -> None:
    kernel = ck.Kernel(HEADS, "twice")
    with pytest.raises(
        ck.TemplateError, match=r"there are several kernels twice: .*name one with the types of its par"
    ):
        kernel._calls.specialized((), "sm_90", "cubin")
    assert ck.Kernel(HEADS, "twice(int*)").specialization(None, arch="sm_90").arch == "sm_90"


def test_what_is_passed_by_the_driver_is_not_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU to make current, what the driver said is the launch's error."""
    kernel = ck.Kernel(HEADS, "last")
    reason, seen = RuntimeError("CUDA_ERROR_INVALID_CONTEXT"), list[Any]()

    def raise_launch_error(reason: BaseException, name: str) -> None:
        seen.append((reason, name))
        raise ck.LaunchError("said")

    monkeypatch.setattr(calls_module, "raise_launch_error", raise_launch_error)
    for forked, has_gpu, current, names in (
        *((True, True, True, []), (False, False, True, ["last<int>"]), (False, True, False, ["last", "other"])),
    ):
        monkeypatch.setattr(devices, "is_forked", lambda forked=forked: forked)
        monkeypatch.setattr(devices, "has_gpu", lambda has_gpu=has_gpu: has_gpu)
        monkeypatch.setattr(devices, "make_current", lambda *_, current=current: current)
        shapes = [SimpleNamespace(name=name) for name in names]
        monkeypatch.setattr(type(kernel.dispatcher), "shapes", shapes, raising=False)
        with pytest.raises(ck.LaunchError, match="said"):
            kernel._calls._check(ck.emulator.stream(), ck.config(1, 1), (), reason)
    assert seen == [(reason, ""), (reason, "last<int>"), (reason, "last")]
    monkeypatch.setattr(devices, "make_current", lambda *_: True)
    with pytest.raises(ck.ArgumentError, match="last takes 2 arguments"):
        kernel._calls._check(ck.emulator.stream(), ck.config(1, 1), (), reason)


def test_the_place_of_a_text_is_the_callers() -> None:
    module, kernel = ck.Module(HEADS), ck.Kernel(HEADS, "last")
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    assert kernel.source.origin == (__file__, line)
    assert ck.Module("// another text\n" + HEADS).source.origin == (__file__, line + 3)
    assert module.source.origin is not None
    assert module.source.origin[0] == __file__


def test_modules_and_their_kernels() -> None:
    module = ck.Module(HEADS)
    assert module.kernels == ("scale", "last", "packed", "named", "twice")
    assert repr(module) == "<cudakit.Module <kernel text>: scale, last, packed, named, twice>"
    assert pickle.loads(pickle.dumps(module)) is module
    assert repr(module["scale < float, -3 >"]) == "<cudakit.Kernel scale<float, -3> from <kernel text>>"
    assert module["twice(int*)"].signature.full_name == "twice(int*)"
    assert "gray" in ck.Module.from_template("image").kernels
    with pytest.raises(ck.TemplateError, match="no packaged template 'no_such'; there are: "):
        ck.Module.from_template("no_such")
    with pytest.raises(ck.ArgumentError, match="a kernel's name"):
        _ = module[3]  # type: ignore[index]
    with pytest.raises(ck.ArgumentError, match="host_code is 'keep' or 'skip', got 'cut'"):
        ck.Module(HEADS, host_code="cut")  # type: ignore[arg-type]


def test_kernels_of_the_package() -> None:
    assert ck.Kernel.from_template("image/gray").name == "gray"
    for wrong in ("gray", 3, None):
        with pytest.raises(
            ck.TemplateError, match=r"a packaged template is named 'concept/name', as in 'image/gray'; g"
        ):
            ck.Kernel.from_template(wrong)  # type: ignore[arg-type]


def test_a_template_is_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "__global__ void k() {}"
    folder = tmp_path / "templates"
    (folder / "tile").mkdir(parents=True)
    for path in (tmp_path / "out.cuh", folder / "own.cuh", folder / "tile" / "own.cuh"):
        path.write_text(text)
    (folder / "link.cuh").symlink_to(tmp_path / "out.cuh")
    monkeypatch.setattr(headers, "templates_folder", lambda: folder)
    for concept in ("own", "tile/own"):
        assert source.from_template(concept).text == text
    for wrong in ("../out", str(tmp_path / "out"), "tile/../../out", "link", "./own", "own.cuh", "OWN/", "", ".."):
        with pytest.raises(ck.TemplateError, match="there are: own, tile/own"):
            source.from_template(wrong)
        with pytest.raises(ck.TemplateError):
            ck.Kernel.from_template(f"{wrong}/k")


def test_what_is_shown_of_a_kernel() -> None:
    kernel = ck.Kernel(HEADS, "scale")
    names = dir(kernel)
    assert {"compile", "ptx", "source", "signature", "with_options"} <= {*names}
    assert not {"args", "func", "keywords"} & {*names}
    assert not [name for name in names if name.startswith("_")]
    assert repr(kernel) == "<cudakit.Kernel scale from <kernel text>>"
    assert repr(kernel[np.float32, 4]) == "<cudakit.Kernel scale<float, 4> from <kernel text>>"
    assert kernel[np.float32] is kernel[np.float32]
    with pytest.raises((ck.TemplateError, TypeError)):
        kernel[{1: 2}]
    again = pickle.loads(pickle.dumps(kernel[np.float32, 4]))
    assert repr(again) == repr(kernel[np.float32, 4])
    page = kernel._repr_html_()
    assert "T*" in page
    assert "float" in page


def test_which_place_a_specialization_is_for() -> None:
    kernel = ck.Kernel(HEADS, "last")
    assert (kernel.specialization().target, kernel.specialization(arch="sm_90").target) == ("ptx", "cubin")
    assert kernel.specialization(target="ptx").target == "ptx"
    assert kernel.specialization(target="cubin").target == "cubin"
    assert kernel.specialization(arch="sm_80", target="ltoir").target == "ltoir"
    assert ck.Kernel(HEADS, "last", arch="sm_80").specialization().arch == "sm_80"


def test_machine_code_is_disassembled(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ck.Kernel(HEADS, "last")
    asked: list[Any] = []
    monkeypatch.setattr(binary, "disassemble", lambda code: "text of " + code.decode())

    def compile_latest(self: Any, types: Any, arch: Any, target: Any) -> Any:
        asked.append((types, arch, target))
        return SimpleNamespace(code=b"code")

    monkeypatch.setattr(kernel_module.Kernel, "_compile_latest", compile_latest)
    assert kernel.sass(arch="sm_90") == "text of code"
    assert kernel.ptx(np.float32) == "code"
    assert asked == [((), "sm_90", "cubin"), ((np.float32,), None, "ptx")]


def test_what_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ck.Module("template <int N> __global__ void a() {} __global__ void b() {} __global__ void c() {}")
    prepared: list[Any] = []
    monkeypatch.setattr(type(module._unit), "prepare", lambda self, each: prepared.append([e.name for e in each]))
    monkeypatch.setattr(
        kernel_module.Kernel, "specialization", lambda self, arch=None: SimpleNamespace(name=(self.name, arch))
    )
    module.prepare()
    module.prepare("a<3>", "b", arch="sm_90")
    assert prepared == [[("b", None), ("c", None)], [("a", "sm_90"), ("b", "sm_90")]]


def test_what_is_prewarmed(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ck.Kernel(HEADS, "last")
    for wrong in (3, None):
        with pytest.raises(ck.ArgumentError, match=f"prewarm takes several kernels, got {wrong}; put them into a list"):
            ck.prewarm(wrong)  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match=r"prewarm takes several kernels, got one; .*: ck.prewarm\(\[kernel\]\)"):
        ck.prewarm(kernel)  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match=r"prewarm takes kernels, such as kernel\[np.float32\], got 3"):
        ck.prewarm([kernel, 3])  # type: ignore[list-item]
    for archs in ("sm_80", 3):
        with pytest.raises(
            ck.ArgumentError, match=r"prewarm: archs are several, as in archs=\['sm_80', 'sm_90'\], got"
        ):
            ck.prewarm([kernel], archs=archs)  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match="prewarm: workers"):
        ck.prewarm([kernel], workers=0)
    alone: list[Any] = []
    monkeypatch.setattr(
        prewarm_module, "compile_all", lambda each, workers: alone.append(([e.arch for e in each], workers))
    )
    ck.prewarm([kernel], archs=["sm_80", "sm_90"], arch="sm_75", workers=2)
    ck.prewarm(iter([kernel]), archs=iter(["sm_80"]))
    ck.prewarm([])
    assert alone == [(["sm_80", "sm_90", "sm_75"], 2), (["sm_80"], None), ([], None)]
    shared = ck.Kernel("__device__ int n; __global__ void f() { n = 1; }")
    prepared: list[Any] = []
    monkeypatch.setattr(type(shared._calls.unit), "prepare", lambda self, each: prepared.append([e.arch for e in each]))
    ck.prewarm([shared], arch="sm_90")
    assert (alone[3], prepared) == (([], None), [["sm_90"]])


def test_variables_by_their_names() -> None:
    text = "__constant__ float first, second, third, fourth, fifth; __global__ void f() {}"
    found = ck.Module(text).globals
    assert isinstance(found, Globals)
    assert (len(found), [*found]) == (5, ["first", "second", "third", "fourth", "fifth"])
    assert "first" in [*found]
    with pytest.raises(UnknownVariable, match=r"no __constant__, .* variable 'firs'; did you mean first"):
        found.read("firs")
    with pytest.raises(UnknownVariable, match=r"variable 'zzz'; the source has first, second, third, fourth, fifth$"):
        found.address("zzz")
    with pytest.raises(UnknownVariable, match=r"variable 'x'; the source has none$"):
        ck.Module("__global__ void f() {}").globals.read("x")
    alike = ck.Module("__constant__ int abcd1, abcd2, abcd3, abcd4; __global__ void f() {}").globals
    with pytest.raises(UnknownVariable, match=r"did you mean abcd\d or abcd\d or abcd\d\?$"):
        alike.read("abcd")


def test_heads_of_compiled_code() -> None:
    text = (
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry f(.param .u64 a, .param .u32 b)\n{\nret;\n}\n"
    )
    found = binary.declarations(ck.Kernel.from_ptx(text).source)
    (head,) = found.kernels
    assert (head.name, head.template_parameters, head.line) == ("f", (), 1)
