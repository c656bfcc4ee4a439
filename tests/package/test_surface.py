"""What users import stays as it is; a name more or less here is a decision, written in the changelog."""

from __future__ import annotations

import importlib
import pydoc
import re
from pathlib import Path

import pytest

import cudakit as ck
from cudakit import errors

ROOT = Path(__file__).parents[2]
TOP = """
    ArgumentError AxisError BoundsError CacheWarning CompileError CompileOptions CompileWarning Config Cover
    CudakitError EmulationError EmulatorWarning FrameError Graph In InOut Kernel LaunchError Module Out Pipeline
    PipelineError PipelineWarning
    Plan RangeError TemplateError Timer UnknownNameError adapters allocated capture check config cover device_limits
    elementwise empty emulator errors fuse generate has_gpu hazards jax math memory ops pipeline prewarm prove random
    reduction report scale scan show_config stencil stream surface tensor_map testing texture to_device to_host torch
    trace tune tuning use_bundle using
"""
MODULES = {
    "adapters": "from_cupy from_numba from_triton pycuda run",
    "emulator": "EmulatedEvent EmulatedStream Geometry Launch Memory Module counters debug parse run stream strict",
    "errors": """
        Access Details
        ArgumentError AxisError BoundsError CacheWarning CompileError CompileWarning CudakitError EmulationError
        EmulatorWarning FrameError LaunchError PipelineError PipelineWarning RangeError TemplateError UnknownNameError
    """,
    "generate": "Elementwise Fused Reduction Scan Stencil elementwise fuse reduction scan stencil",
    "hazards": "Dependency Party Report foreign manual ordered trace",
    "jax": "call",
    "math": "Entry MISSING TABLE Ufunc",
    "tuning": """
        Candidate Expression Progress Recorded Records Replay Space Tuned TunedKernel read read_t1 records replay
        write_cache write_t1 write_t4
    """,
    "memory": """
        Report allocated copy empty empty_pitched host_view limit prefetch register report to_device to_host trim
    """,
    "ops": """
        add all any argmax argmin argpartition argsort attention bincount box_blur cast compact concatenate convolve2d
        copy count_nonzero cummax cummin cumprod cumsum dilate dot equalize erode flip gaussian_blur histogram layernorm
        log_softmax logsumexp matmul matvec max mean median3 min norm outer pad partition prod resize rgb_to_gray
        rmsnorm roll run_length searchsorted sobel softmax sort sort_by_key std sum take topk transpose unique var
        warp_affine
    """,
    "random": "Generator default_rng",
    "pipeline": """
        Counters Pipeline Run Sink Stage ahead device from_array from_images from_npy from_socket from_zarr host named
        to_array to_images to_npy to_socket to_zarr write_image
    """,
    "scale": "Results map run",
    "testing": "arrays configs dtypes shapes values",
    "torch": "like op",
}
#: Folders of tests that stand beside the package's rooms.
BESIDE = {"cli", "docs", "examples", "package", "support", "templates"}


def test_top_level_names() -> None:
    assert sorted(ck.__all__) == sorted(TOP.split())
    assert all(getattr(ck, name) is not None for name in ck.__all__)


def test_the_tour_comes_to_all_names() -> None:
    tour = pydoc.render_doc(ck, renderer=pydoc.plaintext).partition("PACKAGE CONTENTS")[0]
    named = set(re.findall(r"`(\w+)`", tour))
    assert named == {name for name in TOP.split() if name not in vars(errors)} | {"CudakitError"}


def test_help_of_a_kernel_explains_the_call_first() -> None:
    call, _, construction = (ck.Kernel.__doc__ or "").partition("Parameters\n")
    assert "kernel[template arguments](stream, config, *arguments)" in call.partition("\n")[0]
    explained = re.findall(r"^ *- ``(.*?)``:", call, re.MULTILINE)
    assert explained == ["[template arguments]", "stream", "config", "*arguments"]
    assert "partial" not in call
    assert "partial" in construction


def test_dir_has_public_names_only() -> None:
    assert set(dir(ck)) == {*TOP.split(), "__all__", "__doc__", "__name__", "__version__"}


@pytest.mark.parametrize("name", sorted({*MODULES} - {"errors", "math"}))
def test_dir_of_a_public_module_has_its_names_only(name: str) -> None:
    names = {each for each in dir(getattr(ck, name)) if not each.startswith("__")}
    assert names - {"annotations"} == set(MODULES[name].split())


def test_nothing_of_the_inside_is_seen_of_a_kernel() -> None:
    kernel = ck.Kernel("__global__ void f(int* x) {}")
    face = "arch attributes compile from_file from_ptx from_template globals module name options plan prepare ptx sass"
    more = "dispatcher explain signature source specialization specialization_of tuned with_options"
    assert set(dir(kernel)) == {*face.split(), *more.split()}
    of_module = {name for name in dir(kernel.module) if not name.startswith("_")}
    face = "arch declarations from_file from_template globals kernels options prepare source"
    assert of_module == {*face.split()}
    for of in (ck.Kernel, ck.Module, ck.Plan, ck.Graph, ck.generate.Elementwise):
        text = pydoc.render_doc(of, renderer=pydoc.plaintext)
        assert not re.search(r"\b(forget|of_module|prepare_all|from_source|told|finish|ordinary)\(", text)


@pytest.mark.parametrize("name", MODULES)
def test_names_of_a_public_module(name: str) -> None:
    module = importlib.import_module(f"cudakit.{name}")
    assert getattr(ck, name) is module
    public = getattr(module, "__all__", None)
    if public is None:
        public = [key for key, value in vars(module).items() if isinstance(value, type) and key[0] != "_"]
    assert sorted(public) == sorted(MODULES[name].split())
    assert all(getattr(module, key) is not None for key in public)


def test_public_modules_are_all_named() -> None:
    modules = {name for name in ck.__all__ if getattr(getattr(ck, name), "__path__", None) is not None}
    modules |= {name for name in ck.__all__ if (ROOT / "cudakit" / f"{name}.py").is_file()}
    assert modules == set(MODULES)


def test_every_ufunc_of_the_table_is_there() -> None:
    assert "add" in ck.math.TABLE
    assert all(callable(getattr(ck.math, name)) for name in ck.math.TABLE)


def test_tests_lie_in_rooms() -> None:
    paths = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py")]
    rooms = {path.name for path in (ROOT / "cudakit").iterdir() if path.is_dir()} | BESIDE
    assert [str(path) for path in paths if path.parts[1] not in rooms] == ["tests/conftest.py"]
    stages = {path.name for path in (ROOT / "cudakit" / "jit").iterdir() if path.is_dir()}
    inside = [path for path in paths if path.parts[1] == "jit"]
    assert inside
    assert [str(path) for path in inside if path.parts[2] not in stages] == []
