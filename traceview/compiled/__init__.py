"""The compiled C library, its wrappers, and text columns that use them."""
