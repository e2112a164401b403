import pytest

from billing import sweeps

pytestmark = pytest.mark.django_db


def test_every_part_runs_and_finds_nothing_to_do_in_an_empty_ledger() -> None:
    assert set(sweeps.sweep_money().values()) == {0}


def test_a_part_that_fails_does_not_keep_the_others_from_their_work(monkeypatch, caplog) -> None:
    def fail() -> int:
        raise RuntimeError("no")

    monkeypatch.setitem(sweeps.PARTS, "moved time zones", fail)
    assert "moved time zones" not in sweeps.sweep_money()
    assert len(sweeps.sweep_money()) == len(sweeps.PARTS) - 1
    assert "Sweeping moved time zones failed" in caplog.text
