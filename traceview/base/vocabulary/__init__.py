"""What the product says of each thing of the field, once: data and English that any layer reads."""
