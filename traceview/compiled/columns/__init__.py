"""Column functions that `tables` itself needs; this package does not import it."""
