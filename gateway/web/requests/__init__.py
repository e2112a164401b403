"""Requests: the list with its chart and its CSV, and one request with all that explains it."""
