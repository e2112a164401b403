from uuid import UUID

import pytest

from gateway.runtime.spool import Spool

ITEM = {"id": UUID(int=7), "tenant_id": 3, "cost_nanos": 5}
READ = {"id": "00000000-0000-0000-0000-000000000007", "tenant_id": 3, "cost_nanos": 5}


@pytest.fixture
def spool(tmp_path) -> Spool:
    return Spool(tmp_path / "spool")


def test_what_is_kept_is_found_until_it_is_dropped(spool) -> None:
    spool.keep("settlements", ITEM)
    assert list(spool.found("settlements")) == [READ]
    spool.drop("settlements", ITEM)
    assert list(spool.found("settlements")) == []


def test_an_item_kept_twice_is_one(spool) -> None:
    spool.keep("settlements", ITEM)
    spool.keep("settlements", {**ITEM, "cost_nanos": 6})
    assert list(spool.found("settlements")) == [{**READ, "cost_nanos": 6}]


def test_writers_do_not_find_each_others_items(spool) -> None:
    spool.keep("estimates", ITEM)
    assert list(spool.found("settlements")) == []


def test_a_torn_file_is_left_out_and_harms_no_neighbour(spool, tmp_path) -> None:
    spool.keep("settlements", ITEM)
    (tmp_path / "spool" / "settlements-0.json").write_text('{"id":')
    assert list(spool.found("settlements")) == [READ]


def test_the_folder_is_private(spool, tmp_path) -> None:
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700


def test_a_disk_that_refuses_is_said_and_nothing_raised(spool, tmp_path, caplog) -> None:
    (tmp_path / "spool").rename(tmp_path / "gone")
    spool.keep("settlements", ITEM)
    assert "is not spooled" in caplog.text


def test_what_is_no_json_is_said_and_nothing_raised(spool, caplog) -> None:
    spool.keep("settlements", {**ITEM, "finish_reason": object()})
    assert list(spool.found("settlements")) == []
    assert "is not spooled" in caplog.text


def test_without_a_folder_nothing_is_kept() -> None:
    spool = Spool(None)
    spool.keep("settlements", ITEM)
    spool.drop("settlements", ITEM)
    assert list(spool.found("settlements")) == []
