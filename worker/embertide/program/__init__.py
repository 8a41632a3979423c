"""What is computed: steps, the passes that make a plan of them, the self-check."""
