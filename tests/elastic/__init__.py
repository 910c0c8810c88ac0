"""A package to pytest: its Ray and its service end with its last test, before the next folder starts its own."""
