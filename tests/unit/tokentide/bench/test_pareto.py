from tokentide.bench.pareto import pareto_front


def test_those_that_no_other_beats_in_both_are_on_the_front() -> None:
    costs = [(1.0, 9.0), (2.0, 5.0), (3.0, 6.0), (4.0, 1.0), (9.0, 9.0)]

    assert pareto_front(costs) == [0, 1, 3]


def test_better_in_one_and_equal_in_the_other_beats() -> None:
    assert pareto_front([(1.0, 2.0), (1.0, 3.0), (2.0, 2.0)]) == [0]


def test_equals_stand_beside_each_other() -> None:
    assert pareto_front([(1.0, 1.0), (1.0, 1.0)]) == [0, 1]
    assert pareto_front([]) == []
