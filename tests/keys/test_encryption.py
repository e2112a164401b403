import pytest
from cryptography.fernet import Fernet, InvalidToken
from django.db import connection

from gateway.models import Vendor

SECRET = "vk-canary-0001"
OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


@pytest.fixture
def vendor(db, settings) -> Vendor:
    settings.FERNET_KEYS = [OLD]
    return Vendor.objects.create(name="north", base_url="http://north.test/v1", credential=SECRET)


def stored(vendor: Vendor) -> bytes:
    with connection.cursor() as cursor:
        cursor.execute("SELECT credential FROM gateway_vendor WHERE id = %s", [vendor.pk])
        return bytes(cursor.fetchone()[0])


def test_a_credential_is_a_text_here_and_a_token_there(vendor: Vendor) -> None:
    assert Vendor.objects.get(pk=vendor.pk).credential == SECRET
    assert SECRET.encode() not in stored(vendor)
    assert Fernet(OLD).decrypt(stored(vendor)).decode() == SECRET


def test_the_same_text_is_another_token_each_time(vendor: Vendor) -> None:
    other = Vendor.objects.create(name="south", base_url="http://s.test/v1", credential=SECRET)
    assert stored(vendor) != stored(other)


@pytest.mark.parametrize("text", ["", "::keyless::", "ключ ключей", "x" * 5_000])
def test_any_text_comes_back(vendor: Vendor, text: str) -> None:
    vendor.credential = text
    vendor.save(update_fields=["credential"])
    vendor.refresh_from_db()
    assert vendor.credential == text


def test_keys_rotate_by_saving_again(vendor: Vendor, settings) -> None:
    settings.FERNET_KEYS = [NEW, OLD]
    found = Vendor.objects.get(pk=vendor.pk)
    assert found.credential == SECRET

    found.save(update_fields=["credential"])

    assert Fernet(NEW).decrypt(stored(vendor)).decode() == SECRET
    settings.FERNET_KEYS = [NEW]
    assert Vendor.objects.get(pk=vendor.pk).credential == SECRET


def test_without_its_key_a_credential_is_lost_and_not_garbled(vendor: Vendor, settings) -> None:
    settings.FERNET_KEYS = [NEW]
    with pytest.raises(InvalidToken):
        Vendor.objects.get(pk=vendor.pk)


def test_a_token_that_was_touched_is_refused(vendor: Vendor) -> None:
    token = bytearray(stored(vendor))
    token[20] ^= 1
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE gateway_vendor SET credential = %s WHERE id = %s", [bytes(token), vendor.pk]
        )
    with pytest.raises(InvalidToken):
        Vendor.objects.get(pk=vendor.pk)
