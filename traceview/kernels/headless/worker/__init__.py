"""The worker process: it runs the user's script on the fakes and recompiles its kernels."""
