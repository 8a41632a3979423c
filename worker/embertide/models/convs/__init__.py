"""A file for each convolution: options, weights, steps, and how a live module is read.

Each class is registered by `embertide.models.registry.convolution`; `shared` has what several have
in common.
"""
