"""The manifest, and the names and reports shared by the command, the workers and the operator.

So nothing here imports torch, pyarrow, boto3 or kubernetes.
"""

from embertide.spec.manifest import EmbeddingJob, load_manifest

__all__ = ["EmbeddingJob", "load_manifest"]
