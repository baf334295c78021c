"""What a fixed number of trials can and cannot show."""
