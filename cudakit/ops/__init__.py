"""Library calls on packaged templates."""

from cudakit.ops.cast import cast
from cudakit.ops.compact import compact
from cudakit.ops.concatenate import concatenate
from cudakit.ops.elementwise import add
from cudakit.ops.shift import flip, pad, roll
from cudakit.ops.take import take
from cudakit.ops.transpose import copy, transpose

__all__ = ["add", "cast", "compact", "concatenate", "copy", "flip", "pad", "roll", "take", "transpose"]
