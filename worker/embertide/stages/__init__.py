"""The stages of a run: one public function a file; the order is known to ``pipeline`` alone."""
