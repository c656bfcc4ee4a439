"""The machine: memory, modules, blocks of lanes, and the steps that they take."""
