"""Streams and devices: which there are, who watches them, and the order between them."""
