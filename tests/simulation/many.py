"""Thousands of seeded histories: `make simulate SEEDS=10000 [FIRST=0]`.

Says how many ran, how fast, which faults they had and which invariants were violated; a seed replays exactly:
`python tests/simulation/many.py --first SEED --seeds 1`.
"""

import argparse
import logging
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from functools import partial

from schedules import History, judge
from test_simulation import run


async def _history_of(seed: int, faults: Sequence[str]) -> History:
    history = History(seed, faults=faults)
    await history.run()
    return history


def examine(seed: int, faults: Sequence[str] = ()) -> tuple[int, list[str], list[str], int]:
    """Seed, its faults, what was wrong, tokens delivered."""
    try:
        history = run(_history_of(seed, faults))
    except BaseException as error:  # a stream that never ended, or a check of the product itself
        if isinstance(error, KeyboardInterrupt):
            raise
        return seed, [], ["".join(traceback.format_exception(error)[-3:])], 0
    return seed, history.faults, judge(history), history.cluster.auditor.num_delivered


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--faults", nargs="*", default=(), help="these, instead of drawn ones")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    faults: Counter[str] = Counter()
    bad: list[tuple[int, list[str], list[str]]] = []
    num_tokens, started_s = 0, time.monotonic()
    seeds = range(given.first, given.first + given.seeds)
    with multiprocessing.Pool(given.processes) as pool:
        for done, (seed, kinds, wrong, tokens) in enumerate(
            pool.imap_unordered(partial(examine, faults=given.faults), seeds, chunksize=8), start=1
        ):
            faults.update(kinds)
            num_tokens += tokens
            if wrong:
                bad.append((seed, kinds, wrong))
                print(f"seed {seed} ({', '.join(kinds)}):", flush=True)
                print("\n".join(f"  {one}" for one in wrong[:3]), flush=True)
            if done % 500 == 0:
                rate = done / (time.monotonic() - started_s)
                print(f"{done} of {given.seeds}, {rate:.0f} a second, {len(bad)} bad", flush=True)
    took_s = time.monotonic() - started_s
    print(f"{len(bad)} of {given.seeds} histories with violations; {num_tokens} tokens delivered")
    print(f"took {took_s:.0f} s ({given.seeds / took_s:.1f} a second)")
    print("faults, and how often each was drawn:")
    for kind, num in faults.most_common():
        print(f"  {num:6}  {kind}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
