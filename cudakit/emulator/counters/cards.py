"""Rates of GPU cards for rooflines, at boost clock, from NVIDIA's datasheets and architecture whitepapers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cudakit.emulator.counters.tally import Precision
from cudakit.errors import ArgumentError, shortened


@dataclass(frozen=True, slots=True)
class Card:
    """Highest rates of a card.

    Attributes
    ----------
    name : str
        Name of the card.
    gigabytes_per_s : float
        Rate of the card's memory.
    single, double, half, tensor : float
        Rates in teraflop/s: `tensor` with tensor cores, the others without. `tensor` is for dense matrices of half
        precision, summed in single precision.
    source : str
        Source of the figures.
    """

    name: str
    gigabytes_per_s: float
    single: float
    double: float
    half: float
    tensor: float
    source: str

    def teraflops(self, precision: Precision) -> float:
        """Return the rate in a precision, in teraflop/s."""
        return float(getattr(self, precision))

    def ridge(self, precision: Precision) -> float:
        """Return the number of operations per byte from which arithmetic, and not memory, is the limit."""
        return self.teraflops(precision) * 1000 / self.gigabytes_per_s


CARDS = {
    card.name: card
    for card in (
        Card("H200", 4800, 67, 34, 134, 989, "NVIDIA H200 datasheet (SXM)"),
        Card("H100", 3350, 67, 34, 134, 989, "NVIDIA H100 datasheet (SXM)"),
        Card("A100", 2039, 19.5, 9.7, 78, 312, "NVIDIA A100 datasheet (80 GB SXM); GA100 whitepaper"),
        Card("L40S", 864, 91.6, 1.4, 91.6, 362, "NVIDIA L40S datasheet; Ada whitepaper"),
        Card("L4", 300, 30.3, 0.47, 30.3, 121, "NVIDIA L4 datasheet; Ada whitepaper"),
        Card("T4", 320, 8.1, 0.25, 16.2, 65, "NVIDIA T4 datasheet; Turing whitepaper"),
        Card("RTX 4090", 1008, 82.6, 1.3, 82.6, 165, "Ada whitepaper"),
        Card("RTX 3090", 936, 35.6, 0.56, 35.6, 71, "GA102 whitepaper"),
    )
}


def card_of(name: str) -> Card:
    """Return the card with a name.

    Raises
    ------
    ArgumentError
        For a card that the table lacks.
    """
    match = next((card for card in CARDS.values() if card.name.lower() == str(name).lower()), None)
    if match is None:
        raise ArgumentError(f"unknown card {shortened(name)}; expected one of {', '.join(CARDS)}")
    return match


class Roof(NamedTuple):
    """Position of work under a card's roofline.

    Attributes
    ----------
    card : Card
        The card.
    precision : str
        Precision of most operations.
    intensity : float
        Operations a byte, if every request goes to memory.
    best_intensity : float
        Operations a byte, if each sector comes from memory only once, as with a perfect cache.
    share : float
        Part of the card's rate that `best_intensity` allows, at most 1.
    """

    card: Card
    precision: Precision
    intensity: float
    best_intensity: float

    @property
    def share(self) -> float:
        return min(1.0, self.best_intensity / self.card.ridge(self.precision))

    @property
    def limit(self) -> str:
        """Limit of the work: ``memory``, ``arithmetic``, or ``memory or arithmetic`` if caches decide."""
        ridge = self.card.ridge(self.precision)
        if self.best_intensity < ridge:
            return "memory"
        return "arithmetic" if self.intensity >= ridge else "memory or arithmetic, as the caches have it"

    def __str__(self) -> str:
        return (
            f"{self.intensity:.3g} to {self.best_intensity:.3g} flop/byte ({self.precision}); {self.card.name} needs "
            f"{self.card.ridge(self.precision):.3g} for all of its {self.card.teraflops(self.precision):g} Tflop/s: "
            f"limited by {self.limit}"
        )
