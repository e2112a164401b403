"""A month of traffic of many tenants, written by sets: prices, plans and usage of every kind.

It is true to every rule of the audit, which rates each charge again from its usage and its price.
"""

import itertools
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import orjson
from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from billing.ids import new_exchange_id
from billing.invoices.months import Month, month_before, month_of
from billing.ledger import Settlement, settle_now
from billing.models import (
    Account,
    AccountKind,
    Credit,
    Exchange,
    Plan,
    PlanTerms,
    Price,
    TenantPlan,
)
from billing.rates import rates_of
from billing.rating import cost_nanos, version_of
from billing.transfers import operator_account
from billing.usage import Usage
from billing.wallets import OPERATOR_KINDS
from keys.models import Tenant

UNIT = 10**9
ZONES = ("UTC", "Europe/Berlin", "America/Los_Angeles", "Pacific/Kiritimati")

# Each exchange: what kind it is, by its number, and what the wallet bears of it.
KINDS = """
    CASE WHEN n %% 17 = 0 THEN 'refused' WHEN n %% 13 = 0 THEN 'voided'
         WHEN n %% 11 = 0 THEN 'short' WHEN n %% 7 = 0 THEN 'estimate' ELSE 'vendor' END
"""

WRITE = f"""
WITH rates AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(rates)s::jsonb) AS r(
        price_id bigint, terms_id bigint, above bigint, up_to bigint, input bigint,
        cached_input bigint, output bigint, reasoning bigint, per_request bigint)
), versions AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(versions)s::jsonb) AS v(
        tenant_id bigint, model text, price_id bigint, terms_id bigint, since timestamptz,
        until timestamptz)
), tenants AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(tenants)s::jsonb) AS t(
        tenant_id bigint, wallet_id bigint, credit_id bigint, starts_at timestamptz,
        ends_at timestamptz)
), made AS MATERIALIZED (
    SELECT t.*, n, {KINDS} AS kind,
           (ARRAY['alpha', 'beta', 'gamma'])[1 + n %% 3] AS model,
           t.starts_at + (t.ends_at - t.starts_at) * (n - 0.5) / %(each)s AS at,
           (n * 7919) %% 1500 AS tokens_in, (n * 104729) %% 900 AS tokens_out,
           (n * 31) %% 40 AS cached, (n * 17) %% 60 AS reasoning
    FROM tenants t CROSS JOIN generate_series(1, %(each)s) n
), named AS MATERIALIZED (
    SELECT m.*, (substr(farthing_first_uuid(m.at)::text, 1, 14) || '7'
                 || substr(gen_random_uuid()::text, 16))::uuid AS id,
           v.price_id, v.terms_id
    FROM made m
    LEFT JOIN versions v ON m.kind <> 'refused' AND v.tenant_id = m.tenant_id
                        AND v.model = m.model AND m.at >= v.since AND m.at < v.until
), rated AS MATERIALIZED (
    SELECT m.*, CASE WHEN m.kind IN ('vendor', 'estimate', 'short') THEN
               div(m.tokens_in::numeric * r.input + 500000, 1000000)
               + div(m.cached::numeric * r.cached_input + 500000, 1000000)
               + div(m.tokens_out::numeric * r.output + 500000, 1000000)
               + div(m.reasoning::numeric * r.reasoning + 500000, 1000000)
               + r.per_request ELSE 0 END::bigint AS cost
    FROM named m
    LEFT JOIN rates r ON r.price_id = m.price_id AND r.terms_id = coalesce(m.terms_id, 0)
                     AND m.tokens_in + m.cached > r.above AND m.tokens_in + m.cached <= r.up_to
), held AS MATERIALIZED (
    SELECT r.*, CASE WHEN kind = 'refused' THEN 0 WHEN kind = 'short' THEN cost / 2
                     ELSE cost + 1000 END AS hold,
           CASE kind WHEN 'short' THEN cost / 2 ELSE cost END AS charge,
           CASE WHEN n %% 5 = 0 THEN credit_id ELSE wallet_id END AS account_id,
           ends_at - at < interval '12 hours' AND n %% 2 = 0 AND cost > 0 AS is_late
    FROM rated r
), opened AS (
    INSERT INTO billing_exchange (id, tenant_id, key_id, process_id, price_id, terms_id,
        hold_nanos, credit_nanos, created_at, ended_at, settled_at, status_code, state, currency,
        model)
    SELECT id, tenant_id, 1, 1, price_id, terms_id, hold,
           CASE WHEN account_id = credit_id AND hold > 0 THEN hold END, at,
           at, CASE WHEN NOT is_late THEN at END, 200,
           CASE WHEN is_late THEN 'open' ELSE 'settled' END, 'USD',
           CASE kind WHEN 'refused' THEN 'no-model-' || n ELSE model END
    FROM held
), charged AS (
    INSERT INTO billing_charge (exchange_id, tenant_id, charge_nanos, shortfall_nanos,
        input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, created_at,
        usage_source, outcome)
    SELECT id, tenant_id, charge, cost - charge,
           CASE kind WHEN 'voided' THEN 0 ELSE tokens_in END,
           CASE kind WHEN 'voided' THEN 0 ELSE cached END,
           CASE kind WHEN 'voided' THEN 0 ELSE tokens_out END,
           CASE kind WHEN 'voided' THEN 0 ELSE reasoning END, at,
           CASE kind WHEN 'refused' THEN 'none' WHEN 'voided' THEN 'none'
                     WHEN 'estimate' THEN 'estimate' ELSE 'vendor' END,
           CASE kind WHEN 'refused' THEN 'refused' WHEN 'voided' THEN 'failed'
                     ELSE 'answered' END
    FROM held WHERE NOT is_late
), written AS (
    INSERT INTO billing_transfer (link, tenant_id, debit_account_id, credit_account_id,
        amount_nanos, phase, code, created_at)
    SELECT id, tenant_id, account_id, %(revenue)s, hold, 1, 'hold', at FROM held WHERE hold > 0
    UNION ALL
    SELECT id, tenant_id, account_id, %(revenue)s, charge, 2, 'charge', at
    FROM held WHERE charge > 0 AND NOT is_late
    UNION ALL
    SELECT id, tenant_id, account_id, %(revenue)s, hold, 3, 'release', at
    FROM held WHERE charge = 0 AND hold > 0 AND NOT is_late
)
UPDATE billing_account a
SET posted_nanos = a.posted_nanos - s.charged, held_nanos = a.held_nanos + s.held
FROM (SELECT account_id, coalesce(sum(charge) FILTER (WHERE NOT is_late), 0) AS charged,
             coalesce(sum(hold) FILTER (WHERE is_late), 0) AS held
      FROM held GROUP BY account_id) s
WHERE a.id = s.account_id
"""


