"""The source around a kernel: where a project launches it and with what. None of it is run."""
