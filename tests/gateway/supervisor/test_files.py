from gateway.supervisor.files import write_private


def test_a_private_file_is_replaced_at_once_and_stays_private(tmp_path):
    path = tmp_path / "secret"
    path.write_text("old and longer")
    path.chmod(0o644)
    write_private(path, "new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret"]
