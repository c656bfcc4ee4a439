"""Run the command line as ``python -m cudakit``."""

import os
import sys

if not sys.flags.safe_path:
    # Files of the working folder hide no module that cudakit imports, as with the command's script.
    sys.path[0] = os.path.dirname(sys.executable)

from cudakit.cli import main

if __name__ == "__main__":
    sys.exit(main())
