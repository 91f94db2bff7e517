"""The losses of PEARL; false negatives are masked, unknown lexical classes are summed out.

L = L_CL + weight * L_CE                                                       Eq. 4

Rows of a batch that mean the same are not negatives of each other: pair i and pair j are of one entity, or share a
string after case and punctuation folding (SapBERT, Liu et al. 2021).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.batches import NO_KEY

MASKED_LOGIT = -1e4
"""Replaces minus infinity; finite, so that a row without any allowed entry does not give NaN."""


def nt_xent(
    anchors: Tensor,  # phrase vectors, (n, dim), any norm
    positives: Tensor,  # vectors of the other name or the augmented phrase, (n, dim), any norm
    *,
    temperature: float,  # divides the cosine similarities; > 0, no unit. PEARL trains with 0.07
    # hard negatives, (m, dim), any norm: additional columns for all 2n rows, without a loss of their own
    negatives: Tensor | None = None,
    # (2n, 2n + m) bool; rows are anchors, then positives, columns these and the negatives. True where the column
    # means the same as the row and is not used as its negative. The entries of a row itself and of its partner are
    # ignored. None: every other column is a negative (the paper)
    same: Tensor | None = None,
) -> Tensor:
    """Contrastive loss over a batch of phrase pairs: each row finds its partner among all others and the negatives.
    Returns mean loss over the 2n rows, in nats, ().

    Source:
        PEARL (Chen et al. 2024), Eq. 2; masking by label as in SapBERT (Liu et al. 2021).
    """
    n = anchors.shape[0]
    parts = [anchors, positives] if negatives is None else [anchors, positives, negatives]
    columns = nn.functional.normalize(torch.cat(parts), dim=-1)  # (2n + m, dim)
    logits = columns[: 2 * n] @ columns.T / temperature  # (2n, 2n + m)
    row = torch.arange(2 * n, device=columns.device)
    partner = row.roll(n)  # i <-> i + n
    blocked = torch.zeros_like(logits, dtype=torch.bool) if same is None else same.clone()
    blocked[row, row] = True
    blocked[row, partner] = False
    return nn.functional.cross_entropy(logits.masked_fill(blocked, MASKED_LOGIT), partner)


def marginal_type_loss(logits: Tensor, allowed: Tensor) -> Tensor:
    """Cross entropy against a set of phrase types: minus the log of the probability of the set.

    With one allowed label this is the cross entropy of Eq. 3. With the five classes of one entity type allowed, the
    lexical class is summed out. Returns mean loss over the remaining rows, in nats, (); 0 if there are none. `logits`:
    (n, 95). `allowed`: (n, 95) bool; a row without any allowed label is skipped.

    Source:
        PEARL (Chen et al. 2024), Eq. 3; the marginal is ours.
    """
    total, count = summed_type_loss(logits, allowed)
    return total / max(count, 1)


def summed_distillation(vectors: Tensor, wanted: Tensor) -> Tensor:
    """Distance of phrases from their vectors by a teacher: one minus the cosine, summed, (). Raises ValueError if the
    teacher's vectors are wider, or there is another number of them. `vectors`: (n, dim), any norm; the columns of the
    phrase encoder come first, then those of a character encoder. `wanted`: the teacher's vectors, (n, phrase_dim), any
    norm.
    """
    if len(vectors) != len(wanted) or vectors.shape[1] < wanted.shape[1]:
        raise ValueError(f"vectors {tuple(vectors.shape)} cannot be distilled from {tuple(wanted.shape)}")
    cosines = nn.functional.cosine_similarity(vectors[:, : wanted.shape[1]], wanted, dim=-1)
    return (1 - cosines).sum()


def summed_type_loss(logits: Tensor, allowed: Tensor) -> tuple[Tensor, int]:
    """Return the sum of `marginal_type_loss` before the mean, (), in nats, and the number of its rows."""
    counts = allowed.any(dim=1)
    kept, mask = logits[counts], allowed[counts]
    log_all = kept.logsumexp(dim=1)
    log_allowed = kept.masked_fill(~mask, MASKED_LOGIT).logsumexp(dim=1)
    return (log_all - log_allowed).sum(), len(kept)


def same_meaning(
    entities: Tensor, anchors: Tensor, positives: Tensor, negative_entities: Tensor, negatives: Tensor
) -> Tensor:
    """Return (2n, 2n + m) bool: row and column are of one known entity, or one pair, or their pairs share a string.

    The keys of n pairs and m hard negatives are those of `PairBatch`: (n,) thrice, and (m,) twice, int64.
    """
    n, known = len(entities), entities[:, None] != NO_KEY
    pairs = (entities[:, None] == entities[None, :]) & known
    pairs |= torch.eye(n, dtype=torch.bool, device=pairs.device)
    of_negatives = (entities[:, None] == negative_entities[None, :]) & known
    for left in (anchors, positives):
        for right in (anchors, positives):
            pairs |= left[:, None] == right[None, :]
        of_negatives |= left[:, None] == negatives[None, :]
    return torch.cat([pairs.repeat(2, 2), of_negatives.repeat(2, 1)], dim=1)
