"""docker-compose.yml, docker-compose.cluster.yml against it, and the image that they run, checked without Docker."""

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
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from source_tree import ROOT, project

import pearl_qdrant
from pearl_qdrant.errors import SettingsError
from pearl_qdrant.service.observing import Metrics
from pearl_qdrant.settings import TESTED_SERVER, ServerAccess


def parse(name: str) -> dict[str, Any]:
    """A file of the top folder, with its anchors merged."""
    parsed: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return parsed


COMPOSE, CLUSTER = parse("docker-compose.yml"), parse("docker-compose.cluster.yml")
"""The file with one server, and that with three."""

SERVICES = COMPOSE["services"]
QDRANT = SERVICES["qdrant"]


def test_one_release_of_qdrant_is_named_which_the_client_accepts() -> None:
    """The version is exact, that of docs and doctor, and within one minor version of the pinned client."""
    pinned = re.search(r"^qdrant-client==(\d+)\.(\d+)\.", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    release = QDRANT["image"].partition("qdrant/qdrant:v")[2]
    major, minor, _ = map(int, release.split("."))

    assert release == TESTED_SERVER
    assert pinned
    assert int(pinned[1]) == major
    assert abs(int(pinned[2]) - minor) <= 1
    for path in (ROOT / "docs").glob("*.md"):
        assert set(re.findall(r"qdrant/qdrant:v([\d.]+)", path.read_text("utf-8"))) <= {release}, path


@pytest.mark.parametrize("file, wanted", [(COMPOSE, {"6333"}), (CLUSTER, {"6333", "6343", "6353"})], ids=["1", "3"])
def test_every_port_is_bound_to_loopback(file: dict[str, Any], wanted: set[str]) -> None:
    """No port is open to the network or taken twice, and the one between nodes is not published."""
    ports = [port for service in file["services"].values() for port in service.get("ports", [])]
    parsed = [re.fullmatch(r"127\.0\.0\.1:(?:\$\{\w+:-)?(\d+)\}?:(\d+)", port) for port in ports]

    assert all(parsed)
    outside, inside = zip(*(match.groups() for match in parsed if match), strict=True)
    assert len(set(outside)) == len(outside)
    assert wanted <= set(outside)
    assert "6335" not in inside
    assert all(service.get("network_mode") != "host" for service in file["services"].values())


def run_command(service: dict[str, Any], keys: Path, replaced: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the command of a container in bash, with another folder for the keys."""
    command = [part.replace("$$", "$").replace("/keys", str(keys)) for part in service["command"]]
    for old, new in replaced.items():
        command = [part.replace(old, new) for part in command]
    return subprocess.run(command, timeout=300, capture_output=True, text=True, check=False)


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="the commands of the containers are bash")


@needs_bash
def test_keys_are_made_once(tmp_path: Path) -> None:
    """The first start makes two keys of 64 digits; a later one leaves them, and those of the user's own."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "service_keys").write_text("mine\n")
    keys = SERVICES["keys"]

    for folder in (tmp_path, tmp_path, own):
        assert run_command(keys, folder, {}).returncode == 0
    made = [(tmp_path / name).read_text() for name in ("qdrant_api_key", "service_keys")]
    assert run_command(keys, tmp_path, {}).returncode == 0

    assert all(re.fullmatch("[0-9a-f]{64}", key) for key in made)
    assert len(set(made)) == 2
    assert [(tmp_path / name).read_text() for name in ("qdrant_api_key", "service_keys")] == made
    assert (own / "service_keys").read_text() == "mine\n"


@needs_bash
def test_qdrant_does_not_start_without_a_key(tmp_path: Path) -> None:
    """The key comes from the file; an empty one, or none, ends the container."""
    shown = {"./entrypoint.sh": "env"}
    assert run_command(QDRANT, tmp_path, shown).returncode != 0
    (tmp_path / "qdrant_api_key").write_text("")
    assert run_command(QDRANT, tmp_path, shown).returncode != 0
    (tmp_path / "qdrant_api_key").write_text("a-key")
    assert "QDRANT__SERVICE__API_KEY=a-key" in run_command(QDRANT, tmp_path, shown).stdout.splitlines()


def test_the_data_survives_the_container() -> None:
    """Qdrant's storage is a named volume, and Qdrant comes back after a restart of the machine."""
    (mount,) = (volume for volume in QDRANT["volumes"] if volume.endswith(":/qdrant/storage"))

    assert mount.split(":")[0] in COMPOSE["volumes"]
    assert QDRANT["restart"] == "unless-stopped"


def example_settings() -> dict[str, str]:
    """The settings of .env.example, those that are commented out included."""
    lines = (ROOT / ".env.example").read_text("utf-8").splitlines()
    found = (re.fullmatch(r"#?([A-Z_]+)=(\S*)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def test_every_setting_of_the_file_stands_in_the_example() -> None:
    """What compose reads from the environment is explained in .env.example, with its default; three servers read the
    same.
    """
    text, of_cluster = ((ROOT / f"docker-compose{name}.yml").read_text("utf-8") for name in ("", ".cluster"))
    defaults = dict(re.findall(r"\$\{([A-Z_]+):-([^}]*)\}", text))
    wanted = set(re.findall(r"\$\{([A-Z_]+)", text))
    also = re.findall(r"\$\{([A-Z_]+)(:[-?][^}]*)\}", of_cluster)

    assert also
    assert set(also) <= {(name, f":-{default}") for name, default in defaults.items()}

    assert wanted == set(defaults)
    assert example_settings() == defaults
    assert "`.env.example`" in (ROOT / "docs" / "operations.md").read_text("utf-8")
    assert ".env" in (ROOT / ".gitignore").read_text("utf-8").splitlines()


@contextmanager
def answering(status: int) -> Iterator[tuple[int, list[str]]]:
    """An HTTP server on loopback that answers with `status`; yields its port and the requested paths."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port, paths
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run_healthcheck(port: int) -> int:
    """Run the command of the healthcheck against another port; returns its exit status."""
    kind, *command = QDRANT["healthcheck"]["test"]
    assert kind == "CMD"
    assert "/127.0.0.1/6333" in command[-1]
    # Compose turns a doubled dollar into one dollar.
    command = [part.replace("/6333", f"/{port}").replace("$$", "$") for part in command]
    return subprocess.run(command, timeout=300, capture_output=True, check=False).returncode


@needs_bash
def test_the_healthcheck_passes_when_qdrant_is_ready() -> None:
    """A server that loads, or does not answer, is not healthy; the image has neither curl nor wget."""
    with answering(200) as (port, paths):
        assert run_healthcheck(port) == 0
    assert paths == ["/readyz"]
    assert run_healthcheck(port) != 0, "nothing listens any more"
    with answering(503) as (port, _):
        assert run_healthcheck(port) != 0
    assert not re.search(r"\b(curl|wget|nc|python\d?)\b", " ".join(QDRANT["healthcheck"]["test"]))


NODES = ("qdrant-1", "qdrant-2", "qdrant-3")

SAME = ("image", "restart", "healthcheck", "stop_grace_period", "logging", "mem_limit", "cpus")
"""What a node has as the single server has it."""


@pytest.mark.parametrize("node", NODES)
def test_a_node_is_as_the_single_server(node: str) -> None:
    """A node differs from the server of docker-compose.yml only in being one of a cluster."""
    server, service = SERVICES["qdrant"], CLUSTER["services"][node]
    added = {"QDRANT__CLUSTER__ENABLED": "true", "QDRANT__STORAGE__COLLECTION__REPLICATION_FACTOR": "2"}

    assert {key: service[key] for key in SAME} == {key: server[key] for key in SAME}
    assert service["environment"] == {**server["environment"], **added}
    assert set(service) <= {*SAME, "environment", "command", "ports", "volumes", "depends_on"}


@needs_bash
@pytest.mark.parametrize("allowed", [64, 256])
def test_a_server_starts_whatever_number_of_open_files_is_allowed(tmp_path: Path, allowed: int) -> None:
    """No container asks for more open files than its engine allows, and a server takes all of those."""
    for servers in (SERVICES, CLUSTER["services"]):
        assert not any("ulimits" in one for one in servers.values())
    for command in (SERVICES["qdrant"]["command"], CLUSTER["services"]["qdrant-1"]["command"]):
        script = command[2].replace("$$", "$").replace("/keys/", f"{tmp_path}/")
        (tmp_path / "qdrant_api_key").write_text("key", encoding="ascii")
        for name in ("entrypoint.sh", "qdrant"):
            (tmp_path / name).write_text("#!/bin/sh\nulimit -Sn\n", encoding="ascii")
            (tmp_path / name).chmod(0o755)
        limited = f"ulimit -Sn 32; ulimit -Hn {allowed}; exec bash -ec '{script}'"
        ran = subprocess.run(
            ["bash", "-c", limited], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert ran.stdout.strip() == str(allowed), ran.stderr


def test_the_nodes_find_each_other() -> None:
    """Each node names itself; all but the first join by the first, once it is ready."""
    for node in NODES:
        service = CLUSTER["services"][node]
        joining = [] if node == NODES[0] else ["--bootstrap", f"http://{NODES[0]}:6335"]
        assert service["command"][3:] == ["qdrant", "--uri", f"http://{node}:6335", *joining]
        assert "exec ./qdrant" in service["command"][2]
        keyed = {"keys": {"condition": "service_completed_successfully"}}
        assert service["depends_on"] == keyed | ({NODES[0]: {"condition": "service_healthy"}} if joining else {})


def test_the_service_is_as_beside_one_server() -> None:
    """The service and the load ask any node that answers, with the same rights and settings as beside one server."""
    for name in ("service", "ingest"):
        ours, theirs = CLUSTER["services"][name], SERVICES[name]
        differing = {key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)}
        asked = ours["environment"]["PEARL_QDRANT_STORE"]

        assert differing <= {"depends_on", "environment"}
        assert asked == ",".join(f"http://{node}:6333" for node in NODES)
        assert set(ours["depends_on"]) < {*NODES, "ingest"}
        assert {**ours["environment"], "PEARL_QDRANT_STORE": "http://qdrant:6333"} == theirs["environment"]
    assert CLUSTER["services"]["keys"] == SERVICES["keys"]
    assert CLUSTER["name"] != COMPOSE["name"]


MONITORING = ROOT / "contrib" / "monitoring"

SERVICE_KEYS = {
    "build", "cap_drop", "command", "cpus", "depends_on", "deploy", "entrypoint", "environment", "healthcheck", "image",
    "logging", "mem_limit", "network_mode", "ports", "profiles", "read_only", "restart", "security_opt",
    "stop_grace_period", "tmpfs", "volumes", "working_dir",
}  # fmt: skip
"""Keys of a service that the Compose specification has, as far as they are used here."""


OURS = {name: one for name, one in SERVICES.items() if "build" in one}
"""The services that run our image."""


def test_the_file_has_keys_of_the_specification_alone() -> None:
    """A key that Compose does not know would stop it."""
    assert {key for key in COMPOSE if not key.startswith("x-")} == {"name", "services", "volumes"}
    for name, service in SERVICES.items():
        assert set(service) <= SERVICE_KEYS, name
        for other, condition in service.get("depends_on", {}).items():
            ends = SERVICES[other]["restart"] == "no"
            assert ends or "healthcheck" in SERVICES[other], name
            assert condition == {"condition": "service_completed_successfully" if ends else "service_healthy"}


def test_our_containers_can_do_little() -> None:
    """Each container of ours has a read-only root file system, no capabilities, memory for temporary files, and its
    keys as files, none in its environment; one container alone can write them.
    """
    writes = [name for name, one in SERVICES.items() if "keys:/keys" in one["volumes"]]
    assert writes == ["keys"]
    assert SERVICES["service"]["environment"]["PEARL_QDRANT_SERVICE_KEYS_FILE"] == "/keys/service_keys"
    assert set(OURS) == {"service", "service-gpu", "ingest", "backup"}
    for name, service in OURS.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["tmpfs"] == ["/tmp"], name
        assert not service.get("privileged"), name
        assert service["logging"]["options"]["max-size"], name
        assert service["environment"]["QDRANT_API_KEY_FILE"] == "/keys/qdrant_api_key", name
        assert "QDRANT_API_KEY" not in service["environment"], name
        assert "keys:/keys:ro" in service["volumes"], name


def test_profiles_start_nothing_by_themselves() -> None:
    """`docker compose up` makes keys, loads a base, and starts Qdrant and one service; the GPU is asked for."""
    profiles = {name: service.get("profiles", []) for name, service in SERVICES.items()}

    assert {name for name, named in profiles.items() if not named} == {"keys", "qdrant", "service", "ingest"}
    assert {name for name, named in profiles.items() if named == ["metrics"]} == {"prometheus", "grafana"}
    assert (profiles["service-gpu"], profiles["backup"]) == (["gpu"], ["backup"])

    assert SERVICES["ingest"]["restart"] == "no"
    (device,) = SERVICES["service-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


def test_the_metrics_of_the_dashboard_exist() -> None:
    """Prometheus asks service and server with the keys; each graph is of a metric that there is."""
    asked = yaml.safe_load((MONITORING / "prometheus.yml").read_text("utf-8"))["scrape_configs"]
    for one in asked:
        (target,) = one["static_configs"][0]["targets"]
        assert target.partition(":")[0] in SERVICES
        assert one["authorization"]["credentials_file"].startswith("/keys/")
    assert "allowed_hosts=service" in SERVICES["service"]["command"]
    dashboard = json.loads((MONITORING / "dashboard.json").read_text("utf-8"))
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    measured = Metrics().text().decode()
    for name in re.findall(r"pearl_qdrant_\w+", " ".join(shown)):
        assert f"# HELP {name.removesuffix('_total').removesuffix('_bucket')}" in measured, name


def test_commands_of_the_containers_are_ours() -> None:
    """The options and settings that containers get exist."""
    from click.testing import CliRunner

    from pearl_qdrant.cli import cli
    from pearl_qdrant.service.settings import ServiceSettings

    shown = CliRunner().invoke(cli, ["serve", "--help"]).output
    command = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word) for word in SERVICES["service"]["command"]]
    assert command[0] == "serve"
    assert all(word in shown for word in command if word.startswith("--"))
    assert ServiceSettings.read([command[command.index("--set") + 1]]) == {"allow_writing": False}
    compile(SERVICES["backup"]["entrypoint"][2], "backup", "exec")
    entry = SERVICES["ingest"]["entrypoint"]
    assert entry == ["pearl-qdrant", "ingest"]
    example = ROOT / "examples" / re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", SERVICES["ingest"]["command"][0])
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
    """The steps of the first stage, run as a script in a clean folder in place of the root folder; the wheel is
    installed, and libraries are those of the tests: `.ci/extras.py` installs them for the extra `serve` alone.
    """
    root = tmp_path_factory.mktemp("image")
    _, build, _ = steps()
    here = root
    variables: dict[str, str] = {}
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
            script = script.replace("--no-cache-dir ", "").replace("install ", "install --no-compile --no-deps ")
            command, environment = ["sh", "-euc", script], {**os.environ, **variables}
            done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    (packages,) = root.glob("venv/lib/python3*/site-packages")
    (packages / "of_the_tests.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
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
    _, build, last = steps()
    (health,) = of(last, "HEALTHCHECK")
    check = json_of(health.partition(" CMD ")[2])
    while subprocess.run(check, env=variables, capture_output=True, check=False).returncode != 0:
        assert process.poll() is None, "the service ended"
        time.sleep(0.2)

    answer = httpx.get(f"http://127.0.0.1:{variables['PEARL_QDRANT_PORT']}/")
    assert answer.status_code == 200
    assert "pearl-qdrant" in answer.text
    assert list(built.glob("venv/lib/python3*/site-packages/pearl_qdrant/encoder/models/*/onnx/model.onnx"))
    declared = project()["project"]
    assert of(build, "ARG") == ["EXTRAS=serve,rdf,workbooks"]
    needed = [*declared["dependencies"], *declared["optional-dependencies"]["serve"]]
    assert not [one for one in needed if one.startswith("torch")]
    stop = getattr(signal, of(last, "STOPSIGNAL")[0])
    process.send_signal(stop)
    assert process.wait(timeout=300) in (0, -stop)  # uvicorn ends by the signal itself, once all is answered
    assert subprocess.run(check, env=variables, capture_output=True, check=False).returncode != 0


def test_kubernetes_runs_the_service_as_compose_does() -> None:
    """The page for Qdrant's chart has the server's version, the environment and the paths that compose has."""
    page = (ROOT / "contrib" / "kubernetes.md").read_text("utf-8")
    values, objects = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    deployment, service = yaml.safe_load_all(objects)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    named = {one["name"] for one in container["env"]}

    assert QDRANT["image"].endswith(":" + yaml.safe_load(values)["image"]["tag"])
    assert named == SERVICES["service"]["environment"].keys()
    assert container["image"].endswith(f":{pearl_qdrant.__version__}")
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/keys", "/cache", "/tmp"}
    assert service["spec"]["ports"] == [{"port": 8765}]
    for probe, path in (("readinessProbe", "/health/ready"), ("livenessProbe", "/health/live")):
        assert container[probe]["httpGet"]["path"] == path
        assert f"`{path}`" in (ROOT / "docs" / "service.md").read_text("utf-8")
