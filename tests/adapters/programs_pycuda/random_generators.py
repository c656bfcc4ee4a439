import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.curandom import (
    MRG32k3aRandomNumberGenerator,
    ScrambledSobol32RandomNumberGenerator,
    XORWOWRandomNumberGenerator,
    rand,
    seed_getter_uniform,
    seed_getter_unique,
)

r = rand((1000,), dtype=np.float32).get()
assert r.dtype == np.float32
assert r.min() >= 0
assert r.max() <= 1
assert 0.45 < r.mean() < 0.55

for maker in [XORWOWRandomNumberGenerator, MRG32k3aRandomNumberGenerator]:
    for seeds in [seed_getter_uniform, seed_getter_unique]:
        gen = maker(seeds)
        uniform = gen.gen_uniform(10000, np.float32).get()
        assert uniform.min() > 0
        assert uniform.max() <= 1
        assert abs(uniform.mean() - 0.5) < 0.02

gen = XORWOWRandomNumberGenerator()
normal = gen.gen_normal((100, 100), np.float32).get()
assert normal.shape == (100, 100)
assert abs(normal.mean()) < 0.05
assert abs(normal.std() - 1) < 0.05
again = gen.gen_normal((100, 100), np.float32).get()
assert not np.array_equal(normal, again)

buffer = gpuarray.zeros(5000, np.float32)
gen.fill_uniform(buffer)
assert abs(buffer.get().mean() - 0.5) < 0.03

scrambled = ScrambledSobol32RandomNumberGenerator()
quasi = scrambled.gen_uniform(4096, np.float32).get()
assert abs(quasi.mean() - 0.5) < 0.03
