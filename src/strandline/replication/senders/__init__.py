"""What sends to copies: views of a store, and annotated base tables."""