GRANT = """
INSERT INTO billing_transfer (link, tenant_id, debit_account_id, credit_account_id, amount_nanos,
                              phase, code, created_at)
SELECT link, tenant_id, %s, account_id, amount_nanos, 0, 'grant', now()
FROM billing_credit WHERE account_id = ANY (%s)
"""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Traffic:
    """A month that is over, with its tenants. Some of its exchanges are open still."""

    month: date
    tenants: list[Any]
    each: int

    def open(self) -> QuerySet[Exchange]:
        of_these = [tenant.pk for tenant in self.tenants]
        return Exchange.objects.filter(tenant_id__in=of_these, state="open")

    def settle_late(self) -> int:
        """As a worker does that was late, by an estimate."""
        usage = Usage(input_tokens=7, output_tokens=1)
        settlements = [
            Settlement(
                exchange_id=exchange.id,
                tenant_id=exchange.tenant_id,
                currency="USD",
                cost_nanos=cost_nanos(usage, version_of(exchange.price, exchange.terms)),
                usage=usage,
                usage_source="estimate",
                outcome="answered",
                settled_at=timezone.now(),
            )
            for exchange in self.open().select_related("price", "terms")
        ]
        return sum(answer.is_settled_now for answer in settle_now(settlements))


def last_month() -> date:
    return month_before(timezone.now().astimezone(UTC).date() - timedelta(days=2))


def utc_month(first: date) -> Month:
    """Without asking the database, so that a test module may have it as a constant."""
    after = (first + timedelta(days=31)).replace(day=1)
    starts_at, ends_at = (datetime(day.year, day.month, 1, tzinfo=UTC) for day in (first, after))
    return Month(first, "UTC", starts_at, ends_at)


def make_month(world, *, tenants: int, each: int) -> Traffic:
    """Half of the tenants change their plan in mid-month; every price has two versions."""
    month = last_month()
    middle = datetime(month.year, month.month, 15, 12, tzinfo=UTC)
    plans = [
        _plan(f"{world.prefix}-{name}", fee, factor)
        for name, fee, factor in (("club", 0, 9_000), ("team", 49 * UNIT, 10_000))
    ]
    prices = [_price(f"{name}", version, middle) for name in MODELS for version in (0, 1)]
    people = _tenants(world, tenants, plans, middle)
    rows = _rows(people, month)
    versions = [
        version
        for number, tenant in enumerate(people)
        for version in _versions(tenant, number, prices, plans, middle)
    ]
    pairs = {(version["price_id"], version["terms_id"]) for version in versions}
    with connection.cursor() as cursor:
        cursor.execute(
            WRITE,
            {
                "rates": orjson.dumps(rates_of(sorted(pairs, key=str))).decode(),
                "versions": orjson.dumps(versions).decode(),
                "tenants": orjson.dumps(rows).decode(),
                "each": each,
                "revenue": Account.objects.get(tenant=None, kind="revenue", currency="USD").pk,
            },
        )
    return Traffic(month, people, each)


