import pytest
from django.core.management import CommandError, call_command

from gateway.catalog.export import export
from gateway.models import Model, Vendor

pytestmark = pytest.mark.django_db

FILE = """\
vendors: [{name: acme, base_url: 'https://acme.example', credential: "${ACME_KEY}"}]
models: [{name: small, routes: [{vendor: acme, vendor_model: s}], prices: [{input: 1, output: 2}]}]
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("ACME_KEY", "vk-secret")
    path = tmp_path / "catalog.yaml"
    path.write_text(FILE)
    return path


def test_apply_prints_the_diff_without_secrets(file, capsys):
    call_command("catalog", "apply", str(file))
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "+ vendor acme: base_url https://acme.example"
    assert said.splitlines()[-1] == "4 added, 0 changed, 0 removed"
    assert "vk-secret" not in said
    assert Vendor.objects.get().credential == "vk-secret"


def test_dry_run_prints_and_changes_nothing(file, capsys):
    call_command("catalog", "apply", str(file), "--dry-run")
    assert capsys.readouterr().out.splitlines()[-1] == "4 added, 0 changed, 0 removed"
    assert not Model.objects.exists()


def test_wrong_file_is_told_line_by_line(file):
    file.write_text(FILE.replace("acme.example", "acme example").replace("output: 2", "output: x"))
    with pytest.raises(CommandError) as failure:
        call_command("catalog", "apply", str(file))
    first, *lines = str(failure.value).splitlines()
    assert first == f"{file} was not applied."
    assert [line.partition(": ")[0] for line in lines] == ["line 1", "line 2"]
    assert not Vendor.objects.exists()


def test_missing_file_is_told(tmp_path):
    with pytest.raises(CommandError, match=r"no\.yaml cannot be read: No such file"):
        call_command("catalog", "apply", str(tmp_path / "no.yaml"))


def test_export_prints_the_file(file, capsys):
    call_command("catalog", "apply", str(file))
    capsys.readouterr()
    call_command("catalog", "export")
    assert capsys.readouterr().out == export()
    call_command("catalog", "export", "--with-credentials")
    assert "credential: vk-secret\n" in capsys.readouterr().out
