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

say "Figure 1 of the paper: names of The New York Times beside New York Post and New York."
show pearl-qdrant link "The New York Times" NYTimes nytimes.com --collection demo --limit 3

say "A name can belong to several entities. A type filter changes the answer."
show pearl-qdrant link "New York" --collection demo --limit 3
show pearl-qdrant link "New York" --type ORG --collection demo --limit 3

say "What is not in the base is NIL, with the reason."
show pearl-qdrant link "Quetzaltenango Municipal Brass Band" --collection demo --limit 3
