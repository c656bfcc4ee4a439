"""From a template to a launch: source → signature → specialise → compile → cache → load → launch, a room each."""
