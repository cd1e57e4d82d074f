"""The search, on functions instead of simulations."""

from collections.abc import Callable
from dataclasses import dataclass, field

from advice import make_figures

from shared.strategy import StrategySettings
from tokentide.advisor.figures import Figures, Slo
from tokentide.advisor.judging import Candidate, Judge
from tokentide.advisor.search import MAX_REFINED, search
from tokentide.advisor.space import Bounds, Space


def make_space(**fields: int) -> Space:
    values = {"max_places": 64, "max_batch": 64, "max_budget": 2048, "own_places": 64, **fields}
    return Space(bounds=Bounds(**values))


@dataclass
class Counting:
    """An evaluator that remembers what it was asked."""

    of: Callable[[StrategySettings], Figures | None]
    asked: list[str] = field(default_factory=list)

    def __call__(self, settings: StrategySettings) -> Figures | None:
        self.asked.append(settings.as_json())
        return self.of(settings)


def peak_at(places: int, budget: int) -> Callable[[StrategySettings], Figures]:
    """Throughput falls with the distance from the peak; batches have less."""

    def figures(settings: StrategySettings) -> Figures:
        if settings.name != "continuous":
            return make_figures(10.0)
        here = (settings.max_sequences or 1, settings.token_budget or 1)
        shares = [min(a, b) / max(a, b) for a, b in zip(here, (places, budget), strict=True)]
        return make_figures(1000.0 * shares[0] * shares[1])

    return figures


def best_of(evaluate: Counting, judge: Judge, **options) -> Candidate:
    return judge.ranked(list(search(make_space(), evaluate, judge, **options)))[0]


def test_it_finds_a_peak_that_is_not_on_the_grid() -> None:
    evaluate = Counting(peak_at(places=23, budget=720))

    best = best_of(evaluate, Judge(slo=Slo()))

    assert best.settings.name == "continuous"
    assert best.figures.tokens_per_s > 850
    assert len(set(evaluate.asked)) == len(evaluate.asked), "nothing is evaluated twice"


def test_it_is_bounded() -> None:
    space = make_space()
    evaluate = Counting(lambda s: make_figures(len(s.as_json()) + (s.token_budget or 0)))

    list(search(space, evaluate, Judge(slo=Slo())))

    assert len(evaluate.asked) <= len(space.coarse()) + MAX_REFINED


def test_the_slo_turns_it_elsewhere() -> None:
    """More places, more tokens, longer gaps."""

    def figures(settings: StrategySettings) -> Figures:
        size = settings.largest_batch or settings.max_sequences or 1
        return make_figures(10.0 * size, itl_s=0.01 * size)

    best = best_of(Counting(figures), Judge(slo=Slo(itl_s=0.2)))

    size = best.settings.largest_batch or best.settings.max_sequences
    assert size is not None and 16 < size <= 20


def test_what_cannot_serve_the_load_is_left_out() -> None:
    evaluate = Counting(lambda s: make_figures() if s.name == "dynamic" else None)

    found = list(search(make_space(), evaluate, Judge(slo=Slo())))

    assert {candidate.settings.name for candidate in found} == {"dynamic"}


def test_what_is_known_is_not_evaluated_again_and_its_neighbours_count() -> None:
    now = Candidate(
        settings=StrategySettings(max_sequences=48, token_budget=512, chunk_size=32),
        figures=make_figures(1e6),
    )
    evaluate = Counting(lambda _: make_figures(1.0))

    list(search(make_space(), evaluate, Judge(slo=Slo()), known=[now], num_coarse=3))

    assert now.key not in evaluate.asked
    near = StrategySettings(max_sequences=24, token_budget=512, chunk_size=32)
    assert near.as_json() in evaluate.asked


def test_a_short_grid_still_has_every_strategy() -> None:
    evaluate = Counting(lambda _: None)

    list(search(make_space(), evaluate, Judge(slo=Slo()), num_coarse=3))

    names = {StrategySettings.from_json(text).name for text in evaluate.asked}
    assert names == {"continuous", "static", "dynamic"}
