"""Work on columns that tables themselves need: knows nothing of tables."""
