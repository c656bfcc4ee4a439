"""Array places, layouts, launch plans and replayed calls, shared by library calls and generated functions."""
