"""The compose files without an engine: every combination is complete, closed, and speaks our settings' language."""

import re

import pytest
from compose_model import BASE, DEPLOY, OVERRIDES, combinations_of_all, compose_model, variables_of

from scheduler_service.config import SchedulerSettings
from shared.profiles import load_profile
from worker_service.__main__ import STOP_GRACE_S
from worker_service.config import WorkerSettings

SERVICE_KEYS = {
    *("image", "pull_policy", "build", "profiles", "deploy"),
    *("entrypoint", "command", "environment", "secrets", "user", "working_dir"),
    *("volumes", "tmpfs", "networks", "ports", "read_only", "cap_drop", "security_opt"),
    *("init", "pids_limit", "mem_limit", "memswap_limit", "logging"),
    *("healthcheck", "depends_on", "restart", "stop_grace_period"),
}
HEALTH_KEYS = {"test", "interval", "timeout", "retries", "start_period"}
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}

every_combination = pytest.mark.parametrize("which", combinations_of_all(), ids=str)


def seconds(text):
    found = re.fullmatch(r"(\d+)(s|m)", text)
    assert found, text
    return int(found[1]) * {"s": 1, "m": 60}[found[2]]


def settings_of(service, prefix):
    return {
        name: value for name, value in service["environment"].items() if name.startswith(prefix)
    }


@every_combination
def test_every_key_is_one_that_compose_knows(which):
    model = compose_model(which)

    stray = set(model) - {"services", "networks", "volumes", "secrets"}
    assert all(name.startswith("x-") for name in stray)
    for service in model["services"].values():
        assert set(service) <= SERVICE_KEYS
        assert set(service.get("healthcheck", {})) <= HEALTH_KEYS
        assert "image" in service


@every_combination
def test_everything_that_a_service_names_is_there(which):
    model = compose_model(which)

    for service in model["services"].values():
        assert set(service["networks"]) <= set(model["networks"])
        assert set(service.get("secrets", ())) <= set(model["secrets"])
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if "/" in source else source in model["volumes"]
        if build := service.get("build"):
            assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
        for name, need in service.get("depends_on", {}).items():
            assert need["condition"] in CONDITIONS
            other = model["services"][name]
            assert need["condition"] != "service_healthy" or "healthcheck" in other


@every_combination
def test_containers_are_closed(which):
    model = compose_model(which)

    for name, service in model["services"].items():
        assert service["init"] is service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert any(mount.startswith("/tmp") for mount in service["tmpfs"])
        assert service["pids_limit"] and service["mem_limit"]
        assert service["memswap_limit"] == service["mem_limit"]
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}
        assert name == "scheduler" or "ports" not in service
    assert model["networks"]["inside"] == {"internal": True}
    assert all(port.startswith("127.0.0.1:") for port in model["services"]["scheduler"]["ports"])


@pytest.mark.parametrize("name", ["scheduler", "worker"])
def test_images_run_as_a_user_of_their_own(name):
    lines = (DEPLOY / f"{name}.Dockerfile").read_text().splitlines()
    last_stage = max(n for n, line in enumerate(lines) if line.startswith("FROM"))

    assert "USER 10001:10001" in lines[last_stage:]


@every_combination
def test_the_settings_are_ours(which):
    """A variable of an unknown name, or a value that a service refuses, would be seen only when it starts."""
    services = compose_model(which)["services"]

    SchedulerSettings.read([], settings_of(services["scheduler"], "TOKENTIDE_SCHEDULER_"))
    flags = services["worker"]["command"]
    worker = WorkerSettings.read(flags, settings_of(services["worker"], "TOKENTIDE_WORKER_"))

    assert load_profile(worker.simulate) if worker.simulate else worker.model == "packaged"


@every_combination
def test_a_service_has_the_time_to_hand_over(which):
    services = compose_model(which)["services"]
    scheduler = SchedulerSettings.read(
        [], settings_of(services["scheduler"], "TOKENTIDE_SCHEDULER_")
    )

    for name, drain_s in (("scheduler", scheduler.drain_s), ("worker", 10.0)):
        grace_s = seconds(services[name]["stop_grace_period"])
        assert grace_s > drain_s + 2 * STOP_GRACE_S + 1


def test_a_gpu_is_reserved_as_compose_wants_it():
    gpu = next(which for which in combinations_of_all() if "compose.gpu.yaml" in which.files)
    (device,) = compose_model(gpu)["services"]["worker"]["deploy"]["resources"]["reservations"][
        "devices"
    ]

    assert device["capabilities"] == ["gpu"]
    assert ("count" in device) != ("device_ids" in device)


def test_every_variable_has_a_default_and_stands_in_the_list():
    written = dict(re.findall(r"^#?([A-Z_]+)=(.*)$", (DEPLOY / ".env").read_text(), re.MULTILINE))
    used = variables_of((BASE, *OVERRIDES))

    assert set(used) == set(written) - {"COMPOSE_PROJECT_NAME"}
    for name, defaults in used.items():
        assert written[name] in defaults, name


def test_variables_reach_the_services():
    which = combinations_of_all()[0]
    given = {
        "TOKENTIDE_MODELS": "/srv/models",
        "TOKENTIDE_MODEL": "/models/mine",
        "TOKENTIDE_PORTS": "6000-6009",
        "TOKENTIDE_KV_MEMORY": "2GiB",
    }

    services = compose_model(which, given)["services"]

    assert services["worker"]["volumes"] == ["/srv/models:/models:ro"]
    assert services["scheduler"]["ports"] == ["127.0.0.1:6000-6009:50051"]
    worker = WorkerSettings.read(services["worker"]["command"], {})
    assert (worker.model, worker.kv_memory) == ("/models/mine", 2 << 30)
