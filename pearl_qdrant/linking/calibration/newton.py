"""Newton steps within bounds, for the few parameters that are fitted here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pearl_qdrant.linking.calibration.metrics import FloatArray

Loss = Callable[[FloatArray], tuple[float, FloatArray, FloatArray]]
"""Parameters, (p,), to a loss, its gradient, (p,), and its information, (p, p), positive definite."""

_STEPS = 50
_SMALLEST_STEP = 1e-6


def minimise(loss: Loss, start: FloatArray, *, lowest: FloatArray, highest: FloatArray, enough: float) -> FloatArray:
    """Damped Newton steps; a parameter at a bound that the gradient pushes against stays there.

    Args:
        loss: What is minimised.
        start: (p,), within the bounds.
        lowest, highest: (p,); equal ones hold a parameter.
        enough: A step that gains less is the last.
    """
    at = start
    now, gradient, information = loss(at)
    for _ in range(_STEPS):
        held = (lowest == highest) | ((at <= lowest) & (gradient > 0)) | ((at >= highest) & (gradient < 0))
        free = np.flatnonzero(~held)
        step = np.zeros_like(at)
        step[free] = np.linalg.solve(information[np.ix_(free, free)], gradient[free])
        size = 1.0
        while size > _SMALLEST_STEP:
            tried = np.clip(at - size * step, lowest, highest)
            new = loss(tried)
            if new[0] < now:
                break
            size /= 2
        else:
            break
        gain = now - new[0]
        at, (now, gradient, information) = tried, new
        if gain < enough:
            break
    return at
