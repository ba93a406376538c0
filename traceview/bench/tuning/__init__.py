"""The fastest of several configurations: the search, and its results kept between runs."""
