"""``cudakit check``, ``cudakit inspect`` and ``cudakit debug``: programs of users, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import emulated
from support.forks import completed_in_a_fork

from cudakit import cli

ROOT = Path(__file__).parents[2]
PROGRAM = '''
import sys
import numpy as np
import cudakit as ck

scale = ck.Kernel("""
__global__ void scale(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}""")
stream = ck.stream()
with ck.using(stream) as xp:
    x = xp.ones(100, "f4")
    scale(stream, ck.config(1, 128), x, int(sys.argv[1]))
    print("sum", x.sum())
'''
OF_CUPY = '''
import cupy as cp

scale = cp.RawKernel(r"""
extern "C" __global__ void scale(float* x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}""", "scale")
difference = cp.ElementwiseKernel("T x, T y", "T z", "z = x - y", "difference")
norm = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
module = cp.RawModule(code="template <typename T> __global__ void plus(T* x) { x[threadIdx.x] += 1; }")
x = cp.arange(100, dtype=cp.float32)
with cp.cuda.Stream():
    scale((1,), (128,), (x, cp.float32(2), x.size))
module.get_function("plus<float>")((1,), (100,), (x,))
assert (cp.asnumpy(x) == cp.asnumpy(2 * cp.arange(100) + 1)).all()
assert type(x.get()).__name__ == "ndarray" and cp.get_array_module(x) is cp
assert float(difference(x, x).sum()) == 0 and float(norm(cp.ones(16))) == 4
cp.cuda.Device(0).synchronize()
cp.random.seed(0)
assert cp.random.rand(3).get().shape == (3,)
try:
    cp.nditer
except AttributeError as error:
    print(error)
'''


def command(
    folder: Path, program: str, *words: str, typed: str = "", fresh: bool = False
) -> subprocess.CompletedProcess[str]:
    """``cudakit`` with these words, in a folder that has the program; `fresh`: where nothing is imported yet."""
    (folder / "app.py").write_text(program)
    if not (fresh or emulated.place.is_gpu):  # a fork of a process that has used the GPU has none
        return completed_in_a_fork(lambda: cli.main([*words]), 120, folder, typed)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "cudakit", *words], cwd=folder, capture_output=True, text=True, check=False, input=typed,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


def test_a_program_that_is_right(tmp_path: Path) -> None:
    done = command(tmp_path, PROGRAM, "check", "app.py", "--", "100", fresh=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "sum 200.0\n1 kernel, 1 launch: nothing wrong was found.\n"


def test_a_program_that_is_wrong(tmp_path: Path) -> None:
    done = command(tmp_path, PROGRAM, "check", "app.py", "--", "101")
    assert done.returncode == 3
    assert "app.py:9" in done.stdout
    assert "element 100 is past the end" in done.stdout
    done = command(
        tmp_path, PROGRAM.replace("import sys", "import sys; print(2)"), "check", "--json", "app.py", "--", "101"
    )
    assert done.stderr.startswith("2\n"), "what the program prints is no JSON"
    found = json.loads(done.stdout)
    (fault,) = found["problems"]
    assert (found["ok"], fault["kernel"], Path(fault["file"]).name, fault["line"]) == (False, "scale", "app.py", 9)


@pytest.mark.slow
def test_a_program_that_is_right_in_json(tmp_path: Path) -> None:
    done = command(tmp_path, PROGRAM, "check", "--json", "app.py", "--", "100")
    assert json.loads(done.stdout)["ok"]
    assert done.stderr == "sum 200.0\n"


RACY = PROGRAM.replace(
    "    if (i < n) x[i] *= 2;",
    "    __shared__ float held[128];\n    held[threadIdx.x] = x[i];\n    if (i < n) x[i] = held[127 - threadIdx.x];",
)


@pytest.mark.slow
def test_a_program_whose_threads_race(tmp_path: Path) -> None:
    done = command(tmp_path, RACY.replace("ones(100", "ones(128"), "check", "app.py", "--", "128")
    assert done.returncode == 3
    assert "race" in done.stdout
    assert "app.py:11: " in done.stdout
    assert "1 kernel, 1 launch: 1 fault." in done.stdout
    done = command(tmp_path, RACY.replace("ones(100", "ones(128"), "check", "--json", "app.py", "--", "128")
    (fault,) = json.loads(done.stdout)["problems"]
    assert (fault["kind"], fault["line"], Path(fault["file"]).name) == ("race", 11, "app.py")
    done = command(tmp_path, RACY.replace("ones(100", "ones(128"), "inspect", "app.py", "--", "128")
    assert done.returncode == 0, "inspect does not look for them"


LATE = '''
import numpy as np
import cudakit as ck

late = ck.Kernel("""
__global__ void late(int* y, int* flag) {
    if (blockIdx.x == 0 && threadIdx.x == 0) atomicExch(flag, 1);
    __syncthreads();
    if (blockIdx.x == 1 && threadIdx.x == 0 && !atomicAdd(flag, 0)) y[999999] = 1;
}""")
y, flag = ck.to_device(np.zeros(64, "i4")), ck.to_device(np.zeros(1, "i4"))
late(ck.stream(), ck.config(2, 64), y, flag)
'''


@pytest.mark.slow
def test_further_orders_of_threads(tmp_path: Path) -> None:
    assert command(tmp_path, LATE, "check", "app.py").returncode == 0
    done = command(tmp_path, LATE, "check", "app.py", "--schedules", "20")
    assert done.returncode == 3
    assert "switch is enough" in done.stdout
    done = command(tmp_path, LATE, "check", "--json", "--schedules=20", "app.py")
    (fault,) = json.loads(done.stdout)["problems"]
    assert (fault["kind"], fault["line"], len(fault["schedule"])) == ("fault", 9, 2)


def test_arguments_of_the_program_without_dashes(tmp_path: Path) -> None:
    done = command(tmp_path, PROGRAM, "check", "app.py", "100")
    assert done.returncode == 2
    assert "unrecognized arguments: 100; the program's own arguments follow after --: -- 100" in done.stderr


@pytest.mark.slow
def test_what_its_kernels_do(tmp_path: Path) -> None:
    done = command(tmp_path, PROGRAM, "inspect", "app.py", "--html", "--", "100")
    assert done.returncode == 0
    assert "wrote app.html" in done.stderr
    assert "if (i < n) x[i] *= 2;" in done.stdout
    assert (tmp_path / "app.html").read_text().startswith("<!doctype html>")
    done = command(tmp_path, PROGRAM, "inspect", "app.py", "--html", "page.html", "--card", "L4", "--", "100")
    assert "NVIDIA L4 datasheet" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_programs_of_cupy(tmp_path: Path) -> None:
    done = command(tmp_path, OF_CUPY, "check", "app.py")
    assert done.returncode == 0, done.stderr
    assert "cupy.nditer is not here: without a GPU cudakit puts NumPy in CuPy's place" in done.stdout
    assert "4 kernels, 4 launches: nothing wrong was found." in done.stdout
    done = command(tmp_path, OF_CUPY.replace("x.size))", "101))"), "check", "app.py")
    assert done.returncode == 3
    assert "app.py:7" in done.stdout


OF_NUMBA = """
import numpy as np
from numba import cuda, float32

