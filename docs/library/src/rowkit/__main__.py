"""``python -m rowkit sm_80 sm_90``: compile the kernels ahead, when an image or a package is made."""

import sys

from rowkit import prewarm

if __name__ == "__main__":
    prewarm(sys.argv[1:])
