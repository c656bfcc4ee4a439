"""The public face of all stages: modules, their kernels, and their global variables."""
