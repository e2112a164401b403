from datetime import UTC, datetime

import pytest

from gateway.catalog.entries import CatalogMistakes, PriceEntry, RouteEntry, VendorEntry
from gateway.catalog.file import FILE_BYTES_MAX, parse

VENDORS = """\
vendors:
  - name: acme
    base_url: https://api.acme.example/v1
    credential: vk-1
"""
MODELS = """\
models:
  - name: small
    routes:
      - vendor: acme
        vendor_model: acme-small
    prices:
      - input: 0.15
        output: 0.6
"""


def read(text: str, **environment: str):
    return parse(text.encode(), environment)


def mistakes_in(text: str | bytes, **environment: str) -> list[str]:
    with pytest.raises(CatalogMistakes) as found:
        parse(text.encode() if isinstance(text, str) else text, environment)
    return [str(mistake) for mistake in found.value.mistakes]


def vendor_with(line: str, **environment: str) -> VendorEntry:
    return read(f"{VENDORS}    {line}\nmodels: []\n", **environment).vendors[0]


def credential(text: str, **environment: str) -> str:
    return read(VENDORS.replace("vk-1", text) + "models: []", **environment).vendors[0].credential


def price_of(text: str) -> PriceEntry:
    return read(VENDORS + MODELS.replace("input: 0.15", text)).models[0].prices[0]


# --- what is read -----------------------------------------------------------------------------


def test_smallest_file_takes_every_default():
    catalog = read(VENDORS + MODELS)
    assert catalog.vendors == (
        VendorEntry(
            line=2,
            name="acme",
            base_url="https://api.acme.example/v1",
            credential="vk-1",
            connect_timeout_ms=5_000,
            first_byte_timeout_ms=120_000,
            idle_timeout_ms=60_000,
            total_timeout_ms=600_000,
            max_connections=1_000,
            keep_alive_ms=4_000,
            breaker_failures=10,
            breaker_percent=50,
            breaker_window_ms=30_000,
            breaker_pause_ms=10_000,
            client_gone="cancel",
            cached_tokens="auto",
            accepts_stream_options=True,
            qualification="waived",
        ),
    )
    (model,) = catalog.models
    assert (model.line, model.name, model.family) == (6, "small", None)
    assert (model.context_tokens, model.max_output_tokens, model.default_output_tokens) == (
        131_072,
        16_384,
        4_096,
    )
    assert model.routes == (
        RouteEntry(
            line=8, vendor="acme", vendor_model="acme-small", priority=0, weight=1, family=None
        ),
    )
    assert model.prices == (
        PriceEntry(
            line=11,
            plan="",
            currency="USD",
            effective_from=None,
            input_nanos=150_000_000,
            cached_input_nanos=None,
            cache_write_nanos=None,
            image_input_nanos=None,
            audio_input_nanos=None,
            output_nanos=600_000_000,
            reasoning_nanos=None,
            audio_output_nanos=None,
            per_request_nanos=0,
            tiers=(),
        ),
    )


def test_every_key_is_read():
    vendor = vendor_with(
        "connect_timeout: 0.5\n"
        "    first_byte_timeout: 30\n"
        "    idle_timeout: 12.345\n"
        "    total_timeout: '900'\n"
        "    max_connections: 2_000\n"
        "    client_gone: drain\n"
        "    cached_tokens: beside\n"
        "    accepts_stream_options: false\n"
        "    qualification: required"
    )
    assert (vendor.connect_timeout_ms, vendor.first_byte_timeout_ms) == (500, 30_000)
    assert (vendor.idle_timeout_ms, vendor.total_timeout_ms) == (12_345, 900_000)
    assert (vendor.max_connections, vendor.client_gone) == (2_000, "drain")
    assert (vendor.cached_tokens, vendor.accepts_stream_options) == ("beside", False)
    assert vendor.qualification == "required"


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("'0.10'", 100_000_000),
        ("0.000000001", 1),
        ("0.1500000000000", 150_000_000),
        ("1000000000", 10**18),
        ("123456789.123456789", 123_456_789_123_456_789),
    ],
)
def test_price_is_exact(text, nanos):
    assert price_of(f"input: {text}").input_nanos == nanos


