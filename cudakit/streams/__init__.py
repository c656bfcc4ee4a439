"""Streams and devices: their limits and captures, observers of their work, and the order between streams."""
