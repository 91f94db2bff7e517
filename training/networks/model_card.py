"""The model card of a checkpoint: README.md with the header that the hub reads."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pearl_qdrant.encoder.checkpoint import PearlConfig

_CARD = """---
library_name: pearl-qdrant
pipeline_tag: sentence-similarity
tags:
- pearl
- phrase-embeddings
- entity-linking
---
# {name}

PEARL phrase embeddings: a name gives one vector of {dim} dimensions and a phrase type.

| | |
|---|---|
| phrase part | {phrase_dim} dimensions, {pooling} pooling |
| character part | {character} |
| type head | {n_seen} of {n_labels} phrase types seen in training |
| longest name | {max_length} tokens |
| prefix | {prefix} |
| precision of the graph | {precision} |

## Use
```python
from pearl_qdrant.encoder.loading import load_encoder

encoder = load_encoder("PATH/TO/THIS/FOLDER")
vectors = encoder.encode(["The New York Times", "nytimes.com"]).vectors
```
`onnx/model.onnx` takes `input_ids` and `attention_mask` and returns `embedding` and `type_logits`; fastembed runs it as
a custom model. sentence-transformers opens the folder if it has `model.safetensors`{phrase_only}.

## Training
{training}

## Limits
Made for names and short phrases. The licences of the base model and of the training data apply.
"""


def model_card(config: PearlConfig, *, notes: Mapping[str, str] | None = None) -> str:
    """Make a model card from pearl.json.

    Args:
        config: pearl.json of the checkpoint.
        notes: Further lines of the training section, such as the parity of a graph.
    """
    character = "none"
    if config.character is not None:
        own = config.character
        most = (
            "" if own.continuation_share is None else f" (up to {own.continuation_share:.0%} in words that are split)"
        )
        character = (
            f"{config.char_dim} dimensions, {own.share:.0%} of the cosine{most}: {len(own.alphabet):,} characters"
            f"{' and wordpieces' if own.max_pieces else ''}, {own.embedding_dim} wide"
        )
    record = {**config.training, **(notes or {})}
    return _CARD.format(
        name=config.name,
        dim=config.dim,
        phrase_dim=config.phrase_dim,
        pooling=config.pooling,
        character=character,
        n_seen=sum(count > 0 for count in config.label_counts),
        n_labels=len(config.labels),
        max_length=config.max_length,
        prefix=repr(config.prefix) if config.prefix else "none",
        precision=config.precision,
        phrase_only=", the phrase part alone" if config.char_dim else "",
        training="\n".join(f"- {key}: {_shown(value)}" for key, value in record.items()) or "Not recorded.",
    )


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
