import threading

import pytest
from django.db import connection, transaction

from gateway.catalog.apply import CATALOG_LOCK, apply, apply_file
from gateway.catalog.entries import CatalogMistakes
from gateway.catalog.file import parse
from gateway.models import KEYLESS, Model, Route, Vendor
from keys.models import AuditAction, AuditEvent

FILE = """\
vendors:
  - {name: acme, base_url: 'https://acme.example/v1', credential: vk-1}
  - {name: other, base_url: 'https://other.example', credential: '::keyless::'}
models:
  - name: small
    routes:
      - {vendor: acme, vendor_model: acme-small}
      - {vendor: other, vendor_model: other-small, priority: 1}
    prices:
      - {input: 0.15, output: 0.6}
  - name: large
    family: qwen2.5
    routes:
      - {vendor: acme, vendor_model: acme-large, weight: 3}
    prices:
      - {input: 2, output: 8}
"""


def apply_text(text: str, **options) -> list[str]:
    options = {"source": "catalog.yaml", "actor": "alice", **options}
    return list(apply(parse(text.encode(), {}), **options).lines())


def state() -> dict[str, list]:
    from billing.models import Price

    tables = (Vendor, Model, Route, Price, AuditEvent)
    return {table.__name__: list(table.objects.order_by("pk").values_list()) for table in tables}


@pytest.mark.django_db
class TestOneFile:
    def test_first_apply_adds_everything(self):
        lines = apply_text(FILE)
        when = lines[7].partition(" from ")[2].partition(": ")[0]
        assert [line.replace(when, "NOW") for line in lines] == [
            "+ vendor acme: base_url https://acme.example/v1",
            "+ vendor other: base_url https://other.example",
            "+ model small",
            "+ model large",
            "+ route small → acme acme-small",
            "+ route small → other other-small",
            "+ route large → acme acme-large",
            "+ price of small in USD from NOW: input 0.15, output 0.6",
            "+ price of large in USD from NOW: input 2, output 8",
            "9 added, 0 changed, 0 removed",
        ]
        acme = Vendor.objects.get(name="acme")
        assert (acme.base_url, acme.credential) == ("https://acme.example/v1", "vk-1")
        assert Vendor.objects.get(name="other").credential == KEYLESS
        route = Model.objects.get(name="large").routes.get()
        assert (route.vendor, route.vendor_model, route.weight) == (acme, "acme-large", 3)

    def test_same_file_again_changes_nothing(self):
        apply_text(FILE)
        before = state()
        assert apply_text(FILE) == ["no changes"]
        assert state() == before

    def test_dry_run_says_the_same_and_changes_nothing(self):
        before = state()
        dry = apply_text(FILE, dry_run=True)
        assert state() == before
        assert [line[:40] for line in apply_text(FILE)] == [line[:40] for line in dry]

    def test_a_vendor_that_must_still_qualify_is_told(self):
        strict = FILE.replace("credential: vk-1", "credential: vk-1, qualification: required")
        warning = "! vendor acme takes no live traffic: Not qualified."
        assert apply_text(strict)[-2:] == [warning, "9 added, 0 changed, 0 removed"]
        assert apply_text(strict) == [warning, "no changes"]
        assert apply_text(FILE) == [
            "~ vendor acme: qualification required → waived",
            "0 added, 1 changed, 0 removed",
        ]
        assert Vendor.objects.get(name="acme").waiver_reason == "applied by catalog file"

    def test_changed_fields_are_told_old_and_new(self):
        apply_text(FILE)
        changed = (
            FILE.replace("vk-1}", "vk-2, idle_timeout: 0.5, client_gone: drain}")
            .replace("priority: 1", "priority: 2")
            .replace("family: qwen2.5", "context_tokens: 200_000")
            .replace("'https://other.example'", "'https://other.example/v1'")
        )
        assert apply_text(changed) == [
            "~ vendor acme: credential changed, idle_timeout 60 → 0.5, client_gone cancel → drain",
            "~ vendor other: base_url https://other.example → https://other.example/v1",
            "~ model large: family qwen2.5 → none, context_tokens 131072 → 200000",
            "~ route small → other other-small: priority 1 → 2",
            "0 added, 4 changed, 0 removed",
        ]
        assert Vendor.objects.get(name="acme").credential == "vk-2"
        assert apply_text(changed) == ["no changes"]

    def test_what_is_gone_is_deactivated_and_its_routes_removed(self):
        apply_text(FILE)
        kept = FILE[: FILE.index("  - name: large")].replace(
            "      - {vendor: other, vendor_model: other-small, priority: 1}\n", ""
        )
        kept = "\n".join(line for line in kept.splitlines() if "other.example" not in line)
        assert apply_text(kept) == [
            "- vendor other: deactivated",
            "- model large: deactivated",
            "- route small → other other-small",
            "- route large → acme acme-large",
            "0 added, 0 changed, 4 removed",
        ]
        assert not Vendor.objects.get(name="other").is_active
        assert not Model.objects.get(name="large").is_active
        assert Route.objects.get().vendor_model == "acme-small"
        assert apply_text(kept) == ["no changes"]

    def test_what_comes_back_is_active_again(self):
        apply_text(FILE)
        apply_text("vendors: []\nmodels: []")
        assert apply_text(FILE) == [
            "~ vendor acme: activated",
            "~ vendor other: activated",
            "~ model small: activated",
            "~ model large: activated",
            "+ route small → acme acme-small",
            "+ route small → other other-small",
            "+ route large → acme acme-large",
            "3 added, 4 changed, 0 removed",
        ]

    def test_built_in_vendor_stays_where_the_file_is_silent(self):
        Vendor.objects.create(name="benchecho", base_url="http://127.0.0.1:1/v1")
        assert apply_text("vendors: []\nmodels: []") == ["no changes"]
        assert Vendor.objects.get(name="benchecho").is_active

    def test_model_that_nobody_can_use_is_allowed_and_told(self):
        lines = apply_text("vendors: []\nmodels: [{name: m, routes: []}]")
        assert lines == [
            "+ model m",
            "! model m has no route: requests for it are refused",
            "! model m has no price: requests for it are refused",
            "1 added, 0 changed, 0 removed",
        ]


