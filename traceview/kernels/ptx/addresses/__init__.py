"""Addresses of memory accesses, evaluated from PTX: strides, requests of a warp, provenance."""
