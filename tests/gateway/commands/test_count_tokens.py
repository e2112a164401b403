import json

import pytest
from django.core.management import CommandError, call_command

from gateway.models import Model, Route, Vendor

pytestmark = pytest.mark.django_db

BODY = {"messages": [{"role": "user", "content": "benchmark"}]}


def counted(capsys, path, **options):
    call_command("count_tokens", str(path), json=True, **options)
    return json.loads(capsys.readouterr().out)


def test_a_body_and_a_text_count_alike(tmp_path, capsys) -> None:
    (tmp_path / "body").write_text(json.dumps(BODY))
    (tmp_path / "text").write_text("benchmark")
    for name in ("body", "text"):
        told = counted(capsys, tmp_path / name, model="qwen2.5-coder-1.5b")
        assert (told["tokens"], told["method"]) == (30, "template-exact")


def test_a_model_of_the_catalog_counts_as_its_first_route(tmp_path, capsys) -> None:
    model = Model.objects.create(name="gpt-4o", family="qwen3")
    vendor = Vendor.objects.create(name="north", base_url="http://127.0.0.1:9/v1")
    Route.objects.create(model=model, vendor=vendor, vendor_model="v")
    (tmp_path / "text").write_text("benchmark")
    assert counted(capsys, tmp_path / "text", model="gpt-4o")["family"] == "qwen3"


def test_words_say_how_sure_the_count_is(tmp_path, capsys) -> None:
    (tmp_path / "text").write_text("benchmark")
    call_command("count_tokens", str(tmp_path / "text"), model="gemini-2.5-pro")
    out = capsys.readouterr().out
    assert "approximate" in out
    assert out.splitlines()[-1].startswith("Counted by approximation")


def test_a_malformed_body_and_a_missing_file_are_refused(tmp_path) -> None:
    (tmp_path / "body").write_text('{"messages": 1}')
    with pytest.raises(CommandError, match="messages"):
        call_command("count_tokens", str(tmp_path / "body"), model="gpt-4o")
    with pytest.raises(CommandError, match="No such file"):
        call_command("count_tokens", str(tmp_path / "none"), model="gpt-4o")
