"""Load stage: machine code → a kernel on one device, with configurations and limits."""
