"""Bodies that attract each other: all pairs, with tiles of bodies in shared memory, and a picture.

Each step is a leapfrog: half a kick, a drift, new forces, half a kick. It is symmetric in time, so the energy stays
nearly constant. Look at the change of energy and at the momentum, which show whether the forces are right. The picture
goes where `--picture PATH` says.

Prints::

    2048 bodies, 20 steps
    energy: relative change 2.6e-08
    momentum: 0 before, at most 2e-08 after
    picture: /tmp/cudakit-tutorial/n_body.png
"""

import numpy as np
from matplotlib.figure import Figure
from tutorial_tools import picture_path

import cudakit as ck

SOURCE = """
// acceleration[i] = Σ_j m_j (x_j - x_i) / (|x_j - x_i|² + softening²)^1.5; a body is (x, y, z, mass).
__global__ void accelerate(const float4* body, float4* acceleration, int n, float softening) {
    __shared__ float4 tile[128];
    int i = blockIdx.x * 128 + threadIdx.x;
    float4 own = i < n ? body[i] : float4{0, 0, 0, 0}, sum = {0, 0, 0, 0};
    for (int start = 0; start < n; start += 128) {
        int j = start + threadIdx.x;
        tile[threadIdx.x] = j < n ? body[j] : float4{0, 0, 0, 0};  // a body without mass exerts no force
        __syncthreads();
        for (int k = 0; k < 128; ++k) {
            float dx = tile[k].x - own.x, dy = tile[k].y - own.y, dz = tile[k].z - own.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + softening * softening);
            float weight = tile[k].w * inverse * inverse * inverse;
            sum.x += weight * dx, sum.y += weight * dy, sum.z += weight * dz;
        }
        __syncthreads();
    }
    if (i < n) acceleration[i] = sum;
}

__global__ void kick(float4* velocity, const float4* acceleration, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 a = acceleration[i];
    velocity[i].x += by * a.x, velocity[i].y += by * a.y, velocity[i].z += by * a.z;
}

__global__ void drift(float4* body, const float4* velocity, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = velocity[i];
    body[i].x += by * v.x, body[i].y += by * v.y, body[i].z += by * v.z;
}
"""
accelerate, kick, drift = (ck.Kernel(SOURCE, name) for name in ("accelerate", "kick", "drift"))

(n, steps), dt, softening = (4096, 400) if ck.has_gpu() else (2048, 20), 0.005, 0.05
rng = np.random.default_rng(4)
start_body = np.zeros((n, 4), np.float32)
start_body[:, :3] = rng.normal(size=(n, 3)) * [1, 1, 0.1]
start_body[:, 3] = 1 / n
start_velocity = np.zeros((n, 4), np.float32)
start_velocity[:, 0], start_velocity[:, 1] = -0.6 * start_body[:, 1], 0.6 * start_body[:, 0]  # a slow rotation
start_velocity[:, :3] -= start_velocity[:, :3].mean(axis=0)


def energy(body: np.ndarray, velocity: np.ndarray) -> float:
    """Return the sum of kinetic and potential energy, in float64, on the host."""
    x, mass = body[:, :3].astype(float), body[:, 3].astype(float)
    kinetic = 0.5 * (mass * (velocity[:, :3].astype(float) ** 2).sum(axis=1)).sum()
    potential = 0.0
    for i in range(n):
        distance = np.sqrt(((x[i + 1 :] - x[i]) ** 2).sum(axis=1) + softening**2)
        potential -= (mass[i] * mass[i + 1 :] / distance).sum()
    return float(kinetic + potential)


def forces_by_numpy(x: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Return the result of `accelerate`, in float64, on the host."""
    result = np.empty_like(x)
    for i in range(n):
        between = x - x[i]
        result[i] = (mass / ((between**2).sum(axis=1) + softening**2) ** 1.5) @ between
    return result


def by_numpy(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions and velocities after `count` steps, in float64, on the host."""
    x, v, mass = start_body[:, :3].astype(float), start_velocity[:, :3].astype(float), start_body[:, 3].astype(float)
    for _ in range(count):
        v += dt / 2 * forces_by_numpy(x, mass)
        x += dt * v
        v += dt / 2 * forces_by_numpy(x, mass)
    return x, v


stream = ck.stream()
body, velocity = ck.to_device(start_body, stream), ck.to_device(start_velocity, stream)
with ck.using(stream) as xp:
    acceleration = xp.empty_like(body)
    compute_forces = accelerate.plan(stream, ck.config(-(-n // 128), 128), body, acceleration, n, softening)
    half_kick = kick.plan(stream, ck.cover(n), velocity, acceleration, n, dt / 2)
    drift_step = drift.plan(stream, ck.cover(n), body, velocity, n, dt)
    compute_forces()
    for step in range(1, steps + 1):
        half_kick()
        drift_step()
        compute_forces()
        half_kick()
        if step == 1:
            for result, expected in zip((body, velocity), by_numpy(step), strict=True):
                np.testing.assert_allclose(ck.to_host(result, stream)[:, :3], expected, atol=1e-5)
end_body, end_velocity = ck.to_host(body, stream), ck.to_host(velocity, stream)
before, after = energy(start_body, start_velocity), energy(end_body, end_velocity)
momentum = np.abs((end_velocity[:, :3] * end_body[:, 3:]).sum(axis=0)).max()
assert abs(after - before) < (0.02 if ck.has_gpu() else 1e-5) * abs(before)
assert momentum < 1e-5
print(f"{n} bodies, {steps} steps")
print(f"energy: relative change {abs(after / before - 1):.1e}")
print(f"momentum: 0 before, at most {momentum:.0e} after")

figure = Figure(figsize=(8, 4), layout="constrained")
for axes, points, title in zip(figure.subplots(1, 2), (start_body, end_body), ("before", "after"), strict=True):
    axes.scatter(points[:, 0], points[:, 1], s=1)
    axes.set(title=title, aspect="equal", xlim=(-4, 4), ylim=(-4, 4))
path = picture_path("n_body.png")
figure.savefig(path)
assert path.stat().st_size
print(f"picture: {path}")
