"""Makes persons with columns: a base, and rows of another list that name them with slips, swaps and gaps, seeded.

They are like the persons of Febrl (Christen 2008): names that many share, addresses, postcodes and days of birth.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

GIVEN = (
    "james mary john patricia robert jennifer michael linda david elizabeth william barbara richard susan joseph "
    "jessica thomas sarah charles karen christopher lisa daniel nancy matthew betty anthony sandra mark margaret "
    "donald ashley steven kimberly andrew emily paul donna joshua michelle kenneth carol kevin amanda brian melissa "
    "george deborah timothy stephanie ronald rebecca jason laura edward helen jeffrey sharon ryan cynthia jacob "
    "kathleen gary amy nicholas angela eric shirley jonathan anna"
).split()
FAMILY = (
    "smith jones taylor brown williams wilson johnson davies robinson wright thompson evans walker white roberts "
    "green hall wood jackson clarke clark harris lewis young king lee martin baker hill cooper moore harrison scott "
    "morris ward turner parker edwards collins stewart murphy bailey cook richardson cox howard morgan bell kelly "
    "mitchell phillips campbell anderson allen price bennett gray carter hughes griffiths fletcher stone marsh pearce "
    "webb hunt palmer holmes mills rogers grant knight ellis reynolds fisher bishop lawson nguyen kowalski petrov "
    "fernandez rossi schneider dubois andersen novak horvath papadopoulos yamamoto okafor haddad silva larsson"
).split()
ROADS = (
    "church mill station park victoria green manor kings queens grange school north south highfield alexandra windsor "
    "chester stanley springfield york albert richmond oak cedar maple elm willow birch chestnut lime"
).split()
WAYS = "street road lane avenue close crescent drive place".split()
PLACES = (
    "ashford brampton carlton dunmore eastwood fairview glenroy hampton ivanhoe kensington langley maryborough "
    "newbridge oakleigh paddington queenscliff redhill sandringham thornbury upwey vermont warwick yarraville "
    "belmont cranbourne doncaster elwood frankston greenvale hillside"
).split()
STATES = "nsw vic qld wa sa tas act nt".split()
LETTERS = "abcdefghijklmnopqrstuvwxyz"
COLUMNS = ("street", "suburb", "postcode", "state", "born")


def _person(rng: random.Random) -> dict[str, str]:
    place = rng.randrange(len(PLACES) * 4)
    return {
        # a power of a share: some names are frequent
        "name": f"{GIVEN[int(len(GIVEN) * rng.random() ** 1.5)]} {FAMILY[int(len(FAMILY) * rng.random() ** 1.5)]}",
        "street": f"{rng.randrange(1, 200)} {rng.choice(ROADS)} {rng.choice(WAYS)}",
        "suburb": PLACES[place % len(PLACES)] + ("", " north", " south", " park")[place // len(PLACES)],
        "postcode": str(2000 + 37 * place),
        "state": STATES[place % len(STATES)],
        "born": f"{rng.randrange(1930, 2005)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}",
    }


def slip(text: str, rng: random.Random) -> str:
    """The text with a letter or digit left out, doubled, swapped with the next one, or another one."""
    places = [i for i, one in enumerate(text) if one.isalnum()]
    if not places:
        return text
    at = rng.choice(places)
    other = rng.choice("0123456789" if text[at].isdigit() else LETTERS)
    forms = (text[at] * 2, other, text[at + 1 : at + 2] + text[at], "" if len(places) > 3 else text[at])
    chosen = rng.randrange(4)
    return text[:at] + forms[chosen] + text[at + 1 + (chosen == 2) :]


def _written(person: Mapping[str, str], rng: random.Random) -> dict[str, str]:
    """A person as another list has it."""
    row = dict(person)
    for name, value in person.items():
        chance = rng.random()
        if chance < 0.2:
            row[name] = slip(value, rng)
        elif chance < 0.25:
            row[name] = slip(slip(value, rng), rng)
        elif chance < 0.35 and name != "name":
            row[name] = ""
    if rng.random() < 0.1:
        row["name"] = " ".join(reversed(row["name"].split()))
    if rng.random() < 0.1:  # who moved
        row |= {one: value for one, value in _person(rng).items() if one in ("street", "suburb", "postcode")}
    return row


def make_persons(
    n_base: int = 2000, n_rows: int = 400, *, seed: int = 1
) -> tuple[dict[str, dict[str, str]], list[dict[str, str]]]:
    """The persons of a base by their ids, and rows of another list, each with `gold`: an id, or NIL for a quarter."""
    rng = random.Random(seed)
    people = [_person(rng) for _ in range(n_base + n_rows // 4)]
    base = {f"p{i}": one for i, one in enumerate(people[:n_base])}
    gold = [*rng.sample(list(base), n_rows - n_rows // 4), *["NIL"] * (n_rows // 4)]
    sources = [base[one] for one in gold if one != "NIL"] + people[n_base:]
    rows = [{**_written(one, rng), "gold": of} for one, of in zip(sources, gold, strict=True)]
    rng.shuffle(rows)
    return base, rows
