"""Signature: a source's text → template parameters and kernel parameters with their C++ types."""
