"""Counters of the emulator's kernels: instructions, sectors, wavefronts, conflicts. They never measure time."""