@cuda.jit(device=True)
def twice(v):
    return v + v

@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] += a * twice(x[i])

@cuda.jit("void(float32[:], float32[:])")
def reverse(x, y):
    held = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    held[t] = x[t]
    cuda.syncthreads()
    y[t] = held[127 - t]

assert cuda.is_available()
x, stream = np.arange(128, dtype=np.float32), cuda.stream()
y = cuda.to_device(np.ones(128, np.float32))
axpy[1, 128, stream](2.0, x, y)
axpy.forall(128)(1.0, x, y)
cuda.synchronize()
assert (y.copy_to_host() == 6 * x + 1).all()
z = cuda.device_array_like(x)
reverse[1, 128](x, z)
assert (z.copy_to_host() == x[::-1]).all()
"""


@pytest.mark.bridges
def test_programs_of_numba(tmp_path: Path) -> None:
    pytest.importorskip("numba.cuda")
    try:
        import numba.cuda.cudaimpl  # noqa: F401
    except AttributeError as error:
        pytest.skip(f"numba.cuda does not go with this NumPy: {error}")
    done = command(tmp_path, OF_NUMBA, "check", "app.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 kernels, 3 launches: nothing wrong was found." in done.stdout
    done = command(tmp_path, OF_NUMBA.replace("    cuda.syncthreads()\n", ""), "check", "app.py")
    assert done.returncode == 3
    assert "reverse: app.py:20: race" in done.stdout.replace(f"{tmp_path}/", "")
    unset = OF_NUMBA + "axpy[1, 128](1.0, cuda.device_array(128, np.float32), y)"
    done = command(tmp_path, unset, "check", "app.py")
    assert "which was allocated and never written" in done.stdout


OF_TRITON = """
import numpy as np
import triton
import triton.language as tl

