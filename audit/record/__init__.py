"""Records: their contents, how they are derived and stored, and how they compare."""
