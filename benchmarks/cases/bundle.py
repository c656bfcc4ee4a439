"""The first launch of a fresh process: from a bundle, from the cache on disk and compiled, beside bare cuda.core.

Each time is from the start of the process to the end of its first launch, as the parent's clock sees it; processes of
all programs take turns, and medians are shown. Bare cuda.core loads and launches the machine code of the same bundle.
Without a GPU only the opening of bundles is measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tables import table

TITLE = "Bundles"
SCALE = """template <typename T>
__global__ void scale(T* x, T by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}
"""
BARE = """
import sys, time
from cuda.core import Device, LaunchConfig, ObjectCode, launch
import numpy as np
device = Device()
device.set_current()
stream = device.create_stream()
x = device.allocate(4096, stream=stream)
start = time.perf_counter()
kernel = ObjectCode.from_cubin(open("scale.cubin", "rb").read()).get_kernel(open("scale.name").read())
launch(stream, LaunchConfig(grid=4, block=256), kernel, x, np.float32(2), np.int32(1024))
stream.sync()
print(time.time_ns(), time.perf_counter() - start)
"""
OURS = """
import sys, time
import cudakit as ck
stream = ck.stream()
x = stream.device.allocate(4096, stream=stream)
start = time.perf_counter()
if len(sys.argv) > 1:
    ck.use_bundle(sys.argv[1], compile="never")
