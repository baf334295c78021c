"""What trains with PyTorch, and all that imports it; functions import it when they run, never the modules."""
