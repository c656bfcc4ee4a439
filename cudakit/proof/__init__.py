"""Proofs about kernels: no access out of bounds and no race, for all sizes that meet the statements."""
