"""The service in docker-compose.yml, and the image that it runs, checked without Docker."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pearl_qdrant.errors import SettingsError
from pearl_qdrant.service.observing import Metrics
from pearl_qdrant.settings import ServerAccess

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "contrib" / "monitoring"

SERVICE_KEYS = {
    "build", "cap_drop", "command", "cpus", "depends_on", "deploy", "entrypoint", "environment", "healthcheck", "image",
    "logging", "mem_limit", "network_mode", "ports", "profiles", "read_only", "restart", "security_opt",
    "stop_grace_period", "tmpfs", "ulimits", "volumes", "working_dir",
}  # fmt: skip
"""Keys of a service that the Compose specification has, as far as they are used here."""


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The parsed file, with its anchors merged."""
    parsed: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return parsed


def ours(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The services that run our image."""
    return {name: one for name, one in compose["services"].items() if "build" in one}


def test_the_file_has_keys_of_the_specification_alone(compose: dict[str, Any]) -> None:
    """A key that Compose does not know would stop it."""
    assert {key for key in compose if not key.startswith("x-")} == {"name", "services", "volumes"}
    for name, service in compose["services"].items():
        assert set(service) <= SERVICE_KEYS, name
        for other, condition in service.get("depends_on", {}).items():
            ends = compose["services"][other]["restart"] == "no"
            assert ends or "healthcheck" in compose["services"][other], name
            assert condition == {"condition": "service_completed_successfully" if ends else "service_healthy"}


def test_our_containers_can_do_little(compose: dict[str, Any]) -> None:
    """Each container of ours has a read-only root file system, no capabilities, and memory for temporary files."""
    assert set(ours(compose)) == {"service", "service-gpu", "ingest", "backup"}
    for name, service in ours(compose).items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["tmpfs"] == ["/tmp"], name
        assert not service.get("privileged"), name
        assert service["logging"]["options"]["max-size"], name


def test_keys_come_as_files(compose: dict[str, Any]) -> None:
    """No key is in the environment of a container; each reads the volume with the keys, which one alone can write."""
    writes = [name for name, one in compose["services"].items() if "keys:/keys" in one["volumes"]]
    assert writes == ["keys"]
    for name, service in ours(compose).items():
        assert service["environment"]["QDRANT_API_KEY_FILE"] == "/keys/qdrant_api_key", name
        assert "QDRANT_API_KEY" not in service["environment"], name
        assert "keys:/keys:ro" in service["volumes"], name
    assert compose["services"]["service"]["environment"]["PEARL_QDRANT_SERVICE_KEYS_FILE"] == "/keys/service_keys"


def test_profiles_start_nothing_by_themselves(compose: dict[str, Any]) -> None:
    """`docker compose up` makes keys, loads a base, and starts Qdrant and one service; the GPU is asked for."""
    profiles = {name: service.get("profiles", []) for name, service in compose["services"].items()}

    assert {name for name, named in profiles.items() if not named} == {"keys", "qdrant", "service", "ingest"}
    assert {name for name, named in profiles.items() if named == ["metrics"]} == {"prometheus", "grafana"}
    assert (profiles["service-gpu"], profiles["backup"]) == (["gpu"], ["backup"])
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert len({re.sub(r"\$\{\w+:-(\d+)\}", r"\1", port).split(":")[1] for port in ports}) == len(ports)
    assert compose["services"]["ingest"]["restart"] == "no"
    (device,) = compose["services"]["service-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


def test_the_metrics_of_the_dashboard_exist(compose: dict[str, Any]) -> None:
    """Prometheus asks service and server with the keys; each graph is of a metric that there is."""
    asked = yaml.safe_load((MONITORING / "prometheus.yml").read_text("utf-8"))["scrape_configs"]
    for one in asked:
        (target,) = one["static_configs"][0]["targets"]
        assert target.partition(":")[0] in compose["services"]
        assert one["authorization"]["credentials_file"].startswith("/keys/")
    assert "allowed_hosts=service" in compose["services"]["service"]["command"]
    dashboard = json.loads((MONITORING / "dashboard.json").read_text("utf-8"))
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    measured = Metrics().text().decode()
    for name in re.findall(r"pearl_qdrant_\w+", " ".join(shown)):
        assert f"# HELP {name.removesuffix('_total').removesuffix('_bucket')}" in measured, name


def test_commands_of_the_containers_are_ours(compose: dict[str, Any]) -> None:
    """The options and settings that containers get exist."""
    from click.testing import CliRunner

    from pearl_qdrant.cli import cli
    from pearl_qdrant.service.settings import read_settings

    shown = CliRunner().invoke(cli, ["serve", "--help"]).output
    command = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word) for word in compose["services"]["service"]["command"]]
    assert command[0] == "serve"
    assert all(word in shown for word in command if word.startswith("--"))
    assert read_settings({}, [command[command.index("--set") + 1]]).allow_writing is False
    compile(compose["services"]["backup"]["entrypoint"][2], "backup", "exec")
    entry = compose["services"]["ingest"]["entrypoint"]
    assert entry == ["pearl-qdrant", "ingest"]
    example = ROOT / "examples" / re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", compose["services"]["ingest"]["command"][0])
    assert example.exists()


def test_the_key_of_the_server_may_be_in_a_file(tmp_path: Path) -> None:
    """A key is read from a file of one line; the variable comes first; another file is an error that names it."""
    path = tmp_path / "key"
    path.write_text("secret-of-a-file\n", encoding="utf-8")
    environment = {"QDRANT_API_KEY_FILE": str(path)}

    assert ServerAccess.from_environment(environment).api_key == "secret-of-a-file"
    assert ServerAccess.from_environment({**environment, "QDRANT_API_KEY": "first"}).api_key == "first"
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(SettingsError, match="must have one line"):
        ServerAccess.from_environment(environment)
    with pytest.raises(SettingsError, match="cannot be read"):
        ServerAccess.from_environment({"QDRANT_API_KEY_FILE": str(tmp_path / "none")})


def steps() -> list[list[tuple[str, str]]]:
    """Instructions of the Dockerfile with their arguments, a list for each stage; arguments before it come first."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text("utf-8"))
    stages: list[list[tuple[str, str]]] = [[]]
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stages.append([])
        stages[-1].append((word, rest))
    return stages


def of(stage: list[tuple[str, str]], word: str) -> list[str]:
    """Arguments of one kind of instruction."""
    return [rest for name, rest in stage if name == word]


def test_the_image_runs_without_root() -> None:
    """The last stage is slim, has what was built alone, runs as a user by number, and asks for its health."""
    _, build, last = steps()

    assert of(build, "FROM")[0].endswith("-slim AS build")
    assert of(last, "FROM")[0].endswith("-slim")
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", of(last, "USER")[0])
    assert of(last, "COPY") == ["--from=build /venv /venv"]
    (health,) = of(last, "HEALTHCHECK")
    assert "/health/live" in health
    assert not re.search(r"\b(curl|wget)\b", health)
    assert not re.search(r"\b(apt-get|ADD)\b", " ".join(rest for _, rest in last))
    allowed = "FROM ARG RUN COPY ENV WORKDIR USER EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD".split()
    assert {word for stage in steps() for word, _ in stage} <= {*allowed}


def test_the_image_is_built_from_files_that_exist() -> None:
    """Each file that is copied exists and passes .dockerignore, which leaves everything else out."""
    _, build, _ = steps()
    rules = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line and line[0] != "#"]
    copied = {name for rest in of(build, "COPY") for name in rest.split()[:-1]}

    assert rules[0] == "*"
    assert {f"!{name}" for name in copied} == {rule for rule in rules if rule.startswith("!")}
    assert all((ROOT / name).exists() for name in copied)


