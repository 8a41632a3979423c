"""Objects in files and in S3, under one protocol: the only code that touches them."""
