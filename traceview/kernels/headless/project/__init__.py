"""The source around a kernel: where a project launches it and with what. It is not run."""
