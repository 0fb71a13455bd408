"""What changed between two relations (Labio and Garcia-Molina 1996): the plan, its cost, five algorithms."""
