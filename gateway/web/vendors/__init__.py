"""Vendors for the operator: who takes live traffic and why, what checks found, and the acts."""
