"""The run as a graph: what each call and each operation waited for, and the run replayed."""
