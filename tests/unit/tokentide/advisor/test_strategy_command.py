"""The command line that is printed sets what was found, and nothing else."""

import shlex

import pytest
from typer.testing import CliRunner

from shared.strategy import QueuePolicy, StrategySettings
from tokentide import cli
from tokentide.advisor.strategy_command import short_text, strategy_command
from tokentide.commands import strategy as strategy_commands

SETTINGS = [
    StrategySettings(),
    StrategySettings(token_budget=256, max_sequences=16, chunk_size=-1, admission="guaranteed"),
    StrategySettings(name="static", batch_size=16, max_wait_ms=500, release="stream"),
    StrategySettings(
        name="dynamic",
        preferred_batch_sizes=(4, 8),
        max_queue_delay_ms=50,
        preserve_ordering=True,
        default_queue_policy=QueuePolicy(timeout_action="delay", default_timeout_ms=500),
        priority_queue_policy={
            1: QueuePolicy(max_queue_size=10),
            2: QueuePolicy(allow_timeout_override=True),
        },
    ),
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings.name)
def test_it_sets_what_was_found(settings, monkeypatch) -> None:
    seen = []

    def set_strategy(name, *, endpoints, as_json, options):
        seen.append((endpoints, strategy_commands.settings_of(name, options)))
        return 0

    monkeypatch.setattr(strategy_commands, "set_strategy", set_strategy)

    words = shlex.split(strategy_command(settings, "host:7"))
    result = CliRunner().invoke(cli.app, words[1:])

    assert words[0] == "tokentide"
    assert result.exit_code == 0, result.output
    assert seen == [("host:7", settings)]


def test_short_texts_say_what_is_not_the_default() -> None:
    assert short_text(SETTINGS[0]) == "continuous"
    assert (
        short_text(SETTINGS[1]) == "continuous, guaranteed, whole prompts, 16 at once, budget 256"
    )
    assert short_text(SETTINGS[2]) == "static 16, wait 500 ms, streamed"
    assert short_text(SETTINGS[3]).startswith("dynamic 8, ")
