import pytest

from gateway.api.renderers import OrjsonRenderer


@pytest.mark.parametrize(
    "accept",
    ["text/event-stream", "*/*", "application/json", "text/html", "application/xml;q=1", "!", ""],
)
def test_whatever_is_accepted_json_is_served(caller, world, accept: str) -> None:
    made = world.key(world.tenant())
    answer = caller(made.secret).get("/v1/models", accept=accept)
    assert (answer.status_code, answer["content-type"]) == (200, "application/json")
    assert answer.json() == {"object": "list", "data": []}


def test_nothing_is_nothing() -> None:
    assert OrjsonRenderer().render(None) == b""
    assert OrjsonRenderer().render({"a": "é"}) == '{"a":"é"}'.encode()
