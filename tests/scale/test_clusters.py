"""`ck.scale` on real clusters of this machine, and Dask's and xarray's own ways with generated functions.

Workers are lost in the middle: no chunk is, and none comes twice.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import workers
from support.pipelines import items

import cudakit as ck
from cudakit import pipeline as lines

pytestmark = [
    pytest.mark.bridges,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of these libraries, and of what they import
]


@pytest.fixture(scope="module")
def cache_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Workers live longer than a test's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDAKIT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", workers.PATH)
        yield


@contextlib.contextmanager
def local_cluster(count: int) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    import dask

    settings = {
        "distributed.scheduler.allowed-failures": 20,
        # A LocalCluster gives a worker up that is away this long after it was lost, be it for another loss.
        "distributed.deploy.lost-worker-timeout": "1 h",
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=count, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def dask(cache_of_all: None) -> Iterator[Any]:
    with local_cluster(2) as client:
        yield client


@pytest.fixture(scope="module")
def ray(cache_of_all: None) -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=100 << 20,
        _node_ip_address="127.0.0.1",
    )
    yield ray
    ray.shutdown()


@pytest.fixture(params=["dask", "ray"])
def engine(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_results(engine: Any) -> None:
    wanted = [float(number**2) for number in range(20)]
    offset = 0
    for work in (workers.squares(), workers.plain_square, ck.Pipeline([lines.host(lambda x: x * x + offset)])):
        assert [float(result[0]) for result in ck.scale.map(work, items(20), engine=engine)] == wanted
    results = ck.scale.map(workers.squares(), items(20), engine=engine, ordered=False)
    assert sorted((results.item, float(result[0])) for result in results) == list(enumerate(wanted))


def test_all_workers_work(engine: Any) -> None:
    def slow(x: np.ndarray) -> int:
        import time

        time.sleep(0.05)
        return os.getpid()

    width = len(engine.nthreads()) if hasattr(engine, "nthreads") else 2
    assert len(set(ck.scale.map(slow, items(16), engine=engine))) == width


def test_failures_name_the_chunk(engine: Any) -> None:
    for work in (workers.fails_on_three, ck.Pipeline([lines.host(workers.fails_on_three)])):
        with pytest.raises(ck.PipelineError, match=r"chunk 3.*ValueError: three") as raised:
            list(ck.scale.map(work, items(9), engine=engine))
        assert raised.value.item == 3


@pytest.mark.parametrize("ordered", [True, False])
def test_workers_are_lost_and_no_chunk_is(ordered: bool, engine: Any) -> None:
    results = ck.scale.map(workers.where, items(60), engine=engine, ordered=ordered)
    found = []
    for count, (process, number) in enumerate(results):
        found.append(int(number))
        assert results.item == int(number)
        if count in (10, 30):
            os.kill(process, signal.SIGKILL)
    assert sorted(found) == list(range(60))
    assert found == sorted(found) or not ordered


def test_four_workers_are_lost_one_after_another(cache_of_all: None) -> None:
    with local_cluster(4) as client, ck.scale.map(workers.where, items(40), engine=client) as results:
        found = []
        for count, (process, number) in enumerate(results):
            found.append(int(number))
            if count % 20 == 10:
                os.kill(process, signal.SIGKILL)
    assert found == list(range(40))


def test_workers_that_are_lost_leave_a_whole_zarr_array(engine: Any, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    array = np.arange(160, dtype=np.float32).reshape(40, 4)
    zarr.save(str(tmp_path / "in.zarr"), array)
    chunks = lines.from_zarr(tmp_path / "in.zarr", 2, halo=1)
    marks = tmp_path / "marks"
    marks.mkdir()

    def dies_once(x: np.ndarray) -> np.ndarray:
        mark = marks / str(int(x[0, 0]))
        if int(x[0, 0]) % 3 == 1 and len(list(marks.iterdir())) < 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x * x

    (marks / "begun").touch()
    sink = lines.to_zarr(tmp_path / "out.zarr", like=chunks)
    assert ck.scale.run(ck.Pipeline([lines.host(dies_once)]), chunks, sink, engine=engine) == 20
    np.testing.assert_array_equal(zarr.open_array(str(tmp_path / "out.zarr"), mode="r")[:], array**2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.zarr", "marks", "out.zarr"]


def test_a_large_chunk_goes_there_and_back(engine: Any) -> None:
    chunk = np.arange(6 << 20, dtype=np.float32)  # 24 MiB
    for result in ck.scale.map(workers.plain_square, [chunk] * 2, engine=engine):
        np.testing.assert_array_equal(result, chunk * chunk)


def test_map_blocks_takes_generated_functions(xp: Any, request: pytest.FixtureRequest) -> None:
    array = pytest.importorskip("dask.array", reason="the extra dask is not installed")
    given = np.arange(24, dtype=np.float32).reshape(6, 4)
    x = array.from_array(xp.asarray(given), chunks=(2, 4))
    clipped = ck.elementwise("T x", "T z", "z = x > 3 ? 3 : x", name="clipped")
    for function, wanted in (
        (clipped, np.minimum(given, 3)),
        (workers.half_of_square, given * given / 2),
        (ck.math.sqrt, np.sqrt(given)),
        (ck.ops.flip, None),
    ):
        found = x.map_blocks(function, dtype=np.float32).compute(scheduler="threads")
        found = found.get() if hasattr(found, "get") else found
        wanted = np.concatenate([np.flip(part) for part in np.split(given, 3)]) if wanted is None else wanted
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_map_blocks_on_a_cluster(dask: Any) -> None:
    import dask.array as array

    given = np.arange(24, dtype=np.float32).reshape(6, 4)
    x = array.from_array(given, chunks=(2, 4))
    if not ck.has_gpu():
        found = x.map_blocks(workers.half_of_square, dtype=np.float32).compute()
        np.testing.assert_array_equal(found, given * given / 2)


def test_apply_ufunc_takes_generated_functions(xp: Any) -> None:
    xarray = pytest.importorskip("xarray")
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = xarray.DataArray(xp.asarray(given), dims=("y", "x"))
    found = xarray.apply_ufunc(workers.half_of_square, x)
    assert found.dims == ("y", "x")
    np.testing.assert_array_equal(ck.to_host(found.data) if hasattr(found.data, "get") else found.data, given**2 / 2)
    lazy = xarray.DataArray(given, dims=("y", "x")).chunk({"y": 1}) if xp is np else None
    if lazy is not None:
        again = xarray.apply_ufunc(workers.half_of_square, lazy, dask="parallelized", output_dtypes=[np.float32])
        np.testing.assert_array_equal(again.compute(scheduler="threads").data, given**2 / 2)


def test_a_mosaic_by_workers(cache_of_all: None, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    mosaic = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "mosaic.py"))
    mosaic["main"](["--engine", "dask", "--gib", str(2**-13), "--band-mib", str(2**-6)])
    assert "checked against NumPy" in capsys.readouterr().out


def test_a_client_that_was_closed(cache_of_all: None) -> None:
    with local_cluster(1) as client:
        pass
    with pytest.raises(ck.ArgumentError, match="engine= is closed"):
        ck.scale.map(workers.plain_square, items(1), engine=client)
