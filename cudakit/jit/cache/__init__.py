"""Cache stage: an instance → its machine code, from memory, from disk, or compiled once."""
