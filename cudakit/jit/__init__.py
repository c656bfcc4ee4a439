"""Stages from a source to a launch: source → signature → specialise → compile → cache → load → launch."""
