"""What a value is: types and where they meet, equality, encodings, text, SQL expressions, signatures, matching."""
