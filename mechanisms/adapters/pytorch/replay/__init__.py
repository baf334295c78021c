"""Two runs of PyTorch code on the same draws, followed operation by operation. Needs PyTorch when it is imported.

It knows nothing of findings: it hands over facts, each with the stack it was seen at, and audit.explain words them.
"""
