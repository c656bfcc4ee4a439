"""What PTX instructions are and mean: facts of each opcode, and meanings over lanes' words."""
