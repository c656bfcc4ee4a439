"""PTX text → a program: tokens, operands, variables, bodies."""
