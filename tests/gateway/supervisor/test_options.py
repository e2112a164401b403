from pathlib import Path

import pytest

from gateway.supervisor.errors import StartError
from gateway.supervisor.options import Options, read_options


def test_nothing_set_gives_the_defaults():
    assert read_options({}) == Options(
        port=8000,
        workers=1,
        var_dir=Path.cwd() / "var",
        catalog=None,
        database_url=None,
        redis_url=None,
    )


def test_an_empty_variable_counts_as_none():
    names = ("PORT", "WORKERS", "VAR", "CATALOG", "DATABASE_URL", "REDIS_URL")
    assert read_options(dict.fromkeys(names, "")) == read_options({})


def test_everything_set_is_taken(tmp_path):
    catalog = tmp_path / "catalog.yaml"
    catalog.touch()
    found = read_options(
        {
            "PORT": "9000",
            "WORKERS": "3",
            "VAR": str(tmp_path / "data"),
            "CATALOG": str(catalog),
            "DATABASE_URL": "postgresql://db/farthing",
            "REDIS_URL": "redis://cache/1",
        }
    )
    assert found == Options(
        port=9000,
        workers=3,
        var_dir=tmp_path / "data",
        catalog=catalog,
        database_url="postgresql://db/farthing",
        redis_url="redis://cache/1",
    )


@pytest.mark.parametrize("text", ["-1", "65536", "80a", "1.5", "٣", " 80"])
def test_a_port_that_is_none_is_named(text):
    with pytest.raises(StartError) as refusal:
        read_options({"PORT": text})
    assert str(refusal.value) == f"PORT must be a number from 0 to 65535, not {text!r}."


@pytest.mark.parametrize("text", ["0", "65", "many"])
def test_a_number_of_workers_that_is_none_is_named(text):
    with pytest.raises(StartError) as refusal:
        read_options({"WORKERS": text})
    assert str(refusal.value) == f"WORKERS must be a number from 1 to 64, not {text!r}."


def test_a_catalog_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "none.yaml"
    with pytest.raises(StartError) as refusal:
        read_options({"CATALOG": str(path)})
    assert str(refusal.value) == f"CATALOG names {path}, and there is no such file."
