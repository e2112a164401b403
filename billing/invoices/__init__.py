"""Invoices: what was charged in a month, as documents that add up to the nano.

`closing` drafts a month, `drafting` one document of it out of `fees` and exchanges by way of
`amounts`; `acts` move a document along `transitions`; `reconciling` compares it with the ledger,
and `selectors` are what pages ask.
"""
