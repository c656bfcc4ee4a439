"""PTX instructions on the NumPy interpreter, by family; importing the package fills the table in `machine.decode`."""

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
