"""One world of numbers for the gallery of components: every sum in it adds up to the nano."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from django import forms

from billing.money import price_of
from gateway.templatetags.drawings import Bar
from gateway.templatetags.farthing import DASH, STATES, money

STATIC = Path(__file__).resolve().parents[2] / "static"
AT = datetime(2026, 12, 1, 14, 20, 5, 407_000, tzinfo=UTC)
ICONS = re.findall(r'symbol id="([a-z-]+)"', (STATIC / "icons.svg").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    at_ms: float
    took_ms: float
    kind: str


STEPS = [
    Step("Authenticate, read, resolve", 0.0, 0.9, "own"),
    Step("Limits", 0.9, 0.7, "own"),
    Step("Hold 0.002 231 343", 1.6, 2.5, "own"),
    Step("Attempt 1, Northgate: 503, no byte", 4.3, 212.5, "failed"),
    Step("Attempt 2, Tidewater: first byte", 217.0, 485.6, "wait"),
    Step("Attempt 2: stream, 1,131 events", 702.6, 4158.4, "stream"),
    Step("Worker counts the tokens", 4861.3, 541.0, "count"),
    Step("Settle: hold to charge", 5402.3, 1.9, "own"),
]
LINES = [
    SimpleNamespace(
        name=name,
        quantity=quantity,
        estimated=name != "Cached input",
        price_nanos=price_nanos,
        charge_nanos=price_of(quantity, price_nanos),
    )
    for name, quantity, price_nanos in (
        ("Input", 1843, 279_500_000),
        ("Cached input", 0, 28_000_000),
        ("Output", 1128, 419_000_000),
    )
]


def _request(name: str, state: str, nanos: int, **more: Any) -> SimpleNamespace:
    usual = {"model": "deepseek-v4", "key": "ci-agents", "text": "", "first_ms": 402, "at": AT,
             "seconds": "6.92", "input": 18_422, "cached": 16_384, "output": 1_610,
             "finish": "stop", "held_nanos": 0, "estimated": False}  # fmt: skip
    return SimpleNamespace(**{**usual, **more, "id": name, "state": state, "charge_nanos": nanos})


REQUESTS = [
    _request("req_01KBX7M4QZ", "streaming", 0, held_nanos=6_563_966, output=None, finish=DASH),
    _request("req_01KBX7KZ3H", "settled", 0, model="qwen2.5-coder-1.5b-free-g7", key="notebooks"),
    _request("req_01KBX7KT8C", "settled", 659_900, model="gpt-5-mini", key="support-bot"),
    _request("req_01KBX7JT4E", "refused", 0, text="Refused 402", first_ms=None, input=None),
    _request("req_01KBX7524G", "at_estimate", 987_751, estimated=True, cached=None),
    _request("req_01KBX7DB2K", "failed", 0, text="Failed 503", estimated=True, finish=DASH),
]


class KeyForm(forms.Form):
    use_required_attribute = False
    name = forms.CharField(help_text="Shown on requests and invoices.")
    limit = forms.DecimalField(
        label="Spend limit, USD a month",
        min_value=0,
        error_messages={"min_value": "Enter 0 or more. Leave it empty for no limit."},
    )
    expires = forms.ChoiceField(choices=[("never", "never"), ("30", "in 30 days")])
    models = forms.MultipleChoiceField(
        choices=[("a", "deepseek-v4"), ("b", "gpt-5-mini")], widget=forms.CheckboxSelectMultiple
    )
    stored = forms.BooleanField(label="I have stored it", help_text="Leaving hides it for good.")


FACTS = [
    {"label": "Started, UTC", "value": "2026-12-01 14:11:48.407"},
    {"label": "Model", "value": "deepseek-v4", "url": "#"},
    {"label": "Key", "value": "ci-agents", "url": "#"},
    {"label": "Answer", "value": "200, stream"},
    {"label": "First token", "value": "703 ms"},
    {"label": "Duration", "value": "4.86 s"},
    {"label": "Finish", "value": "stop"},
    {"label": "Charge, USD", "value": money(987_751), "charge": True},
]
NAV = [
    {"name": name, "label": label, "icon": icon, "url": f"/{name}", "count": count}
    for name, label, icon, count in (
        ("overview", "Overview", "home", 0),
        ("keys", "Keys", "key", 0),
        ("usage", "Usage", "chart", 0),
        ("requests", "Requests", "list", 0),
        ("messages", "Messages", "message", 3),
        ("billing", "Billing", "wallet", 0),
        ("limits", "Limits & alerts", "bell", 0),
        ("members", "Members", "people", 0),
        ("docs", "Docs & playground", "book", 0),
    )
]


def frame_context() -> dict[str, Any]:
    """What every signed-in page is given."""
    return {
        "tenant": SimpleNamespace(name="Acme Robotics", slug="acme"),
        "member": SimpleNamespace(role="owner"),
        "user": SimpleNamespace(email="owner@acme.example", is_authenticated=True),
        "plan_name": "Team",
        "mode": "live",
        "mode_switch_url": "/mode",
        "available_nanos": 159_104_352_436,
        "currency": "USD",
        "nav": NAV,
        "nav_current": "requests",
        "health": {"state": "active", "text": "All vendors answer"},
        "now": AT,
    }


def gallery_context() -> dict[str, Any]:
    columns = tuple(
        Bar(
            f"{quarter // 4:02d}:00" if quarter % 12 == 0 else "",
            "",
            (("c2", 10 + quarter), ("info", quarter % 5), ("bad", quarter % 3)),
        )
        for quarter in range(96)
    )
    return {
        **frame_context(),
        "at": AT,
        "settled_at": AT,
        "facts": FACTS,
        "lines": LINES,
        "charge_nanos": sum(line.charge_nanos for line in LINES),
        "minus_charge_nanos": -sum(line.charge_nanos for line in LINES),
        "held_nanos": 2_231_343,
        "released_nanos": 2_231_343 - sum(line.charge_nanos for line in LINES),
        "error_nanos": 29_633,
        "minus_twenty_nanos": -20_000_000_000,
        "steps": STEPS,
        "requests": REQUESTS,
        "columns": columns,
        "states": list(STATES),
        "icons": ICONS,
        "form": KeyForm(
            {"name": "warehouse-eu", "limit": "-5", "expires": "never", "models": ["a"]}
        ),
        "rules": ["Models: deepseek-v4, gpt-5-mini", "From 198.51.100.0/24", "Expires 1 June 2027"],
        "curl": "curl https://api.farthing.example/v1/models \\\n  -H 'Authorization: Bearer …'",
        "python": "from openai import OpenAI\nclient = OpenAI()",
        "node": 'import OpenAI from "openai";\nconst client = new OpenAI();',
    }
