"""A texture of an opaque array, sampled between its texels."""

import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch
from cuda.core.texture import OpaqueArrayOptions, ResourceDescriptor, TextureObjectOptions

code = """
extern "C" __global__ void sample(cudaTextureObject_t texture, float* out, const float* at, int n) {
    int i = threadIdx.x;
    if (i < n) out[i] = tex2D<float>(texture, at[2 * i], at[2 * i + 1]);
}
"""
device = Device()
device.set_current()
stream = device.create_stream()
sample = Program(code, "c++", options=ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin").get_kernel("sample")
width, height = 16, 8
array = device.create_opaque_array(OpaqueArrayOptions(shape=(width, height), format="float32", num_channels=1))
texels = (np.arange(width) + 100 * np.arange(height)[:, None]).astype(np.float32)
array.copy_from(texels, stream=stream)
stream.sync()
options = TextureObjectOptions(address_mode="clamp", filter_mode="linear")
texture = device.create_texture_object(resource=ResourceDescriptor.from_opaque_array(array), options=options)
pinned = LegacyPinnedMemoryResource()
at, out = pinned.allocate(4 * 6, stream=stream), pinned.allocate(4 * 3, stream=stream)
np.from_dlpack(at).view(np.float32)[:] = [3.5, 2.5, 1.0, 0.5, 1.0, 1.0]
launch(stream, LaunchConfig(grid=1, block=32), sample, np.uint64(texture.handle), out, at, np.int32(3))
stream.sync()
assert np.allclose(np.from_dlpack(out).view(np.float32), [203, 0.5, 50.5])
texture.close()
array.close()
print("done!")
