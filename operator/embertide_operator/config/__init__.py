"""What people set: the settings of an operator, and the pod templates of operators and jobs."""
