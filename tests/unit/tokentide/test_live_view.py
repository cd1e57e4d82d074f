"""What the views show, drawn to a string."""

import io

from rich.console import Console, RenderableType

from shared.types import BlockCounts, MemoryStats, StepTimings, WorkerStats
from tokentide.commands.readings import Loads, Scheduled, Step, Totals, WorkerReading
from tokentide.live_view import (
    StackView,
    blocks_bar,
    loads_line,
    short_name,
    step_line,
    why_not,
)


def make_step(**changes: object) -> Step:
    values = {
        "worker": "worker-0",
        "step_id": 7,
        "scheduled": (Scheduled("tides", 185, False), Scheduled("haiku", 1, True)),
        "blocks": BlockCounts(total=100, free=60, cached=10, held=30),
        "num_waiting": 4,
        "num_running": 2,
        "timings": StepTimings(total_ns=184_000_000),
    }
    return Step(**(values | changes))


def make_loads(
    *, replica_id: str = "scheduler-0", num_sampled: int = 0, **changes: object
) -> Loads:
    stats = WorkerStats(
        incarnation="i",
        epoch=1,
        driver="scheduler-0",
        last_step_id=9,
        running_step_id=0,
        running_step_age_ms=0,
        num_sequences=2,
        blocks=BlockCounts(total=100, free=60, cached=10, held=30),
        memory=MemoryStats(process_bytes=900 * 2**20, kv_bytes=256 * 2**20),
        num_steps=9,
        num_sampled_tokens=num_sampled,
    )
    worker = WorkerReading(
        name="worker-0", address="127.0.0.1:50061", driven_here=True, stats=stats
    )
    values = {
        "model": "tiny",
        "num_waiting": 3,
        "num_running": 2,
        "num_waiting_tokens": 120,
        "num_streams": 5,
        "num_replicas": 1,
        "strategy": "continuous",
        "serving": True,
        "totals": Totals(),
        "workers": (worker,),
    }
    return Loads(replica_id=replica_id, **(values | changes))


