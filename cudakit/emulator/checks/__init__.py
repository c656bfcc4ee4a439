"""Checks of running kernels: races, reads of memory that was never written, barriers that threads never reach."""
