"""What trains with PyTorch. Functions import it when they run; the modules of ``replay`` are imported when needed."""
