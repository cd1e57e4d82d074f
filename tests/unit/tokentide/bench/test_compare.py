"""The order of the comparison, and its report."""

import json
from typing import Any

from tokentide.bench.compare import compare_trials
from tokentide.bench.compare_report import compare_report, tables_of
from tokentide.bench.compare_tool import compare_options
from tokentide.bench.serve import NUM_ARRIVALS, requests_of
from tokentide.bench.serve_options import ServeFlags

FACTS = {"command": "c", "machine": {"cores": 2}, "subject": "m on 2 cores", "settings": {}}
STRATEGIES = "static:8,static:16,dynamic,continuous"


def make_row(case: str, repeat: int, tokens_per_s: float, **fields: Any) -> dict[str, Any]:
    return {
        "case": case,
        "settings": f'{{"name": "{case.partition(":")[0]}"}}',
        "repeat": repeat,
        "num_requests": 32,
        "statuses": {"OK": 32},
        "throughput": {"generated_tokens_per_s": tokens_per_s},
        "latency_s": {"end_to_end": {"p50": 100 / tokens_per_s}},
        **fields,
    }


def test_each_repeat_runs_every_strategy_once_in_an_order_of_its_own() -> None:
    options = compare_options(ServeFlags(vocabulary=100, repeat=4, concurrency="8"), STRATEGIES)

    trials = compare_trials(options)

    orders = [
        [t.subject.strategy.label for t in trials if t.subject.repeat == repeat]
        for repeat in range(4)
    ]
    assert all(sorted(order) == sorted(STRATEGIES.split(",")) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    assert len({trial.key for trial in trials}) == len(trials)
    assert trials == compare_trials(options)


def test_arrivals_at_a_rate_are_enough_for_percentiles_unless_said() -> None:
    options = compare_options(ServeFlags(vocabulary=100, rate=5.0), STRATEGIES)

    assert options.case.concurrency is None
    assert len(requests_of(options.case, options.serve)) == NUM_ARRIVALS


def test_ratios_are_of_medians_to_each_static() -> None:
    rows = [make_row("static:8", r, tokens) for r, tokens in enumerate((10.0, 12.0, 50.0))]
    rows += [make_row("continuous", r, tokens) for r, tokens in enumerate((24.0, 20.0, 90.0))]

    report = compare_report(FACTS, ["static:8", "continuous"], rows, 0)

    (_, continuous) = report["strategies"]
    assert continuous["ratio_to"]["static:8"]["generated tokens/s"] == 2.0
    assert continuous["ratio_to"]["static:8"]["end-to-end p50"] == 0.5
    assert continuous["ratio_to"]["static:8"]["TTFT p50"] is None


def test_an_open_loop_is_compared_while_requests_arrive_and_not_by_its_tails() -> None:
    arriving = {"generated_tokens_per_s": 30.0, "offered_tokens_per_s": 31.0}
    rows = [
        make_row("static:8", 0, 10.0, arrivals=arriving),
        make_row("continuous", 0, 20.0, arrivals=arriving),
    ]

    report = compare_report(FACTS, ["static:8", "continuous"], rows, 0)

    did, _, ratios = tables_of(report)
    assert ["while they arrive: tokens/s", "30.0", "30.0"] in did.rows
    assert ["tokens/s while they arrive", "1.00", "1.00"] in ratios.rows
    assert "generated tokens/s" not in [row[0] for row in ratios.rows]
    assert "tail" in did.note


def test_the_table_says_whose_answers_are_held() -> None:
    rows = [make_row("continuous", 0, 20.0), make_row("static:8", 0, 10.0)]

    did, *_ = tables_of(compare_report(FACTS, ["static:8", "continuous"], rows, 0))

    assert "static:8: answers leave at the batch's end" in did.note
    assert "a p99 of 32 requests" in did.note


def test_the_report_is_json_and_its_tables_have_a_column_a_strategy() -> None:
    wasted = {"wasted": {"num_held_sequence_steps": 7, "held_share": 0.25}}
    rows = [make_row("continuous", 0, 20.0), make_row("static:8", 0, 10.0, service=wasted)]

    report = compare_report(FACTS, ["static:8", "static:16", "continuous"], rows, 1)

    json.dumps(report, allow_nan=False)
    did, lost, ratios = tables_of(report)
    assert did.columns == lost.columns == ratios.columns == ["", "static:8", "continuous"]
    assert ["generated tokens/s", "10.0", "20.0"] in did.rows
    assert ["requests OK", "32", "32"] in did.rows
    assert ["held share, %", "25.0", ""] in lost.rows
    assert ["generated tokens/s", "1.00", "2.00"] in ratios.rows
