"""PyCUDA's generated kernels, random numbers, pools and C types: NumPy is the referee."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cudakit.adapters.pycuda import characterize, curandom, driver, elementwise, gpuarray, reduction, tools
from cudakit.adapters.pycuda.c_types import complex_header
from cudakit.adapters.pycuda.elementwise import ElementwiseKernel
from cudakit.adapters.pycuda.gpuarray import to_gpu
from cudakit.adapters.pycuda.reduction import ReductionKernel
from cudakit.adapters.pycuda.scan import ExclusiveScanKernel, InclusiveScanKernel
from cudakit.adapters.pycuda.sobol import direction_vectors, primitive_polynomials
from cudakit.adapters.pycuda.streams import Stream
from cudakit.errors import ArgumentError, EmulationError

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")

_F4 = np.dtype("float32")
MINMAX = """
struct minmax {
    float least, most;
    __device__ minmax() {}
    __device__ minmax(float a, float b) : least(a), most(b) {}
    __device__ minmax(minmax const &other) : least(other.least), most(other.most) {}
    __device__ minmax(minmax const volatile &other) : least(other.least), most(other.most) {}
    __device__ minmax volatile &operator=(minmax const &other) volatile {
        least = other.least; most = other.most; return *this;
    }
};
__device__ minmax joined(minmax a, minmax b) { return minmax(fminf(a.least, b.least), fmaxf(a.most, b.most)); }
"""


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    """A context, as ``import pycuda.autoinit`` makes one."""
    current = driver.Device(0).make_context()
    yield
    current.pop()


# ── elementwise ──


def test_a_statement_runs_for_all_elements_of_any_shape() -> None:
    combine = ElementwiseKernel("float a, float *x, float b, float *y, float *z", "z[i] = a*x[i] + b*y[i]", "combine")
    a = np.arange(2000, dtype=np.float32).reshape(4, 500)
    for order in "CF":
        x, y = to_gpu(np.asarray(a, order=order)), to_gpu(np.asarray(a[::-1] + 1, order=order))
        z = gpuarray.empty_like(x)
        combine(5, x, np.float64(6), y, z, stream=Stream())
        driver.Context.synchronize()
        np.testing.assert_array_equal(z.get(), 5 * a + 6 * (a[::-1] + 1))


@pytest.mark.parametrize(
    "bounds", [slice(5, 700), slice(5, 700, 17), slice(300, 5, -1), slice(500, -1), slice(None, None, -7), slice(9, 3)]
)
def test_a_slice_selects_elements_as_in_python(bounds: slice) -> None:
    fill = ElementwiseKernel("float *z", "z[i] = 7", "fill")
    z, expected = gpuarray.zeros(1000, np.float32), np.zeros(1000, np.float32)
    fill(z, slice=bounds)
    expected[bounds] = 7
    np.testing.assert_array_equal(z.get(), expected)
    if bounds.start is not None and (bounds.step or 1) > 0 <= bounds.stop:
        z.fill(0)
        fill(z, range=bounds)
        np.testing.assert_array_equal(z.get(), expected)


def test_statements_may_use_the_loop_and_code_around_it() -> None:
    kernel = ElementwiseKernel(
        [tools.VectorArg(np.int64, "z"), tools.ScalarArg(np.int32, "step")],
        "sum += f(i); z[i] = sum; if ((i += total_threads) < n) z[i] = -1",
        preamble="__device__ long long f(long long i) { return LIMIT - i; }",
        loop_prep="long long sum = step",
        after_loop="if (tid == 0 && cta_start == 0) z[0] = 100",
        options=["-DLIMIT=50"],
    )
    z = gpuarray.zeros(4, np.int64)
    kernel(z, 3)
    np.testing.assert_array_equal(z.get(), [100, 52, 51, 50])


def test_complex_elements_have_pycudas_type() -> None:
    kernel = ElementwiseKernel(
        "pycuda::complex<float> *z, pycuda::complex<float> a", "z[i] = a * conj(z[i]) + pycuda::complex<float>(i, 1)"
    )
    a = np.array([1 + 2j, 3 - 1j], np.complex64)
    z = to_gpu(a)
    kernel(z, 2j)
    np.testing.assert_allclose(z.get(), 2j * a.conj() + np.arange(2) + 1j, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "is_there"),
    [
        ("z[i] = x[i]", False),
        ("['-DN=3']", False),
        ("['-DT=pycuda::complex<float>']", True),
        ("complex64 a", True),
        ("__half2float(x[i])", True),
        ('#include "mine.h"', True),
    ],
)
def test_kernels_without_complex_numbers_leave_their_header_out(text: str, is_there: bool) -> None:
    assert ("pycuda-complex" in complex_header("float *x", text)) == is_there


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda x: (1, x), r"expected 3 arguments \(a, x, y\), got 2"),
        (lambda x: (1, x, x.astype(np.float64)), r"argument y: expected a GPUArray of float32, got one of float64"),
        (lambda x: (1, x, np.zeros(4, np.float32)), r"argument y: expected a GPUArray of float32, got ndarray"),
        (lambda x: ("1", x, x), r"argument a: expected a number of int32, got str: '1'"),
        (lambda x: (1.5, x, x), r"argument a: expected a number of int32, got float: 1.5"),
        (lambda x: (2**40, x, x), r"argument a: expected a number of int32, got 1099511627776"),
    ],
)
def test_a_wrong_argument_is_named(arguments: Any, message: str) -> None:
    kernel = ElementwiseKernel("int a, float *x, float *y", "y[i] = a * x[i]", "scaled")
    with pytest.raises(ArgumentError, match=f"scaled: {message}"):
        kernel(*arguments(gpuarray.zeros(4, np.float32)))


def test_strided_arrays_and_unknown_arguments_are_refused() -> None:
    kernel = ElementwiseKernel("float *x", "x[i] = 1")
    x = gpuarray.zeros((4, 4), np.float32)
    with pytest.raises(RuntimeError, match="not contiguous"):
        kernel(x[:, :2])
    with pytest.raises(TypeError, match="range= or slice="):
        kernel(x, range=slice(0, 1), slice=slice(0, 1))
    with pytest.raises(TypeError, match="lanes"):
        kernel(x, lanes=3)
    with pytest.raises(ArgumentError, match="at least one array"):
        ElementwiseKernel("float a", "a = 1")(2)
    with pytest.raises(ArgumentError, match="C type 'quux' has no dtype"):
        ElementwiseKernel("quux *x", "x[i] = 1")(x)


def made_by_numpy() -> dict[str, tuple[Any, list[Any], Any]]:
    """Return kernel, arguments and expected arrays by name. A number argument is a NumPy scalar."""
    x, y = np.array([1.5, -2, 3], np.float32), np.array([2, 4, -8], np.float32)
    z, k = np.zeros(3, np.float32), np.array([2, 0, 1], np.int32)
    c = np.array([1 + 2j, 3, -1j], np.complex64)
    f4, c8, i4 = x.dtype, c.dtype, k.dtype
    return {
        "copy": (elementwise.get_copy_kernel(np.float64, f4), [np.zeros(3), x], {0: x.astype("f8")}),
        "axpbyz": (elementwise.get_axpbyz_kernel(f4, f4, f4), [_F4.type(2), x, _F4.type(3), y, z], {4: 2 * x + 3 * y}),
        "real axpbyz": (
            elementwise.get_axpbyz_kernel(f4, c8, c8), [_F4.type(2), x, c8.type(3j), c, c * 0], {4: 2 * x + 3j * c}
        ),
        "axpbz": (elementwise.get_axpbz_kernel(f4, f4), [_F4.type(2), x, _F4.type(3), z], {3: 2 * x + 3}),
        "binary": (elementwise.get_binary_op_kernel(f4, i4, f4, "-"), [x, k, z], {2: x - k}),
        "scalar": (elementwise.get_binary_op_kernel(f4, f4, f4, "*", y_is_scalar=True), [x, y, z], {2: x * 2}),
        "rdivide": (elementwise.get_rdivide_elwise_kernel(f4, f4), [x, _F4.type(3), z], {2: 3 / x}),
        "function": (elementwise.get_binary_func_kernel("fmodf", f4, f4, f4), [x, y, z], {2: np.fmod(x, y)}),
        "least": (elementwise.get_binary_minmax_kernel("min", f4, f4, f4, False), [x, y, z], {2: np.minimum(x, y)}),
        "most": (elementwise.get_binary_minmax_kernel("max", i4, i4, i4, True), [k, i4.type(1), k], {2: [2, 1, 1]}),
        "fill": (elementwise.get_fill_kernel(f4), [_F4.type(2), z], {1: [2, 2, 2]}),
        "reverse": (elementwise.get_reverse_kernel(f4), [x, z], {1: x[::-1]}),
        "imag": (elementwise.get_imag_kernel(c8, f4), [c, z], {1: c.imag}),
        "conj": (elementwise.get_conj_kernel(c8, c8), [c, c * 0], {1: c.conj()}),
        "arange": (elementwise.get_arange_kernel(f4), [z, _F4.type(2), _F4.type(0.5)], {0: [2, 2.5, 3]}),
        "power": (elementwise.get_pow_array_kernel(f4, f4, f4, True, False), [x, _F4.type(2), z], {2: x**2}),
        "modf": (elementwise.get_modf_kernel(), [x, z, z], {1: np.modf(x)[1], 2: np.modf(x)[0]}),
        "frexp": (elementwise.get_frexp_kernel(), [x, z, z], {1: np.frexp(x)[0], 2: np.frexp(x)[1]}),
        "ldexp": (elementwise.get_ldexp_kernel(), [x, k.astype("f4"), z], {2: np.ldexp(x, k)}),
        "unary": (elementwise.get_unary_func_kernel("fabsf", f4), [x, z], {1: abs(x)}),
        "choice": (elementwise.get_if_positive_kernel(i4, f4), [k, x, y, z], {3: [1.5, 4, 3]}),
        "operator": (elementwise.get_scalar_op_kernel(f4, f4, f4, "/"), [x, _F4.type(2), z], {2: x / 2}),
        "not": (elementwise.get_logical_not_kernel(i4, i4), [k, k], {1: [0, 1, 0]}),
        "put": (elementwise.get_put_kernel(f4, i4), [k, z, x], {1: [-2, 3, 1.5]}),
    }  # fmt: skip


@pytest.mark.slow
def test_kernels_by_dtype_have_the_results_of_numpy() -> None:
    for name, (kernel, arguments, expected) in made_by_numpy().items():
        arrays = [to_gpu(value) if isinstance(value, np.ndarray) else value for value in arguments]
        kernel(*arrays, np.uintp(3), block=(32, 1, 1))
        for k, result in expected.items():
            np.testing.assert_allclose(arrays[k].get(), result, rtol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_kernels_read_textures(dtype: Any) -> None:
    a = np.arange(1, 9).astype(dtype)
    x, z = to_gpu(a), gpuarray.zeros(4, dtype)
    indices, places = to_gpu(np.array([7, 0, 3, 3], np.int32)), to_gpu(np.array([1, 0, 3, 2], np.int32))
    shape = (1, 1), (32, 1, 1)
    take, (source,) = elementwise.get_take_kernel(np.dtype(dtype), np.dtype("i4"))
    x.bind_to_texref_ext(source, allow_double_hack=True, allow_complex_hack=True)
    take.prepared_call(*shape, indices.gpudata, z.gpudata, 4)
    np.testing.assert_array_equal(z.get(), a[[7, 0, 3, 3]])
    move, (source,) = elementwise.get_take_put_kernel(np.dtype(dtype), np.dtype("i4"), True)
    x.bind_to_texref_ext(source, allow_double_hack=True, allow_complex_hack=True)
    move.prepared_call(*shape, places.gpudata, places.gpudata, z.gpudata, 4, 4)
    np.testing.assert_array_equal(z.get(), a[4:])
    combine, (factor,) = elementwise.get_linear_combination_kernel(
        ((True, np.dtype(dtype), np.dtype(dtype)), (False, np.dtype("f4"), np.dtype(dtype))), np.dtype(dtype)
    )
    to_gpu(np.array(3, dtype)).bind_to_texref_ext(factor, allow_double_hack=True, allow_complex_hack=True)
    combine.prepared_call(*shape, x.gpudata, 2, x.gpudata, z.gpudata, 4)
    np.testing.assert_array_equal(z.get(), 5 * a[:4])


# ── reduction and scan ──


def test_a_reduction_has_the_value_of_numpy() -> None:
    dot = ReductionKernel(np.float32, "0", "a+b", "x[i]*y[i]", "float *x, float *y")
    a = np.arange(500, dtype=np.float32).reshape(20, 25)
    x = to_gpu(a)
    result = dot(x, x + 1)
    assert (result.shape, result.dtype) == ((), np.float32)
    np.testing.assert_allclose(result.get(), (a * (a + 1)).sum(), rtol=1e-6)
    out = gpuarray.zeros(4, np.float32)
    for row in range(4):
        assert dot(x[row], x[row], out=out[row], stream=Stream()) is not None
    driver.Context.synchronize()
    np.testing.assert_allclose(out.get(), (a[:4] ** 2).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(dot(x[:0], x[:0]).get(), 0)


def test_a_reduction_takes_in_n_and_numbers() -> None:
    kernel = ReductionKernel(np.int32, -1, "max(a,b)", "in[i] * k + (i == n - 1)", "const int *in, int k", name="most")
    assert kernel(to_gpu(np.array([3, 1, 4], np.int32)), 2).get() == 9
    with pytest.raises(ArgumentError, match="most: argument in: expected a GPUArray of int32, got one of float32"):
        kernel(gpuarray.zeros(3, np.float32), 2)
    with pytest.raises(ArgumentError, match="most: out: expected one element of int32, got 2 of int32"):
        kernel(gpuarray.zeros(3, np.int32), 2, out=gpuarray.zeros(2, np.int32))
    with pytest.raises(ArgumentError, match="expected an array among the arguments"):
        ReductionKernel(np.int32, "0", "a+b", "k", "int k")


def test_a_reduction_of_structs() -> None:
    dtype = tools.get_or_register_dtype("minmax", np.dtype([("least", "f4"), ("most", "f4")]))
    kernel = ReductionKernel(
        dtype, "minmax(1e30f, -1e30f)", "joined(a, b)", "minmax(x[i], x[i])", "float *x", preamble=MINMAX
    )
    a = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    result = kernel(to_gpu(a)).get()
    assert (result["least"], result["most"]) == (a.min(), a.max())


@pytest.mark.slow
def test_reductions_by_dtype_have_the_results_of_numpy() -> None:
    a, k = np.array([3, -1, 4, 0], np.float32), np.array([0, 2, 2], np.int32)
    x, table = to_gpu(a), to_gpu(k)
    f4, i4 = a.dtype, k.dtype
    for result, expected in (
        (reduction.get_sum_kernel(None, f4)(x), 6),
        (reduction.get_any_kernel(i4, f4)(x), 1),
        (reduction.get_all_kernel(i4, f4)(x), 0),
        (reduction.get_subset_sum_kernel(np.dtype("f8"), i4, f4)(table, x), 11),
        (reduction.get_dot_kernel(None, f4, f4)(x, x), 26),
        (reduction.get_subset_dot_kernel(None, i4, f4)(table, x, x), 41),
        (reduction.get_minmax_kernel("min", f4)(x), -1),
        (reduction.get_minmax_kernel("max", np.dtype("i8"))(to_gpu(np.array([-5, -3]))), -3),
        (reduction.get_minmax_kernel("min", np.dtype("u4"))(to_gpu(np.array([7, 5], np.uint32))), 5),
        (reduction.get_subset_minmax_kernel("max", f4, i4)(table, x), 4),
    ):
        assert result.get() == expected
    with pytest.raises(TypeError, match="complex64"):
        reduction.get_minmax_kernel("min", np.dtype("c8"))
    with pytest.raises(ValueError, match="'min' or 'max'"):
        reduction.get_minmax_neutral("least", f4)


def test_scans_have_the_values_of_numpy() -> None:
    a = np.random.default_rng(0).integers(0, 10, 3001).astype(np.int32)
    sums, before = InclusiveScanKernel(np.int32, "a+b"), ExclusiveScanKernel(np.int32, "a+b", 0)
    x = to_gpu(a)
    new = before(x, "new")
    np.testing.assert_array_equal(new.get(), np.cumsum(a) - a)
    assert sums(x) is x
    np.testing.assert_array_equal(x.get(), np.cumsum(a))
    assert sums(gpuarray.zeros(0, np.int32)).size == 0
    with pytest.raises(ValueError, match="needs neutral="):
        ExclusiveScanKernel(np.int32, "a+b")
    with pytest.raises(ArgumentError, match="scan: output_ary: expected int32 of shape"):
        sums(x, gpuarray.zeros(3, np.int32))
    with pytest.raises(RuntimeError, match="not contiguous"):
        sums(x[::2])


@pytest.mark.slow
def test_scans_combine_in_order() -> None:
    dtype = tools.get_or_register_dtype("line", np.dtype([("by", "i4"), ("plus", "i4")]))
    text = "struct line { int by, plus; }; __device__ line then(line f, line g) "
    text += "{ line h; h.by = f.by * g.by; h.plus = f.plus * g.by + g.plus; return h; }"
    a = np.array([(k % 3 - 1, k) for k in range(100)], dtype)
    expected = list(itertools.accumulate(a.tolist(), lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1])))
    assert InclusiveScanKernel(dtype, "then(a, b)", preamble=text)(to_gpu(a)).get().tolist() == expected


# ── random numbers ──


def moments_fit(numbers: np.ndarray, mean: float, variance: float) -> bool:
    """Return whether mean and variance are within five standard errors."""
    values = numbers.astype(np.float64)
    errors = 5 * np.sqrt(values.var() / values.size), 5 * ((values - values.mean()) ** 2).std() / np.sqrt(values.size)
    return abs(values.mean() - mean) < errors[0] and abs(values.var() - variance) < errors[1]


def test_rand_repeats_with_numpys_seed() -> None:
    results = []
    for _ in range(2):
        np.random.seed(5)
        results.append([curandom.rand((50, 40), dtype).get() for dtype in (np.float32, np.float64, np.int32)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    assert moments_fit(results[0][0], 1 / 2, 1 / 12)
    assert (results[0][2] < 0).any()
    with pytest.raises(ArgumentError, match="float32, float64, int32 or uint32, got int8"):
        curandom.rand(3, np.int8)


def seeds(n: int) -> gpuarray.GPUArray:
    """Return the seeds 0, 1, …."""
    return to_gpu(np.arange(n, dtype=np.int32))


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
def test_distributions_have_their_moments(dtype: Any) -> None:
    generator = curandom.XORWOWRandomNumberGenerator(seeds)
    x = generator.gen_uniform((100, 101), dtype).get()
    assert x.dtype == dtype
    assert 0 < x.min() < x.max() < 1
    assert moments_fit(x, 1 / 2, 1 / 12)
    assert moments_fit(generator.gen_normal((100, 101), dtype).get(), 0, 1)
    logarithms = np.log(generator.gen_log_normal((100, 101), dtype, 2, 0.5).get())
    assert moments_fit(logarithms, 2, 0.25)
    means = to_gpu(np.full(10000, 7, dtype))
    generator.fill_poisson(means)
    assert moments_fit(means.get(), 7, 7)


def test_poisson_numbers_have_their_moments() -> None:
    generator = curandom.MRG32k3aRandomNumberGenerator(seeds)
    for mean in (0.3, 40, 10000):
        numbers = generator.gen_poisson(10000, np.uint32, mean).get()
        assert moments_fit(numbers, mean, mean)
    counts = np.bincount(generator.gen_poisson(20000, np.uint32, 1.0).get(), minlength=4)[:4]
    np.testing.assert_allclose(counts / 20000, np.exp(-1) / np.array([1, 1, 2, 6]), atol=0.02)
    assert generator.gen_poisson(100, np.uint32, 0.0).get().max() == 0
    with pytest.raises(ArgumentError, match="fill_poisson: expected an array of uint32, got one of float32"):
        generator.gen_poisson(3, np.float32, 2.0)


def test_integers_have_all_their_bits() -> None:
    generator = curandom.XORWOWRandomNumberGenerator(seeds)
    numbers = generator.gen_uniform(4000, np.uint32).get()
    bits = numbers[:, None] >> np.arange(32, dtype=np.uint32) & 1
    assert abs(bits.mean(0) - 0.5).max() < 0.05
    with pytest.raises(ArgumentError, match="fill_uniform: expected an array of float32"):
        generator.gen_uniform(3, np.int64)
    with pytest.raises(ArgumentError, match="expected a GPUArray of 32768 int32"):
        curandom.XORWOWRandomNumberGenerator(lambda n: gpuarray.zeros(n, np.float32))


@pytest.mark.parametrize("family", [curandom.XORWOWRandomNumberGenerator, curandom.MRG32k3aRandomNumberGenerator])
def test_a_generator_skips_what_it_would_draw(family: Any) -> None:
    drawn, skipping = family(seeds), family(seeds)
    count = drawn.block_count * drawn.generators_per_block
    rows = drawn.gen_uniform((4, count), np.float32).get()
    skipping.call_skip_ahead(1)
    np.testing.assert_array_equal(skipping.gen_uniform(count, np.float32).get(), rows[1])
    skipping.call_skip_ahead_array(to_gpu(np.arange(count, dtype=np.uint64) % 2))
    mixed = np.where(np.arange(count) % 2, rows[3], rows[2])
    np.testing.assert_array_equal(skipping.gen_uniform(count, np.float32).get(), mixed)
    np.testing.assert_array_equal(family(seeds, 2).gen_uniform(count, np.float32).get(), rows[2])
    assert len(np.unique(rows)) > 0.98 * rows.size
    same = family(curandom.seed_getter_uniform)
    first = same.gen_uniform(count, np.float32).get()
    same.call_skip_ahead(-1)
    same.call_skip_ahead_sequence(1)
    np.testing.assert_array_equal(same.gen_uniform(count, np.float32).get()[:-1], first[1:])
    with pytest.raises(ArgumentError, match="one for each generator"):
        drawn.call_skip_ahead_array(gpuarray.zeros(3, np.uint64))


def test_polynomials_are_primitive() -> None:
    assert [len(primitive_polynomials(degree)) for degree in range(1, 12)] == [1, 1, 2, 2, 6, 6, 18, 16, 48, 60, 176]
    assert primitive_polynomials(3).tolist() == [0b1011, 0b1101]


@pytest.mark.slow
@pytest.mark.parametrize("bits", [32, 64])
def test_sobols_points_are_even_in_each_dimension(bits: int) -> None:
    vectors = direction_vectors(bits)
    steps = vectors >> np.arange(bits - 1, -1, -1, dtype=vectors.dtype)
    assert (steps & vectors.dtype.type(1)).all()  # and so each matrix has an inverse
    plain = getattr(curandom, f"Sobol{bits}RandomNumberGenerator")()
    count = plain.block_count * plain.generators_per_block
    points = plain.gen_uniform((32, count), np.float32).get()
    expected = np.broadcast_to(np.arange(32)[:, None], points.shape)
    np.testing.assert_array_equal(np.sort(points, 0) * 32 // 1, expected)
    assert not np.array_equal(points[:, 1], points[:, 2])
    scrambled = getattr(curandom, f"ScrambledSobol{bits}RandomNumberGenerator")(offset=32)
    moved = scrambled.gen_uniform((32, count), np.float64).get()
    np.testing.assert_array_equal(np.sort(moved, 0) * 32 // 1, expected)
    plain.call_skip_ahead(32 - 1)
    assert moments_fit(scrambled.gen_normal(2 * count, np.float32).get(), 0, 1)
    with pytest.raises(ArgumentError, match="dir_vector: expected a GPUArray"):
        type(plain)(gpuarray.zeros(3, np.uint32))


# ── tools ──


def test_a_pool_holds_freed_blocks() -> None:
    pool = tools.DeviceMemoryPool()
    block = pool.allocate(1000)
    address = int(block)
    assert (len(block), pool.active_blocks, pool.held_blocks, pool.active_bytes) == (1000, 1, 0, 1000)
    assert pool.managed_bytes == pool.alloc_size(pool.bin_number(1000)) >= 1000
    block.free()
    assert (pool.active_blocks, pool.held_blocks, pool.active_bytes) == (0, 1, 0)
    with pytest.raises(driver.LogicError, match="went back to their pool"):
        block.free()
    with pytest.raises(driver.LogicError, match="went back to their pool"):
        int(block)
    again = pool.allocate(995)
    assert int(again) == address
    pool.stop_holding()
    del again
    gc.collect()
    assert (pool.active_blocks, pool.held_blocks, pool.managed_bytes) == (0, 0, 0)


def test_arrays_take_memory_of_a_pool() -> None:
    pool = tools.DeviceMemoryPool()
    a = np.arange(100.0)
    x = to_gpu(a, allocator=pool.allocate)
    np.testing.assert_array_equal((2 * x + x)[10:20].get(), 3 * a[10:20])
    active = pool.active_blocks
    assert active >= 1
    del x
    gc.collect()
    assert pool.active_blocks < active
    assert pool.held_blocks
    pool.free_held()
    assert pool.held_blocks == 0


def test_classes_of_sizes_contain_their_sizes() -> None:
    pool = tools.DeviceMemoryPool()
    sizes = [*range(5000), *(2**k + j for k in range(13, 40) for j in (-1, 0, 1))]
    for size in sizes:
        number = pool.bin_number(size)
        assert size <= pool.alloc_size(number) <= max(size * 17 // 16, 1)
        assert pool.bin_number(pool.alloc_size(number)) == number
    assert [tools.bitlog2(size) for size in (0, 1, 2, 3, 4, 1023, 1024)] == [0, 0, 1, 1, 2, 9, 10]


def test_pinned_memory_comes_from_a_pool() -> None:
    pool = tools.PageLockedMemoryPool(tools.PageLockedAllocator(driver.host_alloc_flags.PORTABLE))
    array = pool.allocate((3, 5), np.int32, "F")
    assert array.flags.f_contiguous
    array[:] = 7
    np.testing.assert_array_equal(to_gpu(array).get(), np.full((3, 5), 7))
    assert isinstance(array.base, tools.PooledHostAllocation)
    assert len(array.base) == 60
    del array
    gc.collect()
    assert (pool.active_blocks, pool.held_blocks) == (0, 1)
    pair = pool.allocate(2, [("x", "f4"), ("y", "i4")])
    pair[1] = (1.5, 3)
    assert pair.dtype.names == ("x", "y")
    assert pair[1].tolist() == (1.5, 3)
    with pytest.raises(ArgumentError, match="order 'C' or 'F'"):
        pool.allocate(3, np.int32, "A")


@pytest.mark.emulator
def test_an_array_of_a_pool_is_read_after_its_copy() -> None:
    array = tools.PageLockedMemoryPool().allocate(100, np.float32)
    memory, stream = driver.to_device(np.ones(100, np.float32)), Stream()
    driver.memcpy_dtoh_async(array, memory, stream)
    with pytest.raises(EmulationError, match="is read before"):
        array.sum()
    stream.synchronize()
    assert array.sum() == 100


def test_c_types_and_dtypes() -> None:
    for declaration, expected in (
        ("const float *__restrict__ x", "VectorArg('x', float32)"),
        ("unsigned long int n", "ScalarArg('n', uint64)"),
        ("pycuda::complex<double> z[3]", "VectorArg('z', complex128)"),
        ("float * const y", "VectorArg('y', float32)"),
        ("long long a", "ScalarArg('a', int64)"),
    ):
        assert repr(tools.parse_c_arg(declaration)) == expected
    assert tools.dtype_to_ctype(np.uint8) == "unsigned char"
    assert tools.dtype_to_ctype(np.float64, with_fp_tex_hack=True) == "fp_tex_double"
    assert tools.ScalarArg(np.int64, "k").declarator().endswith(" k")
    assert tools.get_arg_type("float *x") + tools.get_arg_type("int n") == "Pi"
    pair = np.dtype([("length", "f4"), ("angle", "f4")])
    assert tools.get_or_register_dtype(["point", "place"], pair) == tools.get_or_register_dtype("place") == pair
    assert tools.dtype_to_ctype(pair) == "point"
    with (
        pytest.warns(DeprecationWarning, match="get_or_register"),
        pytest.raises(RuntimeError, match="has the name point"),
    ):
        tools.register_dtype(pair, "spot")
    with pytest.raises(RuntimeError, match="point is registered"):
        tools.get_or_register_dtype("point", np.float32)
    with pytest.raises(ValueError, match="None"):
        tools.dtype_to_ctype(None)
    with pytest.raises(ArgumentError, match="expected a type and a name"):
        tools.parse_c_arg("float")


def test_results_are_remembered_in_a_context() -> None:
    calls = []

    @tools.context_dependent_memoize
    def twice(x: int, plus: int = 0) -> int:
        """Return 2 x."""
        calls.append(x)
        return 2 * x + plus

    assert [twice(1), twice(1), twice(2), twice(1, plus=3)] == [2, 2, 4, 5]
    assert calls == [1, 2, 1]
    tools.clear_context_caches()
    assert twice(1) == 2
    assert len(calls) == 4
    assert twice.__doc__ == "Return 2 x."


def test_a_marked_test_has_a_context() -> None:
    current = driver.Context.get_current()
    contexts = []
    tools.mark_cuda_test(lambda: contexts.append(driver.Context.get_current()))()
    assert contexts[0] is not None
    assert contexts[0] is not current
    assert driver.Context.get_current() is current


def test_occupancy_is_limited_by_the_scarcest_resource() -> None:
    data = tools.DeviceData()
    assert (data.max_threads, data.warp_size, data.align(65), data.align_dtype(17, 8)) == (1024, 32, 128, 32)
    record = tools.OccupancyRecord(data, 256)
    assert record.occupancy == record.tb_per_mp * 8 / data.warps_per_mp == 1
    assert tools.OccupancyRecord(data, 256, registers=128).limited_by == "regs"
    assert tools.OccupancyRecord(data, 32, shared_mem=data.shared_memory).tb_per_mp == 1
    with pytest.raises(ValueError, match="too many threads"):
        tools.OccupancyRecord(data, 2048)
    assert [data.make_valid_tex_channel_count(k) for k in (1, 3)] == [1, 4]


def test_sizes_of_types_are_the_devices() -> None:
    assert characterize.sizeof("float3") == 12
    assert characterize.sizeof("pair", "struct pair { double x; char c; };") == 16
    assert characterize.platform_bits() == 64
    assert characterize.has_double_support()
