"""The tables of money. What may never change is guarded by triggers: see migrations/sql.

Exchanges, transfers and charges grow without end. They are partitioned by month over a UUIDv7,
whose first 48 bits are the time: the id alone tells the partition, so `once` stays one unique
index. sql/0001_tables.sql creates them; the classes here describe them to Django.
"""

from billing.models.accounts import Account, AccountKind, Phase, Transfer, TransferCode
from billing.models.counting import CorrectionState, CountComparison, CountCorrection
from billing.models.exchanges import (
    Charge,
    EstimateJob,
    Exchange,
    ExchangeState,
    GatewayProcess,
    LateSettlement,
    UsageSource,
)
from billing.models.invoices import (
    CloseRun,
    Invoice,
    InvoiceExchange,
    InvoiceLine,
    InvoiceSeries,
    InvoiceState,
    LineKind,
    PlanFee,
)
from billing.models.limits import LimitAction, LimitPeriod, SpendCounter, SpendLimit
from billing.models.messages import (
    AuditRun,
    Message,
    MessageCategory,
    NoticeKind,
    StaffNotice,
)
from billing.models.prices import Plan, PlanTerms, Price, TenantPlan
from billing.models.wallets import Adjustment, AdjustmentState, Credit, Payment, RedemptionCode

__all__ = [
    "Account",
    "AccountKind",
    "Adjustment",
    "AdjustmentState",
    "AuditRun",
    "Charge",
    "CloseRun",
    "CorrectionState",
    "CountComparison",
    "CountCorrection",
    "Credit",
    "EstimateJob",
    "Exchange",
    "ExchangeState",
    "GatewayProcess",
    "Invoice",
    "InvoiceExchange",
    "InvoiceLine",
    "InvoiceSeries",
    "InvoiceState",
    "LateSettlement",
    "LimitAction",
    "LimitPeriod",
    "LineKind",
    "Message",
    "MessageCategory",
    "NoticeKind",
    "Payment",
    "Phase",
    "Plan",
    "PlanFee",
    "PlanTerms",
    "Price",
    "RedemptionCode",
    "SpendCounter",
    "SpendLimit",
    "StaffNotice",
    "TenantPlan",
    "Transfer",
    "TransferCode",
    "UsageSource",
]
