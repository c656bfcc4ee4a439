"""The façade: a kernel of a module, its specializations and its global variables."""
