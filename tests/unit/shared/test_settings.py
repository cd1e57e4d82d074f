"""Flags > environment > TOML > defaults; unknown keys are errors, in one line."""

import pytest

from scheduler_service.config import SchedulerSettings
from shared.errors import SettingError
from worker_service.config import WorkerSettings


def test_a_flag_wins_over_the_environment_which_wins_over_the_file(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text("[scheduler]\ntoken_budget = 1\nmax_sequences = 2\nchunk_size = 3\n")
    environment = {
        "TOKENTIDE_SCHEDULER_TOKEN_BUDGET": "10",
        "TOKENTIDE_SCHEDULER_MAX_SEQUENCES": "20",
    }

    settings = SchedulerSettings.read(["--config", str(file), "--token-budget", "100"], environment)

    assert (settings.token_budget, settings.max_sequences, settings.chunk_size) == (100, 20, 3)
    assert settings.watermark == 0.02


def test_the_file_may_be_named_in_the_environment(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text("[worker]\nmodel = 'folder'\nkv_memory = '2GiB'\n")

    settings = WorkerSettings.read([], {"TOKENTIDE_CONFIG": str(file)})

    assert (settings.model, settings.kv_memory) == ("folder", 2 * 2**30)


@pytest.mark.parametrize(
    ("arguments", "environment", "file"),
    [
        (["--no-such-flag", "1"], {}, ""),
        ([], {"TOKENTIDE_SCHEDULER_NO_SUCH": "1"}, ""),
        ([], {}, "[scheduler]\nno_such = 1\n"),
        ([], {}, "this is no TOML"),
        (["--token-budget", "0"], {}, ""),
        (["--durability", "hope"], {}, ""),
        (["--config", "/no/such/file"], {}, ""),
    ],
)
def test_what_cannot_be_used_is_one_clear_line(tmp_path, arguments, environment, file):
    if file:
        path = tmp_path / "settings.toml"
        path.write_text(file)
        arguments = [*arguments, "--config", str(path)]

    with pytest.raises(SettingError) as raised:
        SchedulerSettings.read(arguments, environment)

    assert str(raised.value)
    assert "\n" not in str(raised.value)


def test_secrets_are_masked_when_settings_are_printed():
    settings = SchedulerSettings.read(["--redis-url", "redis://:hunter2@localhost"], {})

    assert "hunter2" not in settings.as_json()


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("512MiB", 512 * 2**20), ("2G", 2**31), ("1.5gb", 3 * 2**29), ("1024", 1024)],
)
def test_memory_is_read_with_its_unit(text, num_bytes):
    settings = WorkerSettings.read(["--model", "m", "--kv-memory", text], {})

    assert settings.kv_memory == num_bytes


def test_memory_without_sense_is_refused():
    with pytest.raises(SettingError):
        WorkerSettings.read(["--model", "m", "--kv-memory", "lots"], {})
