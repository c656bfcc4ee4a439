"""Columns of Arrow as arguments of a kernel, without conversion.

DLPack gives access to a column's memory. Arrow's columns are in the host's memory: `ck.In` copies them to a GPU, and
copies nothing on the emulator. Look at the second line: a column with nulls must be filled first.

Prints::

    1000 prices times quantities, in 3 chunks: agree with Arrow
    a column with nulls, filled by Arrow: agrees with Arrow
"""

import sys

import numpy as np

import cudakit as ck

try:
    import pyarrow
    import pyarrow.compute
except ImportError:
    print("PyArrow is not installed: pip install pyarrow")
    sys.exit()

multiply = ck.Kernel("""
template <typename A, typename B>
__global__ void multiply(const A* a, const B* b, double* product, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) product[i] = double(a[i]) * double(b[i]);
}
""")
stream = ck.stream()


def products(a: pyarrow.Array, b: pyarrow.Array) -> pyarrow.Array:
    """Return the products of two columns, computed on the stream."""
    product = np.full(len(a), np.nan)
    multiply(stream, ck.cover(len(a)), ck.In(a), ck.In(b), ck.Out(product), len(a))
    stream.sync()
    return pyarrow.Array.from_buffers(pyarrow.float64(), len(product), [None, pyarrow.py_buffer(product)])  # no copy


rng = np.random.default_rng(7)
table = pyarrow.table({"price": rng.integers(1, 1000, 1000) / 4, "quantity": rng.integers(1, 50, 1000, np.int32)})
batches = table.to_batches(max_chunksize=400)
chunks = [products(batch["price"], batch["quantity"]) for batch in batches]
assert pyarrow.chunked_array(chunks).equals(pyarrow.compute.multiply(table["price"], table["quantity"]))
print(f"{table.num_rows} prices times quantities, in {len(chunks)} chunks: agree with Arrow")

with_nulls = pyarrow.array([1.5, None, 2.5])  # DLPack has no nulls: a column with nulls is refused
filled = with_nulls.fill_null(3)
assert products(filled, filled).equals(pyarrow.compute.multiply(filled, filled))
print("a column with nulls, filled by Arrow: agrees with Arrow")
