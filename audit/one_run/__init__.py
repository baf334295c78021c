"""One training with many canaries, each included by its own fair coin."""
