"""Public face of the emulator for the rest of the package: its place, launches, memory, streams and observers.

Rooms above the emulator import this module and no other of the emulator, so that the others can change freely. Proofs
read parsed programs (`program`, `flow`), the facts of their instructions (`facts`) and the meanings (`words`).
"""

from __future__ import annotations

from cudakit.emulator.checks.check import check
from cudakit.emulator.checks.findings import Finding
from cudakit.emulator.counters.cards import CARDS, card_of
from cudakit.emulator.counters.report import Report, counters
from cudakit.emulator.debug.debug import begin
from cudakit.emulator.isa import facts, flow, words
from cudakit.emulator.launch import EmulatedCode, EmulatedShape
from cudakit.emulator.machine.heap import device_limits
from cudakit.emulator.machine.machine import DrawnOrder
from cudakit.emulator.machine.memory import bytes_at, plain
from cudakit.emulator.place import EmulatorPlace, strict
from cudakit.emulator.ptx import program
from cudakit.emulator.ptx.body import TYPE_BYTES
from cudakit.emulator.ptx.parser import parse
from cudakit.emulator.ready import EmulatedThreads
from cudakit.emulator.resources.allocations import MARKS, room
from cudakit.emulator.resources.device_array import DeviceArray, DeviceModule, as_device
from cudakit.emulator.resources.texture import EmulatedTensorMap, SurfaceObject, TextureObject
from cudakit.emulator.streams.awaited_array import handed_out, host_view
from cudakit.emulator.streams.order import order
from cudakit.emulator.streams.stream import EmulatedEvent, EmulatedStream, stream

__all__ = [
    "EmulatorPlace", "strict",
    "EmulatedCode", "EmulatedShape", "EmulatedThreads",
    "DeviceArray", "DeviceModule", "MARKS", "as_device", "bytes_at", "device_limits", "room",
    "EmulatedTensorMap", "SurfaceObject", "TextureObject",
    "EmulatedEvent", "EmulatedStream", "handed_out", "host_view", "order", "stream",
    "Finding", "DrawnOrder", "Report", "begin", "CARDS", "card_of", "check", "counters",
    "TYPE_BYTES", "facts", "flow", "parse", "plain", "program", "words",
]  # fmt: skip
