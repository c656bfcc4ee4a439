"""What kernels reach beside their arrays: allocations, textures and surfaces by their handles, tensor maps."""
