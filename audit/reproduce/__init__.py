"""The five papers, item by item: what they print, what we compute, and whether the two agree."""
