"""Compile stage: an instance → machine code by NVRTC, with readable diagnostics and names."""
