"""The API answers to any name, pages to those that are configured."""

import logging

import pytest
from django.test import Client

ELSEWHERE = {"host": "elsewhere.example"}

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.filterwarnings("ignore:No directory at"),  # static files are not collected here
]


def test_the_api_answers_whatever_it_is_called() -> None:
    answer = Client().get("/v1/models", headers=ELSEWHERE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


def test_a_page_does_not_and_the_log_has_one_line_of_it(caplog) -> None:
    with caplog.at_level(logging.WARNING):
        answer = Client().get("/accounts/login/", headers=ELSEWHERE)
    assert answer.status_code == 400
    (record,) = (one for one in caplog.records if "Host" in one.name)
    assert record.exc_info is None
