"""What can go wrong with money."""


class BillingError(Exception):
    """Base of this app's errors."""


class LedgerUnavailable(BillingError):
    """PostgreSQL did not answer in time. Nothing is known to be written; try again later."""


class QueueFull(LedgerUnavailable):
    """More work than the ledger's bounded queue holds. Nothing was written."""


class DuplicatePayment(BillingError):
    """This payment was credited before. Nothing was written now."""


class BadPrice(BillingError):
    """A price that cannot be: negative, or finer than nine decimals."""
