import json
import shlex
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from gateway.supervisor import ready
from gateway.supervisor.embedded import free_port
from gateway.supervisor.services import PROJECT

DEMO_CATALOG = PROJECT / "gateway" / "catalog" / "demo.yaml"
DEMO = {
    "api_key": "sk_live_one",
    "test_key": "sk_test_two",
    "tenant": {"email": "owner@example.test", "password": "three"},
    "staff": {"email": "staff@example.test", "password": "four"},
}


class Handler(BaseHTTPRequestHandler):
    """Serves models to one key, and something else at /broken."""

    def do_GET(self):
        is_known = self.headers["Authorization"] == "Bearer sk_live_one"
        body = b'{"data": [{"id": "echo-429"}, {"id": "echo"}]}'
        self.send_response(200 if is_known else 401)
        self.end_headers()
        self.wfile.write(b"no JSON" if self.path.startswith("/broken") else body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def base_url():
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_models_of_a_key_show_that_the_gateway_answers(base_url):
    assert ready.served_models(base_url, "sk_live_one") == ["echo-429", "echo"]


def test_a_refusal_is_no_answer_yet(base_url):
    assert ready.served_models(base_url, "sk_live_other") is None


def test_an_answer_of_another_kind_is_no_answer_yet(base_url):
    assert ready.served_models(base_url + "/broken", "sk_live_one") is None


def test_nobody_there_is_no_answer_yet():
    base_url = f"http://127.0.0.1:{free_port()}"
    assert ready.get(base_url) is None
    assert ready.served_models(base_url, "sk_live_one") is None


def test_any_status_is_an_answer(base_url):
    assert ready.get(base_url + "/anything")[0] == 401


def test_the_example_uses_the_plain_model_where_it_is_served():
    assert ready.example_model(["farthing-echo-429", "farthing-echo"]) == "farthing-echo"
    assert ready.example_model(["mine", "other"]) == "mine"
    assert ready.example_model([]) == "farthing-echo"


def test_the_plain_model_is_one_of_the_demo():
    assert f"- name: {ready.PLAIN_MODEL}\n" in DEMO_CATALOG.read_text()


def test_the_call_can_be_pasted_into_a_shell():
    words = shlex.split(ready.example_call("http://127.0.0.1:8000", "sk_live_one", "echo"))
    words = [word for word in words if word != "\n"]  # what a shell takes for nothing
    assert words[:2] == ["curl", "http://127.0.0.1:8000/v1/chat/completions"]
    assert words[3] == "Authorization: Bearer sk_live_one"
    assert json.loads(words[-1]) == {
        "model": "echo",
        "messages": [{"role": "user", "content": "Hello"}],
    }


def test_the_table_names_all_that_a_newcomer_needs(tmp_path):
    words = ready.table("http://127.0.0.1:8000", DEMO, "echo", tmp_path)
    for part in (
        "http://127.0.0.1:8000/",
        "sk_live_one",
        "sk_test_two",
        "owner@example.test   password three",
        "staff@example.test   password four",
        str(tmp_path),
        ready.example_call("http://127.0.0.1:8000", "sk_live_one", "echo"),
    ):
        assert part in words
