import json
import sys

import pytest
from django.core.management import CommandError, call_command

from gateway.models import VendorCheck
from tests.gateway.qualification.conftest import Clever, made_vendor, served
from tests.stack import free_port

pytestmark = pytest.mark.django_db
AWAY = "http://127.0.0.1:1/v1"


@pytest.fixture(scope="module")
def clever_url():
    with served(Clever()) as base_url:
        yield base_url


def test_a_vendor_is_checked_kept_and_let_in(clever_url, capsys, tmp_path):
    made_vendor(clever_url, "echo", credential="vk-plain-1")
    out = tmp_path / "report.json"
    call_command("check_vendor", "acme", "--backend", "a shelf", "--out", str(out))
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "acme echo: passed"
    assert said[1] == "  arithmetic     passed"
    assert said[5] == "  usage          not probed (we have no exact count for family fallback)"
    assert said[-1] == "acme is qualified. Its checks passed."
    report = json.loads(out.read_text())
    assert (report["key"], report["backend"]) == ("echo", "a shelf")
    assert report["owned_server_stopped"] is None
    assert VendorCheck.objects.get().report == report
    assert "vk-plain-1" not in "".join([*said, out.read_text()])


def test_a_failure_is_kept_and_is_the_commands_own(benchecho_url, capsys):
    made_vendor(benchecho_url, "echo")
    with pytest.raises(CommandError, match=r"Some checks failed\."):
        call_command("check_vendor", "acme")
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "acme echo: FAILED"
    assert said[1] == "  arithmetic     FAILED (the answer does not say that it is 4)"
    assert said[-1] == "acme is unqualified. Not qualified."
    assert VendorCheck.objects.get().passed is False


@pytest.fixture
def benchecho_url():
    from gateway.benchecho.app import Benchecho
    from gateway.benchecho.stats import Stats

    with served(Benchecho(Stats())) as base_url:
        yield base_url


def test_several_models_are_a_list_and_no_store_keeps_nothing(clever_url, tmp_path):
    made_vendor(clever_url, "echo")
    out = tmp_path / "report.json"
    words = ("--model", "echo", "--model", "echo-reasoning", "--no-store", "--out", str(out))
    call_command("check_vendor", "acme", *words)
    assert [report["key"] for report in json.loads(out.read_text())] == ["echo", "echo-reasoning"]
    assert not VendorCheck.objects.exists()


def test_a_server_of_ones_own_is_started_and_stopped(tmp_path):
    port, out = free_port(), tmp_path / "report.json"
    server = f"{sys.executable} -m uvicorn gateway.benchecho.app:application --port {port}"
    with pytest.raises(CommandError, match=r"Some checks failed\."):
        call_command(
            *("check_vendor", "mine", "--no-store", "--model", "echo", "--family", "openai-o200k"),
            *("--spawn", server, "--spawn-url", f"http://127.0.0.1:{port}/v1", "--out", str(out)),
        )
    report = json.loads(out.read_text())
    assert report["owned_server_stopped"] is True
    assert report["runtime"] == "uvicorn"
    assert "a server that was started for it" in report["scope"]
    assert not VendorCheck.objects.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nobody"], "There is no vendor 'nobody'; with --spawn-url and --no-store, none is"),
        (["nobody", "--no-store"], "There is no vendor 'nobody'"),
        (["acme"], "No route names a model of acme; name one with --model."),
        (["acme", "--model", "m", "--family", "qwem"], "unknown family 'qwem'; one of "),
        (["acme", "--spawn", "true"], "--spawn needs --spawn-url: where the server will answer."),
        (["acme", "--model", "m", "--spawn-url", "ftp://x"], "'ftp://x' is no base URL: "),
        (
            ["acme", "--model", "m", "--spawn", "false", "--spawn-url", AWAY],
            "The server ended with code 1.",
        ),
    ],
)
def test_what_does_not_fit_is_told(words, told):
    made_vendor(AWAY)
    with pytest.raises(CommandError) as failure:
        call_command("check_vendor", *words)
    assert str(failure.value).startswith(told)
    assert not VendorCheck.objects.exists()


def test_a_report_that_cannot_be_written_is_told(clever_url, tmp_path):
    made_vendor(clever_url, "echo")
    with pytest.raises(CommandError, match="cannot be written: Is a directory"):
        call_command("check_vendor", "acme", "--no-store", "--out", str(tmp_path))
