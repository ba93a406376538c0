"""What all wings rest on: errors, units, tables, vocabulary, hardware and the C library."""
