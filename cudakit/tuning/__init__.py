"""Tune a kernel: find the fastest point of a space of template arguments, launch shapes and options."""
