"""Queue wait and queue depth of each stream, and calls that waited for room in the queue."""
