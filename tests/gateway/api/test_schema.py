import pytest
from drf_spectacular.validation import validate_schema

from billing.ids import request_id
from gateway.api.schema import document
from tests.gateway.exchanges.made import MODEL, Maker


def test_the_document_is_valid_openapi_and_names_every_path() -> None:
    made = document()
    validate_schema(made)
    assert sorted(made["paths"]) == [
        "/v1/balance",
        "/v1/chat/completions",
        "/v1/key",
        "/v1/models",
        "/v1/models/{model}",
        "/v1/requests/{request_id}",
        "/v1/tokens/count",
    ]
    operations = [one for methods in made["paths"].values() for one in methods.values()]
    assert all(operation["security"] == [{"key": []}] for operation in operations)
    assert len({operation["operationId"] for operation in operations}) == 7


def test_anybody_may_read_the_document(caller, db) -> None:
    answer = caller(None).get("/v1/openapi.json")
    assert (answer.status_code, answer.json()) == (200, document())


@pytest.mark.parametrize("path", ["balance", "key", "models", "requests/{request_id}"])
def test_answers_have_the_fields_that_the_document_promises(caller, world, path: str) -> None:
    tenant = world.tenant()
    made = world.key(tenant)
    exchange = Maker(tenant, made.key, world.price(MODEL)).settled()
    schema = document()["paths"][f"/v1/{path}"]["get"]["responses"]["200"]["content"]
    promised = schema["application/json"]["schema"]
    address = path.replace("{request_id}", request_id(exchange.id))
    answer = caller(made.secret).get(f"/v1/{address}").json()
    assert sorted(promised["required"]) == sorted(answer)


def test_the_page_has_no_script_of_its_own(caller, db) -> None:
    answer = caller(None).get("/v1/docs")
    page = answer.content.decode()
    assert answer.status_code == 200
    assert page.count("<script src=") == page.count("<script")
    assert "style=" not in page
    assert "script-src" not in answer["content-security-policy"]
    assert "img-src 'self' data:" in answer["content-security-policy"]
