import os
import shutil

import pytest

from gateway.supervisor import identity as module
from gateway.supervisor.embedded import POSTGRES_PROGRAMS
from gateway.supervisor.errors import StartError
from gateway.supervisor.identity import Identity, choose_identity, give_folder, same

IS_ROOT = os.geteuid() == 0
NOBODY = Identity("drop", 65534, 65534)
POSTGRES = POSTGRES_PROGRAMS / "postgres"


def test_root_gets_an_identity_that_changes_no_file_and_others_keep_theirs(tmp_path):
    chosen = choose_identity(tmp_path / "data", POSTGRES)
    if IS_ROOT:
        assert chosen.kind == "namespace"
        assert chosen.uid != 0
    else:
        assert chosen == same()


def test_without_namespaces_root_drops_to_nobody(tmp_path, monkeypatch):
    works = module._works
    monkeypatch.setattr(
        module, "_works", lambda who, *rest: who.kind == "drop" and works(who, *rest)
    )
    chosen = choose_identity(tmp_path / "data", POSTGRES)
    assert chosen == (NOBODY if IS_ROOT else same())


def test_root_takes_the_identity_of_a_folder_that_has_an_owner(tmp_path):
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    if IS_ROOT:
        os.chown(data_dir, 1234, 1235)
        assert choose_identity(data_dir, POSTGRES) == Identity("drop", 1234, 1235)
    else:
        assert choose_identity(data_dir, POSTGRES) == same()


def test_where_no_identity_works_root_is_told_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    monkeypatch.setattr(module, "_works", lambda *_: False)
    with pytest.raises(StartError) as refusal:
        choose_identity(tmp_path / "data", POSTGRES)
    assert str(refusal.value) == (
        "PostgreSQL refuses to run as root and no other identity can be taken here: "
        "start Farthing as an ordinary user, or set DATABASE_URL to a server of your own."
    )


def test_a_folder_is_given_whole_to_a_dropped_identity_only(tmp_path):
    data_dir = tmp_path / "data"
    (data_dir / "base").mkdir(parents=True)
    (data_dir / "base" / "1").touch()
    give_folder(data_dir, same())
    owners = {path.stat().st_uid for path in (data_dir, *data_dir.rglob("*"))}
    assert owners == {os.geteuid()}
    receiver = NOBODY if IS_ROOT else Identity("drop", os.geteuid(), os.getegid())
    give_folder(data_dir, receiver)
    owners = {path.stat().st_uid for path in (data_dir, *data_dir.rglob("*"))}
    assert owners == {receiver.uid}
    assert tmp_path.stat().st_uid == os.geteuid()


def test_a_program_that_cannot_run_does_not_count(tmp_path):
    program = tmp_path / "program"
    shutil.copy("/bin/false", program)
    assert not module._works(same(), tmp_path, program)
    assert module._works(same(), tmp_path, POSTGRES)
