import pytest
import yaml

from billing.models import Price
from gateway.catalog.apply import apply
from gateway.catalog.export import export
from gateway.catalog.file import parse
from gateway.models import Model, Vendor

pytestmark = pytest.mark.django_db

FILE = """\
vendors:
  - name: acme
    base_url: https://acme.example/v1
    credential: vk-1$${odd}
    connect_timeout: 0.25
    first_byte_timeout: 30
    idle_timeout: 12.345
    total_timeout: 900
    max_connections: 50
    client_gone: drain
    cached_tokens: inside
    accepts_stream_options: false
    qualification: required
  - {name: local, base_url: 'http://127.0.0.1:1/v1', credential: '::keyless::'}
  - {name: open, base_url: 'http://127.0.0.1:2/v1', credential: ''}
models:
  - name: '4.1'
    family: qwen2.5
    routes:
      - {vendor: acme, vendor_model: 'yes', priority: 2, weight: 7, family: openai-o200k}
      - {vendor: local, vendor_model: 'null'}
    prices:
      - {input: 0.000000001, cached_input: 0, output: 1000000, effective_from: 2026-01-01T00:00:00Z}
      - {input: 2, output: 3, reasoning: 4, cache_write: 5, per_request: 0.5, audio_input: 6,
         image_input: 7, audio_output: 8,
         tiers: [{above_prompt_tokens: 9, input: 10, reasoning: 0}]}
      - {currency: EUR, input: 1, output: 1, effective_from: 2999-01-01T00:00:00.000001Z}
  - {name: unrouted, routes: []}
"""


def apply_text(text: str) -> list[str]:
    return list(apply(parse(text.encode(), {}), source="f", actor="alice").lines())


def state() -> list[list]:
    return [list(table.objects.order_by("pk").values_list()) for table in (Vendor, Model, Price)]


@pytest.mark.parametrize("with_credentials", [True, False])
def test_export_applied_again_changes_nothing(with_credentials):
    apply_text(FILE)
    before = state()
    assert apply_text(export(with_credentials=with_credentials))[-1] == "no changes"
    assert state() == before


def test_export_of_an_export_is_the_same():
    apply_text(FILE)
    first = export()
    apply_text(first)
    assert export() == first


def test_credentials_are_masked_unless_asked_for():
    apply_text(FILE)
    masked, clear = export(), export(with_credentials=True)
    assert "vk-1" not in masked
    found = [vendor["credential"] for vendor in yaml.safe_load(masked)["vendors"]]
    assert found == ["***", "::keyless::", ""]
    assert [vendor["credential"] for vendor in yaml.safe_load(clear)["vendors"]] == [
        "vk-1$${odd}",
        "::keyless::",
        "",
    ]


def test_export_with_credentials_fills_an_empty_database():
    apply_text(FILE)
    text = export(with_credentials=True)
    Model.objects.all().delete()
    Vendor.objects.all().delete()
    apply_text(text)
    assert export(with_credentials=True) == text
    assert Vendor.objects.get(name="acme").credential == "vk-1${odd}"


def test_prices_are_the_one_in_force_and_the_planned_ones_in_plain_digits():
    apply_text(FILE)
    text = export()
    assert "      - currency: EUR\n        effective_from: 2999-01-01T00:00:00.000001Z\n" in text
    assert (
        "        input: 2\n        cache_write: 5\n        image_input: 7\n        audio_input: 6\n"
        "        output: 3\n        reasoning: 4\n        audio_output: 8\n"
        "        per_request: 0.5\n        tiers:\n          - above_prompt_tokens: 9\n"
        "            input: 10\n            reasoning: 0\n" in text
    )
    assert "0.000000001" not in text


def test_what_is_not_active_is_left_out():
    apply_text(FILE)
    apply_text("vendors: []\nmodels: []")
    assert yaml.safe_load(export()) == {"vendors": [], "models": []}
