"""What library calls and generated functions share: places, layouts, plans, frozen calls."""
