"""What the limits say about a claim, and what trials can be expected to show."""