ck.Kernel.from_file("scale.cu")["float"](stream, ck.config(4, 256), x, 2.0, 1024)
stream.sync()
print(time.time_ns(), time.perf_counter() - start)
"""
#: The kernel is made first: the driver has less to start beside.
KERNEL_FIRST = """
import sys, time
import cudakit as ck
ck.use_bundle(sys.argv[1], compile="never")
scale = ck.Kernel.from_file("scale.cu")["float"]
stream = ck.stream()
x = stream.device.allocate(4096, stream=stream)
start = time.perf_counter()
scale(stream, ck.config(4, 256), x, 2.0, 1024)
stream.sync()
print(time.time_ns(), time.perf_counter() - start)
"""
#: The driver is started by another library, and nothing loads beside it.
THEIR_STREAM = """
import sys, time
from cuda.core import Device, LaunchConfig, ObjectCode, launch
import numpy as np
import cudakit as ck
device = Device()
device.set_current()
stream = device.create_stream()
x = device.allocate(4096, stream=stream)
start = time.perf_counter()
ck.use_bundle(sys.argv[1], compile="never")
ck.Kernel.from_file("scale.cu")["float"](stream, ck.config(4, 256), x, 2.0, 1024)
stream.sync()
print(time.time_ns(), time.perf_counter() - start)
"""
IMPORT = "import numpy, cuda.core, time; s = time.perf_counter(); {}; print(0, time.perf_counter() - s)"
IMPORTED = {
    "import cudakit beyond cuda.core and NumPy": "import cudakit",
    "import cudakit and the modules of a first launch": "import cudakit as ck; ck.Kernel, ck.config, ck.use_bundle",
}


def rows(repeats: int) -> Iterator[tuple[str, str, str, str]]:
    """Rows (what, time, beside, aim)."""
    import cudakit as ck

    with tempfile.TemporaryDirectory() as folder:
        if ck.has_gpu():
            yield from first_launches(Path(folder), repeats)
        for count in (1, 100, 10_000):
            yield f"open a bundle of {count:,} kernels", f"{opened_us(Path(folder), count):.0f} µs", "", "≤ 1,000 µs"


def first_launches(folder: Path, repeats: int) -> Iterator[tuple[str, str, str, str]]:
    """Rows of processes that launch one kernel and end."""
    import cudakit as ck
    from cudakit.bundles.build import build
    from cudakit.jit.bundle.file import BundleFile

    arch = f"sm_{ck.stream().device.arch}"
    (folder / "scale.cu").write_text(SCALE)
    kernels = 'kernels = [{file = "scale.cu", name = "scale", arguments = ["float"]}]'
    for name, archs in (("kernels", f'archs = ["{arch}"]\nptx = []'), ("late", f'ptx = ["{arch}"]')):
        (folder / f"{name}.toml").write_text(f"{archs}\n{kernels}\n")
        build(folder / f"{name}.toml", folder / f"{name}.ckb")
    (code,) = (entry for entry in BundleFile(folder / "kernels.ckb") if entry.category == "code")
    (folder / "scale.cubin").write_bytes(code.body)
    (folder / "scale.name").write_text(code.header["lowered"]["scale<float>"])
    compiled = [sys.executable, "-m", "compileall", "-q", str(Path(__file__).parents[2] / "cudakit")]
    subprocess.run(compiled, check=True)
    programs: dict[str, tuple[str, tuple[str, ...], str]] = {
        "bare cuda.core": (BARE, (), ""),
        "from a bundle, no cache": (OURS, ("kernels.ckb",), ""),
        "the same, kernel before stream": (KERNEL_FIRST, ("kernels.ckb",), ""),
        "the same, cuda.core's stream": (THEIR_STREAM, ("kernels.ckb",), ""),
        "from a bundle's PTX, translated before": (OURS, ("late.ckb",), str(folder / "late")),
        "from the cache on disk": (OURS, (), str(folder / "cache")),
        "compiled": (OURS, (), "new"),
    }
    whole: dict[str, list[float]] = {name: [] for name in programs}
    inside: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(repeats + 1):
        for name, (program, arguments, cache) in programs.items():
            place = str(folder / f"new{turn}") if cache == "new" else cache
            start, end, launch_ms = in_process(folder, program, arguments, place)
            if turn:  # the first fills the caches
                whole[name].append((end - start) / 1e6)
                inside[name].append(launch_ms)
    bare = statistics.median(whole["bare cuda.core"])
    for name, times in whole.items():
        median = statistics.median(times)
        beside = f"{median - bare:+.1f} ms" if name != "bare cuda.core" else f"{min(times):.1f} … {max(times):.1f} ms"
        aim = "≤ +5 ms" if name.startswith("from a bundle,") else ""
        yield f"process start to end of first launch, {name}", f"{median:.1f} ms", beside, aim
    for name, times in inside.items():
        yield f"load and first launch alone, {name}", f"{statistics.median(times):.2f} ms", "", ""
    for name, program in IMPORTED.items():
        imports = [in_process(folder, IMPORT.format(program), (), "")[2] for _ in range(repeats)]
        yield name, f"{statistics.median(imports):.1f} ms", "", "≤ 20 ms"


def in_process(folder: Path, program: str, arguments: tuple[str, ...], cache: str) -> tuple[int, int, float]:
    """Start of a process and end of its launch, in nanoseconds, and the milliseconds that the process counted."""
    environment = {**os.environ, "CUDAKIT_CACHE_DIR": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.time_ns()
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    end, counted = done.stdout.split()
    return start, int(end), float(counted) * 1e3


def opened_us(folder: Path, count: int) -> float:
    """Median time to open a bundle and read one of its kernels, in microseconds."""
    from cudakit.jit.bundle.file import BundleFile, Entry, write

    path = folder / f"{count}.ckb"
    write(path, (Entry("code", f"{number}", {"label": "k"}, bytes(8192)) for number in range(count)), {})

    def once(number: int) -> float:
        start = time.perf_counter()
        assert BundleFile(path).read("code", f"{number * 7919 % count}")
        return (time.perf_counter() - start) * 1e6

    return statistics.median(map(once, range(101)))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this family."""
    parser.add_argument("--repeats", type=int, default=15, help="processes of each program")


def lines(options: argparse.Namespace) -> Iterator[str]:
    """The page's lines."""
    yield from table(("what", "median", "beside bare cuda.core", "aim"), rows(options.repeats))
