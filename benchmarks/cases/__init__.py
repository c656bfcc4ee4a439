"""What `run.py` measures: a module or a folder a family, and what they share."""
