"""Drawing the outcome of a gate: text, JSON, JUnit XML, and what GitHub Actions reads."""
