"""Cache: an instance → its machine code, from memory, from disk, or by compiling once."""
