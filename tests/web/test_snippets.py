import shlex

from gateway.web.snippets import curl, snippets


def test_a_body_survives_the_shell():
    body = """{"content": "it's $HOME `x` \\" "}"""
    words = shlex.split(curl("https://api.example/v1", body).replace("\\\n", " "))
    assert words[words.index("-d") + 1] == body


def test_a_repeated_command_has_no_secret_but_a_variable():
    text = curl("https://api.example/v1", "{}")
    assert '-H "Authorization: Bearer $FARTHING_KEY"' in text


def test_only_the_first_curl_exports_the_secret():
    code = snippets("https://api.example/v1", "m", "sk_live_x")
    assert code.curl.startswith("export FARTHING_KEY=sk_live_x\ncurl https://api.example/v1/")
    assert "sk_live_x" not in code.python + code.node
    assert not snippets("https://api.example/v1", "m").curl.startswith("export")


def test_the_python_snippet_is_python():
    compile(snippets("https://api.example/v1", "m").python, "snippet", "exec")
