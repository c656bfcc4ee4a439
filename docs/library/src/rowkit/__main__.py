"""Compile all kernels before the first call: ``python -m rowkit sm_80 sm_90``."""

import sys

from rowkit import prewarm

if __name__ == "__main__":
    prewarm(sys.argv[1:])