def drawn(renderable: RenderableType, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_step_line_tells_chunks_from_decodes_and_shows_blocks_and_queue():
    line = step_line(make_step()).plain

    assert line == (
        "step    7   184 ms | blocks 60 free 10 cached 30 held | queue 4 |"
        " chunk tides +185 decode 1: haiku"
    )


def test_a_step_line_names_the_preempted_and_shortens_drawn_ids():
    line = step_line(make_step(preempted=("0123456789abcdef",))).plain

    assert line.endswith(" preempted 01234567")
    assert short_name("planets") == "planets"


def test_a_large_batch_is_counted_beyond_its_first_names():
    decodes = tuple(Scheduled(f"r{number}", 1, True) for number in range(20))

    line = step_line(make_step(scheduled=decodes)).plain

    assert "decode 20: r0 r1 r2 r3 r4 r5 r6 r7 and 12 more" in line


def test_the_bar_has_the_width_asked_for_and_a_cell_for_everything_that_is_there():
    full = blocks_bar(BlockCounts(total=100, free=0, cached=1, held=99), width=10)
    nearly_empty = blocks_bar(BlockCounts(total=1000, free=998, cached=1, held=1), width=10)

    assert len(full) == len(nearly_empty) == 10
    assert nearly_empty.plain == "█▒········"
    assert blocks_bar(BlockCounts(total=0, free=0, cached=0, held=0), width=10).plain == "·" * 10


def test_before_the_first_reading_the_view_says_that_it_waits():
    assert "waiting for the first reading" in drawn(StackView().render())


def test_the_view_shows_queue_worker_blocks_rate_and_steps():
    view = StackView()
    view.on_loads(make_loads(num_sampled=100), now_s=10.0)
    view.on_loads(make_loads(num_sampled=150), now_s=12.0)
    view.on_step(make_step())

    shown = drawn(view.render())

    assert "serving tiny" in shown
    assert "queue 3 (120 tokens)" in shown
    assert "generated 25.0 tokens/s" in shown
    assert "worker-0 127.0.0.1:50061  driven by scheduler-0  step 9  live 2" in shown
    assert "blocks 60 free 10 cached 30 held" in shown
    assert "memory 900 MiB, of it cache 256 MiB" in shown
    assert "chunk tides +185" in shown


def test_what_a_worker_brings_along_is_no_rate():
    view = StackView()
    view.on_loads(make_loads(replica_id="a", num_sampled=0, workers=()), now_s=10.0)
    view.on_loads(make_loads(replica_id="b", num_sampled=2795), now_s=10.1)
    view.on_loads(make_loads(replica_id="a", num_sampled=2995), now_s=11.0)
    assert view.generated_per_s == "200.0"

    view.on_loads(make_loads(replica_id="b", num_sampled=2895), now_s=12.0)  # heard before
    view.on_loads(make_loads(replica_id="a", num_sampled=3195), now_s=12.0)
    assert view.generated_per_s == "200.0"


def test_a_replica_that_begins_anew_does_not_lower_the_rate_of_prompts():
    view = StackView()
    for now_s, num_steps, num_prompt in ((10.0, 9, 900), (11.0, 10, 1000), (12.0, 1, 50)):
        totals = Totals(num_steps=num_steps, num_prompt_tokens=num_prompt)
        view.on_loads(make_loads(totals=totals), now_s=now_s)
    assert view.prompt_per_s == "50.0"

    view.on_loads(make_loads(totals=Totals(num_steps=2, num_prompt_tokens=150)), now_s=13.0)
    assert view.prompt_per_s == "66.7"


def test_a_replica_that_does_not_serve_says_why_as_far_as_it_is_known():
    view = StackView()
    view.on_loads(make_loads(replica_id="a", serving=False), now_s=0.0)
    view.on_loads(make_loads(replica_id="b"), now_s=0.1)
    assert "1 of 2 serving tiny" in drawn(view.render())
    assert "a: the store does not answer, or the replica drains\n" in drawn(view.render())

    unserved = make_loads(replica_id="b", serving=False)
    view.on_loads(unserved, now_s=0.2)
    assert drawn(view.render()).startswith("not serving tiny")
    said = "not serving (the store does not answer, or the replica drains) tiny | queue"
    assert loads_line(view, unserved).startswith(said)
    assert why_not(make_loads(serving=False, workers=())) == "no worker is there"
    assert why_not(make_loads(serving=False, model="")) == "no worker has been found yet"


def test_requests_that_run_without_a_step_are_told_of():
    view = StackView()
    for now_s in (0.0, 1.0, 4.0):
        view.on_loads(make_loads(), now_s=now_s)
    assert "no step has ended for 4 s\n" in drawn(view.render())
    assert " | no step has ended for 4 s | worker-0" in loads_line(view, make_loads())

    view.on_loads(make_loads(num_running=0), now_s=5.0)
    assert "no step" not in drawn(view.render())


def test_a_replica_that_has_gone_is_not_shown_for_long():
    view = StackView()
    view.on_loads(make_loads(replica_id="a", num_waiting=7), now_s=0.0)
    view.on_loads(make_loads(replica_id="b", num_waiting=3, workers=()), now_s=9.0)

    assert "queue 3" in drawn(view.render())


def test_sums_of_several_replicas_are_added():
    view = StackView()
    busy = Totals(num_steps=2, num_preemptions=3, busy_ns=10, batch_size_ns=20.0)
    view.on_loads(make_loads(replica_id="a", totals=busy), now_s=0.0)
    view.on_loads(make_loads(replica_id="b", totals=busy), now_s=0.0)

    assert view.totals.num_preemptions == 6
    assert view.totals.mean_batch_size == 2.0


def test_a_step_without_anybody_in_it_is_not_shown():
    view = StackView()
    view.on_loads(make_loads(), now_s=0.0)

    view.on_step(make_step(scheduled=()))

    assert "last steps" not in drawn(view.render())


def test_a_plain_line_says_the_same_without_a_control_character():
    view = StackView()
    loads = make_loads()
    view.on_loads(loads, now_s=0.0)

    line = loads_line(view, loads)

    assert line.isprintable()
    assert line.startswith("serving tiny | queue 3 running 2 streams 5")
    assert line.endswith("worker-0 step 9 blocks 60 free 10 cached 30 held")


def large_stack() -> StackView:
    """Numbers as long as they get."""
    blocks = BlockCounts(total=123456, free=98765, cached=12345, held=12346)
    names = (Scheduled("tides", 185, False), *(Scheduled(f"r{n}", 1, True) for n in range(12)))
    view = StackView()
    view.on_loads(
        make_loads(
            model="SmolLM2-135M-Instruct",
            num_waiting=12345,
            num_waiting_tokens=1234567,
            num_running=256,
            totals=Totals(num_preemptions=12345, num_recomputed_tokens=1234567),
        ),
        now_s=0.0,
    )
    view.on_step(make_step(step_id=12345, blocks=blocks, num_waiting=1234, scheduled=names))
    view.on_step(make_step(step_id=12346, blocks=blocks, preempted=("mail",), scheduled=names))
    return view


def test_at_80_columns_no_line_is_broken_and_a_step_still_says_who_was_in_it():
    lines = drawn(large_stack().render(), width=80).splitlines()

    assert all(len(line) <= 80 for line in lines)
    assert len(lines) == 4 + 3 + 5  # head, worker, panel of two steps: none wrapped
    shown = [line.strip("│ ").split() for line in lines]
    assert shown[8] == ["worker", "step", "ms", "free", "cached", "held", "queue", "who"]
    numbers = ["12345", "184", "98765", "12345", "12346", "1234"]
    assert shown[9] == ["worker-0", *numbers, "chunk", "tides", "+185", "decode", "…"]
    assert shown[10][7:9] == ["preempted", "mail"]
    assert not any("…" in line for line in lines[:7])
