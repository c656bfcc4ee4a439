"""What each PTX instruction does, in families; to import this package is to fill the table in `machine.decode`."""

from cudakit.emulator.instructions import (
    access,
    atomic,
    barrier,
    control,
    copies,
    matrix,
    tensor_copies,
    texture,
    warp,
    words,
)

__all__ = ["access", "atomic", "barrier", "control", "copies", "matrix", "tensor_copies", "texture", "warp", "words"]
