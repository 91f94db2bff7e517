"""What is published, and where: the account in one place, the workflows, metadata, and the pages for agents."""

from __future__ import annotations

import re
import runpy
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from source_tree import ROOT, project, tracked_files

import pearl_qdrant

PUBLISHING = runpy.run_path(str(ROOT / ".ci" / "publishing.py"))
OWNED: re.Pattern[str] = PUBLISHING["OWNED"]
WORKFLOWS = {path.name: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / ".github/workflows").glob("*.yml")}
ON_NODE_24 = {"checkout": 5, "setup-python": 6, "upload-artifact": 6, "download-artifact": 7} | {
    "setup-buildx-action": 4, "login-action": 4, "metadata-action": 6, "build-push-action": 7
}  # fmt: skip
"""The first version of each action that runs on Node 24: runners have no Node 20 since autumn 2026."""
SKILL = (ROOT / "skills" / "pearl-qdrant" / "SKILL.md").read_text("utf-8")


def test_the_account_is_written_in_one_place() -> None:
    """Every address of the project has the account of pyproject.toml, so that none is forgotten when it is set."""
    account = PUBLISHING["owner"]()
    named = {path: OWNED.findall(path.read_text("utf-8")) for path in PUBLISHING["owned_files"]()}

    assert {path.name for path, found in named.items() if set(found) - {account}} == set()
    assert {path.name for path, found in named.items() if found} >= {
        *("pyproject.toml", "README.md", "CITATION.cff", "server.json", "qdrant.md", "openrefine.md"),
        *("hugging-face.md", "llms.txt"),
    }


def test_what_sets_the_account_knows_every_file_that_names_it() -> None:
    """No other file of the repository, of whatever kind, has an address with an account."""
    known = {*PUBLISHING["owned_files"](), Path(__file__)}
    texts = {path: path.read_bytes() for path in tracked_files() if path not in known}
    others = {path: text.decode(errors="replace") for path, text in texts.items() if b"\0" not in text[:8192]}

    assert len(others) > 500
    assert {path.name: found for path, text in others.items() if (found := OWNED.findall(text))} == {}


def test_setting_the_account_leaves_no_other(tmp_path: Path) -> None:
    """After the one command no file waits for an account; a name that cannot be one is refused."""
    for path in PUBLISHING["owned_files"]():
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    assert PUBLISHING["set_owner"]("an-account", tmp_path) > 5

    for path in PUBLISHING["owned_files"](tmp_path):
        waiting = re.findall(r"OWNER(?!/NAME\b).{0,20}", path.read_text("utf-8"))
        assert [one for one in waiting if path.name != "README.md" or path.parent.name != "contrib"] == [], path
    assert PUBLISHING["owner"](tmp_path) == "an-account"
    with pytest.raises(ValueError, match="no name of an account"):
        PUBLISHING["set_owner"]("an account", tmp_path)


def test_the_readme_works_on_a_package_index() -> None:
    """Where the README stands alone, its links and its picture lead to the repository; the package has a name."""
    text = PUBLISHING["for_an_index"]((ROOT / "README.md").read_text("utf-8"), "an-account")
    links = re.findall(r"\]\(([^)\s]+)\)", text)

    assert len(links) > 30
    assert [link for link in links if not link.startswith("https://")] == []
    assert "](https://github.com/an-account/pearl-qdrant/raw/main/docs/pictures/page-mention.png)" in text
    assert "](https://github.com/an-account/pearl-qdrant/blob/main/docs/linking.md)" in text
    assert set(re.findall(r"pip install [^`\n]+", text)) == {
        "pip install pearl-qdrant", "pip install 'pearl-qdrant[serve]'"
    }  # fmt: skip


def test_every_file_states_the_same_version() -> None:
    """The tag of a release is refused where a file was forgotten."""
    assert set(PUBLISHING["versions"]().values()) == {pearl_qdrant.__version__}


def test_the_readme_has_the_name_that_the_mcp_registry_reads() -> None:
    """The registry takes an entry only if the README on the package index has its name."""
    (name,) = re.findall(r"mcp-name: (\S+)", (ROOT / "README.md").read_text("utf-8"))

    assert f'"name": "{name}"' in (ROOT / "contrib" / "server.json").read_text("utf-8")


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_a_workflow_runs_what_is_here(name: str) -> None:
    """Each step runs a program of this repository or an action at a version; rights are given where they are needed."""
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            if "uses" in step:
                action, version = re.fullmatch(r"[\w-]+/([\w-]+)@(?:release/)?v(\d+)", step["uses"]).groups()  # type: ignore[union-attr]
                assert int(version) >= ON_NODE_24.get(action, 1), step["uses"]
            for path in re.findall(r"\.ci/[\w.]+", step.get("run", "")):
                assert (ROOT / path).exists(), path
        assert set(job.get("needs", "").split()) <= workflow["jobs"].keys()


def test_only_the_step_that_publishes_may_ask_for_an_identity() -> None:
    """The package is published by trusted publishing, after all checks, and without a password."""
    jobs = WORKFLOWS["release.yml"]["jobs"]
    steps: list[dict[str, Any]] = jobs["package"]["steps"]

    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["package"]
    assert steps[-1] == {"uses": "pypa/gh-action-pypi-publish@release/v1"}
    assert {name: job.get("needs") for name, job in jobs.items()} == {
        "build": None, "package": "build", "image": "build", "release": "package"
    }  # fmt: skip
    assert any(step.get("run") == "bash .ci/run" for step in jobs["build"]["steps"])
    extras = {extra for one in jobs["image"]["strategy"]["matrix"]["include"] for extra in one["extras"].split(",")}
    assert extras <= project()["project"]["optional-dependencies"].keys()


