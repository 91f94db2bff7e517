"""The two losses of PEARL, with false negatives masked and unknown lexical classes summed out.

L = L_CL + weight * L_CE                                                       Eq. 4
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

MASKED_LOGIT = -1e4
"""Stands for minus infinity; finite, so that a row without any allowed entry gives no NaN."""


def nt_xent(anchors: Tensor, positives: Tensor, *, temperature: float, same: Tensor | None = None) -> Tensor:
    """Contrastive loss over a batch of phrase pairs: each row finds its partner among all 2n - 1 other rows.

    Args:
        anchors: Phrase vectors, (n, dim), any norm.
        positives: Vectors of the other name or the augmented phrase, (n, dim), any norm.
        temperature: Divides the cosine similarities; > 0, no unit. PEARL trains with 0.07.
        same: (n, n) bool; true where pair i and pair j mean the same entity or share a string, so that j must not
            be a negative of i. The diagonal does not matter. None: every other row is a negative (the paper).

    Returns:
        Mean loss over the 2n rows, in nats, ().

    Raises:
        ValueError: If the two tensors do not pair up row by row, or the temperature is not positive.

    Source:
        PEARL (Chen et al. 2024), Eq. 2; masking by label as in SapBERT (Liu et al. 2021).
    """
    if anchors.shape != positives.shape:
        raise ValueError(f"anchors {tuple(anchors.shape)} and positives {tuple(positives.shape)} do not pair up")
    if temperature <= 0:
        raise ValueError(f"temperature must be positive, not {temperature}")
    n = anchors.shape[0]
    rows = nn.functional.normalize(torch.cat([anchors, positives]), dim=-1)  # (2n, dim)
    logits = rows @ rows.T / temperature  # (2n, 2n)
    partner = torch.arange(2 * n, device=rows.device).roll(n)  # i <-> i + n
    blocked = torch.eye(n, dtype=torch.bool, device=rows.device) if same is None else same.clone()
    blocked = blocked.fill_diagonal_(True).repeat(2, 2)  # a row is no negative of itself or of its own pair
    blocked[torch.arange(2 * n, device=rows.device), partner] = False  # but its partner is the positive
    return nn.functional.cross_entropy(logits.masked_fill(blocked, MASKED_LOGIT), partner)


def marginal_type_loss(logits: Tensor, allowed: Tensor) -> Tensor:
    """Cross entropy against a set of phrase types: the likelihood that any of the allowed ones is right.

    With one label allowed it is the plain cross entropy of Eq. 3; with the five classes of one entity type allowed,
    the lexical class is summed out.

    Args:
        logits: (n, 95).
        allowed: (n, 95) bool; a row without any allowed label does not count.

    Returns:
        Mean loss over the rows that count, in nats, (); 0 if there are none.

    Source:
        PEARL (Chen et al. 2024), Eq. 3; the marginal is ours.
    """
    counts = allowed.any(dim=1)
    if not bool(counts.any()):
        return logits.sum() * 0.0
    kept, mask = logits[counts], allowed[counts]
    log_all = kept.logsumexp(dim=1)
    log_allowed = kept.masked_fill(~mask, MASKED_LOGIT).logsumexp(dim=1)
    return (log_all - log_allowed).mean()
