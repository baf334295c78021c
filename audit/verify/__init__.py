"""Records computed again: derived values by the code that made them, primary ones by drawing their trials again."""
