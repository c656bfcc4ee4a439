import os
import tempfile

import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray

ptx = """
.version 7.0
.target sm_52
.address_size 64

.visible .entry add_one(
    .param .u64 x,
    .param .u32 n
)
{
    .reg .pred  %p<2>;
    .reg .f32   %f<3>;
    .reg .b32   %r<6>;
    .reg .b64   %rd<5>;

    ld.param.u64    %rd1, [x];
    ld.param.u32    %r2, [n];
    mov.u32         %r3, %ctaid.x;
    mov.u32         %r4, %ntid.x;
    mov.u32         %r5, %tid.x;
    mad.lo.s32      %r1, %r3, %r4, %r5;
    setp.ge.s32     %p1, %r1, %r2;
    @%p1 bra        DONE;
    cvta.to.global.u64  %rd2, %rd1;
    mul.wide.s32    %rd3, %r1, 4;
    add.s64         %rd4, %rd2, %rd3;
    ld.global.f32   %f1, [%rd4];
    add.f32         %f2, %f1, 0f3F800000;
    st.global.f32   [%rd4], %f2;
DONE:
    ret;
}
"""
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "add_one.ptx")
    with open(path, "w") as file:
        file.write(ptx)
    mod = cuda.module_from_file(path)

add_one = mod.get_function("add_one")
x = np.random.rand(100).astype(np.float32)
x_gpu = gpuarray.to_gpu(x)
add_one(x_gpu, np.int32(100), block=(64, 1, 1), grid=(2, 1))
assert np.array_equal(x_gpu.get(), x + 1)
add_one.prepare("Pi")
add_one.prepared_call((2, 1), (64, 1, 1), x_gpu.gpudata, 50)
assert np.allclose(x_gpu.get()[:50], x[:50] + 2)
assert np.array_equal(x_gpu.get()[50:], x[50:] + 1)
