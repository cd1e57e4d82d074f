"""The settings that are tried: all valid, within the bounds, each neighbour differing in one thing."""

from dataclasses import fields

import pytest

from shared.strategy import StrategySettings
from tokentide.advisor.space import Bounds, OwnLimits, Space, bounds_of


def make_space(**given: int) -> Space:
    values = {"max_places": 100, "max_batch": 64, "max_budget": 2048, "own_places": 32, **given}
    return Space(bounds=Bounds(**values))


def test_the_grid_has_strategies_sizes_budgets_and_modes() -> None:
    grid = make_space().coarse()

    for settings in grid:
        settings.check()
    assert {s.name for s in grid} == {"continuous", "static", "dynamic"}
    running = [s for s in grid if s.name == "continuous"]
    assert {s.max_sequences for s in running} == {100, 64, 32, 16, 8, 4}
    assert {s.token_budget for s in running} == {128, 512, 2048}
    assert {s.chunk_size for s in running} == {0, -1}
    assert {s.admission for s in running} == {"optimistic", "guaranteed"}
    assert {s.batch_size for s in grid if s.name == "static"} == {64, 32, 16, 8, 4}
    assert all(s.release == "stream" for s in grid if s.name != "continuous")
    assert len({s.as_json() for s in grid}) == len(grid)


def test_a_batch_beyond_the_replicas_own_places_says_so() -> None:
    statics = {s.batch_size: s.max_sequences for s in make_space().coarse() if s.name == "static"}

    assert statics[64] == 64
    assert statics[32] is None


@pytest.mark.parametrize("name", ["continuous", "static", "dynamic"])
def test_neighbours_are_valid_within_bounds_and_differ_in_one_thing(name: str) -> None:
    space = make_space()
    along = {"preferred_batch_sizes", "max_sequences"}

    for settings in (s for s in space.coarse() if s.name == name):
        near = space.neighbours(settings, 2.0)
        assert near
        for other in near:
            other.check()
            changed = {
                f.name for f in fields(other) if getattr(other, f.name) != getattr(settings, f.name)
            }
            assert len(changed) == 1 or changed & along
            assert (other.token_budget or 0) <= 2048
            assert max(other.largest_batch, other.max_sequences or 0) <= 100


def test_neighbours_try_whole_prompts_chunks_and_the_other_admission() -> None:
    settings = StrategySettings(token_budget=512, max_sequences=16, chunk_size=0)

    near = make_space().neighbours(settings, 2.0)

    assert {s.chunk_size for s in near} == {0, -1, 256, 128}
    assert {s.max_sequences for s in near} == {16, 8, 32}
    assert "guaranteed" in {s.admission for s in near}


def test_a_batch_that_waits_for_ever_is_not_made_to_wait_less() -> None:
    near = make_space().neighbours(StrategySettings(name="static", max_wait_ms=0), 2.0)

    assert {s.max_wait_ms for s in near} == {0}


def test_bounds_are_what_services_and_load_leave() -> None:
    limits = OwnLimits(worker_sequences=256, own_sequences=64, claim_window=48, step_tokens=0)

    bounds = bounds_of(at_once=100, longest_prompt=4000, limits=limits)

    assert (bounds.max_places, bounds.max_batch, bounds.max_budget) == (100, 48, 8000)


def test_a_worker_that_takes_few_tokens_bounds_the_budget() -> None:
    limits = OwnLimits(worker_sequences=8, own_sequences=64, claim_window=64, step_tokens=300)

    bounds = bounds_of(at_once=100, longest_prompt=4000, limits=limits)

    assert (bounds.max_places, bounds.max_budget) == (8, 300)
    assert all((s.token_budget or 0) <= 300 for s in Space(bounds=bounds).coarse())
