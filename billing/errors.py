"""What can go wrong with money."""


class BillingError(Exception):
    """Base of this app's errors."""


class LedgerUnavailable(BillingError):
    """PostgreSQL did not answer in time. Nothing is known to be written; try again later."""


class QueueFull(LedgerUnavailable):
    """More work than the ledger's bounded queue holds. Nothing was written."""


class DuplicatePayment(BillingError):
    """This payment was credited before. Nothing was written now."""


class IncompletePrice(BillingError):
    """A price without one for input or for output: its model is refused, never free."""


class BadPlanStart(BillingError):
    """A plan cannot start at that moment; the message says why."""


class InsufficientFunds(BillingError):
    """An account cannot give so much. Nothing was written."""


class DuplicateGrant(BillingError):
    """This credit was granted before. Nothing was written now."""


class BadCode(BillingError):
    """A redemption code that credits nothing. Which of the reasons it is, is not told."""


class BadAdjustment(BillingError):
    """An adjustment that cannot be made or decided so; the message says why."""


class BadLimit(BillingError):
    """A spend limit that cannot be; the message says why."""


class BadInvoiceAct(BillingError):
    """An act that the invoice's state does not allow, or without a reason; the message says."""


class InvoiceMoved(BadInvoiceAct):
    """The invoice is in another state than the act needs, or was moved since it was looked at."""


class MonthNotOver(BillingError):
    """A month that still runs, or has not begun, cannot be closed."""


class UnratedCharges(BillingError):
    """Charges that no price version of the draft explains: it was not drafted. Try again."""


class BadCorrectionAct(BillingError):
    """An act on a correction without a reason, or that cannot be; the message says why."""


class CorrectionDecided(BadCorrectionAct):
    """The correction is in another state than the act needs."""
