#!/bin/sh
# What `make demo` shows. It ingests a sample base into an embedded store and links mentions to it.
set -eu
cd "$(dirname "$0")/.."
PEARL_QDRANT_STORE="${DEMO_STORE:-demo-store}"
export PEARL_QDRANT_STORE

# Prints a command as one would type it, then runs it.
show() {
    printf '\n$'
    for word in "$@"; do
        case "$word" in
            *' '*) printf ' "%s"' "$word" ;;
            *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    "$@"
}

say() {
    printf '\n# %s\n' "$*"
}

say "A base of well-known entities, one line each, becomes a collection. No server is needed."
show pearl-qdrant ingest examples/sample_base.tsv --collection demo

say "Figure 1 of the paper: how close five names are to The New York Times, by the vectors alone. Its own domain and its \
old name rank before New York Post and New York; NYTimes, one rare word to a model without characters, does not."
show python examples/figure1.py

say "As aliases in the base all three link to the newspaper, and the Post to itself."
show pearl-qdrant link NYTimes nytimes.com "New-York Daily Times" "New York Post" --collection demo --limit 2

say "A name can belong to several entities: the most popular one is linked, and the others are shown. Where nothing \
separates them, as for the two Giants, the answer is NIL, with all of them first."
show pearl-qdrant link "New York" Giants --collection demo --limit 3

say "A type filter changes the answer."
show pearl-qdrant link "New York" --type state --collection demo --limit 2
show pearl-qdrant link "New York" --type magazine --collection demo --limit 2

say "Why? The explanation names scores, types and the runner-up."
show pearl-qdrant link "heart atack" --collection demo --limit 2 --explain

say "Mentions in running text, abbreviations too."
show pearl-qdrant annotate "She read in the NYTimes that a myocardial infarction (MI) needs aspirin. MI is no joke." \
    --collection demo

say "Diseases and drugs by any of their names; JSON for programs."
show pearl-qdrant link "heart attack" Tylenol --collection demo --limit 1 --json

say "What is not in the base is NIL, with the reason."
show pearl-qdrant link "Quetzaltenango Municipal Brass Band" --collection demo --limit 2

say "The same from Python: see the README. The collection stays in $PEARL_QDRANT_STORE."