class Tensor:  # what Triton and the emulator ask of one of torch's
    def __init__(self, data): self.data, self.dtype = data, f"torch.{data.dtype}"
    def data_ptr(self): return self.data.ctypes.data
    def numpy(self): return self.data
    def is_contiguous(self): return True

@triton.autotune(configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"])
@triton.jit
def add(x, y, z, n, by, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(z + i, tl.load(x + i, mask=inside) + by * tl.load(y + i, mask=inside), mask=inside)

x, y, z = (Tensor(np.full(1000, k, np.float32)) for k in (1, 2, 0))
add[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, y, z, 1000, 2.0)
assert (z.data == 5).all()
"""


REDUNDANT = (
    OF_TRITON.partition("@triton.autotune")[0]
    + """
@triton.jit
def bump(x, n):
    i = tl.program_id(0)
    tl.store(x + i, tl.load(x + i) * 2)

@triton.jit
def totals(x, total, N, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    for k in range(0, N, BLOCK):
        tl.store(total + row, tl.load(total + row) + tl.sum(tl.load(x + row * N + k + i), axis=0))

@triton.jit
def first_to_all(x, y, BLOCK: tl.constexpr):
    first = tl.load(x)
    tl.store(y + tl.arange(0, BLOCK), first)
    tl.store(x, first + 1)

x, rows, total, y = (Tensor(np.ones(count, np.float32)) for count in (8, 1024, 4, 256))
bump[(8,)](x, 8)
assert (x.data == 2).all()
totals[(4,)](rows, total, 256, BLOCK=64)
assert (total.data == 257).all()
"""
)


OF_TRITON_AND_TORCH = """
import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()

@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x + y, mask=mask)

@triton.jit
def softmax(out, inp, in_stride, out_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(inp + row * in_stride + cols, mask=cols < n_cols, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * out_stride + cols, x / tl.sum(x, axis=0), mask=cols < n_cols)

def add(x, y):
    out = torch.empty_like(x)
    assert x.device == DEVICE
    n = out.numel()
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)](x, y, out, n, BLOCK_SIZE=1024)
    return out

for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32):
    x = (torch.rand(5000, device=DEVICE) * 9).to(dtype)
    y = (torch.rand(5000, device=DEVICE) * 9).to(dtype)
    assert torch.equal(add(x, y), x + y), dtype