def json_of(text: str) -> list[str]:
    """A command in the form of a JSON list."""
    found: list[str] = yaml.safe_load(text[text.index("[") :])
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The steps of the first stage, run as a script in a clean folder in place of the root folder."""
    root = tmp_path_factory.mktemp("image")
    _, build, _ = steps()
    here = root
    python = [sys.executable, "-m", "venv", "--without-pip", str(root / "python")]
    variables: dict[str, str] = {}
    subprocess.run(python, check=True)
    for word, rest in build:
        if word == "ARG":
            name, _, value = rest.partition("=")
            variables[name] = value
        elif word == "WORKDIR":
            here = root / rest.lstrip("/")
            here.mkdir(parents=True)
        elif word == "COPY":
            *names, to = rest.split()
            for name in names:
                target = here / (name if to == "./" else to)
                left_out = shutil.ignore_patterns("__pycache__", "*.pyc")
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, target, ignore=left_out)
                else:
                    shutil.copy(ROOT / name, target)
        elif word == "RUN":
            script = re.sub(r"(?<![\w.])/(venv|wheels)\b", rf"{root}/\1", rest)
            script = re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", script)
            command, environment = ["sh", "-euc", script], {**os.environ, **variables}
            done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return root


@pytest.fixture
def container(built: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """The entry point of the last stage with its variables, started from a folder that cannot be written."""
    _, _, last = steps()
    variables = dict(rest.split("=", 1) for rest in of(last, "ENV"))
    path = f"{built}/venv/bin{os.pathsep}{os.environ['PATH']}"
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    variables |= {"PATH": path, "PEARL_QDRANT_PORT": port, "PEARL_QDRANT_HOST": "127.0.0.1", "HOME": str(tmp_path)}
    for name in ("XDG_CACHE_HOME", "PEARL_QDRANT_STORE"):
        variables[name] = str(tmp_path) + variables[name]
    command = [*json_of(of(last, "ENTRYPOINT")[0]), *json_of(of(last, "CMD")[0])]
    executable = shutil.which(command[0], path=path)
    assert executable == f"{built}/venv/bin/pearl-qdrant"
    process = subprocess.Popen([executable, *command[1:]], env=variables, cwd=tmp_path)
    try:
        yield process, variables
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_the_steps_of_the_image_make_a_service(
    built: Path, container: tuple[subprocess.Popen[bytes], dict[str, str]]
) -> None:
    """The wheel is built and installed as the Dockerfile says; the service starts, is healthy, shows its page, ends."""
    import httpx

    process, variables = container
    _, _, last = steps()
    (health,) = of(last, "HEALTHCHECK")
    check = json_of(health.partition(" CMD ")[2])
    while subprocess.run(check, env=variables, capture_output=True, check=False).returncode != 0:
        assert process.poll() is None, "the service ended"
        time.sleep(0.2)

    answer = httpx.get(f"http://127.0.0.1:{variables['PEARL_QDRANT_PORT']}/")
    assert answer.status_code == 200
    assert "pearl-qdrant" in answer.text
    assert list(built.glob("venv/lib/python3*/site-packages/pearl_qdrant/encoder/models/*/onnx/model.onnx"))
    assert not list(built.glob("venv/lib/python3*/site-packages/torch"))
    stop = getattr(signal, of(last, "STOPSIGNAL")[0])
    process.send_signal(stop)
    assert process.wait(timeout=300) in (0, -stop)  # uvicorn ends by the signal itself, once all is answered
    assert subprocess.run(check, env=variables, capture_output=True, check=False).returncode != 0
