"""PTX and SASS text: instructions, memory accesses, source lines, addresses. Starts no process."""
