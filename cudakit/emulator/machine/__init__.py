"""NumPy interpreter: memory, lanes, decoded instructions, scheduling."""
