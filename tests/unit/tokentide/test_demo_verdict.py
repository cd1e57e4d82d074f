import io

import pytest
from rich.console import Console

from tokentide.demo_prompts import DemoPrompt
from tokentide.demo_round import Talk
from tokentide.demo_verdict import Killed, is_equal, longest_pauses_s, verdict, verdicts_table

KILLED = (Killed("scheduler-1", 2.0), Killed("worker-0", 5.0))


def make_talk(name: str = "paris", *ids: int, text: str = "", arrivals_s: tuple = ()) -> Talk:
    talk = Talk(DemoPrompt(name, "Write.", 20), text=text, arrivals_s=list(arrivals_s))
    talk.token_ids += ids
    return talk


@pytest.mark.parametrize(
    "changed",
    [
        make_talk("paris-2", 1, 2, text="a b"),
        make_talk("paris-2", 1, 3, text="a c"),
        make_talk("paris-2", 1, 3, text="a"),
        make_talk("paris-2", 1, text="a b"),
    ],
    ids=["equal", "both", "an id", "too short"],
)
def test_an_answer_is_equal_if_all_its_ids_and_its_text_are(changed):
    is_same = changed.token_ids == [1, 2] and changed.text == "a b"

    assert is_equal(make_talk("paris", 1, 2, text="a b"), changed) is is_same


def drawn(pairs: list[tuple[Talk, Talk]], killed: tuple[Killed, ...] = KILLED) -> list[str]:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(verdicts_table(pairs, killed))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(
    ("arrivals_s", "longest_s"),
    [
        ((0.0, 1.0, 1.5), [1.0, 0.0, 0.0]),
        ((1.5, 2.5, 4.75, 5.5), [0.0, 2.25, 0.75]),
        ((1.5, 8.0), [0.0, 0.0, 6.5]),
        ((), [0.0, 0.0, 0.0]),
    ],
    ids=["before", "each", "over both", "no token"],
)
def test_a_pause_is_put_down_to_the_last_kill_before_it_ended(arrivals_s, longest_s):
    assert longest_pauses_s(make_talk(arrivals_s=arrivals_s), KILLED) == longest_s


def test_the_verdict_tells_of_each_kill_how_long_it_held_answers_up():
    same = (make_talk("paris", 1, 2), make_talk("paris-2", 1, 2, arrivals_s=(1.0, 3.5, 6.0)))
    other = (make_talk("haiku", 1, 2), make_talk("haiku-2", 1, 3, arrivals_s=(1.0, 2.5)))

    rows = [line.split() for line in drawn([same, other])]

    assert rows[1] == [
        *("request", "tokens", "before", "scheduler-1", "killed", "worker-0", "killed", "answer")
    ]
    assert rows[2] == ["paris-2", "2", "-", "2.50", "s", "2.50", "s", "equal"]
    assert rows[3] == ["haiku-2", "2", "-", "1.50", "s", "-", "DIFFERENT"]
    assert verdict([same], KILLED) == [
        "all 1 answers equal the undisturbed ones",
        "after kill -9 scheduler-1: longest pause 2.50 s (paris-2)",
        "after kill -9 worker-0: longest pause 2.50 s (paris-2)",
    ]
    assert verdict([same, other], ()) == ["1 of 2 answers DIFFER from the undisturbed ones"]
