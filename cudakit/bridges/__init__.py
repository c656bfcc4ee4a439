"""Kernels and functions of arrays inside of other libraries: ops of torch, calls of JAX.

- `cudakit.bridges.work` reads a kernel's parameters as those of an op: arguments, outputs, and computed values
  (``Arrangement``). The module makes a ``Work`` of a kernel, an elementwise function or any other function.
  `Work.run` runs the work on a stream, on arrays of either library.
- `cudakit.bridges.torch_op` makes a ``Work`` a custom op of torch, with outputs that torch allocates.
- `cudakit.bridges.jax_call` registers a ``Work`` with XLA, whose call frame it reads by ctypes. One handler serves all
  calls. Each call names its ``Work`` by a number.
- Gradients are passed by the user, or `cudakit.bridges.derivative` parses the expression into SymPy and writes another
  elementwise function.
"""
