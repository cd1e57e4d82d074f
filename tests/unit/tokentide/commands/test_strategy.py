"""`strategy set|show|clear` against a servicer that only remembers."""

import json
from concurrent import futures

import grpc
import pytest
from typer.testing import CliRunner

from shared.errors import InvalidRequest
from shared.pb import operations_pb2 as pb
from shared.pb import operations_pb2_grpc
from shared.strategy import QueuePolicy, StrategySettings
from shared.wire.strategy import strategy_from_pb, strategy_to_pb
from tokentide.cli import app
from tokentide.commands.errors import CommandError
from tokentide.commands.strategy import settings_of


class RememberingOperations(operations_pb2_grpc.OperationsServicer):
    def __init__(self) -> None:
        self.strategy = pb.Strategy(name="continuous")

    def SetStrategy(self, request, context):
        is_set = request.HasField("strategy")
        self.strategy = request.strategy if is_set else pb.Strategy(name="continuous")
        return pb.SetStrategyReply(strategy=self.strategy)

    def GetStrategy(self, request, context):
        return pb.SetStrategyReply(strategy=self.strategy)


@pytest.fixture
def endpoint():
    server = grpc.server(futures.ThreadPoolExecutor(2))
    operations_pb2_grpc.add_OperationsServicer_to_server(RememberingOperations(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def invoke(*args: str) -> str:
    result = CliRunner().invoke(app, ["strategy", *args])
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_what_is_set_is_shown_until_it_is_cleared(endpoint):
    where = ("--endpoint", endpoint)

    shown = invoke("set", "static", "--batch-size", "4", "--release", "stream", *where)

    assert shown == "static  batch_size=4  release=stream"
    assert json.loads(invoke("show", "--json", *where)) == {
        "name": "static",
        "batch_size": 4,
        "release": "stream",
    }
    assert invoke("clear", *where) == "continuous"
    assert invoke("show", *where) == "continuous"


def test_dynamic_has_lists_and_policies(endpoint):
    shown = invoke(
        *("set", "dynamic", "--preferred-batch-sizes", "4,8", "--endpoint", endpoint, "--json"),
        *("--queue-policy", "timeout_action=delay,default_timeout_ms=500"),
        *("--priority-policy", "1:max_queue_size=10"),
    )

    assert json.loads(shown)["preferred_batch_sizes"] == [4, 8]


@pytest.mark.parametrize(
    "settings",
    [
        StrategySettings(),
        StrategySettings(chunk_size=0, admission="guaranteed", refill_delay_ms=5),
        StrategySettings(name="static", batch_size=3, max_wait_ms=1, max_sequences=9),
        StrategySettings(
            name="dynamic",
            preferred_batch_sizes=(2, 4),
            preserve_ordering=True,
            default_queue_policy=QueuePolicy(default_timeout_ms=5, timeout_action="delay"),
            priority_queue_policy={-1: QueuePolicy(), 3: QueuePolicy(max_queue_size=2)},
        ),
    ],
)
def test_a_message_gives_back_the_settings_it_was_made_of(settings):
    message = pb.Strategy.FromString(strategy_to_pb(settings).SerializeToString())

    assert strategy_from_pb(message) == settings


def test_a_flag_without_effect_is_refused_before_anything_is_called():
    with pytest.raises(InvalidRequest, match="batch_size: has no effect with continuous"):
        settings_of("continuous", {"batch_size": 4})


@pytest.mark.parametrize(
    "options",
    [
        {"preferred_batch_sizes": "4,x"},
        {"default_queue_policy": "reject"},
        {"priority_queue_policy": ["high:max_queue_size=1"]},
    ],
)
def test_a_wrong_form_is_one_line(options):
    with pytest.raises(CommandError, match="as "):
        settings_of("dynamic", options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"priority_queue_policy": ["1:max_queue_size=3", "1:max_queue_size=4"]},
            "priority 1 has two policies",
        ),
        ({"default_queue_policy": "max_queue_size=3,max_queue_size=4"}, "max_queue_size twice"),
    ],
)
def test_what_is_said_twice_is_refused(options, words):
    with pytest.raises(CommandError, match=words):
        settings_of("dynamic", options)
