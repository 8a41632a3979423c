"""Made-up graphs, features and models of any size: for trying things out, tests and benchmarks."""

from embertide.edge.synth.job import SynthReport, synthesize
from embertide.edge.synth.options import SynthOptions

__all__ = ["SynthOptions", "SynthReport", "synthesize"]
