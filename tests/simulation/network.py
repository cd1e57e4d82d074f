"""Links and calls between simulated processes: seeded delays, in order, and broken when a side dies."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from witness import StoreWitness

from shared.errors import StoreUnavailable
from shared.types import BatchPlan


class Life:
    """A process that can be killed: its tasks end, its links break, calls to it fail."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_held = False
        self.repeats_plans = False  # of a path: each plan arrives twice
        self.failures: list[str] = []
        self._goes_on = asyncio.Event()
        self._resumes: list[Callable[[], None]] = []
        # Dictionaries for their order: a set's depends on addresses, and a seed must replay.
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._links: dict[SimLink, None] = {}

    def hold(self) -> None:
        """Stopped, or cut off: what it sends and what is sent to it arrives when it goes on."""
        self.is_held = True

    def go_on(self) -> None:
        self.is_held = False
        self._goes_on.set()
        self._goes_on = asyncio.Event()
        resumes, self._resumes = self._resumes, []
        for resume in resumes:
            resume()

    def when_going(self, resume: Callable[[], None]) -> None:
        self._resumes.append(resume)

    async def wait_going(self) -> None:
        while self.is_held:
            await self._goes_on.wait()

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self.tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)
        if self.is_alive and not task.cancelled() and task.exception() is not None:
            self.failures.append(repr(task.exception()))  # a real process would end

    def own(self, link: "SimLink") -> None:
        self._links[link] = None
        link.life = self

    def reset_links(self) -> None:
        """As if something between had reset every connection."""
        links, self._links = self._links, {}
        for link in links:
            link.close()

    async def kill(self) -> None:
        """Like kill -9: nothing that the dying code still does reaches anyone."""
        self.is_alive = False
        self.reset_links()
        tasks = [t for t in self.tasks if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SimLink:
    """One end of a two-way stream."""

    def __init__(self, rng: random.Random, max_delay_s: float) -> None:
        self._rng = rng
        self._max_delay_s = max_delay_s
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()
        self._arrives_s = 0.0
        self._is_broken = False
        self._held: list[Any] = []
        self.peer: SimLink
        self.life: Life | None = None  # whose end it is; None: a client's
        self.path: Life | None = None  # what may be cut between the two, though both live

    async def send(self, message: Any) -> None:
        if self._is_broken:
            raise ConnectionError("the link is broken")
        loop = asyncio.get_running_loop()
        # In order: never before the message sent before it.
        at_s = max(
            self.peer._arrives_s + 1e-6, loop.time() + self._rng.random() * self._max_delay_s
        )
        self.peer._arrives_s = at_s
        is_repeated = self.path is not None and self.path.repeats_plans and is_plan(message)
        arrive = self.peer._arrive_twice if is_repeated else self.peer._arrive
        loop.call_at(at_s, arrive, message)

    def _arrive_twice(self, message: Any) -> None:
        self._arrive(message)
        self._arrive(message)

    def _arrive(self, message: Any) -> None:
        parts = (self.life, self.peer.life, self.path)
        held = next((part for part in parts if part is not None and part.is_held), None)
        if held is not None or self._held:
            self._held.append(message)
            if held is not None and len(self._held) == 1:
                held.when_going(self._release)
            return
        if not self._is_broken:
            self._inbox.put_nowait(message)

    def _release(self) -> None:
        """In the order in which they came."""
        waiting, self._held = self._held, []
        for message in waiting:
            self._arrive(message)

    async def receive(self) -> Any:
        if self._is_broken and self._inbox.empty():
            return None
        return await self._inbox.get()

    def close(self) -> None:
        """This side leaves; the other one learns of it after a while."""
        self._break()
        loop = asyncio.get_running_loop()
        loop.call_later(self._rng.random() * self._max_delay_s, self.peer._break)

    def _break(self) -> None:
        if not self._is_broken:
            self._is_broken = True
            self._inbox.put_nowait(None)


def is_plan(message: Any) -> bool:
    return isinstance(message, BatchPlan)


def link_pair(
    rng: random.Random, max_delay_s: float, path: Life | None = None
) -> tuple[SimLink, SimLink]:
    one, other = SimLink(rng, max_delay_s), SimLink(rng, max_delay_s)
    one.peer, other.peer = other, one
    one.path = other.path = path
    return one, other


READING = ("read_logs", "read_payload")
DOORS = ("submit", "cancel", "watch", "refresh_watches", "unwatch")


class Lane:
    """One connection: calls arrive in the order in which they were sent, answers likewise."""

    def __init__(self, rng: random.Random, max_delay_s: float) -> None:
        self._rng = rng
        self._max_delay_s = max_delay_s
        self._arrives_s = self._answered_s = 0.0

    async def send(self) -> None:
        self._arrives_s = self._after(self._arrives_s)
        await _sleep_until(self._arrives_s)

    async def answer(self) -> None:
        self._answered_s = self._after(self._answered_s)
        await _sleep_until(self._answered_s)

    def _after(self, previous_s: float) -> float:
        now_s = asyncio.get_running_loop().time()
        return max(previous_s + 1e-6, now_s + self._rng.random() * self._max_delay_s)


async def _sleep_until(at_s: float) -> None:
    await asyncio.sleep(at_s - asyncio.get_running_loop().time())


class RemoteStore:
    """The store behind a network, over three connections as `RedisStore` has them. A caller that dies
    between does not learn what became of its call. The witness sees each call when it happens."""

    def __init__(
        self, model: Any, rng: random.Random, max_delay_s: float, life: Life, witness: StoreWitness
    ) -> None:
        self._model = model
        self._life = life
        self._rng = rng
        self._witness = witness
        self._num_connections = 0  # so far, less one
        self._driving, self._doors, self._reading = (Lane(rng, max_delay_s) for _ in range(3))
        self._is_reachable = True
        self._tell_lost: list[Callable[[], None]] = []
        self.loss = 0.0  # share of the calls that are lost, half of them only after they happened

    @property
    def is_reachable(self) -> bool:
        return self._is_reachable

    @is_reachable.setter
    def is_reachable(self, is_reachable: bool) -> None:
        self._is_reachable = is_reachable
        if not is_reachable:
            self.lose_connection()

    def on_connection_lost(self, tell: Callable[[], None]) -> None:
        self._tell_lost.append(tell)

    def lose_connection(self) -> None:
        self._num_connections += 1
        for tell in self._tell_lost:
            tell()

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._model, name)
        if name in ("doorbells", "close"):
            return call
        is_door = name in DOORS
        lane = self._doors if is_door else self._reading if name in READING else self._driving

        async def remote(*args: Any) -> Any:
            # Shielded: once sent it arrives, maybe much later, whatever has become of its caller.
            return await asyncio.shield(asyncio.ensure_future(self._travel(name, lane, call, args)))

        return remote

    async def _travel(self, name: str, lane: Lane, call: Any, args: tuple[Any, ...]) -> Any:
        connection = self._num_connections
        await lane.send()
        await self._life.wait_going()
        loses_call = bool(self.loss) and self._rng.random() < self.loss / 2
        loses_answer = bool(self.loss) and self._rng.random() < self.loss / 2
        if loses_call or not self.is_reachable:
            raise StoreUnavailable("the store is away")
        try:
            return await self._happen(name, call, args)
        finally:
            await lane.answer()
            await self._life.wait_going()
            is_cut = connection != self._num_connections
            if loses_answer or is_cut or not self.is_reachable:
                raise StoreUnavailable("the answer got lost")

    async def _happen(self, name: str, call: Any, args: tuple[Any, ...]) -> Any:
        answer = await call(*args)
        self._witness.saw(name, args, answer)
        return answer
