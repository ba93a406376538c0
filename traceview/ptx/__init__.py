"""PTX and SASS: from text to instructions, memory accesses and source lines; no GPU needed."""
