"""What lasts is said seldom."""

from shared.seldom import MAX_TEXTS, Seldom


def test_the_same_is_said_again_only_after_a_while() -> None:
    seldom = Seldom(every_s=60.0)

    assert [seldom.is_due("away", at_s) for at_s in (0.0, 1.0, 59.0, 60.0, 61.0)] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert seldom.is_due("back", 61.0)


def test_it_does_not_grow_without_end() -> None:
    seldom = Seldom()
    said = [seldom.is_due(f"text {number}", 0.0) for number in range(3 * MAX_TEXTS)]

    assert all(said)
    assert len(seldom._said_s) <= MAX_TEXTS
