"""What a worker counts of its steps: the one that runs, what has ended, what still waits for more.

Values only: times are given by the caller. Knows nothing of drivers and plans to come.
"""

from dataclasses import replace

from shared.types import BatchPlan, BlockCounts, StepResult, WorkerHeartbeat

HUNG_FACTOR = 10  # times what a plan predicted


class StepAccount:
    def __init__(self, blocks: BlockCounts) -> None:
        self.last_step_id = 0
        self.running_step_id = 0  # 0: none runs
        self.last_blocks = blocks
        self.num_steps = 0
        self.num_sampled_tokens = 0
        self._unfinished: set[int] = set()  # handles
        self._began_s = 0.0
        self._limit_s = 0.0
        self._idle_s = 0.0  # before the running step
        self._ended_s: float | None = None

    @property
    def num_unfinished(self) -> int:
        return len(self._unfinished)

    def begin(self, plan: BatchPlan, now_s: float, hung_s: float) -> None:
        """`hung_s`: a step that runs for longer than this, and than its plan foresaw by far, will never end."""
        self._idle_s = 0.0 if self._ended_s is None else now_s - self._ended_s
        self.running_step_id, self._began_s = plan.step_id, now_s
        self._limit_s = max(hung_s, HUNG_FACTOR * plan.predicted_ns / 1e9)

    def end(self, now_s: float) -> None:
        """Whatever became of it."""
        self.running_step_id, self._ended_s = 0, now_s

    def count(self, plan: BatchPlan, result: StepResult) -> StepResult:
        """The result, with the idle time before its step."""
        timings = replace(result.timings, idle_ns=int(self._idle_s * 1e9))
        result = replace(result, timings=timings, idle_with_work=bool(self._unfinished))
        self.last_step_id, self.last_blocks = plan.step_id, result.blocks
        self.num_steps += 1
        self._unfinished.difference_update(r.handle for r in plan.releases)
        refused = {r.handle for r in result.refusals}
        self._unfinished.update(a.handle for a in plan.admissions if a.handle not in refused)
        for row in result.rows:
            self.num_sampled_tokens += len(row.sampled_ids)
            if row.finish is not None:
                self._unfinished.discard(row.handle)
        return result

    def running_age_ms(self, now_s: float) -> int:
        return int((now_s - self._began_s) * 1e3) if self.running_step_id else 0

    def heartbeat(self, now_s: float) -> WorkerHeartbeat:
        return WorkerHeartbeat(
            last_step_id=self.last_step_id,
            running_step_id=self.running_step_id,
            running_step_age_ms=self.running_age_ms(now_s),
        )

    def running_too_long(self, now_s: float) -> str:
        """What to say of a step that will never end; empty while none is like that."""
        age_s = now_s - self._began_s
        if not self.running_step_id or age_s <= self._limit_s:
            return ""
        return f"step {self.running_step_id} has run for {age_s:.0f} s"

    def start_anew(self, blocks: BlockCounts) -> None:
        self._unfinished.clear()
        self.last_step_id, self.last_blocks = 0, blocks
