"""Resources of kernels besides arrays: allocations, textures, surfaces, tensor maps."""
