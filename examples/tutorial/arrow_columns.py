"""Columns of Arrow: DLPack shows a column's memory, and a kernel takes it without conversion.

Arrow's columns are in the host's memory; `ck.In` sends them to a GPU, and copies nothing where there is none.

Prints::

    1000 prices times quantities, in 3 chunks: as Arrow computes them
    a column with nulls, filled by Arrow first: as Arrow computes them
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
    """The products of two columns, computed on the stream."""
    found = np.full(len(a), np.nan)
    multiply(stream, ck.cover(len(a)), ck.In(a), ck.In(b), ck.Out(found), len(a))
    stream.sync()
    return pyarrow.Array.from_buffers(pyarrow.float64(), len(found), [None, pyarrow.py_buffer(found)])  # no copy


rng = np.random.default_rng(7)
table = pyarrow.table({"price": rng.integers(1, 1000, 1000) / 4, "quantity": rng.integers(1, 50, 1000, np.int32)})
batches = table.to_batches(max_chunksize=400)
chunks = [products(batch["price"], batch["quantity"]) for batch in batches]
assert pyarrow.chunked_array(chunks).equals(pyarrow.compute.multiply(table["price"], table["quantity"]))
print(f"{table.num_rows} prices times quantities, in {len(chunks)} chunks: as Arrow computes them")

gaps = pyarrow.array([1.5, None, 2.5])  # DLPack knows no nulls: what has some is refused
filled = gaps.fill_null(3)
assert products(filled, filled).equals(pyarrow.compute.multiply(filled, filled))
print("a column with nulls, filled by Arrow first: as Arrow computes them")
