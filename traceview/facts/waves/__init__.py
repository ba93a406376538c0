"""Launch configurations of kernels, and the waves in which a GPU runs their grids."""
