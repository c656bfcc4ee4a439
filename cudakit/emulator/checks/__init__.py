"""Checks of what kernels do while they run: races, reads of what nobody wrote, barriers that are not reached."""
