from gateway.web.key_forms import limit_words, rules_of


def test_limits_are_said_in_words_and_no_limit_in_none():
    assert limit_words(None, None) == []
    assert limit_words(1_200, None) == ["1,200 a minute"]
    assert limit_words(None, 8) == ["8 at once"]


def test_rules_say_only_what_is_limited():
    assert rules_of(None, None, None, None) == ["All models"]
    assert rules_of(["a", "b"], ["10.0.0.0/8"], 5, 2) == [
        "Models: a, b",
        "From 10.0.0.0/8",
        "At most 5 a minute, 2 at once",
    ]
