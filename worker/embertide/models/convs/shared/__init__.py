"""What several convolutions have in common; no convolution itself."""