MODELS = {"alpha": 279_500_000, "beta": 1_000_003, "gamma": 0}


def _plan(name: str, fee_nanos: int, factor_bps: int) -> PlanTerms:
    return PlanTerms.objects.create(
        plan=Plan.objects.create(name=name),
        currency="USD",
        effective_from=datetime(2020, 1, 1, tzinfo=UTC),
        monthly_fee_nanos=fee_nanos,
        price_factor_bps=factor_bps,
    )


def _price(model: str, version: int, middle: datetime) -> Price:
    """The second version is dearer, has a tier, and a price for each request."""
    unit = MODELS[model] * (1 + version)
    since = middle if version else datetime(2020, 1, 1, tzinfo=UTC)
    price, _ = Price.objects.get_or_create(
        model=model,
        plan=None,
        currency="USD",
        effective_from=since,
        defaults={
            "input_nanos": unit,
            "cached_input_nanos": unit // 10,
            "output_nanos": 4 * unit,
            "per_request_nanos": 1_001 * version,
            "tiers": [{"above_prompt_tokens": 1_000, "input_nanos": 2 * unit}] if version else [],
        },
    )
    return price


def _tenants(world, count: int, plans: list[PlanTerms], middle: datetime) -> list[Tenant]:
    """Postpaid, with a credit each, half of which the traffic uses up."""
    tenants = Tenant.objects.bulk_create(
        Tenant(
            name=f"T{number}",
            slug=f"{world.prefix}-{number}-{next(_numbers)}",
            time_zone=ZONES[number % len(ZONES)],
        )
        for number in range(count)
    )
    for kind in OPERATOR_KINDS:
        operator_account(kind, "USD")
    wallet = {"kind": "wallet", "currency": "USD", "has_credits": True}
    Account.objects.bulk_create(
        Account(tenant=tenant, credit_limit_nanos=100 * UNIT, **wallet) for tenant in tenants
    )
    _grant(tenants)
    TenantPlan.objects.bulk_create(
        TenantPlan(tenant=tenant, plan=terms.plan, starts_at=starts_at)
        for number, tenant in enumerate(tenants)
        for terms, starts_at in _assigned(number, plans, middle)
    )
    return tenants


def _assigned(number: int, plans: list[PlanTerms], middle: datetime):
    if number % 3:
        yield plans[number % 2], datetime(2020, 1, 2, tzinfo=UTC)
    if number % 2:
        yield plans[1 - number % 2], middle + timedelta(days=1)


def _grant(tenants: list[Tenant]) -> None:
    accounts = Account.objects.bulk_create(
        Account(
            tenant=tenant,
            kind="credit",
            currency="USD",
            posted_nanos=20 * UNIT,
            expires_at=timezone.now() + timedelta(days=9),
        )
        for tenant in tenants
    )
    Credit.objects.bulk_create(
        Credit(
            external_id=f"{account.tenant.slug}-included",
            tenant=account.tenant,
            account=account,
            link=new_exchange_id(),
            amount_nanos=20 * UNIT,
            reason="included in the plan",
        )
        for account in accounts
    )
    promotions = operator_account(AccountKind.PROMOTIONS, "USD")
    with connection.cursor() as cursor:
        cursor.execute(GRANT, [promotions.pk, [account.pk for account in accounts]])


def _rows(tenants: list[Tenant], month: date) -> list[dict[str, Any]]:
    spans = {zone: month_of(month, zone) for zone in ZONES}
    accounts = Account.objects.filter(tenant__in=tenants).values_list("tenant_id", "kind", "pk")
    numbers = {(tenant_id, kind): pk for tenant_id, kind, pk in accounts}
    return [
        {
            "tenant_id": tenant.pk,
            "wallet_id": numbers[tenant.pk, "wallet"],
            "credit_id": numbers[tenant.pk, "credit"],
            "starts_at": spans[tenant.time_zone].starts_at.isoformat(),
            "ends_at": spans[tenant.time_zone].ends_at.isoformat(),
        }
        for tenant in tenants
    ]


def _versions(tenant, number: int, prices, plans, middle: datetime):
    """Price and terms by the time of a request: two prices, and two plans for every other one."""
    first = plans[number % 2] if number % 3 else None
    then = plans[1 - number % 2] if number % 2 else first
    moments = [datetime(2020, 1, 1, tzinfo=UTC), middle, middle + timedelta(days=1)]
    ends = [*moments[1:], datetime(2100, 1, 1, tzinfo=UTC)]
    for index, (since, until) in enumerate(zip(moments, ends, strict=True)):
        terms = first if index < 2 else then
        for price in prices:
            if (price.effective_from < middle) == (index == 0):
                yield {
                    "tenant_id": tenant.pk,
                    "model": price.model,
                    "price_id": price.pk,
                    "terms_id": None if terms is None else terms.pk,
                    "since": since.isoformat(),
                    "until": until.isoformat(),
                }
