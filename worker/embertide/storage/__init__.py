"""Objects in files and in S3, behind one protocol: the only code that touches them."""
