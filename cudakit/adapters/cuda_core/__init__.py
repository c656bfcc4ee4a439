"""cuda.core on machines without a CUDA driver: stand-ins that run on the emulator."""
