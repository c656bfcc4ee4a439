"""Random kernels called with random arguments, each call judged by what C++ makes of the same numbers."""
