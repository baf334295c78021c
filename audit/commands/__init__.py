"""One module per command; ``arguments`` has the options of all."""
