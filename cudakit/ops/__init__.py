"""Library calls on packaged templates."""
