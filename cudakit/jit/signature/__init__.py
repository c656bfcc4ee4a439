"""Signature stage: a source → template parameters and kernel parameters with their C++ types."""
