import numpy
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.reduction import ReductionKernel

weights = gpuarray.arange(1, 301, dtype=numpy.float32)
heights = gpuarray.to_gpu(numpy.random.randint(0, 9, 300).astype(numpy.float32))

moment = ReductionKernel(
    numpy.float32,
    neutral="0",
    reduce_expr="a+b",
    map_expr="w[i] * h[i]",
    arguments="float *w, float *h",
)
assert moment(weights, heights).get() == numpy.dot(weights.get(), heights.get())

largest = ReductionKernel(numpy.int32, neutral="-1000", reduce_expr="max(a, b)", arguments="int *in")
values = numpy.random.randint(-999, 1000, 5000).astype(numpy.int32)
assert largest(gpuarray.to_gpu(values)).get() == values.max()

count = ReductionKernel(
    numpy.int32,
    neutral="0",
    reduce_expr="a+b",
    map_expr="(x[i] > limit) ? 1 : 0",
    arguments="const int *x, int limit",
)
assert int(count(gpuarray.to_gpu(values), numpy.int32(100)).get()) == (values > 100).sum()

table = numpy.random.randint(0, 9, (5, 64)).astype(numpy.float32)
table_gpu = gpuarray.to_gpu(table)
add_up = ReductionKernel(numpy.float32, neutral=0, reduce_expr="a+b", arguments="float *in")
totals = gpuarray.zeros(5, dtype=numpy.float32)
for row in range(5):
    add_up(table_gpu[row], out=totals[row])
assert numpy.array_equal(totals.get(), table.sum(axis=1))
