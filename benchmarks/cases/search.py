"""Strategies of ck.tune over recorded spaces, beside Kernel Tuner's strategies; no GPU.

The folder is a checkout of the benchmark hub (github.com/AutoTuningAssociation/benchmark_hub), unpacked or not. An
evaluation is a point that was not asked for before, valid or not. A share is the optimum divided by the best time so
far, mean over seeds. The score is that of autotuning-methodology: the part of the way from random search to the
optimum, mean over evaluations 1 to the last.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import importlib.metadata
import io
import json
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tables import table

from cudakit.tuning import formats
from cudakit.tuning.recorded import Recorded
from cudakit.tuning.replay import replay

TITLE = "Search over recorded spaces"
NOTE = (
    "The default's constants were chosen on dedispersion, GEMM, pnpoly, older convolutions, and the two cards named "
    "above. The number of first points and the share of each parameter alone were chosen on all six convolutions. "
    "The share of values, and how much worse no power of two is expected to be, were chosen on A4000, W6600, MI250X, "
    "an older convolution and a dedispersion. "
    "Searches of Kernel Tuner's that end before the last evaluation keep their best: "
    "`dual_annealing` does so after about 40."
)
OURS = ("model", "local", "random")
#: Strategies of Kernel Tuner that are none of one objective, or no search.
OTHERS = {"brute_force", "nsga2", "nsga3"}


class Recording(NamedTuple):
    """A space of the hub."""

    name: str
    record: Recorded
    conditions: list[str]
    baseline: Any


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="folder of the benchmark hub")
    parser.add_argument("--only", default="convolution_milo", help="kernels, as folders of cachefiles/: a,b")
    parser.add_argument("--cards", default="A100,A4000,A6000,MI250X,W6600,W7800")
    parser.add_argument("--seeds", type=int, default=100, help="searches of each of our strategies")
    parser.add_argument("--peer-seeds", type=int, default=30, help="searches of each of Kernel Tuner's; 0: none")
    parser.add_argument("--skip", default="", help="strategies of Kernel Tuner's that are not run")
    parser.add_argument("--evaluations", type=int, default=150)
    parser.add_argument("--tuned-on", default="A4000,W6600", help="cards that the default was tuned on, shown apart")


def lines(options: argparse.Namespace) -> Iterator[str]:
    spaces = [
        _recording(options, kernel, card) for kernel in options.only.split(",") for card in options.cards.split(",")
    ]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("kernel_tuner", "autotuning-methodology")]
    yield f"{', '.join(versions)}; {options.seeds} searches of ours, {options.peer_seeds} of theirs."
    yield ""
    tuned_on = [space.name for space in spaces if space.name.split("/")[1] in options.tuned_on.split(",")]
    searches: dict[str, tuple[Callable[[Recording, int], list[float]], int]] = {
        f"`{name}`": (lambda space, seed, name=name: _ours(space, name, options.evaluations, seed), options.seeds)
        for name in OURS
    }
    if options.peer_seeds:
        from kernel_tuner.interface import strategy_map

        peers = _Peers(options.evaluations)
        for name in strategy_map:
            if name not in OTHERS | {*options.skip.split(",")}:
                search = lambda space, seed, name=name: peers.search(space, name, seed)  # noqa: E731
                searches[f"Kernel Tuner: {name}"] = (search, options.peer_seeds)
    steps = [step for step in (25, 50, 100, 150) if step <= options.evaluations]
    heads = [f"{step}" for step in steps]
    apart = [f"{step}, cards not tuned on" for step in (50, options.evaluations)]
    rows, of_spaces, missing = [], [], []
    for name, (search, seeds) in searches.items():
        start = time.process_time()
        try:
            curves = {space.name: np.array([search(space, seed) for seed in range(seeds)]) for space in spaces}
        except Exception as error:  # of others' strategies, some of which need packages that are not installed
            missing.append(f"{name} ({type(error).__name__}: {str(error).splitlines()[0]})")
            continue
        shares = {space.name: space.record.optimum / curves[space.name] for space in spaces}
        duration = (time.process_time() - start) / seeds / len(spaces)
        mean = np.mean([share.mean(axis=0) for share in shares.values()], axis=0)
        print(name, *(f"{share:.3f}" for share in mean[24::25]), file=sys.stderr, flush=True)
        others = np.mean([share.mean(axis=0) for key, share in shares.items() if key not in tuned_on], axis=0)
        spread = np.mean([share.std(axis=0) / np.sqrt(seeds) for share in shares.values()], axis=0) / len(spaces) ** 0.5
        score = np.mean([_score(space, curves[space.name], options.evaluations) for space in spaces])
        cells = [f"{mean[step - 1]:.3f} ± {2 * spread[step - 1]:.3f}" for step in steps]
        cells += [f"{others[step - 1]:.3f}" for step in (50, options.evaluations)]
        rows.append((mean[-1], [name, *cells, f"{score:.2f}", f"{duration:.2f}"]))
        at = [f"{share[:, 49].mean():.3f}, {share[:, -1].mean():.3f}" for share in shares.values()]
        of_spaces.append((mean[-1], [name, *at]))
    order = [row for _, row in sorted(rows, key=lambda row: -row[0])]
    yield from table(["strategy", *heads, *apart, "score", "CPU s a search"], order)
    yield ""
    yield f"Each space, after 50 and {options.evaluations} evaluations (tuned on: {', '.join(tuned_on)}):"
    yield ""
    order = [row for _, row in sorted(of_spaces, key=lambda row: -row[0])]
    yield from table(["strategy", *(space.name for space in spaces)], order)
    yield ""
    yield NOTE
    if missing:
        yield ""
        yield f"Not run: {'; '.join(missing)}."


def _recording(options: argparse.Namespace, kernel: str, card: str) -> Recording:
    """Read a space of the hub, and make the baseline of random search."""
    from autotuning_methodology.baseline import RandomSearchCalculatedBaseline
    from autotuning_methodology.searchspace_statistics import SearchspaceStatistics

    folder = options.folder / "cachefiles" / kernel
    record = formats.read(next(folder.glob(f"{card}.json*")))
    specification = json.loads((options.folder / "kernels" / f"{kernel}.json").read_text(encoding="utf-8"))
    conditions = [entry["Expression"] for entry in specification["ConfigurationSpace"]["Conditions"]]
    with tempfile.TemporaryDirectory() as scratch:
        data = next(folder.glob(f"{card}_T4.json*")).read_bytes()
        path = Path(scratch, "t4.json")
        path.write_bytes(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        keys = ["compilation", "runtimes"], ["time"]
        statistics = SearchspaceStatistics(kernel, card, True, *keys, path, full_validate=False)
    return Recording(f"{kernel}/{card}", record, conditions, RandomSearchCalculatedBaseline(statistics))


def _ours(space: Recording, name: str, evaluations: int, seed: int) -> list[float]:
    """Return the best time after each evaluation."""
    shares = replay(space.record, name, evaluations, seed).shares
    return [space.record.optimum / share if share else np.inf for share in shares]


def _score(space: Recording, curves: np.ndarray, evaluations: int) -> float:
    """Return the mean part of the way from random search to the optimum, as autotuning-methodology computes it."""
    steps = np.arange(1, evaluations + 1)
    means = np.ma.masked_invalid(curves).mean(axis=0).filled(np.nan)
    return float(np.nanmean(space.baseline.get_standardised_curve(steps, means, "fevals")))


class _Peers:
    """Kernel Tuner's strategies, on its simulation runner; each search has a space of its own."""

    def __init__(self, evaluations: int) -> None:
        self.evaluations = evaluations
        self._caches: dict[str, dict[str, Any]] = {}

    def search(self, space: Recording, name: str, seed: int) -> list[float]:
        """Return the best time after each evaluation; the last is repeated where the strategy ends early."""
        from kernel_tuner import util
        from kernel_tuner.interface import Options, strategy_map
        from kernel_tuner.runners.simulation import SimulationRunner
        from kernel_tuner.searchspace import Searchspace

        cache = self._cache(space)
        points = Searchspace(dict(space.record.parameters or {}), space.conditions, 1 << 30)  # it remembers neighbours
        assert points.size == len(cache), f"{space.name}: {points.size} points, {len(cache)} recorded"
        device = Options(quiet=True, device=0, platform=0, compiler=None, compiler_options=None)
        runner = SimulationRunner(None, Options(kernel_name="", arguments=[]), device, 1, None)
        options = Options(strategy_options=Options(max_fevals=self.evaluations), max_fevals=self.evaluations)
        options.update(objective=["time"], objective_higher_is_better=[False], cache=cache, cachefile=None, seed=seed)
        options.update(tune_params=dict(space.record.parameters or {}), restrictions=points._modified_restrictions)
        options.update(
            restrictions_unmodified=space.conditions,
            metrics=None,
            verbose=False,
            quiet=True,
            simulated_time=0,
            snap=True,
            eps=1,
            observers=None,
        )
        options["budget"] = util.TuningBudget(None, self.evaluations)
        random.seed(seed)
        np.random.seed(seed)
        order: list[str] = []
        runner.visited_results = _Visited(order)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            strategy_map[name].tune(points, runner, options)
        times = [np.inf if "__error__" in cache[key] else cache[key]["time"] for key in order[: self.evaluations]]
        best = np.minimum.accumulate(times)
        return [*best, *[best[-1]] * (self.evaluations - len(best))]

    def _cache(self, space: Recording) -> dict[str, Any]:
        """Return Kernel Tuner's cache."""
        from kernel_tuner import util

        if space.name not in self._caches:
            errors = {"compile": util.CompilationFailedConfig, "runtime": util.RuntimeFailedConfig}
            cache = {}
            for point, value, invalidity in space.record.measurements:
                entry: dict[str, Any] = {**point, "time": value}
                if value is None:
                    entry["time"] = entry["__error__"] = errors.get(invalidity, util.InvalidConfig)()
                times = ("compile_time", "verification_time", "benchmark_time", "strategy_time", "framework_time")
                cache[",".join(map(str, point.values()))] = entry | dict.fromkeys(times, 0)
            self._caches[space.name] = cache
        return self._caches[space.name]


class _Visited(set[str]):
    """Keys of visited points, and their order."""

    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self._order = order

    def add(self, key: str) -> None:
        self._order.append(key)
        super().add(key)
