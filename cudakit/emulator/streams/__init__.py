"""Emulated streams and events: work at once, the order that a GPU would owe, and races found."""
