"""The five papers, number by number: what is printed, what we compute, and whether they agree. Not in the wheel."""
