"""Read the ranks of a job, each file in a process of its own, on this machine or on Dask."""
