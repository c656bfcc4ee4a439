"""Load: machine code → a kernel on one device, with its configurations and limits."""
