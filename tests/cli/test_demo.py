"""The demo: its NumPy references against plain loops, its path without a GPU, and its checks on kernels that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import floor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import demo

UINT8, FLOAT32 = np.dtype(np.uint8), np.dtype(np.float32)


def random_image(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, shape).astype(np.uint8)


# --- references -------------------------------------------------------------------------------------------------------


def test_gray_reference_is_the_weighted_sum_to_the_nearest() -> None:
    rgb = random_image(19, 23, 3)
    gray = demo.gray_reference(rgb)
    assert gray.dtype == np.uint8
    for (red, green, blue), level in zip(rgb.reshape(-1, 3).tolist(), gray.ravel().tolist(), strict=True):
        assert level == floor((19595 * red + 38470 * green + 7471 * blue) / 65536 + 0.5)
        # The fixed-point weights are within 2^-17 of BT.601's: 255 × 3 × 2^-17 more than the rounding's half.
        assert abs(level - (0.299 * red + 0.587 * green + 0.114 * blue)) <= 0.506
    assert (demo.gray_reference(np.full((1, 3), 255, np.uint8)) == 255).all()


def test_gray_reference_is_pillows() -> None:
    from PIL import Image

    rgb = random_image(64, 65, 3)
    assert (demo.gray_reference(rgb) == np.asarray(Image.fromarray(rgb).convert("L"))).all()


def test_gray_reference_of_floats() -> None:
    rgb = demo.from_uint8(random_image(5, 4, 3), FLOAT32)
    gray = demo.gray_reference(rgb)
    assert gray.dtype == np.float64
    red, green, blue = (float(value) for value in rgb[2, 3])
    assert gray[2, 3] == pytest.approx(0.299 * red + 0.587 * green + 0.114 * blue, rel=1e-14)


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (6, 1), (2, 3), (9, 11)])
@pytest.mark.parametrize("dtype", [UINT8, FLOAT32, np.dtype(np.int16)], ids=str)
def test_blur_reference(shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    pixels = random_image(*shape)
    image = (pixels - 128.0).astype(dtype) if dtype == np.int16 else demo.from_uint8(pixels, dtype)
    blurred = demo.blur_reference(image)
    height, width = shape
    filter_weights = np.outer((1, 4, 6, 4, 1), (1, 4, 6, 4, 1))
    for y in range(height):
        for x in range(width):
            total = 0.0
            for i in range(5):
                for j in range(5):
                    row, column = min(max(y + i - 2, 0), height - 1), min(max(x + j - 2, 0), width - 1)
                    total += float(filter_weights[i, j]) * float(image[row, column])
            if dtype.kind == "f":
                assert blurred[y, x] == pytest.approx(total / 256, rel=1e-12)
            else:
                assert blurred[y, x] == floor(total / 256 + 0.5)


def test_histogram_reference_counts_each_gray_level() -> None:
    for dtype in (UINT8, FLOAT32):
        low, high = demo.histogram_range(dtype)
        levels = np.repeat(np.arange(256), np.arange(256)).astype(np.uint8)
        counts = demo.histogram_reference(demo.from_uint8(levels, dtype), low, high, 256)
        assert counts.dtype == np.uint64
        assert counts.tolist() == list(range(256))


def test_histogram_reference_agrees_with_numpy_away_from_edges() -> None:
    values = np.random.default_rng(3).integers(0, 1000, 5000) / 1000 + 1 / 3000  # never at a multiple of 1/10
    counts = demo.histogram_reference(values, 0.0, 1.0, 10)
    assert counts.tolist() == np.histogram(values, 10, (0.0, 1.0))[0].tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_histogram_reference_at_its_edges(dtype: Any) -> None:
    below_high = np.nextafter(dtype(1), dtype(0))
    values = np.array([0.0, -1e-30, 0.5, below_high, 1.0, np.nan, np.inf, -np.inf], dtype)
    assert demo.histogram_reference(values, 0.0, 1.0, 4).tolist() == [1, 0, 1, 1]


def test_tolerance() -> None:
    reference = np.array([0.25, -2.0])
    assert demo.tolerance(UINT8, 25, reference) == 0
    assert demo.tolerance(FLOAT32, 25, reference) == pytest.approx(25 * 2 * 2.0**-23)


# --- photograph and picture -------------------------------------------------------------------------------------------


def test_default_photo() -> None:
    pixels = demo.read_photo(None)
    assert pixels.shape == (600, 512, 3)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous


def test_photo_of_any_mode_becomes_rgb(tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(random_image(4, 6)).save(tmp_path / "gray.png")
    assert demo.read_photo(tmp_path / "gray.png").shape == (4, 6, 3)


def test_unreadable_photo(tmp_path: Path) -> None:
    (tmp_path / "not.png").write_bytes(b"text")
    for name in ("not.png", "missing.png"):
        with pytest.raises(OSError, match=name):
            demo.read_photo(tmp_path / name)


def stages_for(dtype: np.dtype[Any]) -> list[demo.Stage]:
    rgb = demo.from_uint8(random_image(12, 10, 3), dtype)
    gray = demo.gray_reference(rgb)
    counts = demo.histogram_reference(gray, *demo.histogram_range(dtype), 256)
    return [
        demo.Stage(name, dtype, output, 0.1, "GPU", 0.0, 0.0)
        for name, output in zip("gbh", (gray, gray, counts), strict=True)
    ]


def test_the_detail_is_where_the_blur_is_seen() -> None:
    gray = np.full((200, 300), 100, np.uint8)
    blurred = gray.copy()
    blurred[100:104, 250] = 90
    blurred[0, 0] = 80
    assert demo.detail_of(gray, blurred) == (96, 144, 240, 288)
    assert demo.detail_of(gray[:20, :30], blurred[:20, :30]) == (0, 20, 0, 30)
    assert demo.detail_of(gray / 255, blurred / 255) == (96, 144, 240, 288)


@pytest.mark.parametrize("height", [1, 2, 3, 5, 40])
@pytest.mark.parametrize("rows", [1, 2, 3, 39, 40])
def test_strips_have_every_row_once(height: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_STRIP_PIXELS", rows * 7 + 6)
    strips = demo.strips_of(height, 7, emulated=True)
    assert [row for first, last in strips for row in range(first, last)] == list(range(height))
    assert max(last - first for first, last in strips) <= rows
    assert demo.strips_of(height, 7, emulated=False) == [(0, height)]


def test_in_strips_it_is_the_same_and_says_how_far_it_is(stream: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rgb = random_image(41, 50, 3)
    strips = [(0, 20), (20, 21), (21, 40), (40, 41)]
    bar = demo.Bar(3 * len(strips))
    parts = demo.run_stages(stream, rgb, strips, bar)
    whole = demo.run_stages(stream, rgb, [(0, 41)], demo.Bar(3))
    on_a_gpu = getattr(stream, "machine", "GPU") == "GPU"
    compiled, interpreted = "emulator, compiled for this CPU", "emulator, interpreted with NumPy"
    ran = {"numpy": {interpreted}, "compiled": {compiled}, "auto": {interpreted, compiled}, "GPU": {"GPU"}}
    assert {one.machine for one in parts} <= ran["GPU" if on_a_gpu else stream.machine]
    shown = capsys.readouterr().err
    for one, other in zip(parts, whole, strict=True):
        assert one.is_right
        assert other.is_right
        np.testing.assert_array_equal(one.output, other.output)
    assert shown.count("\r") == 12
    assert "\r█████··············· image/gray, uint8" in shown
    assert shown.endswith("\n")
    assert shown.count("\n") == 1


@pytest.mark.slow
def test_picture_replaces_the_old_one_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "new folder"
    stages = {dtype: stages_for(dtype) for dtype in (UINT8, FLOAT32)}
    path = demo.save_picture(random_image(12, 10, 3), stages, folder)
    assert path == folder / "cudakit-demo.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    before = path.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        demo.save_picture(random_image(12, 10, 3), stages, folder)
    assert [entry.name for entry in folder.iterdir()] == ["cudakit-demo.png"]
    assert path.read_bytes() == before


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_a_gpu_it_runs_on_the_emulator_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(ck, "has_gpu", lambda: False)
    from PIL import Image

    photo = tmp_path / "photo.png"
    Image.fromarray(np.random.default_rng(3).integers(0, 256, (70, 90, 3), np.uint8)).save(photo)
    assert demo.main(photo, "sm_80", tmp_path) == 0
    output = capsys.readouterr().out
    assert "cudakit's emulator runs the CUDA kernels on this CPU" in output
    assert "compiles long ones for this CPU" in output or "pip install 'cudakit[cpu]'" in output
    assert output.count("emulator, interpreted with NumPy  ") + output.count("emulator, compiled for this CPU ") == 6
    assert "for sm_80" in output
    assert output.count("  compiled\n") == 6
    assert output.count("exact") == 4
    assert output.count("within") == 2
    assert (tmp_path / "cudakit-demo.png").stat().st_size > 10_000


def test_a_kernel_that_does_not_compile_fails_the_demo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        def __getitem__(self, _: object) -> Broken:
            return self

        def compile(self, *, arch: str) -> None:
            raise ck.CompileError(f"no such thing on {arch}")

    monkeypatch.setattr(ck.Kernel, "from_template", lambda _: Broken())
    assert not demo.compile_all("sm_90")
    assert capsys.readouterr().out.count("failed: no such thing on sm_90") == 6


class HostStream:
    """What the demo asks of a stream that has no events."""

    def sync(self) -> None:
        pass


def on_the_host(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[str, np.ndarray], None]) -> None:
    """Let NumPy stand in for the kernels and the stream; `spoil` may then change what a kernel wrote."""

    def gray(_: Any, __: Any, rgb: np.ndarray, out: np.ndarray, size: int) -> None:
        assert size == out.size
        out[:] = demo.gray_reference(rgb)
        spoil("gray", out)

    def blur(_: Any, __: Any, image: np.ndarray, out: np.ndarray, height: int, width: int) -> None:
        assert (height, width) == out.shape
        out[:] = demo.blur_reference(image)
        spoil("blur", out)

    def even(_: Any, __: Any, values: np.ndarray, counts: np.ndarray, size: int, low: float, high: float) -> None:
        assert size == values.size
        counts += demo.histogram_reference(values, low, high, counts.size)
        spoil("even", counts)

    kernels = {"image/gray": gray, "image/blur": blur, "histogram/even": even}

    @contextmanager
    def using(_: object) -> Iterator[Any]:
        yield np

    monkeypatch.setattr(ck, "stream", HostStream)
    monkeypatch.setattr(ck, "has_gpu", lambda: True)
    monkeypatch.setattr(ck, "device_limits", lambda: SimpleNamespace(name="a made-up card"))
    monkeypatch.setattr(ck, "using", using)
    monkeypatch.setattr(ck.Kernel, "from_template", kernels.__getitem__)
    monkeypatch.setattr(demo, "_machine_of", lambda _: "the host")


@pytest.mark.slow
def test_a_run_is_checked_and_drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    on_the_host(monkeypatch, lambda *_: None)
    assert demo.main(None, None, tmp_path) == 0
    output = capsys.readouterr().out
    assert output.count("exact") == 4
    assert output.count("within") == 2
    assert "The kernels run on the GPU, a made-up card." in output
    (picture,) = tmp_path.iterdir()
    assert f"picture: {picture}" in output


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["gray", "blur", "even"])
def test_a_wrong_kernel_is_seen(
    broken: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def spoil(name: str, output: np.ndarray) -> None:
        if name == broken:
            output.flat[-1] += 1 if output.dtype.kind == "u" else 1e-5

    on_the_host(monkeypatch, spoil)
    assert demo.main(None, None, tmp_path) == 1
    output = capsys.readouterr().out
    assert output.count("WRONG") == 2
    assert output.count("exact") + output.count("within") == 4