whole = torch.randn(16, 100, device=DEVICE)
view = whole[:, 3:93]
out = torch.empty(16, 90)
softmax[(16,)](out, view, view.stride(0), out.stride(0), 90, BLOCK=128)
assert torch.allclose(out, torch.softmax(view, axis=1), atol=1e-6)
"""


OF_DESCRIPTORS = """
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def copy_host(a, b, M: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * M
    b.store([i, 0], a.load([i, 0]) + 1)

@triton.jit
def copy_device(a, b, R, C, M: tl.constexpr, N: tl.constexpr):
    x = tl.make_tensor_descriptor(a, shape=[R, C], strides=[C, 1], block_shape=[M, N])
    y = tl.make_tensor_descriptor(b, shape=[R, C], strides=[C, 1], block_shape=[M, N])
    i = tl.program_id(0) * M
    y.store([i, 0], x.load([i, 0]) + 1)

@triton.jit
def by_address(addresses, n, out, BLOCK: tl.constexpr):
    i, k = tl.arange(0, BLOCK), tl.program_id(0)
    x = tl.load(addresses + k).to(tl.pointer_type(tl.float32))
    tl.store(out + k * BLOCK + i, tl.load(x + i, mask=i < n))

scratch = []
def allocate(size, align, stream):
    scratch.append(torch.empty(size, device="cuda", dtype=torch.int8))
    return scratch[-1]

for dtype in (torch.float16, torch.int8):
    x = (torch.randn(64, 32, device="cuda") * 10).to(dtype)
    y = torch.zeros_like(x)
    copy_host[(4,)](TensorDescriptor.from_tensor(x, [16, 32]), TensorDescriptor.from_tensor(y, [16, 32]), 16, 32)
    assert torch.equal(y, x + 1), dtype
    y.zero_()
    if not scratch:
        try:
            copy_device[(4,)](x, y, 64, 32, 16, 32)
        except RuntimeError as error:
            assert "no allocator was set" in str(error)
        else:
            raise AssertionError
    triton.set_allocator(allocate)
    copy_device[(4,)](x, y, 64, 32, 16, 32)
    assert torch.equal(y, x + 1), dtype
parts = [torch.rand(n, device="cuda") for n in (20, 30)]
addresses = torch.tensor([part.data_ptr() for part in parts], device="cuda")
out = torch.zeros(2, 32, device="cuda")
compiled = by_address[(2,)](addresses, 20, out, BLOCK=32)
assert all(torch.equal(row[:20], part[:20]) for row, part in zip(out, parts))
assert compiled.n_regs > 0 and compiled.n_spills == 0
assert (out.is_cuda, out.device.type, out.get_device(), str(parts[0].device)) == (True, "cuda", 0, "cuda:0")
host = out.cpu()
out.zero_()
assert host.any() and (host.is_cuda, host.device.type) == (False, "cpu")
assert isinstance(torch.default_generator, torch.Generator) and (torch.Generator | None)
assert torch.Generator("cuda").manual_seed(3).initial_seed() == 3
half = torch.full((1, 2048), 0.001, dtype=torch.float16, device="cuda", requires_grad=True)
bias = torch.zeros(1, dtype=torch.float16, device="cuda", requires_grad=True)
rows = torch.nn.functional.layer_norm(half.reshape(2048, 1), (1,), None, bias)
rows.backward(half.detach().reshape(2048, 1))
assert abs(bias.grad.item() - 2.05) < 0.01, bias.grad  # float16 alone sums to another number
print(out[0, :2])
del parts, x, y
try:
    by_address[(2,)](addresses, 20, out, BLOCK=32)
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.bridges
@pytest.mark.emulator
def test_programs_of_triton_with_descriptors(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    done = command(tmp_path, OF_DESCRIPTORS, "run", "app.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "tensor([0., 0.], device='cuda:0')\nEmulationError\n"


@pytest.mark.bridges
def test_programs_of_triton_and_torch(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    done = command(tmp_path, OF_TRITON_AND_TORCH, "check", "app.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 kernels, 5 launches: nothing wrong was found." in done.stdout


@pytest.mark.bridges
def test_programs_of_triton(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    done = command(tmp_path, OF_TRITON, "check", "app.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing wrong was found." in done.stdout
    done = command(tmp_path, OF_TRITON.replace("i < n", "i < n + 24"), "check", "app.py")
    assert done.returncode == 3
    assert "app.py:17" in done.stdout
    assert "element 1000 is past the end" in done.stdout


@pytest.mark.parametrize("status", [pytest.param(0, marks=pytest.mark.slow), 3])
def test_the_programs_own_status(tmp_path: Path, status: int) -> None:
    assert command(tmp_path, f"raise SystemExit({status})", "check", "app.py").returncode == status


@pytest.mark.slow
def test_what_cannot_be_run(tmp_path: Path) -> None:
    done = command(tmp_path, "", "check", "no.py")
    assert (done.returncode, done.stderr) == (6, "cudakit: there is no program no.py\n")
    done = command(tmp_path, "", "debug", "no.py:3")
    assert (done.returncode, done.stderr) == (6, "cudakit: there is no program no.py\n")
    done = command(tmp_path, "1 / 0", "check", "app.py")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.slow
def test_stepping_through_its_kernel(tmp_path: Path) -> None:
    typed = "p i\nreverse-step\nbreak i < n\nc\nquit\n"
    done = command(tmp_path, PROGRAM, "debug", "app.py:9", "--", "100", typed=typed)
    assert done.returncode == 0, done.stderr
    assert "block 0, warp 0, lanes 0-31 in scale at" in done.stdout
    assert "app.py:9 (breakpoint 1)\n->    9     if (i < n) x[i] *= 2;" in done.stdout
    assert "i = [0 1 2 3 4" in done.stdout
    assert done.stdout.endswith("sum 200.0\n"), "the program has gone on with arrays as they were"
    done = command(tmp_path, PROGRAM, "debug", "app.py:900", "--", "100")
    assert done.returncode == 1
    assert "app.py launches no kernel of threads that has line 900, or any after it" in done.stderr


@pytest.mark.bridges
def test_redundant_threads_of_triton(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    done = command(tmp_path, REDUNDANT, "check", "app.py")
    assert "2 kernels, 2 launches: nothing wrong was found." in done.stdout, done.stdout + done.stderr
    done = command(tmp_path, REDUNDANT + "first_to_all[(1,)](x, y, BLOCK=256)", "check", "app.py")
    assert "first_to_all: app.py:28: race" in done.stdout.replace(f"{tmp_path}/", "")
