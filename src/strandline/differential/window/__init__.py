"""The window algorithm (section 4 of Labio and Garcia-Molina): each snapshot is read exactly once."""
