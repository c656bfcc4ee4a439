"""From a source to a launch, a folder for each stage: source → signature → specialise → compile → cache → load →
launch.
"""
