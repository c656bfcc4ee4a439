"""What kernels read through: allocations, samplers of textures, tensor maps."""
