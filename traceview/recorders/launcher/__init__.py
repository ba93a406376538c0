"""Start the ranks of a distributed run on this machine, each under a recorder of its own."""
