"""Verdicts: what the limits say about a claim, and what the same trials could have shown."""
