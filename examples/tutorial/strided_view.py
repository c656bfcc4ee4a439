"""A strided view as an argument: a column, a reversed or a transposed array, without a copy.

A `T*` parameter takes only arrays whose elements lie one after the other. A parameter of type
`cudakit::strided<T, RANK>` takes any view, and brings its shape and strides along. The kernel names an element by its
indices. The ready-made op `ck.ops.copy` does this copy.

Prints::

    every second column:
    [[ 0.  2.]
     [ 4.  6.]
     [ 8. 10.]]
    rows from the bottom:
    [[ 8.  9. 10. 11.]
     [ 4.  5.  6.  7.]
     [ 0.  1.  2.  3.]]
    transposed:
    [[ 0.  4.  8.]
     [ 1.  5.  9.]
     [ 2.  6. 10.]
     [ 3.  7. 11.]]
    first column copied over the last one:
    [[ 0.  1.  2.  0.]
     [ 4.  5.  6.  4.]
     [ 8.  9. 10.  8.]]
"""

import numpy as np

import cudakit as ck

copy_view = ck.Kernel("""
#include <cudakit/strided.cuh>
template <typename T>
__global__ void copy_view(cudakit::strided<const T, 2> x, cudakit::strided<T, 2> y) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < x.shape[0] && column < x.shape[1]) y(row, column) = x(row, column);
}
""")

stream = ck.stream()
host_image = np.arange(12, dtype=np.float32).reshape(3, 4)
with ck.using(stream) as xp:
    image = ck.to_device(host_image, stream)
    for label, view, host_view in (
        ("every second column:", image[:, ::2], host_image[:, ::2]),
        ("rows from the bottom:", image[::-1], host_image[::-1]),
        ("transposed:", image.T, host_image.T),
    ):
        result = xp.zeros(view.shape, dtype=xp.float32)
        copy_view(stream, ck.cover(view.shape, (8, 8)), view, result)
        np.testing.assert_array_equal(ck.to_host(result, stream), host_view)
        print(label)
        print(result)

    # The output may be a view too: here the last column, and nothing else, is written.
    copy_view(stream, ck.cover((3, 1), (8, 8)), image[:, :1], image[:, 3:])
    host_image[:, 3:] = host_image[:, :1]
    np.testing.assert_array_equal(ck.to_host(image, stream), host_image)
    print("first column copied over the last one:")
    print(image)
