"""Vendors, models, routes and prices in one YAML file: read, applied, exported.

The file's schema stands in docs/catalog.md. `file` reads it, `apply` makes the database say the
same, `export` writes down what the database says.
"""
