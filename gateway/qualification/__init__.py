"""Whether a vendor is what it says it is: authored checks, their reports, and what follows.

`gate` decides who takes live traffic, `run` checks a vendor, `standing` keeps what was found and
what people decided, `recheck` does it again on a schedule. See docs/vendors.md.
"""
