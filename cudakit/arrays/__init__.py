"""Shared by library calls and generated functions: array places, layouts, launch plans, replayed calls."""
