from gateway.benchecho.stats import MAX_MODELS_COUNTED, OTHER_MODELS, Stats


def test_a_request_moves_the_total_and_its_model():
    stats = Stats()
    for count in stats.counts_of("echo"):
        count.requests += 1
    assert stats.as_json()["requests"] == 1
    assert stats.as_json()["by_model"]["echo"]["requests"] == 1


def test_the_number_of_models_counted_apart_is_bounded():
    stats = Stats()
    for number in range(MAX_MODELS_COUNTED + 5):
        stats.counts_of(f"echo-slow-{number}")[1].requests += 1
    assert len(stats.by_model) == MAX_MODELS_COUNTED + 1
    assert stats.by_model[OTHER_MODELS].requests == 5