def test_time_is_kept_in_utc():
    start = price_of("input: 1\n        effective_from: 2026-01-01T01:00:00+01:00").effective_from
    assert start == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("context_tokens: 8_192", (8_192, 8_192, 4_096)),
        ("context_tokens: 2000", (2_000, 2_000, 2_000)),
        ("max_output_tokens: 100", (131_072, 100, 100)),
    ],
)
def test_token_defaults_fit_into_what_is_given(limits, expected):
    text = VENDORS + MODELS.replace("name: small", f"name: small\n    {limits}")
    model = read(text).models[0]
    assert (
        model.context_tokens,
        model.max_output_tokens,
        model.default_output_tokens,
    ) == expected


def test_environment_takes_the_place_of_references():
    vendor = read(
        "vendors: [{name: v, base_url: 'http://${HOST}/v1/', credential: '${KEY}'}]\nmodels: []",
        HOST="10.0.0.1:8080",
        KEY="vk-1\n",
    ).vendors[0]
    assert (vendor.base_url, vendor.credential) == ("http://10.0.0.1:8080/v1", "vk-1")


@pytest.mark.parametrize("text", ['"vk-1\\n"', '" vk-1 "', '"\\tvk-1\\r\\n"'])
def test_credential_is_trimmed(text):
    assert credential(text) == "vk-1"


@pytest.mark.parametrize("text", ['""', "''", "", '" \\n"'])
def test_empty_credential_means_none_is_sent(text):
    assert credential(text) == ""


def test_values_of_the_environment_are_not_expanded_again():
    assert credential("${A}", A="${B}", B="wrong") == "${B}"
    assert credential('"$${A}"', A="wrong") == "${A}"


def test_secret_is_in_no_representation():
    assert "vk-1" not in repr(read(VENDORS + MODELS))


# --- what is refused, with its line -----------------------------------------------------------


def test_all_mistakes_are_told_at_once_in_the_order_of_lines():
    found = mistakes_in(
        """\
vendors:
  - name: a b
    base_url: ftp://x
    credential: a b
  - {name: twice, base_url: 'http://h', credential: ''}
  - {name: twice, base_url: 'http://h', credential: ''}
models:
  - name: small
    colour: red
    routes: [{vendor: nobody, vendor_model: m}]
    prices: [{input: -1}]
"""
    )
    assert [words.partition(":")[0] for words in found] == [
        "line 2",
        "line 3",
        "line 4",
        "line 6",
        "line 9",
        "line 10",
        "line 11",
    ]
    assert found[3] == "line 6: vendor twice stands twice; first on line 5."
    assert found[4] == (
        "line 9: unknown key 'colour' in a model; expected one of name, family, context_tokens, "
        "max_output_tokens, default_output_tokens, sticky_routes, routes, prices."
    )
    assert found[5] == (
        "line 10: the route's vendor 'nobody' is unknown; expected a name under vendors."
    )
    assert found[6] == (
        "line 11: input is '-1'; expected a plain decimal such as 0.15, not below zero."
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("name: other", "name stands twice in a vendor; first on line 2."),
        ("connect_timeout: 0", "connect_timeout is 0; expected seconds as a plain decimal such"),
        ("connect_timeout: 1.0005", "connect_timeout is '1.0005'; expected at most 3 decimals."),
        ("connect_timeout: 86401", "connect_timeout is '86401'; expected at most 86400."),
        ("connect_timeout: 5s", "connect_timeout is '5s'; expected seconds as a plain decimal"),
        ("connect_timeout: [5]", "connect_timeout is a list; expected seconds as a plain"),
        ("max_connections: 0", "max_connections is '0'; expected a whole number from 1 to"),
        ("max_connections: 1.5", "max_connections is '1.5'; expected a whole number from 1 to"),
        ("max_connections: 0x10", "max_connections is '0x10'; expected a whole number from 1"),
        ("client_gone: stop", "client_gone is 'stop'; expected cancel or drain."),
        ("cached_tokens: in", "cached_tokens is 'in'; expected auto, inside, beside."),
        ("qualification: no", "qualification is 'no'; expected required or waived."),
        ("accepts_stream_options: yes", "accepts_stream_options is 'yes'; expected true or"),
    ],
)
def test_wrong_value_of_a_vendor_is_told(line, words):
    (found,) = mistakes_in(f"{VENDORS}    {line}\nmodels: []\n")
    assert found.startswith(f"line 5: {words}")


