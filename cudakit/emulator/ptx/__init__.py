"""PTX text → a program: tokens and operands, bodies, directives."""
