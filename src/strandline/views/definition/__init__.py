"""What a view is: its text taken apart into relations, a condition and outputs."""
