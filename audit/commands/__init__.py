"""One file per command; what all of them can be told is in `arguments`."""
