"""Stepping through a kernel: by source lines, forward and back, with its variables."""
