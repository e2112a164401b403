from datetime import UTC, datetime

from gateway.catalog.diff import Diff, moment_text, price_text


def test_lines_are_changes_then_warnings_then_the_summary():
    diff = Diff(warnings=["look here"])
    diff.add("vendor a", "base_url http://a")
    diff.change("model m", "family none → qwen2.5", "context_tokens 1 → 2")
    diff.remove("route m → a x")
    diff.remove("vendor b", "deactivated")
    assert list(diff.lines()) == [
        "+ vendor a: base_url http://a",
        "~ model m: family none → qwen2.5, context_tokens 1 → 2",
        "- route m → a x",
        "- vendor b: deactivated",
        "! look here",
        "1 added, 1 changed, 2 removed",
    ]


def test_warnings_alone_are_no_changes():
    assert list(Diff(warnings=["look here"]).lines()) == ["! look here", "no changes"]


def test_texts_are_the_files():
    assert [price_text(nanos) for nanos in (None, 0, 1, 150_000_000, 10 * 10**9)] == [
        "none",
        "0",
        "0.000000001",
        "0.15",
        "10",
    ]
    assert moment_text(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00Z"
