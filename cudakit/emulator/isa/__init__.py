"""PTX instructions: facts of each opcode, control flow, and meanings as operations on lanes' words."""
