import argparse
import sys

import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=50)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    x = gpuarray.arange(args.size, dtype=np.dtype(args.dtype))
    total = gpuarray.sum(x).get()
    assert total == args.size * (args.size - 1) / 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
