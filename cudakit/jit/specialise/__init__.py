"""Specialise stage: a signature and arguments → one instance of a kernel, with options and arch."""
