#!/bin/sh
# PEARL-small as in the paper (Chen et al. 2024, sections 3 and 4.2), by the commands of this package; each resumes.
#
#   ARTICLES=wiki.jsonl.zst VECTORS=crawl-300d-2M.vec NER=MODEL WORK=DIR sh runs/pearl_small.sh
#   ARTICLES=sample.jsonl.gz NAMES=names.tsv BASE=E5 LENGTH="--steps 1055" WORK=DIR sh runs/pearl_small.sh
#
# The first is the paper's, whose corpus, FastText, Parrot and NER model are on a hub. The second is what was run
# (docs/experiments/ablation.md): without VECTORS the character encoder mimics E5's own words and no synonyms or
# paraphrases are made, without NER types come from a list of names. PEARL's own corpus and negatives (Zenodo record
# 10676475) can be CORPUS. The paper averages SEED 0, 1 and 2. It does not state the width of the character encoder's
# part (taken: 64), its share of the cosine (0.1), and how hard negatives enter a batch (as in its code: 85 anchors and
# 170 hard negatives, each with a variant of its own, 510 phrases).
set -eu
SEED=${SEED:-0} CORPUS=${CORPUS:-$WORK/corpus}
BASE=$(python -c "from pearl_qdrant.encoder.find_model import find_model as f; print(f('${BASE:-intfloat/e5-small}').folder)")
train() { python -m pearl_qdrant train "$@"; }

if [ ! -e "$CORPUS/freq_phrase.txt" ]; then # phrases of five classes that are seen at least twice
    TYPING="${NER:+--typer ner --ner-model $NER --device cuda}"
    train corpus "$ARTICLES" --wordnet "${WORDNET:-/usr/share/wordnet}" ${TYPING:---typed-names "$NAMES"} --out "$CORPUS"
    if [ -n "${VECTORS:-}" ]; then # neighbours of words in FastText; five paraphrases of each phrase by Parrot
        train synonyms "$CORPUS" --vectors "$VECTORS"
        train paraphrase "$CORPUS" --device cuda
    fi
fi
NEGATIVES=$CORPUS/hard_negative.txt # 12 of each phrase
[ -e "$NEGATIVES" ] || train negatives --phrases "$CORPUS" --model "$BASE" --device cuda --out "$NEGATIVES"
train love "$BASE" "$WORK/love-$SEED" ${VECTORS:+--vectors "$VECTORS"} --seed "$SEED"
# 512 phrases a step, Adam at 3e-5, x 0.98 every 2,000 steps, temperature 0.07. For several GPUs: torchrun, see the docs.
train fit --base-model "$BASE" --phrases "$CORPUS" --hard-negatives "$NEGATIVES" --character-encoder "$WORK/love-$SEED" \
    --paper-settings ${LENGTH:---epochs 2} --batch 512 --workers 8 --device cuda --seed "$SEED" --out "$WORK/fitted-$SEED"
train average "$BASE" "$WORK/fitted-$SEED" "$WORK/averaged-$SEED" --ratio 0.5
train head --base-model "$WORK/averaged-$SEED" --phrases "$CORPUS" --out "$WORK/pearl-$SEED"
train export "$WORK/pearl-$SEED" "$WORK/pearl-small-$SEED"