@pytest.mark.parametrize(
    ("price", "words"),
    [
        ("input: 1e-3", "input is '1e-3'; expected a plain decimal such as 0.15."),
        ("input: .5", "input is '.5'; expected a plain decimal such as 0.15."),
        ("input: 1_000", "input is '1_000'; expected a plain decimal such as 0.15."),
        ("input: .nan", "input is '.nan'; expected a plain decimal such as 0.15."),
        ("input: 1:30", "input is '1:30'; expected a plain decimal such as 0.15."),
        ("input: '٣'", "input is '٣'; expected a plain decimal such as 0.15."),
        ("input: {a: 1}", "input is a mapping; expected a plain decimal such as 0.15."),
        ("input: 0.0000000001", "input is '0.0000000001'; expected at most 9 decimals."),
        ("input: 1000000001", "input is '1000000001'; expected at most 1000000000."),
        (
            "input: 1.0000000000000000000000000001",
            "input is '1.0000000000000000000000000001'; expected at most 9 decimals.",
        ),
    ],
)
def test_wrong_price_is_told(price, words):
    assert mistakes_in(VENDORS + MODELS.replace("input: 0.15", price)) == [f"line 11: {words}"]


@pytest.mark.parametrize(
    "time",
    [
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-02-30T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "tomorrow",
        "1767225600",
    ],
)
def test_time_without_its_offset_or_out_of_the_calendar_is_told(time):
    price = f"input: 1\n        effective_from: {time}"
    (found,) = mistakes_in(VENDORS + MODELS.replace("input: 0.15", price))
    assert found == (
        f"line 12: effective_from is '{time}'; expected an RFC 3339 time with its offset, such "
        "as 2026-01-31T00:00:00Z."
    )


@pytest.mark.parametrize(
    "url",
    [
        "api.acme.example/v1",
        "ftp://api.acme.example",
        "https://user:hunter2@api.acme.example",
        "https://api.acme.example/v1?key=hunter2",
        "https://api.acme.example/#hunter2",
        "https://api.acme.example:hunter2/",
        "https://api.acme.example:65536/",
        "https://",
        "https://a b/",
        "https://" + "a" * 500,
        "",
        "[1]",
    ],
)
def test_wrong_base_url_is_told_without_its_words(url):
    text = VENDORS.replace("https://api.acme.example/v1", url) + "models: []"
    (found,) = mistakes_in(text)
    assert found.startswith("line 3: base_url is no ")
    assert "hunter2" not in found


def test_line_break_inside_a_url_is_refused():
    text = VENDORS.replace("https://api.acme.example/v1", '"https://api\\n.acme.example"')
    assert len(mistakes_in(text + "models: []")) == 1


@pytest.mark.parametrize("text", ['"hunter2 x"', '"hunter2\\nx"', '"hunter2\\u00e9"', "[hunter2]"])
def test_credential_that_no_header_can_carry_is_refused_and_not_shown(text):
    (found,) = mistakes_in(VENDORS.replace("vk-1", text) + "models: []")
    assert found.startswith("line 4: credential ")
    assert "hunter2" not in found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${KEY}", "credential refers to ${KEY}, which the environment does not have."),
        ("x${", "credential has a ${ without a NAME} behind it"),
        ("${A B}", "credential has a ${ without a NAME} behind it"),
    ],
)
def test_reference_that_leads_nowhere_is_told(text, words):
    (found,) = mistakes_in(VENDORS.replace("vk-1", f'"{text}"') + "models: []")
    assert found.startswith(f"line 4: {words}")


@pytest.mark.parametrize("name", ["4.1", "yes", "null", "123"])
def test_name_that_yaml_takes_for_something_else_must_be_quoted(name):
    (found,) = mistakes_in(VENDORS + MODELS.replace("small", name, 1))
    assert "line 6: name is " in found
    assert "in quotes if it looks like something else" in found
    assert read(VENDORS + MODELS.replace("small", f"'{name}'", 1)).models[0].name == name


@pytest.mark.parametrize("family", ["gpt", "Qwen2.5", "2.5"])
def test_family_is_one_that_we_can_count(family):
    (found,) = mistakes_in(VENDORS + MODELS.replace("small", f"small\n    family: {family}", 1))
    assert found.startswith(f"line 7: family is '{family}'; expected claude, ")
    assert ", qwen2.5, " in found


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ("{context_tokens: 10, max_output_tokens: 11}", "max_output_tokens is 11; expected at "),
        ("{max_output_tokens: 5, default_output_tokens: 6}", "default_output_tokens is 6; expe"),
    ],
)
def test_token_limits_must_fit_together(limits, words):
    model = limits.replace("{", "{name: m, routes: [], ")
    (found,) = mistakes_in(f"{VENDORS}models: [{model}]")
    assert found.startswith(f"line 5: {words}")


