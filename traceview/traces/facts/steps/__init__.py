"""Steps of a program: marked, added or inferred; its loops, warm-up and outliers."""
