"""Emulated streams and events: work that runs at the call, the order that a GPU would keep, and races against it."""
