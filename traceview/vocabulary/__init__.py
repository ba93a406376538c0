"""The words of the field: one record per thing, with all that the product says of it."""
