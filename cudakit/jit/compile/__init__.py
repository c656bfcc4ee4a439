"""Compile: an instance → machine code, by NVRTC; what its messages and names mean."""
