"""Measurements, one command each: see README.md beside this file."""
