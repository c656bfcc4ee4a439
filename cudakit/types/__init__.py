"""Types: C++ types, structs and scalars, and what a Python object is as an argument."""