def test_two_routes_to_the_same_place_are_told():
    route = "{vendor: acme, vendor_model: m}"
    (found,) = mistakes_in(f"{VENDORS}models: [{{name: m, routes: [{route}, {route}]}}]")
    assert found == "line 5: route acme m stands twice; first on line 5."


def test_two_prices_from_the_same_time_are_told():
    dated = "{input: 1, output: 1, effective_from: 2026-01-01T00:00:00Z}"
    undated = "{input: 1, output: 1}"
    prices = f"[{dated}, {dated}, {undated}, {undated}]"
    found = mistakes_in(f"{VENDORS}models: [{{name: m, routes: [], prices: {prices}}}]")
    assert found == [
        "line 5: price USD 2026-01-01T00:00:00+00:00 stands twice; first on line 5.",
        "line 5: price USD from now stands twice; first on line 5.",
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "line 1: the file is empty; expected vendors and models."),
        ("# only words\n", "line 1: the file is empty; expected vendors and models."),
        ("- 1", "line 1: the file is a list; expected a mapping."),
        ("vendors: []", "line 1: the file has no models; expected one."),
        ("vendors: {}\nmodels: []", "line 1: vendors is a mapping; expected a list."),
        ("vendors: [1]\nmodels: []", "line 1: a vendor is '1'; expected a mapping."),
        ("vendors: []\nmodels: []\n? [a]\n: 1", "line 3: unknown key 'a list' in the file; exp"),
        ("vendors: [\nmodels: []", "line 2: no YAML: "),
        ("vendors: []\n---\nmodels: []", "line 2: no YAML: but found another document."),
        ("vendors: *nothing", "line 1: no YAML: found undefined alias 'nothing'."),
        (b"vendors: []\nmodels: \xff", "line 2: this is not UTF-8; expected UTF-8."),
        ("vendors: []\nmodels: \x00", "line 2: a control character; expected text."),
        ("[" * 5_000, "line 1: the file is nested too deeply."),
        ("#" * (FILE_BYTES_MAX + 1), "line 1: the file is larger than 8388608 bytes."),
    ],
)
def test_what_is_no_catalog_is_told(text, found):
    assert mistakes_in(text)[0].startswith(found)


def test_python_objects_are_nothing_but_text():
    found = mistakes_in("vendors: !!python/object/apply:os.system [exit]\nmodels: []")
    assert found == ["line 1: a vendor is 'exit'; expected a mapping."]


def test_price_may_be_incomplete_and_says_so_with_none():
    price = price_of("input:")
    assert (price.input_nanos, price.output_nanos) == (None, 600_000_000)


def test_tiers_are_read_in_the_order_of_their_lengths():
    price = price_of(
        "input: 1\n        tiers:\n"
        "          - {above_prompt_tokens: 200_000, input: 3}\n"
        "          - {above_prompt_tokens: 100_000, cached_input: 0, audio_output: 2}"
    )
    first, second = price.tiers
    assert (first.above_prompt_tokens, first.input_nanos, first.cached_input_nanos) == (
        100_000,
        None,
        0,
    )
    assert (first.audio_output_nanos, second.above_prompt_tokens) == (2 * 10**9, 200_000)
    assert (second.line, second.input_nanos) == (13, 3 * 10**9)


@pytest.mark.parametrize(
    ("tier", "words"),
    [
        ("{input: 1}", "a tier has no above_prompt_tokens; expected one."),
        (
            "{above_prompt_tokens: 0}",
            "above_prompt_tokens is '0'; expected a whole number from 1 to 1000000000.",
        ),
        (
            "{above_prompt_tokens: 5, per_request: 1}",
            (
                "unknown key 'per_request' in a tier; expected one of above_prompt_tokens, input, "
                "cached_input, cache_write, image_input, audio_input, output, reasoning, "
                "audio_output."
            ),
        ),
        (
            "{above_prompt_tokens: 5}, {above_prompt_tokens: 5}",
            "tier 5 stands twice; first on line 12.",
        ),
    ],
)
def test_wrong_tier_is_told(tier, words):
    price = f"input: 1\n        tiers: [{tier}]"
    assert mistakes_in(VENDORS + MODELS.replace("input: 0.15", price)) == [f"line 12: {words}"]