def test_a_report_asks_for_what_is_needed_and_a_commit_is_checked_as_in_make() -> None:
    """Forms for issues have what GitHub needs; what an attacker could use is reported in private; hooks run ruff."""
    forms = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / ".github/ISSUE_TEMPLATE").iterdir()}
    chooser = forms.pop("config")
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    checks = [one["entry"].removeprefix(".venv/bin/python -m ").partition(" --")[0] for one in hooks]

    assert all({"name", "description", "body"} <= form.keys() for form in forms.values())
    assert chooser["contact_links"][0]["url"] in (ROOT / "SECURITY.md").read_text("utf-8")
    assert all(f"-m {one} " in (ROOT / "Makefile").read_text("utf-8") for one in checks)


@pytest.mark.parametrize("group, host", [("spacy_factories", "spacy"), ("oaklib.plugins", "oaklib")])
def test_entry_points_lead_to_what_they_name(group: str, host: str) -> None:
    """A host that finds the package by its entry points can load them."""
    points = project()["project"]["entry-points"]
    assert points.keys() == {"spacy_factories", "oaklib.plugins"}

    for name, value in points[group].items():
        module, _, attribute = value.partition(":")
        assert f"\nclass {attribute}" in (ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8")
        pytest.importorskip(host)
        assert callable(metadata.EntryPoint(name, value, group).load())


def test_the_pages_for_qdrant_have_what_its_site_asks() -> None:
    """The page begins with title and descriptions, and has the sections of its neighbours and Qdrant's variables."""
    _, head, text = (ROOT / "contrib" / "qdrant.md").read_text("utf-8").split("---\n", 2)

    assert yaml.safe_load(head).keys() == {"title", "short_description", "description"}
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Installation", "Usage", "Further Reading"]
    assert {"QDRANT_URL", "QDRANT_API_KEY"} <= set(re.findall(r"\w+", text))


def test_the_card_of_the_model_says_what_a_hub_shows() -> None:
    """The shipped card and its template have licence, task, languages, tags, sets and figures at their heads."""
    for path in ("pearl_qdrant/encoder/models/pearl-mini/README.md", "runs/multilingual/pearl_mini_card.md"):
        _, head, text = (ROOT / path).read_text("utf-8").split("---\n", 2)
        card = yaml.safe_load(head)
        results = card["model-index"][0]["results"]
        measured = [one["metrics"][0]["value"] for one in results]

        assert (card["license"], card["pipeline_tag"]) == ("apache-2.0", "sentence-similarity")
        assert all(re.fullmatch(r"[a-z]{2}|multilingual", code) for code in card["language"])
        assert {one["dataset"]["type"] for one in results} >= set(card["datasets"]) > set()
        assert all(re.fullmatch(r"[\w-]+/[\w-]+", one["dataset"]["type"]) for one in results)  # ids of the hub
        assert card["tags"]
        assert len(measured) == 4
        if path.startswith("pearl_qdrant"):
            assert all(str(one) in text for one in measured)


def test_the_citation_names_software_and_paper() -> None:
    """CITATION.cff has the fields that its format demands, and the paper of the method."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))

    assert {"cff-version", "message", "title", "authors", "version", "license"} <= cited.keys()
    assert cited["references"][0]["authors"]


def test_the_list_for_language_models_has_every_page() -> None:
    """llms.txt lists the pages of the site's menu with their names in its order."""
    menu = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    files = ("contributing.md", "changelog.md")  # of the root, which the site takes in
    wanted = [one for one in re.findall(r"([\w/-]+\.md)", menu) if one not in ("index.md", *files)]
    listed = (ROOT / "docs" / "llms.txt").read_text("utf-8")

    assert re.findall(r"\]\(https://\S+/main/docs/(\S+)\)", listed) == wanted
    assert all(f"/main/{one.partition('.')[0].upper()}.md)" in listed for one in files)
    assert listed.startswith("# pearl-qdrant\n\n> ")


def test_the_skill_can_be_read_by_an_agent() -> None:
    """It is short, its folder has its name, and it says when to use it; `test_docs.py` checks its commands."""
    _, head, _ = SKILL.split("---\n", 2)

    assert yaml.safe_load(head)["name"] == "pearl-qdrant"
    assert "Use when" in yaml.safe_load(head)["description"]
    assert len(SKILL.splitlines()) <= 60
    for section in ("Load a base", "Link", "Explain an answer", "Learn from answers"):
        assert f"\n## {section}\n" in SKILL


def test_commands_of_the_skill_are_commands() -> None:
    """Whatever the skill tells an agent to run has the options that it names."""
    from click.testing import CliRunner

    from pearl_qdrant.cli import cli

    found = re.findall(r"`pearl-qdrant ([a-z]+)((?: add)?)([^`]*)`", SKILL)
    assert len(found) > 8
    for command, sub, rest in found:
        shown = CliRunner().invoke(cli, [command, *sub.split(), "--help"])
        assert shown.exit_code == 0, command
        assert [one for one in re.findall(r"--[a-z-]+", rest) if one not in shown.output] == [], command
