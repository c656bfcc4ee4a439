"""Run the command line as ``python -m cudakit``."""

import sys

from cudakit.cli import main

if __name__ == "__main__":
    sys.exit(main())
