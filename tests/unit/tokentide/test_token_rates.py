from tokentide.token_rates import TokenRate


def rate_of(*readings: tuple[float, dict[str, int]]) -> str:
    rate = TokenRate()
    for now_s, counts in readings:
        rate.on_counts(counts, now_s)
    return rate.per_s


def test_before_there_is_a_difference_over_some_time_nothing_is_said():
    assert TokenRate().per_s == "-"
    assert rate_of((10.0, {"a": 5})) == "-"
    assert rate_of((10.0, {"a": 5}), (10.2, {"a": 500})) == "-"


def test_a_rate_is_what_all_counters_gained_over_the_last_seconds():
    assert rate_of((0.0, {"a": 5, "b": 0}), (2.0, {"a": 105, "b": 300})) == "200.0"
    steady = [(float(s), {"a": 1000 * s if s < 5 else 4000 + 10 * s}) for s in range(20)]
    assert rate_of(*steady) == "10.0"


def test_neither_a_counter_that_comes_nor_one_that_goes_is_a_gain_or_a_loss():
    assert rate_of((0.0, {"a": 900}), (1.0, {"b": 7000}), (2.0, {"b": 7100})) == "50.0"


def test_a_slow_watcher_has_a_rate_too():
    assert rate_of((0.0, {"a": 0}), (10.0, {"a": 100}), (20.0, {"a": 300})) == "20.0"
