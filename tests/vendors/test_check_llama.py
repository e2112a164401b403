"""`check_vendor` against llama.cpp's server, which it starts and stops itself."""

import json
import sys

import pytest
from django.core.management import call_command

from gateway.models import VendorCheck
from gateway.qualification.gate import state_of
from tests.gateway.qualification.conftest import made_vendor
from tests.stack import free_port
from tests.vendors.conftest import FAMILY, SERVER, is_up

UNDECIDED = {"tools"}  # the tiny model calls none


@pytest.mark.django_db
def test_llama_qualifies_with_the_figures_of_the_first_report(tiny_gguf, tmp_path):
    port, out = free_port(), tmp_path / "report.json"
    url = f"http://127.0.0.1:{port}/v1"
    vendor = made_vendor(url, "tiny")
    call_command(
        *("check_vendor", "acme", "--family", FAMILY, "--out", str(out)),
        *("--spawn", f"{sys.executable} {SERVER} {tiny_gguf} {port}", "--spawn-url", url),
    )
    report = json.loads(out.read_text())
    checks = {check["id"]: check for check in report["checks"]}
    passed = dict.fromkeys(checks, True) | dict.fromkeys(UNDECIDED)
    stopped = checks["cancel"].get("observed", {}).get("stopped_after_ms")
    if stopped is None:  # on a machine so busy that the answer was over before its stop was seen
        passed["cancel"] = None
    else:
        assert stopped < 1_000
    assert {name: check["passed"] for name, check in checks.items()} == passed
    figures = {
        name: (usage["prompt_tokens"], usage["completion_tokens"])
        for name in ("arithmetic", "json")
        if (usage := checks[name]["response"]["usage"])
    }
    assert figures == {"arithmetic": (21, 2), "json": (34, 10)}
    assert (report["runtime"], report["owned_server_stopped"]) == ("llama.cpp", True)
    assert not is_up(f"http://127.0.0.1:{port}/health")
    vendor.refresh_from_db()
    assert state_of(vendor) == "qualified"
    assert VendorCheck.objects.get().report == report
