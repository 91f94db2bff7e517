"""`pearl-qdrant size`: the arithmetic, the file of rates, and the table of the docs."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from pearl_qdrant.cli import cli
from pearl_qdrant.errors import InputError, OptionError
from pearl_qdrant.sizing import Machines, Rate, estimate_size, read_rates
from pearl_qdrant.sizing.defaults import DIM, NAMES_PER_SHARD
from pearl_qdrant.sizing.estimate import QUANTIZATIONS, quantized_bytes
from pearl_qdrant.sizing.rates import NAMES, RATES_FILE, write_rates

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def rates() -> dict[str, Rate]:
    """The package's rates."""
    return read_rates()


def test_hours_are_names_over_rates(rates: dict[str, Rate]) -> None:
    """Loading is linear in names and cores; graphs grow with the logarithm of a shard as well."""
    value = {name: rate.value for name, rate in rates.items()}
    found = estimate_size(9e6, Machines(cores=4, gpus=2), rates=rates)

    scan = 9e6 / value["scan"] / 3600
    encode = 9e6 / (4 * value["load_core"]) / 3600
    encode_gpu = 9e6 / min(2 * value["encode_gpu"], 4 * value["write_core"]) / 3600
    assert found.load_cpu_hours == pytest.approx(scan + encode)
    assert found.load_gpu_hours == pytest.approx(scan + encode_gpu)
    depth = math.log(4.5e6) / math.log(value["graph_names"])
    assert found.graph_hours == pytest.approx(9e6 * depth / (4 * value["graph_core"]) / 3600)
    assert found.build_cpu_hours == pytest.approx(found.load_cpu_hours + found.graph_hours)
    read = 9e6 / value["scroll"] / 3600
    assert found.reencode_cpu_hours == pytest.approx(max(read, encode) + found.graph_hours)
    assert found.reencode_gpu_hours == pytest.approx(max(read, encode_gpu) + found.graph_hours)
    twice = estimate_size(18e6, Machines(cores=8, gpus=4), rates=rates)
    assert twice.build_cpu_hours == pytest.approx(found.build_cpu_hours + scan), "one process counts the base"


def test_costs_are_hours_of_cores_and_gpus(rates: dict[str, Rate]) -> None:
    """Cores are paid all the time, GPUs while they encode."""
    found = estimate_size(150e6, Machines(cores=16, gpus=3), rates=rates)

    assert found.build_cpu_cost == pytest.approx(found.build_cpu_hours * 16 * rates["core_price"].value)
    assert found.build_gpu_hours is not None
    assert found.load_gpu_hours is not None
    encode = found.load_gpu_hours - 150e6 / rates["scan"].value / 3600
    paid = found.build_gpu_hours * 16 * rates["core_price"].value + encode * 3 * rates["gpu_price"].value
    assert found.build_gpu_cost == pytest.approx(paid)


def test_bytes_of_a_name_are_those_of_its_parts(rates: dict[str, Rate]) -> None:
    """Disk holds all parts, memory those that a search reads; quantised copies have the engine's sizes."""
    value = {name: rate.value for name, rate in rates.items()}
    searched = value["graph_bytes"] + value["lexical_index_bytes"] + value["index_bytes"] + value["id_bytes"]
    found = estimate_size(1e6, rates=rates)

    assert [quantized_bytes(kind, 384) for kind in ("int8", "turbo", "binary")] == [388, 200, 48]
    for one in found.footprints:
        small = quantized_bytes(one.quantization, DIM)
        disk = searched + small + 4 * DIM + value["payload_bytes"] + value["lexical_bytes"]
        assert one.disk_gb == pytest.approx(disk / 1e3)
        assert one.memory_gb == pytest.approx((searched + (small or 4 * DIM)) / 1e3)
    assert [one.quantization for one in found.footprints] == list(QUANTIZATIONS)


def test_shards_and_nodes_hold_the_base(rates: dict[str, Rate]) -> None:
    """Each shard has at most the given names; the nodes' memory holds each replica."""
    found = estimate_size(150e6, Machines(node_memory_gb=64, replicas=2), rates=rates)

    assert found.shards == 34
    assert found.nodes % 2 == 0
    assert found.nodes * 64 * 0.75 >= 2 * found.memory_gb > (found.nodes - 2) * 64 * 0.75
    assert found.link_ms == pytest.approx(rates["link_ms"].value + 33 * rates["graph_ms"].value)
    assert found.cluster_link_ms < found.link_ms


