"""Parsing of PTX text to a program: tokens and operands, bodies of functions, directives."""
