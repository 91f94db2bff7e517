"""Projected Newton steps for the few parameters that are fitted here, each within bounds.

Each step solves information * step = gradient for the free parameters, where the Fisher information stands for the
Hessian: it is always positive definite, so the step goes downhill. The step is halved until the loss falls, and clipped
to the bounds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pearl_qdrant.linking.calibration.metrics import FloatArray

Loss = Callable[[FloatArray], tuple[float, FloatArray, FloatArray]]
"""Maps parameters, (p,), to a loss, its gradient, (p,), and its Fisher information, (p, p), positive definite."""

_STEPS = 50
_SMALLEST_STEP = 1e-6


def minimise(loss: Loss, start: FloatArray, *, lowest: FloatArray, highest: FloatArray, tolerance: float) -> FloatArray:
    """The parameters with the smallest loss, (p,).

    Args:
        loss: The function to minimise.
        start: (p,), within the bounds.
        lowest, highest: Bounds, (p,); equal bounds fix a parameter.
        tolerance: Stop after a step that lowers the loss by less.
    """
    at = start
    value, gradient, information = loss(at)
    for _ in range(_STEPS):
        # A parameter at a bound stays there while the gradient pushes it outwards. It must be taken out of the
        # equations too, or the step of the others would count on a movement that the bound then prevents.
        is_fixed = (lowest == highest) | ((at <= lowest) & (gradient > 0)) | ((at >= highest) & (gradient < 0))
        free = np.flatnonzero(~is_fixed)
        step = np.zeros_like(at)
        step[free] = np.linalg.solve(information[np.ix_(free, free)], gradient[free])
        size = 1.0
        while size > _SMALLEST_STEP:
            candidate = np.clip(at - size * step, lowest, highest)
            result = loss(candidate)
            if result[0] < value:
                break
            size /= 2
        else:
            break  # no step lowers the loss: this is the minimum, up to rounding
        gain = value - result[0]
        at, (value, gradient, information) = candidate, result
        if gain < tolerance:
            break
    return at