def test_a_shard_fits_one_segment_of_the_engine() -> None:
    """The names of a shard are no more than one graph of the embedded store takes."""
    from pearl_qdrant.store.edge.shard import MAX_SEGMENT_KB

    assert NAMES_PER_SHARD * DIM * 4 <= MAX_SEGMENT_KB * 1024


def test_without_gpu_there_are_no_hours_of_gpus() -> None:
    """With no GPU the figures of GPUs are missing, and the table shows a dash."""
    found = estimate_size(1e6, Machines(gpus=0))

    assert (found.load_gpu_hours, found.build_gpu_hours, found.build_gpu_cost, found.reencode_gpu_hours) == (None,) * 4
    assert " -\n" in CliRunner().invoke(cli, ["size", "--names", "1e6", "--gpus", "0"]).output


@pytest.mark.parametrize(
    "option, given",
    [
        ("names", ["--names", "0"]),
        ("names", ["--names", "nan"]),
        ("names", ["--names", "inf"]),
        ("cores", ["--names", "1e6", "--cores", "0"]),
        ("gpus", ["--names", "1e6", "--gpus", "-1"]),
        ("node_memory_gb", ["--names", "1e6", "--node-memory-gb", "nan"]),
        ("dim", ["--names", "1e6", "--dim", "0"]),
        ("names_per_shard", ["--names", "1e6", "--names-per-shard", "0"]),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(option: str, given: list[str]) -> None:
    """The error names the option and the value that it may have."""
    result = CliRunner().invoke(cli, ["size", *given])

    assert isinstance(result.exception, OptionError)
    assert result.exception.option == option
    assert "must be a number" in str(result.exception)


def test_every_rate_has_machine_date_and_source(rates: dict[str, Rate]) -> None:
    """Each row says where, when and by what it was measured; a page that it names exists and a command too."""
    assert set(NAMES) <= set(rates)
    for rate in rates.values():
        assert rate.kind in ("measured", "assumed")
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", rate.date)
        assert rate.machine
        for page in re.findall(r"(?:docs|benchmarks)/[\w/-]+\.(?:md|py)", rate.source):
            assert (DOCS.parent / page).is_file(), page


def test_the_last_row_of_a_rate_counts(tmp_path: Path, rates: dict[str, Rate]) -> None:
    """A rate that is measured again is appended, and replaces the older one."""
    file = tmp_path / "rates.tsv"
    write_rates(file, rates.values())
    write_rates(file, [replace(rates["load_core"], value=5000.0)])

    assert read_rates(file)["load_core"].value == 5000
    given = ["size", "--names", "1e6", "--json", "--rates", str(file)]
    hours = json.loads(CliRunner().invoke(cli, given).output)["load_cpu_hours"]
    expected = 1e6 / rates["scan"].value / 3600 + 1e6 / (16 * 5000) / 3600
    assert hours == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "expected the columns"),
        ("a\tb\n", "expected the columns"),
        ("{header}load_core\t1\n", "expected 7 columns, found 2"),
        ("{header}load_core\tfast\tu\tm\tm\td\ts\n", "'fast' is not a number"),
        ("{header}load_core\t-1\tu\tm\tm\td\ts\n", "not a rate"),
        ("{header}load_core\tnan\tu\tm\tm\td\ts\n", "not a rate"),
        ("{header}", "there is no rate scan, load_core"),
        ("\udcff", "cannot be read"),
    ],
)
def test_a_damaged_file_of_rates_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """The error names the file, the line and what is wrong."""
    file = tmp_path / "rates.tsv"
    header = RATES_FILE.read_text("utf-8").splitlines()[0] + "\n"
    file.write_bytes(text.replace("{header}", header).encode("utf-8", "surrogateescape"))

    with pytest.raises(InputError, match=message):
        read_rates(file)


def test_the_table_of_the_docs_is_what_the_command_prints() -> None:
    """docs/scaling.md shows the output of the commands that it names."""
    text = (DOCS / "scaling.md").read_text("utf-8")
    shown = re.findall(r"```\n\$ pearl-qdrant (size .*)\n([^`]*)```", text)

    assert len(shown) >= 2
    for command, table in shown:
        result = CliRunner().invoke(cli, command.split())
        assert result.exit_code == 0
        assert result.output == table


def test_the_rates_are_shown_on_request() -> None:
    """`--show-rates` prints each rate with its kind and source."""
    output = CliRunner().invoke(cli, ["size", "--names", "1e6", "--show-rates"]).output

    assert "assumed" in output
    assert "make bench" in output
