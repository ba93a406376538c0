"""Types and values of a kernel's arguments: written by the user, or guessed from its source."""
