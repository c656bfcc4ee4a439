"""The instructions, one module a family; each is an entry in the table of `machine.decode`."""
