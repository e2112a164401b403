"""The CSV: the filter's rows, whole, and harmless to a spreadsheet."""

import asyncio
import csv
import io
from datetime import timedelta

import pytest

from gateway.exchanges.selectors import ExchangeFilters
from gateway.web.requests.export import CUT, awaited, csv_pages, harmless
from tests.web.conftest import signed_in


def rows_of(response) -> list[dict[str, str]]:
    text = b"".join(response).decode()
    return list(csv.DictReader(io.StringIO(text)))


def test_a_row_has_the_exact_numbers(acme):
    exchange = acme.relayed(client_request_id="job-7").hold().settle()
    (row,) = rows_of(signed_in(acme.bob).get("/requests.csv"))
    assert row["request_id"] == exchange.public_id
    assert row["created_at"] == "2026-12-15T14:15:05.000Z"
    assert (row["charge"], row["held"], row["currency"]) == ("0.002334400", "", "USD")
    assert [row[f"{name}_tokens"] for name in ("input", "cached_input", "output")] == [
        "1024",
        "24",
        "333",
    ]
    assert (row["key_name"], row["status"], row["mode"]) == ("ci-agents", "settled", "stream")
    assert row["client_request_id"] == "job-7"


def test_what_is_not_settled_is_held_and_not_charged(acme):
    acme.relayed(hold_nanos=6_563_966).hold()
    (row,) = rows_of(signed_in(acme.bob).get("/requests.csv"))
    assert (row["charge"], row["held"], row["status"]) == ("", "0.006563966", "open")


def test_it_has_every_page_newest_first(acme):
    made = [
        acme.relayed(ago=timedelta(seconds=seconds + 1)).hold().settle().public_id
        for seconds in range(101)
    ]
    rows = rows_of(signed_in(acme.bob).get("/requests.csv"))
    assert [row["request_id"] for row in rows] == made


def test_it_is_a_file_with_a_name_and_no_secret(acme):
    acme.relayed().hold().settle()
    response = signed_in(acme.bob).get("/requests.csv")
    assert response["content-type"] == "text/csv"
    assert response["content-disposition"] == (
        f'attachment; filename="farthing-{acme.tenant.slug}-live-20261215T142005Z.csv"'
    )
    assert acme.secret not in b"".join(response).decode()


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "\tx", "\rx"])
def test_a_name_is_never_a_formula(name):
    assert harmless(name) == f"'{name}"


def test_an_ordinary_name_stays_as_it_is():
    assert harmless("deepseek-v4=") == "deepseek-v4="


def test_names_of_the_client_are_made_harmless(acme):
    key = acme.world.key(acme.tenant, "=HYPERLINK(1)").key
    acme.relayed(key=key, model="@SUM(A1)", client_request_id="-x").hold().settle()
    (row,) = rows_of(signed_in(acme.bob).get("/requests.csv"))
    assert [row[name] for name in ("key_name", "model", "client_request_id")] == [
        "'=HYPERLINK(1)",
        "'@SUM(A1)",
        "'-x",
    ]


def test_a_cut_list_says_that_it_is_cut(acme):
    for seconds in range(101):
        acme.relayed(ago=timedelta(seconds=seconds + 1)).hold().settle()
    pages = list(csv_pages(acme.tenant.pk, ExchangeFilters(is_test=False), rows_max=100))
    assert pages[-1].strip().strip('"') == CUT
    assert len("".join(pages).splitlines()) == 102


def test_under_asgi_each_page_is_awaited():
    async def read() -> list[str]:
        return [page async for page in awaited(iter(["a", "b"]))]

    assert asyncio.run(read()) == ["a", "b"]
