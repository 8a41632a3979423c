"""What the paper compares with, written as one would write it without the paper's ideas.

Each takes the same inputs in the same layouts as ours, moves its bytes over the same channels,
uses the same local kernels, and must give the same result. None is made slow on purpose.
"""
