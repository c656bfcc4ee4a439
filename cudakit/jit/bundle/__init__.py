"""Bundles: files of compiled kernels, which later stages use in place of the parser and the compiler."""
