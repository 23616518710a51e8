"""One detector per file, each a pure function from a window to findings."""
