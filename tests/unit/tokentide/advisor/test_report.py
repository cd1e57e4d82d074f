"""What people read: a sentence, the front, what was measured beside what was predicted."""

from dataclasses import asdict
from typing import Any

from advice import make_candidate, make_figures
from simulated_loads import make_profile

from tokentide.advisor.figures import Slo
from tokentide.advisor.judging import GOODPUT, THROUGHPUT, Candidate, Judge
from tokentide.advisor.options import AdviseFlags, advise_options
from tokentide.advisor.report import Found, Verified, advise_report
from tokentide.advisor.report_text import headline, tables_of, thinned
from tokentide.bench.serve_options import ServeFlags


def make_report(
    *candidates: Candidate,
    slo: Slo | None = None,
    verified: list[Verified] | None = None,
    endpoint: str = "",
    is_complete: bool = True,
    objective: str = THROUGHPUT,
) -> dict[str, Any]:
    """The first candidate is the current setting."""
    judge = Judge(slo=slo or Slo(itl_s=0.1), objective=objective)
    flags = AdviseFlags(judge=judge, profile="test", serve=ServeFlags(endpoint=endpoint))
    found = Found(
        current=candidates[0],
        current_settings=candidates[0].settings,
        candidates=candidates,
        is_complete=is_complete,
    )
    operations = ["h:151"] if endpoint else []
    return advise_report(found, advise_options(flags), make_profile(), verified or [], operations)


def test_the_recommendation_has_its_command_and_what_it_gains() -> None:
    report = make_report(
        make_candidate(8, 100, ttft_s=1.0), make_candidate(16, 150, ttft_s=0.5), endpoint="h:51"
    )

    best = report["recommendation"]
    assert best["command"] == (
        "tokentide strategy set continuous --endpoint h:151 --max-sequences 16"
    )
    assert report["gain"]["tokens_per_s"] == 1.5
    assert report["gain"]["ttft_s"] == 0.5
    text = headline(report)
    assert "continuous, 16 at once, within the SLO (p99 ITL 100 ms)" in text
    assert "Against the current setting (continuous, 8 at once): tokens/s x1.50" in text


def test_without_a_stack_it_is_compared_with_the_default() -> None:
    text = headline(make_report(make_candidate(8, 100), make_candidate(16, 150)))

    assert "Against the default setting" in text


def test_goodput_says_how_many_meet_it_where_the_whole_load_does_not() -> None:
    report = make_report(
        make_candidate(8, 100, itl_s=0.4, goodput_per_s=1.0),
        make_candidate(4, 50, itl_s=0.2, goodput_per_s=2.5),
        objective=GOODPUT,
    )

    assert report["is_possible"]
    assert not report["recommendation"]["meets_slo"]
    assert "with which 2.50 requests/s meet the SLO each" in headline(report)
    assert "good requests/s x2.50" in headline(report)


def test_where_nothing_meets_the_slo_it_says_so_and_names_the_closest() -> None:
    report = make_report(make_candidate(8, 100, itl_s=0.4), make_candidate(4, 50, itl_s=0.2))

    assert not report["is_possible"]
    assert headline(report).startswith("Nothing meets the SLO (p99 ITL 100 ms)")
    assert "continuous, 4 at once, 2.00 times what is asked" in headline(report)


def test_a_setting_that_is_best_already_is_kept() -> None:
    text = headline(make_report(make_candidate(8, 100), make_candidate(4, 50)))

    assert text.startswith("Keep continuous, 8 at once")
    assert "Against" not in text


def test_a_search_that_was_cut_off_says_so() -> None:
    assert "time was up" in headline(make_report(make_candidate(8), is_complete=False))


def test_what_was_measured_stands_beside_what_was_predicted() -> None:
    candidate = make_candidate(8, 100, itl_s=0.05)
    runs = [
        asdict(make_figures(tokens, itl_s=itl_s))
        for tokens, itl_s in ((70.0, 0.04), (80.0, 0.05), (90.0, 0.2))
    ]

    report = make_report(candidate, verified=[Verified(candidate=candidate, measured=runs)])

    (entry,) = report["verified"]
    assert entry["measured"]["tokens_per_s"] == 80
    assert entry["error"]["tokens_per_s"] == 0.25
    assert entry["num_repeats_that_meet_slo"] == 2
    cells = tables_of(report)[-1].rows[0]
    assert cells == [
        "continuous, 8 at once",
        "80.0 / 100.0 (+25%)",
        "500.0 / 500.0 (+0%)",
        "50.0 / 50.0 (+0%)",
        "2 of 3",
    ]


def test_a_verification_that_was_cut_off_leaves_blanks() -> None:
    candidate = make_candidate(8)

    report = make_report(candidate, verified=[Verified(candidate=candidate, measured=[])])

    assert tables_of(report)[-1].rows[0][1:] == ["- / 100.0", "- / 500.0", "- / 50.0", "0 of 0"]


def test_without_an_slo_nobody_asks_whether_it_is_met() -> None:
    report = make_report(make_candidate(8), slo=Slo(percentile=90))

    assert list(tables_of(report)[0].columns) == ["", "tokens/s", "TTFT p90, ms", "ITL p90, ms"]


def test_a_long_front_is_thinned_evenly() -> None:
    entries = [{"n": n} for n in range(100)]

    shown = [entry["n"] for entry in thinned(entries, 4)]

    assert shown == [0, 33, 66, 99]
    assert thinned(entries[:3], 4) == entries[:3]


def test_a_gap_that_no_step_can_have_is_called_impossible_and_the_missed_limit_named() -> None:
    report = make_report(
        make_candidate(8, 100, ttft_s=0.2, itl_s=0.02), slo=Slo(ttft_s=0.5, itl_s=0.005)
    )

    text = headline(report)

    assert "TTFT 200.0 ms within 500, ITL 20.0 ms over 5" in text
    assert "A step of one sequence alone takes" in text
    reachable = make_report(make_candidate(8, 100, itl_s=0.4))
    assert "alone takes" not in headline(reachable)


def test_an_slo_that_nobody_asked_is_mentioned() -> None:
    report = make_report(make_candidate(8, 100), make_candidate(16, 150), slo=Slo())

    assert "No SLO was asked" in headline(report)


def test_requests_that_are_refused_are_not_passed_over() -> None:
    report = make_report(make_candidate(8, num_ok=10, num_failed=2))

    assert "2 of 12 requests are refused or fail." in headline(report)
