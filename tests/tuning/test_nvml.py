"""Energy and clocks by NVML: what is read, how often is launched, and what is told where NVML is missing."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.tuning import nvml, objectives
from cudakit.tuning.nvml import Meter

BUS = "0000:3B:00.0"
STREAM = SimpleNamespace(device=SimpleNamespace(pci_bus_id=BUS))


def card(bus: str) -> str:
    assert bus == BUS
    return "card"


BINDINGS = SimpleNamespace(
    init_v2=lambda: None,
    device_get_handle_by_pci_bus_id_v2=card,
    device_get_total_energy_consumption={"card": 7000}.__getitem__,
    device_get_clock_info=lambda device, clock: {("card", 1): 1980}[device, clock],
)
PACKAGE = SimpleNamespace(
    nvmlInit=lambda: None,
    nvmlDeviceGetHandleByPciBusId=card,
    nvmlDeviceGetTotalEnergyConsumption={"card": 8000}.__getitem__,
    nvmlDeviceGetClockInfo=lambda device, clock: {("card", 1): 1410}[device, clock],
)


def put(monkeypatch: pytest.MonkeyPatch, bindings: Any, package: Any) -> None:
    """Put in stand-ins; None: there is no such module."""
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvml", bindings)
    monkeypatch.setitem(sys.modules, "pynvml", package)


def test_meters_are_of_the_bindings_or_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, BINDINGS, None)
    meter = nvml.meter_of(STREAM)
    assert (meter.energy_mj(), meter.clock_mhz()) == (7000, 1980)
    put(monkeypatch, SimpleNamespace(), PACKAGE)
    meter = nvml.meter_of(STREAM)
    assert (meter.energy_mj(), meter.clock_mhz()) == (8000, 1410)
    put(monkeypatch, None, None)
    with pytest.raises(ck.CudakitError, match=r"read by NVML.*install them with: pip install nvidia-ml-py"):
        nvml.meter_of(STREAM)


def test_a_clock_is_none_where_nvml_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvml.clock_mhz(ck.emulator.stream()) is None
    monkeypatch.setattr(nvml, "place_of", lambda stream: nvml.DEVICES)
    put(monkeypatch, BINDINGS, None)
    assert nvml.clock_mhz(STREAM) == 1980
    put(monkeypatch, None, None)
    assert nvml.clock_mhz(STREAM) is None


class Card:
    """A card whose launches take 2 ms and 5 mJ, in seconds of its own."""

    def __init__(self) -> None:
        self.seconds, self.energy, self.launches = 0.0, 1000.0, 0
        self.readings: list[float] = []

    def launch(self) -> None:
        self.launches += 1
        self.seconds += 0.002
        self.energy += 5

    def read(self) -> int:
        self.readings.append(self.seconds)
        return int(self.energy)


def test_energy_is_of_launches_that_take_three_tenths_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Card()
    monkeypatch.setattr(objectives, "time", SimpleNamespace(perf_counter=lambda: here.seconds))
    energy = objectives.Energy(ck.emulator.stream(), Meter(here.read, lambda: 0))
    assert (energy.name, energy.unit, energy.repeats) == ("energy", "mJ", True)
    here.readings.clear()
    assert energy.measure(here.launch, float("inf")) == [5.0] * 3
    assert all(ended - begun >= 0.3 for begun, ended in zip(here.readings[::2], here.readings[1::2], strict=True))
    here.readings.clear()
    assert energy.measure(here.launch, 4.0) == [5.0]
    assert len(here.readings) == 2


def test_a_card_without_a_meter_of_energy_is_told() -> None:
    def refuse() -> int:
        raise RuntimeError("Not Supported")

    with pytest.raises(ck.CudakitError, match="this GPU does not tell its energy: Not Supported"):
        objectives.Energy(ck.emulator.stream(), Meter(refuse, refuse))


@pytest.mark.emulator
def test_the_emulator_has_no_energy() -> None:
    with pytest.raises(ck.UnknownNameError, match="the emulator counts, and measures no energy"):
        objectives.objective_of("energy", ck.emulator.stream())


@pytest.mark.gpu
def test_a_card_has_energy_and_clocks() -> None:
    add = ck.Kernel(
        "template <int BLOCK> __global__ void add(float* y, int n) {"
        "int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) y[i] = i + 1.0f; }"
    )
    stream, n = ck.stream(), 1 << 20
    tuned = ck.tune(
        add, (ck.empty(n, np.float32, stream=stream), n), {"BLOCK": [64, 256]}, stream=stream,
        config=lambda BLOCK, n: ck.config(-(-n // BLOCK), BLOCK), objective=["time", "energy"],
    )  # fmt: skip
    assert all(row.values["energy"] > 0 for row in tuned.table if row.state == "right")
    assert tuned.clocks is not None
    assert min(tuned.clocks) > 0
