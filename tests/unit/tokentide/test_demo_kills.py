from shared.types import BlockCounts
from tokentide.client import Chunk
from tokentide.commands.readings import Scheduled, Step
from tokentide.demo_kills import Kills
from tokentide.demo_prompts import DemoPrompt
from tokentide.demo_round import Talk

NAMES = ("paris", "haiku", "story")
NUM_EACH = 20


class Round:
    """Three answers of twenty tokens: two on worker-0, one on worker-1. What is killed is noted."""

    def __init__(self) -> None:
        self.talks = {name: make_talk(name) for name in NAMES}
        self.killed: list[tuple[str, str]] = []
        num_expected = NUM_EACH * len(NAMES)
        self.kills = Kills(
            list(self.talks.values()), num_expected, lambda *kill: self.killed.append(kill)
        )

    @property
    def labels(self) -> list[str]:
        return [label for label, _ in self.killed]

    def step(self, scheduler: str, worker: str, *names: str) -> None:
        blocks = BlockCounts(total=9, free=9, cached=0, held=0)
        scheduled = tuple(Scheduled(name, 1, True) for name in names)
        self.kills.on_step(
            scheduler,
            Step(
                worker=worker,
                step_id=1,
                scheduled=scheduled,
                blocks=blocks,
                num_waiting=0,
                num_running=0,
            ),
        )

    def tokens(self, num_tokens: int, *names: str) -> None:
        for name in names:
            take(self.talks[name], *[1] * num_tokens)
            self.kills.on_chunk(self.talks[name])

    def until_the_scheduler_is_killed(self) -> None:
        self.step("scheduler-1", "worker-0", "paris", "haiku")
        self.step("scheduler-0", "worker-1", "story")
        self.tokens(4, *NAMES)


def make_talk(name: str) -> Talk:
    return Talk(DemoPrompt(name, "Write.", NUM_EACH))


def take(talk: Talk, *ids: int) -> None:
    name = talk.prompt.name
    talk.take(Chunk(request_id=name, start_index=talk.num_tokens, token_ids=ids), 1.0)


def test_the_scheduler_of_most_answers_dies_once_all_have_begun_and_a_fifth_is_there():
    a_round = Round()
    a_round.step("scheduler-1", "worker-0", "paris", "haiku")
    a_round.step("scheduler-0", "worker-1", "story")

    a_round.tokens(10, "paris", "haiku")
    assert a_round.killed == []
    a_round.tokens(1, "story")

    said = "it drove worker-0 (paris, haiku); 21 of 60 tokens were out"
    assert a_round.killed == [("scheduler-1", said)]


def test_it_dies_in_the_middle_even_if_one_answer_has_not_begun():
    a_round = Round()
    a_round.step("scheduler-1", "worker-0", "paris", "haiku")

    a_round.tokens(12, "paris", "haiku")

    assert a_round.labels == ["scheduler-1"]


def test_the_worker_dies_once_another_scheduler_drives_it_and_every_answer_goes_on():
    a_round = Round()
    a_round.until_the_scheduler_is_killed()

    a_round.step("scheduler-1", "worker-0", "paris", "haiku")  # from before it died
    a_round.tokens(3, *NAMES)
    assert a_round.labels == ["scheduler-1"]
    a_round.step("scheduler-0", "worker-0", "paris", "haiku")
    a_round.tokens(3, "paris", "haiku")
    assert a_round.labels == ["scheduler-1"]
    a_round.tokens(3, "story")

    assert a_round.labels == ["scheduler-1", "worker-0"]
    assert a_round.killed[1][1] == "it computed paris, haiku; 30 of 60 tokens were out"


def test_before_the_answers_end_the_worker_dies_anyhow():
    a_round = Round()
    a_round.until_the_scheduler_is_killed()

    a_round.tokens(16, "story")
    a_round.talks["story"].end = "length"
    a_round.tokens(9, "paris", "haiku")

    assert a_round.labels == ["scheduler-1", "worker-0"]


def test_nothing_more_dies_and_nothing_that_has_no_answer_to_go_on_with():
    a_round = Round()
    for talk in a_round.talks.values():
        take(talk, *[1] * NUM_EACH)
        talk.end = "length"

    a_round.step("scheduler-1", "worker-0", "paris", "haiku")

    assert a_round.killed == []
