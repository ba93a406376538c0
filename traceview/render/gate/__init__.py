"""The outcome of a gate as text, JSON, JUnit XML, and output for GitHub Actions."""
