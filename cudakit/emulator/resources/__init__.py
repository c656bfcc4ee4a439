"""What kernels reach beside their arrays: allocations, textures, surfaces, tensor maps."""
