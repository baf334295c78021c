"""Which test is judged: each policy fixes its test, counts trials and judges them."""
