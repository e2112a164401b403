"""Invoices: the operator's review and its acts, and what a tenant sees of its own."""