@pytest.mark.django_db
class TestCredentials:
    def test_masked_one_keeps_the_stored(self):
        apply_text(FILE)
        assert apply_text(FILE.replace("vk-1", "'***'")) == ["no changes"]
        assert Vendor.objects.get(name="acme").credential == "vk-1"

    def test_masked_one_of_a_new_vendor_is_refused(self):
        before = state()
        with pytest.raises(CatalogMistakes) as found:
            apply_text(FILE.replace("vk-1", "'***'"))
        assert str(found.value) == (
            "line 2: the credential '***' keeps the stored one, and vendor acme has none stored; "
            "expected the credential."
        )
        assert state() == before

    def test_secret_is_in_no_line_and_in_no_trail(self):
        lines = [*apply_text(FILE), *apply_text(FILE.replace("vk-1", "vk-2"))]
        trail = [event.detail for event in AuditEvent.objects.all()]
        assert len(trail) == 2
        assert "vk-" not in str(lines)
        assert "vk-" not in str(trail)


@pytest.mark.django_db
class TestTrail:
    def test_apply_leaves_who_did_what_from_where(self):
        lines = apply_text(FILE)
        event = AuditEvent.objects.get()
        assert (event.action, event.actor, event.subject, event.tenant_id) == (
            AuditAction.CATALOG_APPLIED,
            "alice",
            "catalog.yaml",
            None,
        )
        assert event.detail == {
            "summary": "9 added, 0 changed, 0 removed",
            "changes": lines[:-1],
        }

    def test_long_path_and_long_diff_are_cut(self):
        models = ", ".join(f"{{name: m{number}, routes: []}}" for number in range(250))
        apply_text(f"vendors: []\nmodels: [{models}]", source="/" * 300 + "catalog.yaml")
        event = AuditEvent.objects.get()
        assert len(event.subject) == 200
        assert event.subject.endswith("catalog.yaml")
        assert len(event.detail["changes"]) == 200


@pytest.mark.django_db
def test_wrong_file_changes_nothing(tmp_path):
    apply_text(FILE)
    before = state()
    path = tmp_path / "catalog.yaml"
    path.write_text(FILE.replace("weight: 3", "weight: -1").replace("acme.example", "x.example"))
    with pytest.raises(CatalogMistakes, match="line 14: weight is '-1'"):
        apply_file(path, actor="alice")
    assert state() == before


def test_second_apply_waits_for_the_first(committed):
    """Holds the lock as an apply does; the other one must not get in before it is let go."""
    waits = threading.Event()
    done: list[list[str]] = []

    def second() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET application_name = 'second-apply'")
        waits.set()
        done.append(apply_text("vendors: []\nmodels: []", dry_run=True))
        connection.close()

    thread = threading.Thread(target=second)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [CATALOG_LOCK])
        thread.start()
        waits.wait(10)
        blocked = """
            SELECT count(*) FROM pg_stat_activity
            WHERE application_name = 'second-apply' AND wait_event = 'advisory'
        """
        found = 0
        while not found and thread.is_alive():
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(blocked)
            found = cursor.fetchone()[0]
        assert found == 1
        assert done == []
    thread.join(10)
    assert len(done) == 1
